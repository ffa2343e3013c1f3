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
    return known(rounds, outcomes).state(by_designs(rounds, outcomes, level))


def by_designs(rounds: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """:func:`plain_estimate` before its interval is cut at what is known for certain, and its value at the ends."""
    if len(rounds) == 1:
        labelled_before(rounds)  # raises if it was drawn after other rounds
        return by_design(rounds[0].design, outcomes[0], level)
    found, late = estimate_as_one(rounds, outcomes, level), late_labels(rounds)
    if late is None:
        return found
    return replace(found, design_based=False, reason=joined_reasons((found.reason, late)))
