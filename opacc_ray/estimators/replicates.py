"""Independent replicates: a variance for methods that have none.

CES and DeepReduce choose by optimisation, and no formula says how far their estimate is from the truth. Repetition
does: the pool is split at random in R parts of equal size, the method chooses its share of the budget in each part as
if that were the pool, and the R estimates are of one kind and differ by chance alone.

    θ̂ = Σ_r (N_r / N) θ̂_r        v(θ̂) = Σ_r (θ̂_r - θ̄)² / (R(R - 1))

This is the method of random groups: P. C. Mahalanobis, "Recent experiments in statistical sampling in the Indian
Statistical Institute", JRSS 109 (1946); K. M. Wolter, "Introduction to Variance Estimation" (2007), chapter 2. The
parts make up the pool, so θ̂ is unbiased if the method is within a part. No example is in two parts, which makes v too
large by S²/N (S² the variance of outcomes): next to nothing for the usual pools. What v cannot see is a *bias* of the
method, for that is the same in all parts.

The interval is Wilson's at the sample size with that variance, with Student's quantile for R - 1 degrees of freedom,
2.8 for R = 5 and 2.3 for R = 10. If all θ̂_r agree, the variance is taken as that of a simple random sample that met
half a failure.

What it costs. Few replicates make the interval wide, and many leave little budget for each: CES begins with 30 examples
at random and does nothing else if its share of the budget is no more, so give it ``initial=5``. Measured on
Fashion-MNIST, n = 150, 300 repetitions (`benchmarks/intervals_coverage.py`); the rms error of SRS is 0.0259:

    CES                               covers     width    rms error
    R = 5, initial=5                  94.3 %     0.127    0.0238
    R = 5, initial=30                 96.7 %     0.132    0.0253
    R = 3, initial=5                  95.3 %     0.191    0.0245
    no replicates, interval of SRS    98.3 %     0.108    0.0234

So replicates answer whether the interval holds, and do not shorten it.

Legend: N pool, N_r part, R replicates, n labels.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.own import by_method
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import View
from opacc_ray.selection import Selection

NAME = "replicates"

_CAUTION = "the interval rests on how much the replicates differ, which would not show a bias that they share"


Choose = Callable[[View, int | None, int], Selection]
"""From part r of the pool, its share of the budget and r: what the method chooses there."""


def replicate(
    view: View, num: int, budget: int | None, taken: NDArray[np.int64], rng: np.random.Generator, choose: Choose
) -> Selection:
    """One selection of what ``choose`` takes from each of ``num`` random parts of the pool.

    Parameters
    ----------
    budget : of all replicates together; None where the method stops itself
    taken : examples that are left out, labelled before
    choose : must draw from a generator that depends on r

    Returns
    -------
    Selection
        Its examples come in turn from all replicates, whose numbers are in ``design["replicate"]``.

    Raises
    ------
    SpecError
        If there are fewer than two replicates, or more than examples or labels.
    """
    free = np.delete(np.arange(view.size), taken)
    if not 2 <= num <= len(free):
        raise SpecError(f"replicates={num}: give at least 2, so that they can differ, and at most {len(free)}")
    parts = [np.sort(part) for part in np.array_split(rng.permutation(free), num)]
    shares = _shares(budget, num)
    chosen = [choose(subset(view, part), share, r) for r, (part, share) in enumerate(zip(parts, shares, strict=True))]
    return _join(chosen, parts, view.size)


def _shares(budget: int | None, num: int) -> list[int | None]:
    """Of the budget, differing by one at most."""
    if budget is None:
        return [None] * num
    if budget < num:
        raise SpecError(f"budget={budget} over replicates={num}: every replicate needs a label; give at least {num}")
    return [budget // num + (r < budget % num) for r in range(num)]


def _join(selections: list[Selection], parts: list[NDArray[np.int64]], pool_size: int) -> Selection:
    number = np.repeat(np.arange(len(selections)), [len(selection) for selection in selections])
    place = np.concatenate([np.arange(len(selection)) for selection in selections])
    order = np.lexsort((number, place))  # should labelling stop early, all replicates have some
    index = np.concatenate([part[selection.index] for part, selection in zip(parts, selections, strict=True)])
    ids = [name for selection in selections for name in selection.ids]
    design = {
        name: np.concatenate([selection.design[name] for selection in selections])[order]
        for name in selections[0].design
    }
    facts = {
        "replicate_size": [len(part) for part in parts],
        "replicate_facts": [selection.facts for selection in selections],
    }
    return replace(
        selections[0],
        index=index[order],
        ids=tuple(ids[i] for i in order),
        pool_size=pool_size,
        design=design | {"replicate": number[order]},
        facts=facts,
    )


def each(selection: Selection) -> list[tuple[Selection, NDArray[np.int64]]]:
    """The replicates that have labels, each a selection from its own part, and their places in ``selection``.

    Raises
    ------
    LabelError
        If only one of them has labels, for one does not show how much they differ.
    """
    replicates = []
    for r, size in enumerate(selection.facts["replicate_size"]):
        own = selection.design["replicate"] == r
        if own.any():
            kept = selection.restrict(own)
            design = {name: values for name, values in kept.design.items() if name != "replicate"}
            facts = selection.facts["replicate_facts"][r]
            replicates.append((replace(kept, pool_size=size, design=design, facts=facts), np.flatnonzero(own)))
    if len(replicates) < 2:
        raise LabelError(f"only {len(replicates)} replicate has labels, and two are needed to differ; label some more")
    return replicates


def replicated(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """Accuracy from R replicates, by the method's own estimator in each.

    Where labels are missing in whole replicates, the others are taken for all of them.
    """
    parts, places = zip(*each(selection), strict=True)
    own = [by_method(part, outcome[place], level) for part, place in zip(parts, places, strict=True)]
    values, size = np.array([estimate.value for estimate in own]), np.array([part.pool_size for part in parts])
    num, value = len(own), float(size @ values) / int(size.sum())
    variance = float(values.var(ddof=1)) / num
    low, high = _interval(value, variance, num - 1, len(outcome), level)
    reason = None if own[0].design_based else _CAUTION
    return Estimate(value, math.sqrt(variance), low, high, level, f"{num} {NAME}", len(outcome), True, reason)


def _interval(value: float, variance: float, degrees: int, n: int, level: float) -> intervals.Interval:
    widen = intervals.student_widening(degrees, level)
    if variance == 0:
        half = 0.5 / (n + 1)
        variance = half * (1 - half) / n
    inside = min(max(value, 0.5 / (n + 1)), 1 - 0.5 / (n + 1))
    return intervals.wilson(min(max(value, 0.0), 1.0), inside * (1 - inside) / (variance * widen**2), level)
