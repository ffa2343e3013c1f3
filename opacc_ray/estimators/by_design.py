"""The estimate from one sample: the value of its design, and the interval that belongs to it."""

from collections.abc import Callable
from typing import Any

from opacc_ray.designs import Design
from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.estimators.difference import difference
from opacc_ray.estimators.replicates import replicated
from opacc_ray.estimators.simple import representative, simple_random
from opacc_ray.estimators.stratified import stratified
from opacc_ray.estimators.weighted import weighted

INTERVALS: dict[str, Callable[[Any, Outcome, float], Estimate]] = {
    "exact hypergeometric": simple_random,
    "wilson": simple_random,
    "as for a simple random sample": representative,
    "stratified score": stratified,
    "weighted Clopper-Pearson": weighted,
    "adjusted Wilson": difference,
    "replicates": replicated,
}
"""The estimate that has an interval, by what ``Design.interval`` calls that."""


def by_design(design: Design, outcome: Outcome, level: float) -> Estimate:
    """Accuracy on what the sample was drawn from: unbiased, unless ``design.reason`` says why not.

    Parameters
    ----------
    design, outcome : of the labelled examples, (n,)
    level : confidence level of the interval
    """
    return INTERVALS[design.interval](design, outcome, level)
