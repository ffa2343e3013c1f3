"""Estimates before they are cut to what the labels prove: unbiased ones may leave [0, 1]."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from given_selections import selection_of

from opacc_ray.designs import Design
from opacc_ray.estimation.failures import PoolFailures, failures_by_design
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sample import join
from opacc_ray.selection import Selection


def unclipped(failures: PoolFailures, level: float) -> Estimate:
    total = failures.total
    low, high = total.interval(level) if total.labelled >= total.size else total.law.ends(total, level)
    stated = 1 - total.stated(), total.error, 1 - high, 1 - low, level, total.law.name
    return Estimate(*stated, len(failures.labels.effect), failures.design_based, failures.reason)


def estimate_sample(design: Design, outcome: Any, level: float = 0.95) -> Estimate:
    """What one sample says of what it was drawn from, whichever examples it has."""
    before = design.drawn_after
    design = design if before is None else design.forget(before)
    return unclipped(failures_by_design(join(selection_of(design), outcome)), level)


def unclipped_estimate(selections: Selection | Sequence[Selection], outcomes: Any, level: float = 0.95) -> Estimate:
    return unclipped(failures_by_design(join(selections, outcomes)), level)


def combine_rounds(selections: Sequence[Selection], outcomes: Any, level: float = 0.95) -> Estimate:
    """Rounds of any designs with the adjusted Wilson interval, whatever law belongs to them."""
    failures = failures_by_design(join(selections, outcomes))
    if failures.total.labelled < failures.total.size:
        failures = failures._replace(total=replace(failures.total, law=failures.labels.law(0.0)))
    return unclipped(failures, level)
