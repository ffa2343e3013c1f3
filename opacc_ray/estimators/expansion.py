"""What a labelled sample says of any variable of the pool, by the design that drew it.

Accuracy is a mean over the pool. Accuracy in a class, the cells of a confusion matrix and the difference of two models
are such means too, or ratios of them. Every design here estimates the mean of a variable x in one form, linear in x:

    x̂ = Σ_k a_k z_k        v(x̂) = Σ_k c_k (z_k - z̄)²        z̄ the mean of z, weighted by c, over the group of k

    design                    a_k        z_k                             c_k                           group
    simple random             1/n        x_k                             (1 - n/N) / (n(n - 1))        all
    stratified                P_h/n_h    x_k                             P_h²(1 - f_h) / (n_h(n_h-1))  stratum
    Hansen-Hurwitz            1/n        x_k / (N p_k)                   1 / (n(n - 1))                all
    Rao-Hartley-Cochran       Q_k        x_k / (N p_k)                   F · Q_k                       all
    step by step (DeepEST)    1/n        (Σ_{j<k} x_j + x_k / q_k) / N   1 / (n(n - 1))                all
    inclusion probability     1/n        n x_k / (N π_k)                 (1 - π_k) / (n(n - 1))        all
    replicates                N_k/N      x̂ of replicate k                1 / (R(R - 1))                all

For outcomes these are the estimates of `simple.py`, `stratified.py`, `hansen_hurwitz.py` and `martingale.py` (F stands
there) and their variances; `difference.py` adds predictions of the outcome, which other variables do not have. x̂ is
unbiased, and so is v where the design's own variance is. A stratum with one label shows no spread: it borrows that of
the stratum next to it (W. G. Cochran, "Sampling Techniques", 1977, 5A.12, collapsed strata). Rounds combine to

    x̂ = Σ_t w_t · [ Σ_labelled before x / N + (1 - N_before / N) · x̂_t ]        w_t as in `difference.py`

If the model's prediction of *every* example of the pool is known, so is the share W_c of each predicted class, and
:func:`calibrate` gives each label the weight that makes the sample agree with it (poststratification; C.-E. Särndal,
B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 7.6): w_k · W_c / Ŵ_c, and v of what is left when every
class's mean is taken off. Its bias is of order 1/n. Classes with fewer than five labels are taken together.

Legend: N pool, n labels or draws, N_h and n_h those of stratum h, P_h = N_h/N, f_h = n_h/N_h, R replicates.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.own import by_method
from opacc_ray.estimators.replicates import each
from opacc_ray.estimators.rounds import common_pool, labelled_before, round_weights
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

_FEWEST = 5
"""Labels a predicted class needs for a weight of its own."""


class Expansion(Protocol):
    """How n labels speak for the pool. Variables are (n,) or, several at once, (n, q), in the order of the labels."""

    @property
    def weight(self) -> Array:
        """(n,): x̂ = Σ weight · x."""

    @property
    def reach(self) -> float:
        """By how much a label moves the estimate at most; 0 if the whole pool is labelled."""

    @property
    def reason(self) -> str | None:
        """Why it is not design-based."""

    def mean(self, x: Array) -> Any:
        """x̂, for each variable."""

    def variance(self, x: Array) -> Any:
        """v(x̂), for each variable."""


class _Terms(NamedTuple):
    """One round's z, a and c."""

    of: Callable[[Array], Array]  # z of x
    share: Array  # (k,) a
    spread: Array  # (k,) c
    weight: Array  # (n,)
    reach: float
    group: NDArray[np.int64] | None = None  # (k,); None: all are one

    def mean(self, x: Array) -> Array:
        return self.share @ self.of(x)

    def variance(self, x: Array) -> Array:
        z = self.of(x)
        group = np.zeros(len(z), dtype=np.int64) if self.group is None else self.group
        member = (group == np.arange(group.max() + 1)[:, None]) * self.spread  # (groups, k)
        centre = (member / np.maximum(member.sum(axis=1, keepdims=True), 1e-300)) @ z
        return self.spread @ (z - centre[group]) ** 2


@dataclass(frozen=True, eq=False)
class _Rounds:
    """Rounds of one pool; the labels of each stand at ``places`` of the variables."""

    terms: tuple[_Terms, ...]
    places: tuple[slice, ...]
    before: tuple[NDArray[np.int64], ...]  # of each round: places of the labels that were there when it was drawn
    factor: tuple[float, ...]  # w_t
    pool_size: int
    reason: str | None

    @property
    def weight(self) -> Array:
        weight = np.concatenate([self._left(t) * terms.weight for t, terms in enumerate(self.terms)])
        for factor, before in zip(self.factor, self.before, strict=True):
            weight[before] += factor / self.pool_size
        return weight

    @property
    def reach(self) -> float:
        return max(self._left(t) * terms.reach for t, terms in enumerate(self.terms))

    def mean(self, x: Array) -> Any:
        total: Any = 0.0
        for t, (terms, place) in enumerate(zip(self.terms, self.places, strict=True)):
            known = x[self.before[t]].sum(axis=0) / self.pool_size
            total = total + self.factor[t] * known + self._left(t) * terms.mean(x[place])
        return total

    def variance(self, x: Array) -> Any:
        rounds = enumerate(zip(self.terms, self.places, strict=True))
        return sum(self._left(t) ** 2 * terms.variance(x[place]) for t, (terms, place) in rounds)

    def _left(self, t: int) -> float:
        return self.factor[t] * (1 - len(self.before[t]) / self.pool_size)


