"""Operational accuracy from a labelled sample: one file per family of designs, value and interval in pairs.

The samplers name the estimator that belongs to them; :func:`opacc_ray.estimate` is the way in for users.
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, Outcome, checked_outcome
from opacc_ray.estimators.rounds import by_own_design, combine
from opacc_ray.selection import Selection

__all__ = ["Estimate", "Outcome", "checked_outcome", "estimate"]


def estimate(
    selection: Selection | Sequence[Selection],
    outcome: Sequence[Any] | Outcome,
    level: float = 0.95,
    *,
    prediction: ArrayLike | None = None,
) -> Estimate:
    """Accuracy on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned, or ``Selection.load`` of what it saved; or a list of them, one
        per round
    outcome : (n,) 1 correct, 0 misprediction, or a score in [0, 1]; aligned with ``selection.index``; for rounds a list
    level : confidence level of the interval, in (0, 1)
    prediction : (N,) in [0, 1] of every example of the pool, in its order: the outcome to expect, such as the model's
        confidence. As far as it is right, it saves labels; see :func:`opacc_ray.estimators.assisted.assist`

    Returns
    -------
    Estimate
        Value and interval of the selection's own design; for rounds, of all of them together.

    Raises
    ------
    LabelError
        If the outcomes are not n numbers in [0, 1], or rounds are missing.
    DataError
        If the predictions are not N numbers in [0, 1].
    SpecError
        If there are predictions for a selection by ``neyman``, which has its own.
    """
    if prediction is not None:
        from opacc_ray.estimators.assisted import assist  # which rests on the estimate without prediction

        return assist(selection, outcome, prediction, level)
    if not 0 < level < 1:
        raise LabelError(f"level={level}: give a confidence level between 0 and 1, such as 0.95")
    if isinstance(selection, Selection):
        return by_own_design(selection, checked_outcome(selection, outcome), level)
    rounds = list(selection)
    if not rounds or len(rounds) != len(outcome):
        raise LabelError(f"{len(rounds)} rounds and {len(outcome)} lists of outcomes: give one list per round")
    outcomes = [checked_outcome(part, values) for part, values in zip(rounds, outcome, strict=True)]
    return by_own_design(rounds[0], outcomes[0], level) if len(rounds) == 1 else combine(rounds, outcomes, level)
