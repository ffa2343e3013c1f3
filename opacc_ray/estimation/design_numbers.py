"""Numbers that the design alone estimates: ratios of counts, and errors of predicted values.

**Ratios of totals**: detection, segmentation, transcripts, and clusters such as the frames of a video. Every example
has counts, known once it is labelled: hits and misses of an image at an IoU, pixels of intersection and of union, edits
and words of a document, right and all frames of a video. A number is the ratio of two totals over the pool,

    R = Σ a / Σ b        recall  tp/(tp + fn)    F1  2tp/(2tp + fp + fn)    IoU  intersection/union    WER  edits/words

estimated by R̂ = â/b̂, with the variance of the mean of (a - R̂·b)/b̂ by the design (C.-E. Särndal, B. Swensson, J.
Wretman, "Model Assisted Survey Sampling", 1992, 5.6). The example is the unit that is drawn, so what is alike within
it, such as the frames of a video, is allowed for. R̂ has a bias of order 1/n.

The interval is that of a domain (:mod:`opacc_ray.estimation.totals`): Wilson's at the size of the simple random sample
with the same variance, with half an event of the size Σs² added, where s = w·b/b̂ is the share that a label stands for;
at the lower end mid-P. It is taken for a and for b - a, and the wider one is stated.

A ratio that may exceed 1, because a > b for some example, is measured in multiples of the largest a/b. Its interval
also includes E. C. Fieller's ("Some problems in interval estimation", JRSS B 16, 1954), the R with |â - R·b̂| <= t·√v(a
- R·b), because its denominator may be uncertain.

A ratio may be subtracted from 1, so that more is better: 1 - edits/words. Over a slice D, a and b are 0 outside of it.

**Errors of predicted values**: mean absolute error, root mean square error, bias, in the unit of the prediction. With e
the prediction less the label, over the N examples of the pool

    mae   Σ|e|/N          rmse   √(Σe²/N)          bias   Σe/N

are means of x = |e|, e² and e. They are estimated by the design alone, so mae and bias are unbiased; rmse is the root
of an unbiased number.

**The interval.** Labels may be any number, so x has no bound, and no interval can hold by the design alone: a single
example without a label may change the mean by any amount. It is x̂ ± t·√v(x̂), with Student's t at F. E. Satterthwaite's
degrees of freedom ("An approximate distribution of estimates of variance components", Biometrics Bulletin 2, 1946),

    2 / (1/d - 1/n)       d = (Σr²)²/Σr⁴, r the deviations of x from its mean, by their weights

at most n - 1, which are few where few labels make the variance. |e| and e² have long upper tails, and a sample without
the rare large ones has a mean and a variance that are too small. So half an example is added to both for the upper end,
whose error is √2 times the largest one seen, and the end is x̂·exp(t·√v(x̂)/x̂), that of the logarithm. All this assumes
that no rare error is much larger than those among the labels.

Legend: N pool, n labels, a and b the counts of an example above and below the line, v variance by the rounds.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, counted, shown
from opacc_ray.estimation import intervals
from opacc_ray.estimation.constants import MOST_EXPONENT, UNCERTAIN
from opacc_ray.estimation.distribution import AdjustedWilson, Total
from opacc_ray.estimation.sample import Rounds, check_level
from opacc_ray.metrics.metric import BIAS, MAE, RMSE, Ratio, count_of
from opacc_ray.selection import Selection

Array = NDArray[np.float64]

INTERVAL = "ratio of totals"
"""Name of the interval."""

_FEW = "little is counted below the line, and the ratio may exceed 1, so its interval may be too narrow"
"""Relative standard error of b from which on a ratio that may exceed 1 says so; 30 images covered in 76 % then."""

_NOTHING = "nothing is counted below the line"


def ratio_of(ratio: Ratio, design: Rounds, counts: Mapping[str, Array], num: int, level: float) -> intervals.Estimate:
    """Estimate a ratio from the counts of all labels, (n,) each, of ``num`` examples.

    Where nothing is counted below the line it is unknown, from 0 to 1.
    """
    top, bottom = ratio.sides(counts)
    if float(design.mean(bottom)) <= 0:
        return replace(known_ratio(0.5, num, level), low=0.0, high=1.0, standard_error=0.5, reason=_NOTHING)
    found = replace(_estimate(design, top, bottom, level), n=num)
    if not ratio.from_one:
        return found
    return replace(found, value=1 - found.value, low=1 - found.high, high=1 - found.low)


def known_ratio(value: float, num: int, level: float) -> intervals.Estimate:
    """Return a value without error."""
    return intervals.Estimate(value, 0.0, value, value, level, INTERVAL, num, True)


def ratio_of_random_sample(
    ratio: Ratio, design: Rounds, counts: Mapping[str, Array], share: float, level: float
) -> intervals.Estimate:
    """Return it as a simple random sample with as many labels, a ``share`` of the pool, is expected to state it."""
    influence: Array = effect_on_ratio(ratio, design, counts)(counts)
    error = math.sqrt(max(float(design.mean(influence**2)), 0.0) * max(1 - share, 0.0) / len(influence))
    value, half = ratio_of(ratio, design, counts, len(influence), level).value, intervals.normal_quantile(level) * error
    return intervals.Estimate(value, error, value - half, value + half, level, INTERVAL, len(influence), True)


def events_of_ratio(ratio: Ratio, design: Rounds, counts: Mapping[str, Array]) -> float:
    """Return the number of labels that its interval rests on, each by what it adds to the variance."""
    return intervals.effective_number((design.weights * effect_on_ratio(ratio, design, counts)(counts)) ** 2)


def effect_on_ratio(ratio: Ratio, design: Rounds, counts: Mapping[str, Array]) -> Callable[[Mapping[str, Any]], Any]:
    """Return (a - R̂·b)/b̂ as a function of counts by name, of one example or of many: what a label adds to R̂."""
    top, bottom = (float(design.mean(side)) for side in ratio.sides(counts))
    whole = max(bottom, 1e-300)

    def own(given: Mapping[str, Any]) -> Any:
        a, b = ratio.sides(given)
        return (a - top / whole * b) / whole

    return own


def _estimate(design: Rounds, top: Array, bottom: Array, level: float) -> intervals.Estimate:
    """Return Σa/Σb from the counts of each label, (n,) each."""
    whole = float(design.mean(bottom))
    value = float(design.mean(top)) / whole
    variance = float(design.variance((top - value * bottom) / whole))
    most = max(1.0, float(np.max(top / np.maximum(bottom, 1e-300), where=bottom > 0, initial=0.0)))
    low, high = _interval(design, top / most, bottom, variance / most**2, level)
    low, high, reason = low * most, high * most, design.reason
    if most > 1:
        low, high = intervals.wider((low, high), _fieller(design, top, bottom, level))
        if float(design.variance(bottom)) > (UNCERTAIN * whole) ** 2:
            reason = intervals.joined_reasons([reason, _FEW])
    error, num = math.sqrt(variance), len(top)
    found = intervals.Estimate(value, error, low, high, level, INTERVAL, num, reason is None, reason)
    return intervals.within_interval(found)


def _interval(design: Rounds, top: Array, bottom: Array, variance: float, level: float) -> intervals.Interval:
    """Return the interval of a ratio of at most 1, the wider one of those for what is counted and for what is not."""
    whole = float(design.mean(bottom))
    weights = np.maximum(design.weights, 0)
    share = weights * bottom / whole
    left = min(design.largest_weight / max(float(weights.max()), 1e-300), 1.0)  # 0 once the whole pool is labelled
    unit = max(left * float(share @ share) / max(float(share.sum()), 1e-300), 1e-300)
    wide = variance * intervals.student_widening(max(len(top) - 1, 1), level) ** 2

    def ends(part: Array) -> intervals.Interval:
        own = float(design.mean(part)) / whole
        events = own / unit if (part > 0).any() else 0.0
        return Total(own, wide + unit**2 / 2, math.inf, 1 / unit, events, AdjustedWilson(unit / 2)).interval(level)

    low, high = ends(top)
    few, many = ends(bottom - top)
    return intervals.wider((low, high), (1 - many, 1 - few))


def _fieller(design: Rounds, top: Array, bottom: Array, level: float) -> intervals.Interval:
    """Return Fieller's interval; that of a normal ratio where the denominator might be 0."""
    square = intervals.student_quantile(max(len(top) - 1, 1), level) ** 2
    a, b = float(design.mean(top)), float(design.mean(bottom))
    own, other, both = (float(design.variance(x)) for x in (top, bottom, top + bottom))
    second, first = b**2 - square * other, a * b - square * (both - own - other) / 2
    if second <= 0:
        half = math.sqrt(square * float(design.variance((top - a / b * bottom) / b)))
        return max(a / b - half, 0.0), a / b + half
    half = math.sqrt(max(first**2 - second * (a**2 - square * own), 0.0))
    return max((first - half) / second, 0.0), (first + half) / second