@dataclass(frozen=True, eq=False)
class _Calibrated:
    """``base`` with weights times ``ratio`` (n,), which is one number in each ``group`` (n,)."""

    base: Expansion
    ratio: Array
    group: NDArray[np.int64]

    @property
    def weight(self) -> Array:
        return self.base.weight * self.ratio

    @property
    def reach(self) -> float:
        return self.base.reach

    @property
    def reason(self) -> str | None:
        return self.base.reason

    def mean(self, x: Array) -> Any:
        return self.base.mean(_times(self.ratio, x))

    def variance(self, x: Array) -> Any:
        member = (self.group == np.arange(self.group.max() + 1)[:, None]) * self.base.weight  # (groups, n)
        centre = (member / member.sum(axis=1, keepdims=True)) @ x
        return self.base.variance(_times(self.ratio, x - centre[self.group]))


def expand(rounds: Selection | Sequence[Selection] | Expansion) -> Expansion:
    """How the labels of a selection, or of all rounds in their order, speak for the pool.

    Raises
    ------
    LabelError
        If the rounds are of different pools, a round is missing that a later one builds on, or a stratum has no label.
    """
    if not isinstance(rounds, Selection | Sequence):
        return rounds
    selections = [rounds] if isinstance(rounds, Selection) else list(rounds)
    pool_size = common_pool(selections)
    ends = np.cumsum([len(selection) for selection in selections])
    places = [slice(int(end) - len(selection), int(end)) for selection, end in zip(selections, ends, strict=True)]
    return _Rounds(
        terms=tuple(_terms(selection) for selection in selections),
        places=tuple(places),
        before=tuple(labelled_before(selections)),
        factor=tuple(round_weights([len(selection) for selection in selections]).tolist()),
        pool_size=pool_size,
        reason=next((reason for selection in selections if (reason := _reason(selection))), None),
    )


def calibrate(
    rounds: Selection | Sequence[Selection] | Expansion, prediction: NDArray[Any], pool_count: Mapping[Any, int]
) -> Expansion:
    """The same labels, made to agree with how often the model predicts each class in the whole pool.

    Parameters
    ----------
    rounds : a selection or all rounds in their order
    prediction : (n,) predicted class of each label, over all rounds
    pool_count : examples of the pool by predicted class

    Raises
    ------
    LabelError
        If a label has a predicted class that the pool has not.
    """
    base = expand(rounds)
    seen, code, num = np.unique(prediction, return_inverse=True, return_counts=True)
    unknown = [name for name in seen.tolist() if pool_count.get(name, 0) < 1]
    if unknown:
        raise LabelError(f"a label has the predicted class {unknown[0]!r}, which pool_count does not count")
    own = num >= _FEWEST if (num >= _FEWEST).any() else np.ones(len(num), dtype=bool)
    group_of_class = np.where(own, np.cumsum(own) - 1, own.sum())
    group = group_of_class[code]  # (n,)
    share = np.zeros(int(own.sum()) + 1)
    share[:-1] = [pool_count[name] for name in seen[own].tolist()]
    share[-1] = sum(pool_count.values()) - share.sum()  # classes with few labels or none
    found = np.bincount(group, weights=base.weight, minlength=len(share))
    share *= found > 0
    ratio = share / share.sum() / np.where(found > 0, found, 1)
    return _Calibrated(base, ratio[group], group)


def _terms(selection: Selection) -> _Terms:
    """By what the selection stores of its design."""
    design, n = selection.design, len(selection)
    if "replicate" in design:
        return _replicates(selection)
    if "stratum" in design:
        return _stratified(design["stratum"], np.array(selection.facts["stratum_size"], dtype=np.float64))
    if "group_probability" in design:
        return _rao_hartley_cochran(design["draw_probability"], design["group_probability"], design["group_size"])
    if "num_before" in design:
        return _step_by_step(design["draw_probability"], design["num_before"], selection.facts["population"])
    if "draw_probability" in design:
        return _hansen_hurwitz(design["draw_probability"], selection.facts["population"])
    if "inclusion_probability" in design:
        population = selection.pool_size - len(selection.facts["labelled_before"])
        return _inclusion(design["inclusion_probability"] * (n / selection.facts["num_drawn"]), population)
    return _simple(n, 0.0 if selection.parameters.get("replacement") else n / selection.pool_size)


