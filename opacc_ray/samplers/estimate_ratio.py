"""Ratios of totals from a table of counts: detection, segmentation, transcripts, and clusters such as videos.

The estimator is :class:`opacc_ray.estimators.ratios.Ratio`.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opacc_ray.errors import LabelError, counted, shown
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.ratios import Ratio, count_of
from opacc_ray.estimators.rounds import check_level, linear_estimator
from opacc_ray.selection import Selection

Counts = Mapping[str, Mapping[str, float]]


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
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    ids = [name for part in selections for name in part.ids]
    known = _read(counts) if isinstance(counts, str | Path) else counts
    missing = [name for name in ids if name not in known]
    if missing:
        raise LabelError(f"{counted(len(missing), 'chosen example')} without counts, the first {shown(missing[0])}")
    by_name = {name: np.array([count_of(known[own], name, own) for own in ids]) for name in asked.names}
    if not asked.sides(by_name)[1].any():
        raise LabelError("all counts below the line are 0, so there is nothing to divide by; label more examples")
    return asked.estimate(linear_estimator(selections), by_name, len(set(ids)), level)


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
