"""Methods of others, for comparison only: a function each, and a line in :data:`PEERS` below.

A peer gets the confidence of every example, draws, looks up the outcomes of its draws, and returns value and interval
as in its paper. Those for the accuracy of the pool draw at random (PPI), in strata by the confidence (stratified), with
a probability of each example of its own (active inference) or one by one (LURE). Where a method trains a model, it is
the recalibrated confidence. Those for F-measures are in
:mod:`opacc_ray.extensions.study.f_measures`.
"""

from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from opacc_ray.extensions.study import f_measures
from opacc_ray.extensions.study.f_measures import Array, PeerEstimate, normal
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.samplers.auxiliary import kmeans_1d


class Question(NamedTuple):
    """What a peer for accuracies may read."""

    confidence: Array  # (N,) in [0, 1], the prediction of the outcome
    outcome: Array  # (N,); a peer reads only those that it draws


_STEPS, _CLOSE = 50, 1e-9


def fit_logistic(x: Array, outcome: Array, mean: Array, precision: Array) -> Array:
    """Return the mode of β (q,) by Newton's method, from x (n, q) and outcomes (n,); n may be 0.

    logit P(y = 1) = xβ        β_j ~ N(mean_j, 1/precision_j)
    """
    beta = mean
    for _ in range(_STEPS):
        p = expit(np.clip(x @ beta, -30, 30))
        gradient = x.T @ (outcome - p) - precision * (beta - mean)
        curvature = (x.T * np.maximum(p * (1 - p), 1e-12)) @ x + np.diag(precision)
        step = np.clip(np.linalg.solve(curvature, gradient), -1, 1)
        beta = beta + step
        if np.abs(step).max() < _CLOSE:
            break
    return beta


class Recalibrated:
    """The confidence recalibrated by labels: the model that peers train, because a peer has no other feature.

    logit P(y = 1) = a + b · logit c        (a, b) ~ N((0, 1), 1): without labels it is the confidence
    """

    def __init__(self, confidence: Array, outcome: Array) -> None:
        """Fit to both arrays, (n,)."""
        self.coefficients = fit_logistic(_columns(confidence), outcome, np.array([0.0, 1.0]), np.ones(2))

    def predict(self, confidence: Array) -> Array:
        """Return the probability (k,) that each outcome is 1."""
        return np.asarray(expit(np.clip(_columns(confidence) @ self.coefficients, -30, 30)))


def _columns(confidence: Array) -> Array:
    inside = np.clip(confidence, 1e-6, 1 - 1e-6)
    return np.column_stack([np.ones(len(inside)), np.log(inside / (1 - inside))])


PILOT, PILOT_LABELS = 0.3, 3
"""φ, and labels of a stratum in phase 1 on average at least."""


