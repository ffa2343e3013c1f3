"""Accuracy by the design alone: of one sample, or of rounds of any methods."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from opacc_ray.estimators.base import Estimate, Outcome, joined_reasons
from opacc_ray.estimators.by_design import by_design
from opacc_ray.estimators.rounds import checked_rounds, known, labelled_before, late_labels
from opacc_ray.estimators.rounds_as_one import estimate_as_one
from opacc_ray.selection import Selection


def plain_estimate(
    selection: Selection | Sequence[Selection], outcome: Sequence[Any] | Outcome, level: float
) -> Estimate:
    """Accuracy by the design of one selection, or by those of several rounds together.

    Parameters, returns and errors are those of :func:`opacc_ray.estimate`.
    """
    rounds, outcomes = checked_rounds(selection, outcome, level)
    if len(rounds) > 1:
        found, late = estimate_as_one(rounds, outcomes, level), late_labels(rounds)
        if late is None:
            return found
        return replace(found, design_based=False, reason=joined_reasons((found.reason, late)))
    labelled_before(rounds)  # raises if it was drawn after other rounds
    found = by_design(rounds[0].design, outcomes[0], level)
    sure = known(rounds, outcomes)
    if sure.num < sure.pool_size or found.low == found.high:
        return found
    mean = 1 - sure.failures / sure.pool_size  # the whole pool is labelled, whatever the design makes of it
    return replace(found, value=mean, standard_error=0.0, low=mean, high=mean)