def _simple(n: int, fraction: float) -> _Terms:
    share = np.full(n, 1 / n)
    spread = np.full(n, (1 - fraction) / (n * max(n - 1, 1)))
    return _Terms(lambda x: x, share, spread, share, math.sqrt(1 - fraction) / n)


def _replicates(selection: Selection) -> _Terms:
    parts, places = zip(*each(selection), strict=True)
    terms = [_terms(part) for part in parts]
    num, size = len(parts), np.array([part.pool_size for part in parts])
    share = size / size.sum()
    weight = np.zeros(len(selection))
    for own, place, factor in zip(terms, places, share, strict=True):
        weight[place] = factor * own.weight

    def of(x: Array) -> Array:
        return np.stack([own.mean(x[place]) for own, place in zip(terms, places, strict=True)])

    reach = max(float(factor) * own.reach for own, factor in zip(terms, share, strict=True))
    return _Terms(of, share, np.full(num, 1 / (num * (num - 1))), weight, reach)


def _stratified(stratum: NDArray[np.int64], size: Array) -> _Terms:
    drawn = np.bincount(stratum, minlength=len(size))
    if (drawn == 0).any():
        empty = int(np.flatnonzero(drawn == 0)[0])
        raise LabelError(f"stratum {empty} has no label, so its share of the pool cannot be stated; label some of it")
    group_of_stratum = _collapse(drawn)
    group = group_of_stratum[stratum]
    share, left = size / size.sum(), 1 - drawn / size
    total = np.bincount(group_of_stratum, weights=share**2 * left / drawn)
    spread = total / np.maximum(np.bincount(group) - 1, 1)
    weight = (share / drawn)[stratum]
    reach = float((share / drawn * np.sqrt(left)).max())
    return _Terms(lambda x: x, weight, spread[group], weight, reach, group)


def _collapse(drawn: NDArray[np.int64]) -> NDArray[np.int64]:
    """Group of each stratum (H,), such that every group has two labels: a stratum with one joins the next."""
    group, number, held = np.zeros(len(drawn), dtype=np.int64), 0, 0
    for h, num in enumerate(drawn):
        if held >= 2:
            number, held = number + 1, 0
        group[h] = number
        held += num
    if held < 2:  # the last is left alone
        group[group == number] = max(number - 1, 0)
    return group


def _rao_hartley_cochran(probability: Array, group_probability: Array, group_size: NDArray[np.int64]) -> _Terms:
    n, population, total = len(probability), int(group_size.sum()), float(group_probability.sum())
    share, scale = group_probability / total, total / (population * probability)
    squares = float(group_size @ group_size)
    factor = (squares - population) / (population**2 - squares) if n > 1 else 0.0
    reach = float(scale.max()) / n * math.sqrt(1 - (n - 1) / max(population - 1, 1))  # a group of average size
    return _Terms(lambda x: _times(scale, x), share, factor * share, share * scale, reach)


def _hansen_hurwitz(probability: Array, population: int) -> _Terms:
    n = len(probability)
    scale = 1 / (population * probability)
    return _Terms(lambda x: _times(scale, x), np.full(n, 1 / n), _spread(n), scale / n, float(scale.max()) / n)


def _step_by_step(probability: Array, num_before: NDArray[np.int64], population: int) -> _Terms:
    """Where labels are missing, what was drawn before is extrapolated from the labelled draws."""
    n = len(probability)
    extrapolated = num_before / np.maximum(np.arange(n), 1)

    def of(x: Array) -> Array:
        before = np.cumsum(x, axis=0) - x
        return (_times(extrapolated, before) + _times(1 / probability, x)) / population

    after = np.cumsum(extrapolated[::-1])[::-1] - extrapolated  # (n,) what later draws make of this one
    weight = (after + 1 / probability) / (n * population)
    return _Terms(of, np.full(n, 1 / n), _spread(n), weight, float(weight.max()))


def _inclusion(probability: Array, population: int) -> _Terms:
    n = len(probability)
    scale, left = n / (population * probability), np.maximum(1 - probability, 0)
    reach = float((scale / n * np.sqrt(left)).max())
    return _Terms(lambda x: _times(scale, x), np.full(n, 1 / n), _spread(n) * left, scale / n, reach)


def _spread(n: int) -> Array:
    return np.full(n, 1 / (n * max(n - 1, 1)))


def _times(factor: Array, x: Array) -> Array:
    """factor (n,) times x (n,) or (n, q), example by example."""
    return (x.T * factor).T


def _reason(selection: Selection) -> str | None:
    """What the selection's own estimator says."""
    if "replicate" in selection.design:
        return None
    estimate = by_method(selection, np.ones(len(selection)), 0.95)
    return None if estimate.design_based else estimate.reason