def stratified_proxy(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Stratified Neyman on a proxy: R. Fogliato, P. Patil, M. Monfort, P. Perona, "A Framework for Efficient Model
    Evaluation through Stratification, Sampling, and Estimation", ECCV 2024, arXiv 2406.07320.

        strata by k-means of the confidence;  n_h ∝ N_h √(c̄_h(1 - c̄_h));  θ̂ = Σ_h (N_h/N) ȳ_h

    with the variance Σ_h (N_h/N)² (1 - n_h/N_h) s_h²/n_h, s_h² that of a stratum's outcomes, and 10 strata. No
    stratum gets fewer than two labels, or more than it has.

    Legend: N pool, n labels, N_h and n_h those of stratum h, c confidence, y outcome.
    """
    confidence, outcome = asked.confidence, asked.outcome
    stratum = strata_of(confidence, min(NUM_STRATA, budget // 2))
    size = np.bincount(stratum)
    mean = np.bincount(stratum, weights=confidence) / size
    sizes = allocate(size, np.sqrt(np.clip(mean * (1 - mean), 0, None)), budget)
    index = np.concatenate(
        [rng.choice(np.flatnonzero(stratum == h), num, replace=False) for h, num in enumerate(sizes)]
    )
    return normal(*combined(size, stratum[index], outcome[index]), index, level)


def strata_of(confidence: Array, num: int) -> NDArray[np.int64]:
    """Return at most ``num`` strata (N,) of like confidence."""
    return _strata(np.asarray(confidence, np.float64).tobytes(), num)


@lru_cache(maxsize=4)
def _strata(confidence: bytes, num: int) -> NDArray[np.int64]:
    """Strata of the numbers in memory, which a study gives again and again."""
    return kmeans_1d(np.frombuffer(confidence), num)


def combined(size: NDArray[np.int64], stratum: NDArray[np.int64], y: Array) -> tuple[float, float]:
    """θ̂ and its variance, from N_h (strata,) and the stratum and outcome of each label (n,)."""
    value = variance = 0.0
    for h, num in enumerate(np.bincount(stratum, minlength=len(size))):
        share, own = size[h] / size.sum(), y[stratum == h]
        value += share * float(own.mean())
        variance += share**2 * (1 - num / size[h]) * float(own.var(ddof=1 if num > 1 else 0)) / num
    return float(value), float(variance)


def allocate(
    size: NDArray[np.int64], deviation: Array, budget: int, least: NDArray[np.int64] | int = 2
) -> NDArray[np.int64]:
    """n_h (strata,), ``budget`` in sum: the ``least`` as far as there are, then one by one where it helps most."""
    num = np.minimum(size, least)
    wanted = size * (deviation + 1e-9)
    while num.sum() < budget and (num < size).any():
        gain = np.where(num < size, wanted / np.sqrt(num * (num + 1.0)), -1.0)  # of one more label
        num[int(gain.argmax())] += 1
    return num


def two_phase(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Two-phase stratified sampling: J. Neyman, "Contribution to the Theory of Sampling Human Populations", JASA 33,
    1938.

        phase 1: a share φ = 0.3 of the labels, n_h ∝ N_h, to measure s_h
        phase 2: n_h ∝ N_h s_h for both phases together

    Estimate and variance are those of stratified sampling, as if n_h were fixed, with the strata by the confidence of
    Stratified Neyman on a proxy, 10 or fewer so that phase 1 has 3 labels in each on average. s_h² is
    p(1 - p) with p = (failures + 1)/(labels + 2), because a few labels often show no failure.

    Legend: N_h and n_h examples and labels of stratum h, s_h standard deviation of its outcomes.
    """
    pilot = max(round(PILOT * budget), 2)
    stratum = strata_of(asked.confidence, min(NUM_STRATA, max(pilot // PILOT_LABELS, 1)))
    size = np.bincount(stratum)
    order = [rng.permutation(np.flatnonzero(stratum == h)) for h in range(len(size))]
    first = allocate(size, np.ones(len(size)), pilot)
    failures = np.array([(1 - asked.outcome[own[:num]]).sum() for own, num in zip(order, first, strict=True)])
    share = (failures + 1) / (first + 2)
    total = allocate(size, np.sqrt(share * (1 - share)), budget, least=first)
    index = np.concatenate([own[:num] for own, num in zip(order, total, strict=True)])
    return normal(*combined(size, stratum[index], asked.outcome[index]), index, level)


FOLDS, BOOTSTRAPS = 10, 30
"""K and B of cross-prediction."""

NUM_STRATA, LABELS = 10, 10
"""Most strata, and labels of each on average at least."""


def ppi(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """PPI++: A. N. Angelopoulos, J. C. Duchi, T. Zrnic, "PPI++: Efficient Prediction-Powered Inference", arXiv
    2311.01453.

        θ̂ = λ · mean_unlabelled(c) + mean_labelled(y - λc)
        λ = Cov(y, c) / ((1 + n/M) · Var(c)), cut to [0, 1]
        v = λ² Var_unlabelled(c)/M + Var_labelled(y - λc)/n        θ̂ ± z√v

    The labels are a simple random sample; the M other examples of the pool are the unlabelled ones. The paper's
    samples are of an infinite population, and so is v.

    Legend: N pool, n labels, M = N - n, y outcome, c confidence.
    """
    confidence, outcome = asked.confidence, asked.outcome
    index = rng.choice(len(outcome), budget, replace=False)
    rest = np.ones(len(outcome), dtype=bool)
    rest[index] = False
    value, variance = power_tuned(outcome[index], confidence[index], confidence[rest])
    return normal(value, variance, index, level)


def power_tuned(y: Array, labelled: Array, unlabelled: Array) -> tuple[float, float]:
    """θ̂ and v; where nothing is unlabelled, those of the mean."""
    n, m = len(y), len(unlabelled)
    if m == 0:
        return float(y.mean()), float(y.var()) / n
    spread = float(np.var(np.concatenate([labelled, unlabelled]), ddof=1))
    covariance = float(np.mean((y - y.mean()) * (labelled - labelled.mean())))
    strength = min(max(covariance / ((1 + n / m) * spread), 0.0), 1.0) if spread else 0.0
    error = y - strength * labelled
    value = strength * float(unlabelled.mean()) + float(error.mean())
    return value, strength**2 * float(unlabelled.var()) / m + float(error.var()) / n


def cross_prediction(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Cross-prediction: T. Zrnic, E. J. Candès, "Cross-Prediction-Powered Inference", PNAS 121, 2024, arXiv 2309.16598.

        θ̂ = mean_unlabelled( (1/K) Σ_j f_j(x) ) + (1/n) Σ_j Σ_{i in fold j} (y_i - f_j(x_i))
        v = Var_unlabelled(f̄)/M + s²/n        θ̂ ± z√v

    The labels are a simple random sample in K = 10 folds, and f_j is trained on all but fold j. For v, B = 30 models
    are trained on bootstrap samples of n(1 - 1/K) labels: f̄ is their mean, and s² the mean variance of y - f over
    the labels that a model has not seen. Here f is the confidence, recalibrated.

    Legend: N pool, n labels, M = N - n, y outcome.
    """
    confidence, outcome = asked.confidence, asked.outcome
    index = rng.choice(len(outcome), budget, replace=False)
    rest = np.delete(confidence, index)
    c, y = confidence[index], outcome[index]
    predicted, error = np.zeros(len(rest)), 0.0
    for fold in np.array_split(np.arange(budget), FOLDS):
        model = Recalibrated(np.delete(c, fold), np.delete(y, fold))
        predicted += model.predict(rest) / FOLDS
        error += float((y[fold] - model.predict(c[fold])).sum())
    value = float(predicted.mean()) + error / budget
    return normal(value, _bootstrapped(c, y, rest, rng), index, level)


def _bootstrapped(c: Array, y: Array, rest: Array, rng: np.random.Generator) -> float:
    """Return v from labels (n,) and the unlabelled confidence (M,)."""
    n, mean, spread = len(y), np.zeros(len(rest)), []
    for _ in range(BOOTSTRAPS):
        taken: NDArray[np.int64] = rng.integers(n, size=n - n // FOLDS)
        model = Recalibrated(c[taken], y[taken])
        mean += model.predict(rest) / BOOTSTRAPS
        unseen = np.setdiff1d(np.arange(n), taken)
        spread.append(float(np.var(y[unseen] - model.predict(c[unseen]))))
    return float(mean.var()) / len(rest) + sum(spread) / len(spread) / n


def stratified_ppi(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Stratified PPI: A. Fisch, J. Maynez, R. A. Hofer, B. Dhingra, A. Globerson, W. W. Cohen, "Stratified
    Prediction-Powered Inference for Hybrid Language Model Evaluation", NeurIPS 2024, arXiv 2406.04291.

        θ̂ = Σ_h ω_h θ̂_h,  v = Σ_h ω_h² v_h        ω_h = N_h/N,  n_h ∝ ω_h √(mean c(1 - c))        θ̂ ± z√v

    with θ̂_h and v_h those of PPI++ in stratum h, so each has its own λ. Strata are equal shares of the pool by
    confidence: 10, or fewer so that a stratum has 10 labels on average. No stratum gets fewer than two labels.

    Legend: N pool, N_h and n_h examples and labels of stratum h, c confidence.
    """
    confidence, outcome = asked.confidence, asked.outcome
    num = min(NUM_STRATA, max(budget // LABELS, 1))
    strata = np.array_split(np.argsort(confidence, kind="stable"), num)
    doubt = confidence * (1 - confidence)
    deviation = np.sqrt([float(doubt[own].mean()) for own in strata])
    sizes = allocate(np.array([len(own) for own in strata]), deviation, budget)
    value, variance, chosen = 0.0, 0.0, []
    for members, size in zip(strata, sizes.tolist(), strict=True):
        order = rng.permutation(members)
        labelled, rest, share = order[:size], order[size:], len(members) / len(outcome)
        own, spread = power_tuned(outcome[labelled], confidence[labelled], confidence[rest])
        value, variance = value + share * own, variance + share**2 * spread
        chosen.append(labelled)
    return normal(value, variance, np.concatenate(chosen), level)


MIX, PARTS, BURN_IN = 0.5, 10, 0.2
"""τ, T, and the share of the labels of the burn-in."""


def active_inference(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Active statistical inference: T. Zrnic, E. J. Candès, "Active Statistical Inference", ICML 2024, arXiv
    2403.03208.

        π_i = τ · n/N + (1 - τ) · n · u_i/Σu,  τ = ½         u_i = √(c_i(1 - c_i))
        θ̂ = (1/N) Σ_i [ c_i + ξ_i (y_i - c_i)/π_i ]           ξ_i ~ Bernoulli(π_i), independent
        v = Var_i[ c_i + ξ_i (y_i - c_i)/π_i ] / N            θ̂ ± z√v

    u is the standard deviation of an outcome that is right with probability c; π is cut at 1. The number of labels is
    random, with mean n at most.

    Legend: N pool, n labels, y outcome, c confidence, u uncertainty, π probability to be labelled.
    """
    confidence, outcome = asked.confidence, asked.outcome
    return inverse_weighted(confidence, outcome, mixed(active(confidence, budget), budget, MIX), rng, level)


def active(confidence: Array, budget: float) -> Array:
    """n · u/Σu, (N,)."""
    uncertainty = np.sqrt(np.clip(confidence * (1 - confidence), 0, None)) + 1e-9
    return np.asarray(budget * uncertainty / uncertainty.sum(), dtype=np.float64)


def mixed(probability: Array, budget: float, mix: float) -> Array:
    """Probabilities with a share ``mix`` that is uniform, cut at 1."""
    return np.minimum(mix * budget / len(probability) + (1 - mix) * probability, 1.0)


def inverse_weighted(
    confidence: Array, outcome: Array, probability: Array, rng: np.random.Generator, level: float
) -> PeerEstimate:
    drawn = rng.random(len(outcome)) < probability
    term = confidence + np.where(drawn, (outcome - confidence) / probability, 0.0)
    return normal(float(term.mean()), float(term.var()) / len(term), np.flatnonzero(drawn), level)


def sequential_inference(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Sequential active inference: T. Zrnic, E. J. Candès, "Active Statistical Inference", ICML 2024, arXiv 2403.03208,
    with a model that is trained again while labels are collected.

        Δ_t = f_t(x_t) + ξ_t (y_t - f_t(x_t))/π_t        ξ_t ~ Bernoulli(π_t)        θ̂ = mean Δ_t,  v = Var(Δ_t)/N

    Examples come in a random order; f_t and π_t know only the labels before. Here the pool comes in T = 10 parts;
    before each, f is the confidence recalibrated by all labels so far, and π is that of active inference for the
    part's share of the labels that are left.

    Legend: N pool, y outcome, π probability to be labelled.
    """
    confidence, outcome = asked.confidence, asked.outcome
    order = rng.permutation(len(outcome))
    term, chosen, left = np.empty(len(order)), np.empty(0, dtype=np.int64), len(order)
    for part in np.array_split(order, PARTS):
        own = Recalibrated(confidence[chosen], outcome[chosen]).predict(confidence[part])
        share = max(budget - len(chosen), 0) * len(part) / left
        probability = mixed(active(own, share), share, MIX)
        drawn = rng.random(len(part)) < probability
        error = np.divide(outcome[part] - own, probability, out=np.zeros(len(part)), where=drawn)
        term[part] = own + error
        chosen, left = np.concatenate([chosen, part[drawn]]), left - len(part)
    return normal(float(term.mean()), float(term.var()) / len(term), chosen, level)


def robust_inference(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Robust active inference: P. Li, T. Zrnic, E. J. Candès, "Robust Sampling for Active Statistical Inference",
    NeurIPS 2025, arXiv 2511.08991.

        π^(ρ) = ρ · n/N + (1 - ρ) · n · u/Σu         ρ = argmin over [0, 1] of  Σ_i ê_i²/π_i^(ρ)

    so the draw goes from the uniform one to that of active inference as far as the errors ê of the confidence support
    it. Deviations: of the paths that the paper offers this is the straight one; ê² is a line in u² through the
    squared errors of a burn-in, a fifth of the labels drawn at random, and not below half their mean (the paper
    guards against the worst errors near the estimated ones); the estimate is that of the burn-in and that of the
    draw, weighted by their numbers of labels.

    Legend: N pool, n labels, c confidence, u uncertainty, π probability to be labelled.
    """
    confidence, outcome = asked.confidence, asked.outcome
    first = rng.choice(len(outcome), max(round(BURN_IN * budget), 2), replace=False)
    rest = np.setdiff1d(np.arange(len(outcome)), first)
    probability = _mixed_best(confidence, outcome, first, rest, budget - len(first))
    drawn = inverse_weighted(confidence[rest], outcome[rest], probability, rng, level)
    known = float(outcome[first].sum()) / len(outcome)
    share = len(rest) / len(outcome)
    term = (outcome[rest] - confidence[rest])[drawn.chosen] / probability[drawn.chosen]
    variance = float((term**2 * (1 - probability[drawn.chosen])).sum()) / len(outcome) ** 2
    value, own = power_tuned(outcome[first], confidence[first], confidence[rest])
    weight = len(first) / budget
    total = weight * value + (1 - weight) * (known + share * drawn.value)
    spread = weight**2 * own + (1 - weight) ** 2 * variance
    return normal(total, spread, np.concatenate([first, rest[drawn.chosen]]), level)


def _mixed_best(
    confidence: Array, outcome: Array, first: NDArray[np.int64], rest: NDArray[np.int64], budget: int
) -> Array:
    """π^(ρ) of the ``rest``, for the best ρ on a grid."""
    error = (outcome[first] - confidence[first]) ** 2
    doubt = confidence * (1 - confidence)
    spread = float(doubt[first].var())
    slope = float(np.mean((error - error.mean()) * (doubt[first] - doubt[first].mean()))) / spread if spread else 0.0
    expected = np.maximum(error.mean() + max(slope, 0.0) * (doubt[rest] - doubt[first].mean()), error.mean() / 2)
    paths = [mixed(active(confidence[rest], budget), budget, mix) for mix in np.linspace(0.05, 1, 20)]
    return min(paths, key=lambda probability: float((expected / probability).sum()))


FLOOR = 0.1


def lure(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """LURE: S. Farquhar, Y. Gal, T. Rainforth, "On statistical bias in active learning", ICLR 2021; J. Kossen, S.
    Farquhar, Y. Gal, T. Rainforth, "Active Testing: Sample-Efficient Model Evaluation", ICML 2021.

        θ̂ = (1/n) Σ_m v_m f_m        v_m = 1 + (N - n)/(N - m) · [ 1/((N - m + 1) q_m) - 1 ],  m = 1, …, n

    The m-th example is drawn from those that are left, with q proportional to its expected loss 1 - c; a tenth of the
    mean is the least, for q = 0 would be biased. The papers give no interval; here it is normal, with the variance of
    the v_m f_m as if they were independent.

    Legend: N pool, n labels, f = 1 - outcome, c confidence, q probability of a draw.
    """
    confidence, outcome = asked.confidence, asked.outcome
    size = np.maximum(1 - confidence, FLOOR * float((1 - confidence).mean()) + 1e-12)
    index = np.argsort(rng.exponential(size=len(size)) / size)[:budget]  # draws without replacement, in their order
    chosen = size[index]
    left = size.sum() - np.concatenate([[0.0], np.cumsum(chosen)[:-1]])
    weight = weights(chosen / left, len(size))
    loss = weight * (1 - outcome[index])
    return normal(1 - float(loss.mean()), float(loss.var(ddof=1)) / budget, index, level)


def weights(probability: Array, pool_size: int) -> Array:
    """v (n,), from the q of the draws (n,)."""
    n, m = len(probability), np.arange(1, len(probability) + 1)
    return np.asarray(
        1 + (pool_size - n) / np.maximum(pool_size - m, 1) * (1 / ((pool_size - m + 1) * probability) - 1)
    )


# -- the table -----------------------------------------------------------------------------------------------------

POOL, F_MEASURES = "the accuracy of the pool", "precision, recall and F-measures"
"""What a peer estimates."""


class Estimator(Protocol):
    def __call__(self, asked: Any, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
        """Draw ``budget`` examples, and estimate; ``asked`` are the `Positives` of a class for F-measures."""


class Peer(NamedTuple):
    """A method of others."""

    estimate: Estimator
    least: int = 1  # labels that its variance needs
    kind: str = POOL


PEERS: dict[str, Peer] = {
    "ppi++": Peer(ppi, least=2),
    "cross-ppi": Peer(cross_prediction, least=10),
    "strat-ppi": Peer(stratified_ppi, least=2),
    "active": Peer(active_inference),
    "active-refit": Peer(sequential_inference, least=2),
    "active-robust": Peer(robust_inference, least=3),
    "lure": Peer(lure, least=2),
    "stratified-proxy": Peer(stratified_proxy, least=2),
    "two-phase": Peer(two_phase, least=4),
    "sawade": Peer(f_measures.sawade, least=2, kind=F_MEASURES),
    "oasis": Peer(f_measures.oasis, least=2, kind=F_MEASURES),
    "activeeval": Peer(f_measures.activeeval, least=2, kind=F_MEASURES),
}
"""By name."""


def kind_of(metric: str, by: str | None) -> str | None:
    """Return which kind of peer estimates a metric; None if none does, as for slices."""
    if by is None and f_measures.weight_of(metric) is not None:
        return F_MEASURES
    return POOL if by is None and metric == ACCURACY else None
