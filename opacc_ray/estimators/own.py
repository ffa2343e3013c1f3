"""A selection's own estimator: the one place where estimators look into the registry of methods.

Methods name their estimators, so the registry imports this package; it is looked up when an estimate is made.
"""

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.selection import Selection


def by_method(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """By the estimator of the method that drew it."""
    from opacc_ray.samplers import METHODS

    return METHODS[selection.method].estimate(selection, outcome, level)
