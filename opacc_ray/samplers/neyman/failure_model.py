"""Failure model: how likely each example is to fail, fitted to the model's own signals and the few labels there are.

A handful of *experts*, Bayesian logistic regressions that use more or fewer signals, are each fitted to the labels
(maximum a posteriori). Their predictions are averaged by how well each explains the labels (Laplace's evidence):

    logit p_k(x) = β_k · x,   β_k ~ N(mean, scale_k²)           p(x) = Σ_k w_k p_k(x),   w_k ∝ prior_k · evidence_k

Before any label, p is the model's confidence, tempered because models are overconfident; the means in the table below
set how much. One expert uses no signal: where the signals turn out useless it takes over, and p is flat. Where failures
have another cause than low confidence, such as two swapped classes, the experts with a rate for each predicted class
take over within some 30 labels. See D. J. C. MacKay, "The evidence framework applied to classification networks",
Neural Computation 4 (1992).

A judge says whether an answer is right. What it is worth is learned from the labels: two experts start from a middling
judge, and each judge of several has its share of that. Where it has not judged, its forecast stands for it, and a
coefficient of "judged" says how much more often the judged ones fail.

For the many labels of a history there is one more expert, in which the meaning of a signal differs from class to class.
It has a common slope and what each class adds to it, kept small by the prior until labels contradict, as in multilevel
regression (A. Gelman, J. Hill, "Data Analysis Using Regression and Multilevel/Hierarchical Models", 2007, 13). On the
few labels of an audit it overfits: ``docs/neyman.md``.

The *Bayes factor* B measures how much the labels support the signals at all. It compares all other experts with the
constant rate of failure that explains the labels best, for k labels with mean failure m and dispersion ψ:

    B = [Σ_e prior_e · evidence_e / Σ_e prior_e] / exp(k/ψ · [m ln m + (1 - m) ln(1 - m)])      e the other experts

It is 1 without labels, large when the signals predicted the failures, and small when they are useless. Its mean is at
most 1 wherever failures have nothing to do with the signals, whatever their rate. So it exceeds 1/α with probability α
at most (an e-value; V. Vovk, R. Wang, Annals of Statistics 49, 2021). Against expert 0, whose prior is centred at the
rate that the model states, B would also be large where only that rate is wrong.

Outcomes may be scores. The likelihood is then a quasi-likelihood, its dispersion that of the labels, and the mean of B
is at most 1 as far as a normal law describes their sums.

Legend: N pool, k labels, d signals, f failure = 1 - outcome in [0, 1], p its expectation.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.loops import in_threads
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY, History
from opacc_ray.samplers.neyman.signals import (
    HALF_RANGE,
    HEAP,
    HISTORY,
    JUDGE,
    JUDGED,
    LEAST_STATED,
    STATED,
    Signals,
    pool_signals,
    signals_of_others,
    with_judges,
)

_LOWEST = 1e-6  # p stays inside [_LOWEST, 1 - _LOWEST], or as far as the stated confidence goes
_LEAST_SHARE = 1e-6  # of an expert that is used
_BLOCK = 1 << 13
_VALUES_PER_EXPERT = 4  # what p of one example costs, in values that are added

SLOPES = "slopes"
"""Not a signal: the kind of coefficient by which the slopes of all signals differ between predicted classes."""


class Coefficient(NamedTuple):
    """Normal prior of the coefficients of one kind of signal."""

    mean: float
    scale: float


class Expert(NamedTuple):
    """One regression: the kinds of signal that have a coefficient in it.

    That of SLOPES is how much the coefficients of all signals differ between predicted classes.
    """

    prior: float
    coefficient: dict[str, Coefficient]


_HEAP = {HEAP: Coefficient(0.0, 2.0)}
_CONFIDENCE = {"confidence": Coefficient(0.8, 0.2)} | _HEAP
_RANK = {"rank": Coefficient(2.5, 1.0)}
_BOTH = {"confidence": Coefficient(0.6, 0.2), "rank": Coefficient(0.8, 1.0)} | _HEAP
_SURPRISE = {"surprise": Coefficient(0.8, 1.0)}
_HINTS = {"prediction": Coefficient(0.0, 1.0), "direction": Coefficient(0.0, 0.45)}
_CLASSES = {"prediction": Coefficient(0.0, 3.0)}
_DIRECTIONS = {"direction": Coefficient(0.0, 2.7)}
_SLOPES = {SLOPES: Coefficient(0.0, 1.0)}
_HISTORY = {HISTORY: Coefficient(1.0, 0.4)}
_JUDGES = {JUDGE: Coefficient(1.6, 1.0), JUDGED: Coefficient(0.0, 1.0)}
EXPERTS = (
    Expert(0.05, {}),
    Expert(0.05, _RANK),
    Expert(0.05, _CONFIDENCE),
    Expert(0.1, _BOTH | _SURPRISE),
    Expert(0.35, _BOTH | _SURPRISE | _HINTS),
    Expert(0.1, _BOTH | _SURPRISE | _HINTS | _SLOPES),
    Expert(0.15, _CONFIDENCE | _SURPRISE | _CLASSES),
    Expert(0.15, _CLASSES | _DIRECTIONS),
    Expert(2.0, _HISTORY),
    Expert(2.0, _HISTORY | _HINTS),
    Expert(1.0, _JUDGES),
    Expert(1.0, _JUDGES | _BOTH | _SURPRISE | _HINTS),
    Expert(2.0, _JUDGES | _HISTORY),
)

STATED_EXPERTS = (
    Expert(1e-9, {}),
    Expert(1.0, {STATED: Coefficient(1.0, 0.3), "prediction": Coefficient(0.0, 1.0)}),
)
"""Where rare classes are served: the stated confidence, with a level for each predicted class."""


class Fit(NamedTuple):
    """One expert, fitted."""

    evidence: float  # log
    coefficient: NDArray[np.float64]  # (1 + d, C) of the intercept and each signal, in each predicted class
    leverage: NDArray[np.float64]  # (k,) how much each label moves its own prediction


class Mixture(NamedTuple):
    """The experts that are used, and their weights: with the signals, all that p depends on."""

    weight: tuple[float, ...]  # (experts,)
    coefficient: NDArray[np.float64]  # (experts, 1 + d, C)

    def failure(self, signals: Signals) -> NDArray[np.float64]:
        """Return p = Σ_k w_k p_k of the examples of the signals, (n,), block by block.

        Term by term in a fixed order, and so the same wherever the example is: a matrix product would depend, in its
        last bits, on the rows around it.
        """
        average = np.zeros(signals.size)
        experts = [
            [(place, own if np.ptp(own) else own[0]) for place, own in enumerate(terms) if not place or own.any()]
            for terms in -self.coefficient
        ]
        used = {place for terms in experts for place, _ in terms[1:]}

        def over(start: int, stop: int) -> None:
            for begin in range(start, stop, _BLOCK):
                rows = slice(begin, min(begin + _BLOCK, stop))
                classes = None if signals.classes is None else signals.classes[rows]
                values = {place: signals.values[place - 1][rows] for place in used}
                self._add(experts, values, classes, average[rows])

        in_threads(over, signals.size, len(self.weight) * _VALUES_PER_EXPERT)
        lowest = LEAST_STATED if STATED in signals.kinds else _LOWEST
        return np.clip(average, lowest, 1 - lowest, out=average)

    def _add(
        self,
        experts: list[list[tuple[int, Any]]],
        values: dict[int, NDArray[np.float64]],
        classes: NDArray[np.integer] | None,
        average: NDArray[np.float64],
    ) -> None:
        """Add Σ_k w_k p_k of a few examples, ``values`` of (b,) and ``classes`` (b,), to ``average`` (b,).

        Each expert has the number of a signal, from 1 on, and its negative coefficient, or (C,) of them; 0: intercept.
        """
        odds, term = np.empty(len(average)), np.empty(len(average))

        def in_class(coefficient: Any) -> Any:  # mode clip needs no copy, and no class is outside
            if classes is None or np.ndim(coefficient) == 0:
                return coefficient
            return np.take(coefficient, classes, out=term, mode="clip")

        for weight, ((_, level), *slopes) in zip(self.weight, experts, strict=True):
            odds[:] = in_class(level)
            for place, slope in slopes:
                odds += np.multiply(values[place], in_class(slope), out=term)
            with np.errstate(over="ignore"):
                np.exp(odds, out=odds)  # (1 - p) / p, which may be infinite
            odds += 1
            average += np.divide(weight, odds, out=odds)


class Forecast(NamedTuple):
    """What the labels so far predict for the pool."""

    signals: Signals
    mixture: Mixture
    bayes_factor: float  # of the experts that use signals against the best constant rate
    leverage: NDArray[np.float64]  # (k,) of each label, in [0, 1): how much its own outcome moves its p

    @property
    def failure(self) -> NDArray[np.float64]:
        """Return p of all examples, (N,)."""
        return self.mixture.failure(self.signals)

    def at(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return p of the examples ``index`` (k,)."""
        return self.mixture.failure(self.signals.take(index))


