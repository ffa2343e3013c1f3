"""A selection's own estimator: the one place where estimators look into the registry of methods.

Methods name their estimators, so the registry imports this package; it is looked up when an estimate is made.
"""

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.selection import Selection


def by_method(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """By the estimator of the method that drew it."""
    from opacc_ray.samplers import METHODS

    return METHODS[selection.method].estimate(selection, outcome, level)


def by_own_design(selection: Selection, outcome: Outcome, level: float) -> Estimate:
    """By the spread of its replicates if it has some, else by its method."""
    from opacc_ray.estimators.replicates import replicated

    if "replicate" in selection.design:
        return replicated(selection, outcome, level)
    return by_method(selection, outcome, level)
