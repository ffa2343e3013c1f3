"""The interval of stratified samples.

Legend: J strata, n_j labels, f_j = n_j/N_j.
"""

import math

import numpy as np

from opacc_ray.designs.design import Array
from opacc_ray.designs.stratified import Stratified
from opacc_ray.estimators import intervals
from opacc_ray.estimators.base import Estimate, Outcome, is_binary
from opacc_ray.estimators.weighted import NAME, failure_bounds


def stratified(design: Stratified, outcome: Outcome, level: float) -> Estimate:
    """Accuracy from a stratified sample: unbiased.

    0/1 outcomes: the stratified score interval, which holds when strata show no failure. Scores: the weighted
    Clopper-Pearson interval, since Student's misses rare, large losses.
    """
    value, variance = float(design.mean(outcome)), design.failure_variance(1 - outcome)
    name = design.interval
    if is_binary(outcome):
        drawn = design.num.astype(np.float64)
        total = np.bincount(design.stratum, weights=outcome, minlength=len(drawn)).astype(np.float64)
        low, high = intervals.stratified_score(total, drawn, design.shares, corrections(design.left, drawn), level)
    else:
        few, many = failure_bounds(1 - value, variance, design.weight_bound, level)
        low, high, name = 1 - many, 1 - few, NAME
    return Estimate(value, math.sqrt(variance), low, high, level, name, len(outcome), True)


def corrections(left: Array, drawn: Array) -> Array:
    """(1 - f_j)·n_j/(n_j - 1) (J,), the factors of p(1 - p)/n_j, from 1 - f_j and n_j.

    Fitted to few labels, p(1 - p) falls short by (n_j - 1)/n_j; Miettinen and Nurminen correct it likewise.
    """
    return left * drawn / np.maximum(drawn - 1, 0.5)