def predict_failure(signals: Signals, labelled: NDArray[np.int64], failure: NDArray[np.float64]) -> Forecast:
    """Fit the model to the failures (k,) of the ``labelled`` (k,), and predict those of every example."""
    return Forecast(signals, *_learn(signals.take(labelled), failure, signals.present))


def _learn(
    labelled: Signals, failure: NDArray[np.float64], present: frozenset[str]
) -> tuple[Mixture, float, NDArray[np.float64]]:
    """Return mixture, Bayes factor and leverage from the ``failure`` (k,), of experts on the kinds ``present``."""
    dispersion, experts = _dispersion(failure), distinct_experts(present)
    fits = [_fit(expert, labelled, failure, dispersion) for expert in experts]
    prior = np.array([expert.prior for expert in experts])
    evidence = np.array([fit.evidence for fit in fits])
    weight = prior * np.exp(evidence - evidence.max())
    weight /= weight.sum()
    used = np.flatnonzero(weight > _LEAST_SHARE)
    leverage = weight[used] @ np.array([fits[k].leverage for k in used])
    whole = np.stack([fits[k].coefficient for k in used])
    distinct, place = np.unique(whole.reshape(len(used), -1), axis=0, return_inverse=True)  # without labels some agree
    weights = np.bincount(place.ravel(), weights=weight[used])
    mixture = Mixture(tuple(weights.tolist()), distinct.reshape(-1, *whole.shape[1:]))
    return mixture, _bayes_factor(prior, evidence, failure, dispersion), leverage