Counts = Mapping[str, Mapping[str, float]]


def estimate_ratio(
    selection: Selection | Sequence[Selection], counts: Counts | str | Path, ratio: str, level: float = 0.95
) -> intervals.Estimate:
    """Estimate a ratio of two totals over the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned; for several rounds a list
    counts : id -> name -> number, or the path of a CSV file with the column ``id`` and one for each name
    ratio : two sums of names, such as "tp / (tp + fn)", "2 tp / (2 tp + fp + fn)" or "edits / words"
    level : confidence level of the interval, between 0 and 1

    Returns
    -------
    Estimate
        ``n`` counts the labelled examples. Zero over zero counts nothing. The interval does not allow for rare examples
        with much larger counts than others, none of which has a label: with n labels, a kind of less than 3.7/n of the
        pool.

    Raises
    ------
    LabelError
        Counts of an example are missing, negative or not finite, or nothing was counted below the line.
    SpecError
        ``ratio`` is no ratio of two sums.
    """
    check_level(level)
    asked = Ratio.parse(ratio)
    rounds = Rounds(selection)
    ids = [name for part in rounds.selections for name in part.ids]
    known = _read(counts) if isinstance(counts, str | Path) else counts
    missing = [name for name in ids if name not in known]
    if missing:
        raise LabelError(f"{counted(len(missing), 'chosen example')} without counts, the first {shown(missing[0])}")
    by_name = {name: np.array([count_of(known[own], name, own) for own in ids]) for name in asked.names}
    if not asked.sides(by_name)[1].any():
        raise LabelError("all counts below the line are 0, so there is nothing to divide by; label more examples")
    return ratio_of(asked, rounds, by_name, len(set(ids)), level)


