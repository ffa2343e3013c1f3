"""Six numbers computed again from the formulas of the documentation, with other code, for 100 random audits each.

The formulas are those of the docstrings of ``opacc_ray/estimation``: ``sample.py`` and ``failures.py`` (weights of
rounds), ``totals.py`` (totals), ``distribution.py`` (their law), ``class_totals.py`` (recall), ``intervals.py`` and
``metrics/scores.py`` (Brier score). Of the engine are only the draws, with their π, and the failure model: for every
round the predicted failures p and the 1/π - 1 that its plan has today, and the leverage h of each label.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betainc, gammaincinv
from scipy.stats import beta, gamma, hypergeom, norm, t

import opacc_ray as opacc
from opacc_ray.estimation.estimate import KnownPool, Numbers, numbers_of
from opacc_ray.estimation.failures import fit_failures
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sample import join
from opacc_ray.metrics.metric import Metric, parse_metric
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Slicing

Array = NDArray[np.float64]
Ends = tuple[float, float]
CLASSES = ("ant", "bee", "cat")

pytestmark = pytest.mark.slow


class Audit(NamedTuple):
    """Rounds of N examples and n labels; what is known of each, and what the engine states."""

    predicted: NDArray[np.int64]  # (N,)
    confidence: Array  # (N,)
    part: NDArray[np.int64]  # (N,) slice
    index: NDArray[np.int64]  # (n,)
    round: NDArray[np.int64]  # (n,)
    pi: Array  # (n,)
    truth: NDArray[np.int64]  # (n,)
    p: Array  # (rounds, N) predicted failure
    odds: Array  # (rounds, N) 1/π - 1, 0 where the example had a label
    leverage: Array  # (n,)
    level: float
    stated: Numbers
    loss: Array | None = None  # (n,) of scores

    @property
    def failure(self) -> Array:
        return (self.truth != self.predicted[self.index]) * 1.0 if self.loss is None else self.loss


@cache
def make_audits(method: str, scored: bool = False, **given: str) -> list[Audit]:
    return [make_audit(seed, method, scored, **given) for seed in range(100)]


def make_audit(seed: int, method: str, scored: bool, **given: str) -> Audit:
    """A pool with few or many failures and a good or useless confidence, and 6 to 150 labels in up to four rounds."""
    rng = np.random.default_rng(seed)
    size, level = int(rng.integers(200, 900)), float(rng.choice([0.8, 0.95, 0.99]))
    confidence = 0.5 + 0.5 * rng.beta(rng.choice([1, 4]), 1, size)
    rate = [1 - confidence, np.full(size, 0.01), np.full(size, 0.4), (confidence > 0.9) * 1.0][rng.integers(4)]
    predicted = rng.choice(3, size, p=[0.6, 0.3, 0.1])
    truth = np.where(rng.random(size) < rate, (predicted + rng.integers(1, 3, size)) % 3, predicted)
    part = rng.choice(3, size, p=[0.7, 0.25, 0.05])
    view = view_of(opacc.Pool(confidence=confidence, prediction=predicted))
    budgets = rng.integers(3, rng.choice([10, 40]), rng.integers(2, 5)).tolist()
    loss = (truth != predicted) * 1.0
    if scored:  # of failures too, all or a part is lost
        loss = np.where(loss > 0, rng.choice([1.0, 0.3]), 0.1) * rng.uniform(0.5, 1, size)
    drawn, outcomes = draw_rounds(view, 1 - loss, budgets, seed, method, **given)
    index = np.concatenate([own.index for own in drawn])
    sample = join(drawn, outcomes, truth=truth[index])
    slices = {"s": Slicing(("many", "some", "few"), part.astype(np.int32))}
    stated = numbers_of(KnownPool(view, predicted, CLASSES, slices), sample, () if scored else [Metric("brier")])
    fit, p, odds, leverage = fit_failures(view, sample), np.zeros((len(drawn), size)), np.zeros((len(drawn), size)), []
    for own, (labelled, free) in enumerate(fit.rounds() if fit else []):
        left = np.setdiff1d(np.arange(size), free.before)
        p[own, left], odds[own, left] = free.failure, free.odds
        leverage.append(labelled.leverage)
    pi = np.concatenate([getattr(own.design, "inclusion_probability", np.ones(len(own))) for own in drawn])
    of_round = np.repeat(np.arange(len(drawn)), budgets)
    h = np.concatenate(leverage) if fit else np.zeros(len(index))
    known = predicted, confidence, part, index, of_round, pi, truth[index], p, odds, h, level, stated
    return Audit(*known, loss[index] if scored else None)


def round_weights(a: Audit) -> Array:
    """w_t ∝ ∛(n_1 + … + n_t) / u_t."""
    size, num = len(a.predicted), np.bincount(a.round).astype(float)
    left = size - np.cumsum(num) + num
    weight = np.cbrt(np.cumsum(num)) / ((left / size) ** 2 * (1 / num - 1 / left))
    return np.asarray(weight / weight.sum())


def wilson(x: float, size: float, quantile: float) -> Ends:
    """The shares θ with |x - θ| <= quantile · √(θ(1 - θ)/size)."""
    square = quantile**2 / size
    half = np.sqrt(square * x * (1 - x) + square**2 / 4)
    return (x + square / 2 - half) / (1 + square), (x + square / 2 + half) / (1 + square)


def clopper_pearson(events: float, num: float, level: float) -> Ends:
    low = beta.ppf((1 - level) / 2, events, num - events + 1) if events > 0 else 0.0
    return low, beta.ppf((1 + level) / 2, events + 1, num - events) if events < num else 1.0


class PageTotal:
    """A total of the page "Totals over known parts of the pool": v (n,) with v̂ = p·likely over the part ``inside``."""

    def __init__(self, a: Audit, v: Array, likely: Array, inside: NDArray[np.bool_]) -> None:
        n, size, rounds = len(a.index), inside.sum(), range(len(a.p))
        trust = min(max((n - 12) / 20, 0), 1)
        forecast, every = a.p * likely, a.p[a.round, a.index]
        phi = 1.0
        if a.loss is not None:
            square, spread = (a.loss - every) ** 2 / (1 - a.leverage), every * (1 - every)
            phi = min((n * (square / a.pi).sum() / (spread / a.pi).sum() + 5) / (n + 5), 1)
        V = phi * np.array([(forecast * (1 - forecast) * a.odds)[k][inside].sum() for k in rounds]) / size**2
        weight = 1 / np.maximum(V, 1e-300)
        weight = trust * weight / weight.sum() + (1 - trust) * round_weights(a)
        here = inside[a.index]
        known, free = 0.0, 0.0
        for k in rounds:
            before = here & (a.round < k)
            rest = inside.copy()
            rest[a.index[a.round < k]] = False
            known += weight[k] * (v[before].sum() + forecast[k][rest].sum()) / size
            free += weight[k] * rest.sum() / size
        own = a.round[here]
        v, vhat, pi, h = v[here], forecast[a.round, a.index][here], a.pi[here], a.leverage[here]
        stands = weight[own] / (size * pi)  # for a share of the part
        effect = stands * np.sqrt(1 - pi)
        error = (v - vhat) / np.sqrt(1 - h)
        self.size, self.num, self.events = size, int(here.sum()), v.sum()
        self.theta, self.failures = known + (stands * (v - vhat)).sum(), a.failure.sum()
        z0 = ((a.failure - every) / np.sqrt(1 - a.leverage)).sum() ** 2 / (phi * every * (1 - every)).sum()
        z = error.sum() ** 2 / max(phi * (vhat * (1 - vhat)).sum(), 1e-300)
        c = self.c = max(0, 1 - z / 4) * max(0, 1 - z0 / 0.5)
        m, M, V_all = self.num, (effect**2 * error**2).sum(), (weight**2 * V).sum()
        events = 2 * (vhat * effect**2).sum() ** 2 / max((vhat * effect**4).sum(), 1e-300)
        self.W, above = (max((own * M + 20 * c * V_all) / max(own + 20 * c, 1e-300), V_all / 2) for own in (m, events))
        self.W_above = max(self.W, above) if inside.all() and a.loss is None else self.W
        self.half = 0.5 * (vhat * effect).sum() / max(vhat.sum(), 1e-300)
        self.unlike = 0.5 * (vhat * effect**2).sum() / max(vhat.sum(), 1e-300) * (a.loss is not None)
        self.expected, self.stands = vhat.sum(), stands
        self.share = (stands * v).sum() / max(stands.sum(), 1e-300)
        order = np.argsort(-stands, kind="stable")
        self.remote = order[np.cumsum(vhat[order]) < 1]
        self.v = v
        unlabelled = inside.copy()
        unlabelled[a.index] = False
        unseen = forecast[-1][unlabelled].sum()
        ratio = (vhat * effect).sum() / max((vhat * effect**2).sum(), 1e-300)
        met, foreseen = ratio * (v * effect).sum(), ratio * (vhat * effect).sum()
        by_median = unseen * gammaincinv(met + 0.5, 0.5) / (foreseen + 0.5)
        theta_l = known + free * (stands * (v - vhat)).sum() / max(stands.sum(), 1e-300)
        self.stated = [self._moved(trust, (self.events + own) / size, theta_l) for own in (unseen, by_median)]

    def _moved(self, trust: float, theta_p: float, theta_l: float) -> float:
        apart, m = theta_p - self.theta, self.num
        towards = 0.5 * self.c * min(1, self.W / max(apart**2, 1e-300)) * apart
        return self.theta + trust * (towards + (1 - self.c) * m / (m + 1) * (theta_l - self.theta)) * (m < self.size)

    def interval(self, level: float) -> Ends:
        m, none, every = self.num, self.events == 0, self.events >= self.num
        if m in (0, self.size):
            return (0.0, 1.0) if m == 0 else (self.events / m, self.events / m)
        quantile, tail = t.ppf((1 + level) / 2, m + 19), (1 - level) / 2
        low, high = 0.0, 1.0
        if not none and self.theta > 0:
            x = min(self.theta, 1.0)
            size = self._size(x, self.W)
            low = wilson(x, size, quantile)[0]
            if x < 1:
                size *= (norm.ppf((1 + level) / 2) / quantile) ** 2
                low = min(low, mid_p_low(x * size, size, tail))
        if not every:
            x = min(max(self.theta, 0) + self.half, 1)
            high = wilson(x, self._size(x, self.W_above), quantile)[1]
            far = self.stands[self.remote]
            if len(far):
                r = far.sum() ** 2 / (far**2).sum()
                hidden = far.sum() * clopper_pearson(r * (far @ self.v[self.remote]) / far.sum(), r, level)[1]
                high = max(high, self.theta + hidden / min(1 + self.c * self.failures, 10))
        r = min(self.stands.sum() ** 2 / (self.stands**2).sum(), m)
        bound = (1 - (r - 1) / (2 * self.size)) * clopper_pearson(0, r, level)[1]
        alone = (0.0, bound) if none else (1 - bound, 1.0) if every else clopper_pearson(self.share * r, r, level)
        if self.c == 0:
            low, high = alone
        elif (none and self.expected < 1) or (every and m - self.expected < 1):
            exact = clopper_pearson(0 if none else m, m, level)
            low, high = min(low, exact[0]), max(high, exact[1])
        else:
            if not (none or every):
                alone = wilson(self.share, r, norm.ppf((1 + level) / 2))
            low, high = (
                own + np.exp(-m / 20) * max(out * (end - own), 0) * out
                for own, end, out in ((low, alone[0], -1), (high, alone[1], 1))
            )
        least, most = self.events / self.size, 1 - (m - self.events) / self.size
        return min(max(low, least), most), max(min(high, most), least)

    def _size(self, x: float, variance: float) -> float:
        nearest = min(self.half, 0.5)
        x = min(max(x, nearest), 1 - nearest)
        return max(x * (1 - x) / max(variance + self.unlike, 1e-300), 1e-3)

    def quantiles(self) -> Array:
        """48 quantiles, and 192 between."""
        ends = np.array([self.interval(1 - (2 * k + 1) / 48) for k in range(24)])
        middle = [(2 * np.arange(num) + 1) / (2 * num) for num in (192, 48)]
        return np.interp(*middle, np.concatenate([ends[:, 0], ends[::-1, 1]]))


def mid_p_low(count: float, size: float, tail: float) -> float:
    def excess(share: float) -> float:
        return float(betainc(count, size - count + 1, share) + betainc(count + 1, size - count, share)) / 2 - tail

    return float(brentq(excess, 0, count / size, xtol=1e-12)) if excess(count / size) > 0 else count / size


def same(found: Estimate, value: float, low: float, high: float) -> None:
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-6)
    assert found.value == pytest.approx(min(max(value, low), high), abs=1e-6)


def test_accuracy_by_rounds_of_neyman() -> None:
    for a in make_audits("neyman"):
        size = len(a.predicted)
        total = PageTotal(a, a.failure, np.ones(size), np.ones(size, dtype=bool))
        low, high = total.interval(a.level)  # of failures; the accuracy of N examples is a multiple of 1/N
        low, high = np.floor((1 - high) * size + 1e-6) / size, np.ceil((1 - low) * size - 1e-6) / size
        same(a.stated.estimate(Metric("accuracy"), a.level), 1 - total.stated[0], low, high)


@pytest.mark.parametrize("scored", [False, True])
def test_accuracy_of_slices(scored: bool) -> None:
    for a in make_audits("neyman", scored):
        stated = a.stated.by(Metric("accuracy"), "s", a.level)
        for code, name in enumerate(stated):
            total = PageTotal(a, a.failure, np.ones(len(a.part)), a.part == code)
            low, high = total.interval(a.level)
            same(stated[name], 1 - total.stated[0], 1 - high, 1 - low)


def test_accuracy_of_scores() -> None:
    for a in make_audits("neyman", True):
        total = PageTotal(a, a.failure, np.ones(len(a.predicted)), np.ones(len(a.predicted), dtype=bool))
        low, high = total.interval(a.level)
        same(a.stated.estimate(Metric("accuracy"), a.level), 1 - total.stated[0], 1 - high, 1 - low)


def test_recall_of_a_class() -> None:
    for a in make_audits("neyman"):
        own = a.predicted == 1
        wrong = a.truth != a.predicted[a.index]
        failed, of_class = (
            np.bincount(a.predicted[a.index][which], minlength=3) for which in (wrong, wrong & (a.truth == 1))
        )
        rival = (5 / 2 + of_class) / (5 + failed)  # r(1 | ŷ)
        failures = PageTotal(a, a.failure, np.ones(len(own)), own)
        missed = PageTotal(a, (wrong & (a.truth == 1)) * 1.0, rival[a.predicted], ~own)

        def recall(failures: Array, missed: Array, P: int = own.sum(), rest: int = (~own).sum()) -> Array:
            tp, fn = P * (1 - failures), rest * missed
            return np.where(tp + fn > 0, tp / np.maximum(tp + fn, 1e-300), 1.0)

        value = recall(*np.clip([failures.stated[0], missed.stated[1]], 0, 1))
        if (1 - a.level) / 2 >= 1 / 48:
            pairs = recall(failures.quantiles()[:, None], missed.quantiles())
            ends = np.quantile(pairs, [(1 - a.level) / 2, (1 + a.level) / 2]).tolist()
        else:  # Zou and Donner
            points = np.clip([failures.theta, missed.theta], 0, 1)
            at = float(recall(*points))
            moved = [recall(np.array(failures.interval(a.level)), points[1]) - at]
            moved += [recall(points[0], np.array(missed.interval(a.level))) - at]
            ends = [max(at - np.hypot(*(-min(own.min(), 0) for own in moved)), 0)]
            ends += [min(at + np.hypot(*(max(own.max(), 0) for own in moved)), 1)]
        same(a.stated.estimate(parse_metric("recall@bee"), a.level), float(value), *ends)


def test_accuracy_of_a_simple_random_sample() -> None:
    for a in make_audits("srs"):
        size, num, right = len(a.predicted), len(a.index), int(len(a.index) - a.failure.sum())
        shares, tail = np.arange(right, size - num + right + 1), (1 - a.level) / 2
        held = (hypergeom.sf(right - 1, size, shares, num) > tail) & (hypergeom.cdf(right, size, shares, num) > tail)
        same(a.stated.estimate(Metric("accuracy"), a.level), right / num, *(shares[held][[0, -1]] / size))


@pytest.mark.parametrize(("method", "given"), [("srs", {}), ("neyman", {"combine": "rounds"})])
def test_brier_score_by_the_design_alone(method: str, given: dict[str, str]) -> None:
    for a in make_audits(method, **given):
        size, c, f = len(a.predicted), a.confidence, a.failure
        x, base = (2 * c[a.index] - 1) * f, ((1 - c) ** 2).mean()
        rounds = [np.arange(len(f))] if method == "srs" else [np.flatnonzero(a.round == k) for k in range(len(a.p))]
        weight = np.ones(1) if method == "srs" else round_weights(a)
        mean, other, variance, of_rest, largest = np.zeros(5)
        for w, own in zip(weight, rounds, strict=True):
            n, before = len(own), np.arange(own[0])
            left = size - len(before)
            pi = np.full(n, n / left) if method == "srs" else a.pi[own]
            mean += w / size * (x[before].sum() + (x[own] / pi).sum())
            other += w / size * ((1 - x[before]).sum() + ((1 - x[own]) / pi).sum())
            factor = (1 - pi) / (n * max(n - 1, 1))
            for values, is_rest in ((x[own], False), (1 - x[own], True)):
                y = n * values / (left * pi)
                spread = (w * left / size) ** 2 * factor @ (y - factor @ y / factor.sum()) ** 2
                variance, of_rest = variance + spread * (not is_rest), of_rest + spread * is_rest
            largest = max(largest, (w / (size * pi) * np.sqrt(1 - pi)).max())
        low, high = weighted_clopper_pearson(mean, variance, largest, a.level)
        if mean > other + 1e-9:
            high = max(high, 1 - weighted_clopper_pearson(other, of_rest, largest, a.level)[0])
        same(a.stated.estimate(Metric("brier"), a.level), base + mean, base + low, min(base + high, 1))


def weighted_clopper_pearson(y: float, variance: float, w: float, level: float) -> Ends:
    def of_beta(mean: float, spread: float, share: float) -> float:
        num = mean * (1 - mean) / spread - 1
        return float(beta.ppf(share, mean * num, (1 - mean) * num)) if num > 0 else 1.0

    tail, shrink = (1 - level) / 2, (1 + w) ** 2 * (1 + 2 * w)
    mean, spread = y / (1 + w), (variance + (w * y) ** 2) / shrink
    low = min(gamma.ppf(tail, mean**2 / spread) * spread / mean, of_beta(mean, spread, tail)) if y > 0 else 0.0
    return low, of_beta((y + w) / (1 + w), (variance + (w * (1 - y)) ** 2) / shrink, 1 - tail)
