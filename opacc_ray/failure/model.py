"""How likely each example is to fail, learnt from the model's own signals and the few labels there are.

A handful of *experts*, Bayesian logistic regressions that look at more or fewer signals, are each fitted to the labels
(maximum a posteriori), and their predictions averaged by how well each explains them (Laplace's evidence):

    logit p_k(x) = β_k · x,   β_k ~ N(mean, scale_k²)           p(x) = Σ_k w_k p_k(x),   w_k ∝ prior_k · evidence_k

Before any label, p is the model's own word, tempered, for models are overconfident; the means in the table below say
how. One expert looks at nothing at all: where the signals turn out useless it takes over, and p is flat. Where failures
have another cause than doubt, say two classes swapped, the experts that give each predicted class its own rate take
over within some 30 labels. See D. J. C. MacKay, "The evidence framework applied to classification networks", Neural
Computation 4 (1992).

How far the labels speak for the signals at all is the *Bayes factor* of all other experts against the one that looks at
nothing: 1 without labels, large when the signals foresaw the failures, small when they are useless.

Outcomes may be scores: the likelihood is then a quasi-likelihood, its dispersion that of the labels.

Legend: N pool, k labels, d signals, f failure = 1 - outcome in [0, 1], p its expectation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.failure.signals import HALF_RANGE, PartSignals, PoolSignals, Signals, part_signals
from opacc_ray.parts.threads import in_threads
from opacc_ray.pool import Pool

_LOWEST = 1e-6  # p stays inside [_LOWEST, 1 - _LOWEST]
_LEAST_SHARE = 1e-6  # of an expert that is heard
_LEAST_PRIOR = 1e-3  # share of a lesson that is kept among all
_BLOCK = 1 << 13
_VALUES_PER_EXPERT = 4  # what p of one example costs, in values that are added


class Coefficient(NamedTuple):
    """Normal prior of the coefficients of one kind of signal."""

    mean: float
    scale: float


class Expert(NamedTuple):
    """What one regression looks at: the kinds of signal that have a coefficient."""

    prior: float
    coefficient: dict[str, Coefficient]

    @property
    def knows_doubt(self) -> bool:
        """Whether it looks at the confidence."""
        return "confidence" in self.coefficient or "rank" in self.coefficient


_CONFIDENCE = {"confidence": Coefficient(0.8, 0.2)}
_RANK = {"rank": Coefficient(2.5, 1.0)}
_BOTH = {"confidence": Coefficient(0.6, 0.2), "rank": Coefficient(0.8, 1.0)}
_SURPRISE = {"surprise": Coefficient(0.8, 1.0)}
_HINTS = {"prediction": Coefficient(0.0, 1.0), "direction": Coefficient(0.0, 0.45)}
_CLASSES = {"prediction": Coefficient(0.0, 3.0)}
_DIRECTIONS = {"direction": Coefficient(0.0, 2.7)}
_PRIOR = {"prior": Coefficient(0.8, 0.8)}
EXPERTS = (
    Expert(0.05, {}),
    Expert(0.05, _RANK),
    Expert(0.05, _CONFIDENCE),
    Expert(0.1, _BOTH | _SURPRISE),
    Expert(0.45, _BOTH | _SURPRISE | _HINTS),
    Expert(0.15, _CONFIDENCE | _SURPRISE | _CLASSES),
    Expert(0.15, _CLASSES | _DIRECTIONS),
    Expert(0.3, _PRIOR),
    Expert(0.3, _PRIOR | _BOTH | _SURPRISE | _HINTS),
)


class Fit(NamedTuple):
    """One expert, fitted."""

    evidence: float  # log
    intercept: float
    signal: NDArray[np.float64]  # (d,) coefficients
    of_class: NDArray[np.float64]  # (C,) what each predicted class adds
    leverage: NDArray[np.float64]  # (k,) by how much each label moves its own prediction


class Mixture(NamedTuple):
    """The experts that are heard, and their weights: all that p is made of, beside the signals."""

    weight: tuple[float, ...]  # (experts,)
    intercept: tuple[float, ...]  # (experts,)
    slope: NDArray[np.float64]  # (experts, d)
    level: NDArray[np.float64]  # (experts, C) the intercept and what each predicted class adds

    def failure(self, signals: PartSignals) -> NDArray[np.float64]:
        """p = Σ_k w_k p_k of all examples of a part, (n,), block by block.

        Term by term in a fixed order, and so the same wherever the example is: a matrix product would depend, in its
        last bits, on the rows around it.
        """
        average = np.zeros(signals.values.shape[1])

        def over(start: int, stop: int) -> None:
            for begin in range(start, stop, _BLOCK):
                rows = slice(begin, min(begin + _BLOCK, stop))
                self._add(
                    signals.values[:, rows], None if signals.classes is None else signals.classes[rows], average[rows]
                )

        in_threads(over, len(average), len(self.weight) * _VALUES_PER_EXPERT)
        return np.clip(average, _LOWEST, 1 - _LOWEST, out=average)

    def _add(
        self, values: NDArray[np.float64], classes: NDArray[np.integer] | None, average: NDArray[np.float64]
    ) -> None:
        """Σ_k w_k p_k of a few examples, values (d, b) and classes (b,), to ``average`` (b,)."""
        from scipy.special import expit

        term = np.empty(len(average))
        for weight, intercept, slope, level in zip(*self, strict=True):
            if classes is None or (level == intercept).all():
                logit = np.full(len(average), intercept)
            else:
                logit = level[classes]
            for place in np.flatnonzero(slope):
                logit += np.multiply(values[place], slope[place], out=term)
            expit(logit, out=logit)
            logit *= weight
            average += logit


class Forecast(NamedTuple):
    """What the labels so far say of the pool."""

    signals: PoolSignals
    mixture: Mixture
    bayes_factor: float  # of the experts that look at signals against the one that does not
    leverage: NDArray[np.float64]  # (k,) of each label, in [0, 1): by how much its own outcome moves its p

    @property
    def failure(self) -> NDArray[np.float64]:
        """p of all examples, (N,)."""
        return np.concatenate(self.signals.view.map(part_failure, self.signals.key, self.mixture))

    def at(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """p of the examples ``index`` (k,)."""
        return self.signals.view.take(part_failure_of, index, self.signals.key, self.mixture)


class Lesson(NamedTuple):
    """What one expert has learned from labels of other examples: the prior of its coefficients here."""

    prior: float
    kinds: tuple[str, ...]  # of the columns it looks at
    classes: NDArray[np.int64]  # those of its last columns
    mean: NDArray[np.float64]  # (d,)
    precision: NDArray[np.float64]  # (d, d)
    half_log_determinant: float  # of the precision


def predict_failure(
    signals: PoolSignals,
    labelled: NDArray[np.int64],
    failure: NDArray[np.float64],
    lessons: Sequence[Lesson] = (),
) -> Forecast:
    """p of every example, and how far to trust it, from the failures (k,) of the ``labelled`` (k,).

    ``lessons`` are of experts that have learned elsewhere; how much they count is for the labels here to say.
    """
    seen = _columns_of(signals.take(labelled))
    dispersion = _dispersion(failure)
    experts = distinct_experts(signals)
    fits = [_fit(expert, seen, failure, dispersion) for expert in experts]
    fits += [_fit_on(lesson, seen, failure, dispersion) for lesson in lessons]
    prior = np.array([expert.prior for expert in experts] + [lesson.prior for lesson in lessons])
    evidence = np.array([fit.evidence for fit in fits])
    weight = prior * np.exp(evidence - evidence.max())
    weight /= weight.sum()
    heard = np.flatnonzero(weight > _LEAST_SHARE)
    leverage = weight[heard] @ np.array([fits[k].leverage for k in heard])
    mixture = _mix([fits[k] for k in heard], weight[heard])
    return Forecast(signals, mixture, _bayes_factor(prior, evidence), leverage)


def _mix(fits: Sequence[Fit], weight: NDArray[np.float64]) -> Mixture:
    return Mixture(
        tuple(weight.tolist()),
        tuple(fit.intercept for fit in fits),
        np.stack([fit.signal for fit in fits]),
        np.stack([fit.of_class + fit.intercept for fit in fits]),
    )


def _bayes_factor(prior: NDArray[np.float64], evidence: NDArray[np.float64]) -> float:
    """Of all experts but the first against the first, which looks at nothing."""
    if len(prior) == 1:
        return 1.0
    ratio = np.exp(np.minimum(evidence[1:] - evidence[0], 300.0))
    return float(prior[1:] @ ratio / prior[1:].sum())


def distinct_experts(signals: PoolSignals) -> list[Expert]:
    """The experts that differ on a pool with these signals, the one that looks at nothing first.

    Equal ones add their priors; those whose signals are all absent have nothing to say.
    """
    merged: dict[tuple[tuple[str, Coefficient], ...], Expert] = {}
    for expert in EXPERTS:
        there = {kind: prior for kind, prior in expert.coefficient.items() if kind in signals.present}
        if expert.coefficient and (not there or ("prior" in expert.coefficient and "prior" not in there)):
            continue
        key = tuple(sorted(there.items()))
        before = merged[key].prior if key in merged else 0.0
        merged[key] = Expert(before + expert.prior, there)
    return list(merged.values())


class _Seen(NamedTuple):
    """The labelled examples as all experts see them."""

    design: NDArray[np.float64]  # (k, 1 + d + classes seen) a constant, the signals, one column per class
    kinds: tuple[str, ...]  # of the columns
    classes: NDArray[np.int64]  # that were seen
    signals: Signals


def _columns_of(seen: Signals) -> _Seen:
    """A class that no label has seen keeps its prior mean 0, exactly, and needs no column."""
    columns, names = [np.ones((seen.size, 1)), seen.values], np.empty(0, dtype=np.int64)
    if seen.classes is not None:
        names = np.unique(seen.classes[seen.classes >= 0])
        columns.append((seen.classes[:, None] == names).astype(np.float64))
    kinds = ("constant", *seen.kinds, *["prediction"] * len(names))
    return _Seen(np.hstack(columns), kinds, names, seen)


def _fit(expert: Expert, seen: _Seen, failure: NDArray[np.float64], dispersion: float) -> Fit:
    """The mode of the posterior, and Laplace's approximation of the evidence around it.

    log evidence = log p(f | β) + log p(β) - ½ log|H|, but for a constant that all experts share.
    """
    from opacc_ray.failure.newton import climb

    known = expert.coefficient | {"constant": _intercept(expert, seen.signals)}
    used = np.array([kind in known for kind in seen.kinds])
    mean, scale = np.array([known[kind] for kind in seen.kinds if kind in known]).T
    beta = np.ascontiguousarray(mean)
    design, precision = np.ascontiguousarray(seen.design[:, used]), np.diag(scale**-2)
    leverage = np.empty(len(failure))
    evidence = climb(design, failure, beta.copy(), precision, dispersion, beta, leverage) - float(np.log(scale).sum())
    whole = np.zeros(len(used))
    whole[used] = beta
    num = 1 + len(seen.signals.kinds)
    of_class = np.zeros(seen.signals.num_classes)
    of_class[seen.classes] = whole[num:]
    return Fit(evidence, float(whole[0]), whole[1:num], of_class, leverage)


def learn(
    signals: PoolSignals, labelled: Signals, failure: NDArray[np.float64], shares: Sequence[float], prior: float
) -> list[Lesson]:
    """What experts learn from the ``failure`` (k,) of ``labelled`` examples (k,) that are not of the pool.

    Each label counts as ``share`` of one, for each of several shares: the smaller, the less is taken for granted here.
    Experts count by how well they explain those labels. ``prior`` is of all lessons together.
    """
    seen, experts = _columns_of(labelled), distinct_experts(signals)
    lessons = []
    for share in shares:
        found = [_learn(expert, seen, failure, share) for expert in experts]
        evidence = np.array([item for item, _ in found])
        weight = np.array([expert.prior for expert in experts]) * np.exp(evidence - evidence.max())
        weight *= prior / len(shares) / weight.sum()
        heard = weight > _LEAST_PRIOR * prior
        lessons += [
            lesson._replace(prior=float(own))
            for own, (_, lesson), kept in zip(weight, found, heard, strict=True)
            if kept
        ]
    return lessons


def _learn(expert: Expert, seen: _Seen, failure: NDArray[np.float64], share: float) -> tuple[float, Lesson]:
    """The log evidence of an expert, and its lesson."""
    from opacc_ray.failure.newton import climb, slopes

    known = expert.coefficient | {"constant": _intercept(expert, seen.signals)}
    used = np.array([kind in known for kind in seen.kinds])
    mean, scale = np.array([known[kind] for kind in seen.kinds if kind in known]).T.copy()
    beta, design = mean.copy(), np.ascontiguousarray(seen.design[:, used])
    precision, dispersion = np.diag(scale**-2), _dispersion(failure) / share
    evidence = climb(design, failure, mean, precision, dispersion, beta, np.empty(len(failure)))
    evidence -= float(np.log(scale).sum())
    curvature = np.empty_like(precision)
    slopes(design, failure, mean, precision, dispersion, beta, curvature, np.empty(len(beta)))
    whole = np.tril(curvature) + np.tril(curvature, -1).T
    classes = seen.classes if "prediction" in expert.coefficient else seen.classes[:0]
    kinds = tuple(kind for kind, own in zip(seen.kinds, used, strict=True) if own)
    return evidence, Lesson(expert.prior, kinds, classes, beta, whole, 0.5 * float(np.linalg.slogdet(whole)[1]))


def _fit_on(lesson: Lesson, seen: _Seen, failure: NDArray[np.float64], dispersion: float) -> Fit:
    """As :func:`_fit`, from the prior of a lesson. What it knows of classes that no label has seen here is kept."""
    from opacc_ray.failure.newton import climb

    num = len(lesson.mean) - len(lesson.classes)
    kinds, classes = set(lesson.kinds), seen.signals.classes
    looked_at = [kind in kinds for kind in ("constant", *seen.signals.kinds)]
    columns = [seen.design[:, : len(looked_at)][:, looked_at]]
    if len(lesson.classes):
        assert classes is not None
        columns.append((classes[:, None] == lesson.classes).astype(np.float64))
    design, beta, leverage = np.ascontiguousarray(np.hstack(columns)), lesson.mean.copy(), np.empty(len(failure))
    evidence = climb(design, failure, lesson.mean, lesson.precision, dispersion, beta, leverage)
    signal, of_class = np.zeros(len(seen.signals.kinds)), np.zeros(seen.signals.num_classes)
    signal[[kind in kinds for kind in seen.signals.kinds]] = beta[1:num]
    of_class[lesson.classes] = beta[num:]
    return Fit(evidence + lesson.half_log_determinant, float(beta[0]), signal, of_class, leverage)


def _intercept(expert: Expert, seen: Signals) -> Coefficient:
    """For experts that know the doubt, its logit speaks for itself; for the others, the middle example fails as often
    as the model expects on average, or, without confidence, as often as a rough guess has it.
    """
    if expert.knows_doubt:
        return Coefficient(0.0, 1.0)
    surprise = expert.coefficient.get("surprise", Coefficient(0.0, 1.0)).mean * seen.kinds.count("surprise")
    middle = seen.expected_logit + HALF_RANGE * surprise  # a surprise in the middle is HALF_RANGE below the top
    return Coefficient(middle, 1.5 if "confidence" in seen.kinds else 3.0)


def part_failure(part: Pool, key: str, mixture: Mixture) -> NDArray[np.float64]:
    return mixture.failure(part_signals(part, key))


def part_failure_of(part: Pool, rows: NDArray[np.int64], key: str, mixture: Mixture) -> NDArray[np.float64]:
    own = part_signals(part, key)
    classes = None if own.classes is None else own.classes[rows]
    return mixture.failure(PartSignals(own.values[:, rows], classes))


def _dispersion(failure: NDArray[np.float64]) -> float:
    """Var(f) / (p(1 - p)): 1 for 0/1 outcomes, less for scores."""
    if np.isin(failure, (0.0, 1.0)).all():
        return 1.0
    mean = float(failure.mean())
    return float(np.clip(failure.var() / (mean * (1 - mean)), 0.01, 1.0))
