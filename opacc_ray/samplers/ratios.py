"""Ratios of totals: detection, segmentation, transcripts, and clusters such as the frames of a video.

Every example has counts, known once it is labelled: hits and misses of an image at an IoU, pixels of intersection and
of union, edits and words of a document, right and all frames of a video. A number is the ratio of two totals over the
pool,

    R = Σ a / Σ b        recall  tp/(tp + fn)    F1  2tp/(2tp + fp + fn)    IoU  intersection/union    WER  edits/words

estimated by R̂ = â/b̂, with the variance of the mean of (a - R̂·b)/b̂ by the design (C.-E. Särndal, B. Swensson, J.
Wretman, "Model Assisted Survey Sampling", 1992, 5.6). The example is the unit that is drawn, so what is alike within
it, such as the frames of a video, is allowed for. R̂ has a bias of order 1/n.

The interval is the weighted Clopper-Pearson one, which assumes one more unit, all of it missed, of the size Σb²/Σb that
the unit of a random count has. A
ratio that may exceed 1, because a > b for some example, is measured in multiples of the largest a/b. Its interval also
includes E. C. Fieller's ("Some problems in interval estimation", JRSS B 16, 1954), the R with |â - R·b̂| <= t·√v(a -
R·b), because its denominator may be uncertain.

Legend: a and b the counts of an example above and below the line, n labels.
"""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, counted, shown
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons, within_interval
from opacc_ray.estimators.intervals import (
    WEIGHTED,
    Interval,
    student_widening,
    weighted_clopper_pearson,
    wider,
)
from opacc_ray.estimators.rounds import LinearEstimator, check_level, linear_estimator
from opacc_ray.selection import Selection

Array = NDArray[np.float64]
Counts = Mapping[str, Mapping[str, float]]

_UNCERTAIN = 0.15
_FEW = "little is counted below the line, and the ratio may exceed 1, so its interval may be too narrow"
"""Relative standard error of b from which on a ratio that may exceed 1 says so; 30 images covered in 76 % then."""

_TERM = re.compile(r"(?:(\d+(?:\.\d+)?)\s*\*?\s*)?([A-Za-z_]\w*)$")


def estimate_ratio(
    selection: Selection | Sequence[Selection], counts: Counts | str | Path, ratio: str, level: float = 0.95
) -> Estimate:
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
        ``n`` counts the labelled examples. Zero over zero counts nothing.

    Raises
    ------
    LabelError
        Counts of an example are missing, negative or not finite, or nothing was counted below the line.
    SpecError
        ``ratio`` is no ratio of two sums.
    """
    check_level(level)
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    ids = [name for part in selections for name in part.ids]
    known = _read(counts) if isinstance(counts, str | Path) else counts
    missing = [name for name in ids if name not in known]
    if missing:
        raise LabelError(f"{counted(len(missing), 'chosen example')} without counts, the first {shown(missing[0])}")
    top, bottom = (_sum(text, ids, known) for text in _sides(ratio))
    return _estimate(selections, top, bottom, level)


def _estimate(selections: Sequence[Selection], top: Array, bottom: Array, level: float) -> Estimate:
    """Return Σa/Σb from the counts of each label, (n,) each."""
    design = linear_estimator(selections)
    whole = float(design.mean(bottom))
    if whole <= 0:
        raise LabelError("all counts below the line are 0, so there is nothing to divide by; label more examples")
    value = float(design.mean(top)) / whole
    variance = float(design.variance((top - value * bottom) / whole))
    most = max(1.0, float(np.max(top / np.maximum(bottom, 1e-300), where=bottom > 0, initial=0.0)))
    unit = float(bottom @ bottom) / float(bottom.sum())
    share, widen = value / most, student_widening(design.degrees, level) ** 2
    spread, weight = widen * variance / most**2, design.largest_weight * unit / whole
    low, high = weighted_clopper_pearson(share, spread, weight, level)
    few, _ = weighted_clopper_pearson(max(1 - share, 0.0), spread, weight, level)
    high = max(high, 1 - few) if share > 0.5 else high
    low, high, reason = low * most, high * most, design.reason
    if most > 1:
        low, high = wider((low, high), _fieller(design, top, bottom, level))
        if float(design.variance(bottom)) > (_UNCERTAIN * whole) ** 2:
            reason = joined_reasons([reason, _FEW])
    num = len(np.unique(np.concatenate([part.index for part in selections])))
    return within_interval(
        Estimate(
            value=value,
            standard_error=math.sqrt(variance),
            low=low,
            high=high,
            level=level,
            interval=WEIGHTED,
            n=num,
            design_based=reason is None,
            reason=reason,
        )
    )


def _fieller(design: LinearEstimator, top: Array, bottom: Array, level: float) -> Interval:
    """Return Fieller's interval; that of a normal ratio where the denominator might be 0."""
    from scipy.stats import t

    square = float(t.ppf((1 + level) / 2, design.degrees or max(len(top) - 1, 1))) ** 2
    a, b = float(design.mean(top)), float(design.mean(bottom))
    own, other, both = (float(design.variance(x)) for x in (top, bottom, top + bottom))
    second, first, rest = (
        b**2 - square * other,
        a * b - square * (both - own - other) / 2,
        a**2 - square * own,
    )
    if second <= 0:
        half = math.sqrt(square * float(design.variance((top - a / b * bottom) / b)))
        return max(a / b - half, 0.0), a / b + half
    half = math.sqrt(max(first**2 - second * rest, 0.0))
    return max((first - half) / second, 0.0), (first + half) / second


def _sides(ratio: str) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
    """Return both sums as coefficients and names."""
    sides = [side.strip() for side in ratio.split("/")]
    if len(sides) != 2:
        raise SpecError(f"ratio={shown(ratio)}: give two sums of names, such as 'tp / (tp + fn)'")
    found = []
    for side in sides:
        inner = side[1:-1] if side.startswith("(") and side.endswith(")") else side
        terms = [_TERM.match(term.strip()) for term in inner.split("+")]
        if not all(terms):
            raise SpecError(f"ratio={shown(ratio)}: {shown(side)} is no sum of names, such as 'tp + fn' or '2 tp'")
        found.append([(float(term[1] or 1), term[2]) for term in terms if term])
    return found[0], found[1]


def _sum(terms: Sequence[tuple[float, str]], ids: Sequence[str], counts: Counts) -> Array:
    """Return a sum of counts of each example, (n,)."""
    found = np.zeros(len(ids))
    for coefficient, name in terms:
        values = np.array([_number(counts[own], own, name) for own in ids])
        found += coefficient * values
    return found


def _number(row: Mapping[str, Any], own: str, name: str) -> float:
    if name not in row:
        raise LabelError(f"{shown(own)} has no count {shown(name)}; it has {', '.join(map(str, row))}")
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise LabelError(f"{shown(own)} has {name}={shown(row[name])}; give a number of at least 0")
    return value


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