def _bayes_factor(
    prior: NDArray[np.float64], evidence: NDArray[np.float64], failure: NDArray[np.float64], dispersion: float
) -> float:
    """Return B of all experts but the first, which uses no signal."""
    from scipy.special import xlogy

    if len(prior) == 1:
        return 1.0
    num, failed = max(len(failure), 1), float(failure.sum())
    best_constant = float(xlogy(failed, failed / num) + xlogy(len(failure) - failed, 1 - failed / num)) / dispersion
    return float(prior[1:] @ np.exp(np.minimum(evidence[1:] - best_constant, 300.0)) / prior[1:].sum())


def distinct_experts(present: frozenset[str]) -> list[Expert]:
    """Return the experts that differ where these kinds of signals are ``present``, the one without signals first.

    Equal ones add their priors. Experts whose signals are all absent are left out, and so are those that use judges or
    a history where there is none.
    """
    merged: dict[tuple[tuple[str, Coefficient], ...], Expert] = {}
    for expert in STATED_EXPERTS if STATED in present else EXPERTS:
        there = {kind: prior for kind, prior in expert.coefficient.items() if kind in present}
        if expert.coefficient and (not there or {JUDGE, HISTORY} & (expert.coefficient.keys() - there.keys())):
            continue
        key = tuple(sorted(there.items()))
        before = merged[key].prior if key in merged else 0.0
        merged[key] = Expert(before + expert.prior, there)
    return list(merged.values())


def _fit(expert: Expert, seen: Signals, failure: NDArray[np.float64], dispersion: float) -> Fit:
    """Return the mode of the posterior, and Laplace's approximation of the evidence around it.

    A class without labels differs from the others by its prior mean 0, exactly.
    """
    from opacc_ray.samplers.neyman.compiled import climb

    names, group = np.empty(0, dtype=np.int64), np.zeros(seen.size, dtype=np.int64)
    if seen.classes is not None:
        names, group = np.unique(seen.classes, return_inverse=True)  # (G,) of which -1 is none of the pool's; (k,)
    kinds = ("constant", *seen.kinds)
    known = expert.coefficient | _shared(expert, kinds.count(JUDGE)) | {"constant": _intercept(expert, seen)}
    used = np.flatnonzero([kind in known for kind in kinds])
    mean, scale = np.array([known[kinds[place]] for place in used]).T.copy()
    apart = np.array(_scales_apart(expert, len(mean)) if len(names) else [])  # (r,)
    beta, gamma = mean.copy(), np.zeros((len(names) if len(apart) else 0, len(apart)))
    columns, leverage = [np.ones(seen.size), *seen.values], np.empty(len(failure))
    data = np.column_stack([columns[place] for place in used]), group, failure, dispersion
    evidence = climb(data, (mean, scale**-2, apart**-2), beta, gamma, leverage)
    coefficient = np.zeros((len(kinds), max(seen.num_classes, 1)))
    coefficient[used] = beta[:, None]
    if len(apart):
        there = names >= 0
        coefficient[np.ix_(used[: len(apart)], names[there])] += gamma[there].T
    return Fit(evidence, coefficient, leverage)


