"""Operational accuracy from a labelled sample: one file per family of designs, value and interval in pairs.

The samplers name the estimator that belongs to them; :func:`opacc_ray.estimate` is the way in for users.
"""

from collections.abc import Sequence

from opacc_ray.errors import LabelError
from opacc_ray.estimators.base import Estimate, Outcome, checked_outcome
from opacc_ray.selection import Selection

__all__ = ["Estimate", "Outcome", "checked_outcome", "estimate"]


def estimate(selection: Selection, outcome: Sequence[float] | Outcome, level: float = 0.95) -> Estimate:
    """Accuracy on the pool that ``selection`` was drawn from.

    Parameters
    ----------
    selection : what :func:`opacc_ray.select` returned, or ``Selection.load`` of what it saved
    outcome : (n,) 1 correct, 0 misprediction, or a score in [0, 1]; aligned with ``selection.index``
    level : confidence level of the interval, in (0, 1)

    Returns
    -------
    Estimate
        Value and interval of the selection's own design.

    Raises
    ------
    LabelError
        If the outcomes are not n numbers in [0, 1].
    """
    from opacc_ray.samplers import METHODS

    if not 0 < level < 1:
        raise LabelError(f"level={level}: give a confidence level between 0 and 1, such as 0.95")
    values = checked_outcome(selection, outcome)
    result: Estimate = METHODS[selection.method].estimate(selection, values, level)
    return result
