"""Accuracy from a labelled sample: :func:`estimate`, the way in for users."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import ArrayLike

from opacc_ray.estimators.assisted import assist
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.rounds import plain_estimate
from opacc_ray.selection import Selection


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
    if prediction is None:
        return plain_estimate(selection, outcome, level)
    return assist(selection, outcome, prediction, level)