def _read(path: str | Path) -> Counts:
    """Read a CSV file; raises LabelError without ids, or with two rows of one."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and "id" not in rows[0]:
        raise LabelError(f"{path} has no column id; it has {', '.join(rows[0])}")
    found: dict[str, Any] = {row.pop("id"): row for row in rows}
    if len(found) < len(rows):
        raise LabelError(f"{path} has two rows with the same id; give one for each example")
    return found


METHOD = "Student's t"
"""Name of the interval."""

_UNBOUNDED = "values have no bound, so this assumes that no rare error is much larger than those among the labels"

_SQRT2 = math.sqrt(2)


def effects(name: str, errors: Array) -> Array:
    """Return the x (n,) of each error, whose mean over the pool is the number, or its square."""
    terms: Array = _TERMS[name](errors)
    return terms


_TERMS: dict[str, Callable[[Array], Array]] = {MAE: np.abs, RMSE: np.square, BIAS: np.positive}
"""What of an error the mean is taken of."""


def estimate_error(name: str, rounds: Rounds, errors: Array, level: float) -> intervals.Estimate:
    """Estimate a number from the errors (n,) of the labels.

    Raises LabelError for a single label of a larger pool: its spread is not known.
    """
    x = effects(name, errors)
    mean, error = float(rounds.mean(x)), math.sqrt(max(float(rounds.variance(x)), 0.0))
    whole = rounds.largest_weight == 0
    if len(rounds.first) < 2 and not whole:
        raise LabelError(f"{name} of one label has no interval; label more examples")
    student = intervals.student_quantile(rounds.degrees(x), level)
    low, high = mean - student * error, mean + student * error
    if name != BIAS and not whole:
        unseen = (
            min(rounds.largest_weight, float(rounds.weights.max())) * effects(name, _SQRT2 * np.abs(errors)).max() / 2
        )
        more = max(mean, 0.0) + unseen
        relative = student * math.hypot(error, unseen) / max(more, 1e-300)
        low, high = max(low, 0.0), more * math.exp(min(relative, MOST_EXPONENT))
    if name == RMSE:
        mean = max(mean, 0.0)  # weights of some designs may be negative
        error = error / (2 * math.sqrt(mean)) if mean > 0 else 0.0
        mean, low, high = math.sqrt(mean), math.sqrt(low), math.sqrt(high)
    reason = None if whole else intervals.joined_reasons([rounds.reason, _UNBOUNDED])
    return intervals.within_interval(intervals.Estimate(mean, error, low, high, level, METHOD, len(x), whole, reason))
