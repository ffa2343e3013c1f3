"""Two-phase stratified sampling: J. Neyman, "Contribution to the Theory of Sampling Human Populations", JASA 33, 1938.

    phase 1: a share φ = 0.3 of the labels, n_h ∝ N_h, to measure s_h;  phase 2: n_h ∝ N_h s_h for both phases together

Estimate and variance are those of stratified sampling, as if n_h were fixed, with the strata by the confidence of
:mod:`opacc_ray.study.peers.stratified_proxy`, 10 or fewer so that phase 1 has 3 labels in each on average. s_h² is
p(1 - p) with p = (failures + 1)/(labels + 2), because a few labels often show no failure.

Legend: N_h and n_h examples and labels of stratum h, s_h standard deviation of its outcomes.
"""

import numpy as np

from opacc_ray.study.peers.peer import PeerEstimate, Question, normal
from opacc_ray.study.peers.stratified_proxy import NUM_STRATA, allocate, combined, strata_of

PILOT, LABELS = 0.3, 3
"""φ, and labels of a stratum in phase 1 on average at least."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw a pilot in every stratum, and the rest where outcomes vary."""
    pilot = max(round(PILOT * budget), 2)
    stratum = strata_of(asked.confidence, min(NUM_STRATA, max(pilot // LABELS, 1)))
    size = np.bincount(stratum)
    order = [rng.permutation(np.flatnonzero(stratum == h)) for h in range(len(size))]
    first = allocate(size, np.ones(len(size)), pilot)
    failures = np.array([(1 - asked.outcome[own[:num]]).sum() for own, num in zip(order, first, strict=True)])
    share = (failures + 1) / (first + 2)
    total = allocate(size, np.sqrt(share * (1 - share)), budget, least=first)
    index = np.concatenate([own[:num] for own, num in zip(order, total, strict=True)])
    return normal(*combined(size, stratum[index], asked.outcome[index]), index, level)