def _scales_apart(expert: Expert, num: int) -> list[float]:
    """Return how far the first of ``num`` coefficients differ between predicted classes."""
    if "prediction" not in expert.coefficient:
        return []
    slopes = [expert.coefficient[SLOPES].scale] * (num - 1) if SLOPES in expert.coefficient else []
    return [expert.coefficient["prediction"].scale, *slopes]


def _shared(expert: Expert, num: int) -> dict[str, Coefficient]:
    """Return the coefficient of each of ``num`` judges, which together have the weight of one."""
    if not num or JUDGE not in expert.coefficient:
        return {}
    mean, scale = expert.coefficient[JUDGE]
    return {JUDGE: Coefficient(mean / num, scale / num**0.5)}


def _intercept(expert: Expert, seen: Signals) -> Coefficient:
    """Return the prior of an expert's intercept.

    Where the expert uses the confidence, its logit sets the level. For the others, the middle example fails as often as
    the model, or a judge, expects on average, or, without either, as often as a rough guess: there a surprise is
    HALF_RANGE below its top.
    """
    if not expert.coefficient.keys().isdisjoint(("confidence", "rank", HISTORY, STATED)):
        return Coefficient(0.0, 1.0)
    surprise = expert.coefficient.get("surprise", Coefficient(0.0, 1.0)).mean * seen.kinds.count("surprise")
    scale = 1.5 if "confidence" in seen.kinds or JUDGE in seen.kinds else 3.0
    return Coefficient(seen.expected_logit + HALF_RANGE * surprise, scale)


def _dispersion(failure: NDArray[np.float64]) -> float:
    """Return Var(f) / (p(1 - p)): 1 for 0/1 outcomes, less for scores."""
    if np.isin(failure, (0.0, 1.0)).all():
        return 1.0
    mean = float(failure.mean())
    return float(np.clip(failure.var() / (mean * (1 - mean)), 0.01, 1.0))


def read_signals(view: View, num_directions: int, history: History = NO_HISTORY) -> Signals:
    """Return the signals of a pool, with its judges and what a history's labels predict; made once per view.

    The model is fitted to the labels of other examples as to labels of the pool. As they are many, it also learns what
    the signals mean in each predicted class. The logit of its p is one more signal of the pool: two experts start from
    it, and the other experts do not use it. So labels of the pool decide whether it holds, and a few correct its level
    and its slope. Judges are those of the history, and those that the pool has itself. Raises DataError if a feature of
    the pool or the history cannot be, or the hidden layers differ.
    """
    return view.once("signals", (num_directions, history), lambda: _with_history(view, num_directions, history))


def _with_history(view: View, num_directions: int, history: History) -> Signals:
    from scipy.special import logit

    judges = view.judges(history.judges)
    own = with_judges(pool_signals(view, num_directions), judges)
    if not history.labelled:
        return own
    own, given = own.add(HISTORY, np.zeros(view.size)), history.failures()
    others = _joined([signals_of_others(view, own, num_directions, pool, judges) for pool, _ in given])
    failure = np.concatenate([failures for _, failures in given])
    unknown = set() if any(judges.keys() & pool.judges.keys() for pool, _ in given) else {JUDGE, JUDGED}
    mixture, *_ = _learn(others, failure, own.present - unknown - {HISTORY} | {SLOPES})
    return own._replace(values=(*own.values[:-1], logit(mixture.failure(own))))


def _joined(parts: list[Signals]) -> Signals:
    """Return the signals of all parts, which have the same kinds."""
    values = tuple(np.concatenate(own) for own in zip(*(part.values for part in parts), strict=True))
    classes = [part.classes for part in parts if part.classes is not None]
    size = sum(part.size for part in parts)
    return parts[0]._replace(values=values, classes=np.concatenate(classes) if classes else None, size=size)
