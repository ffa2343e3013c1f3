"""Stratified PPI: A. Fisch, J. Maynez, R. A. Hofer, B. Dhingra, A. Globerson, W. W. Cohen, "Stratified
Prediction-Powered Inference for Hybrid Language Model Evaluation", NeurIPS 2024, arXiv 2406.04291.

    θ̂ = Σ_h ω_h θ̂_h,  v = Σ_h ω_h² v_h        ω_h = N_h/N,  n_h ∝ ω_h √(mean c(1 - c))        θ̂ ± z√v

with θ̂_h and v_h those of PPI++ in stratum h (:mod:`opacc_ray.study.peers.ppi`), so each has its own λ. Strata are
equal shares of the pool by confidence: 10, or fewer so that a stratum has 10 labels on average. No stratum gets fewer
than two labels.

Legend: N pool, N_h and n_h examples and labels of stratum h, c confidence.
"""

import numpy as np

from opacc_ray.study.peers.peer import PeerEstimate, Question, normal
from opacc_ray.study.peers.ppi import power_tuned
from opacc_ray.study.peers.stratified_proxy import allocate

NUM_STRATA, LABELS = 10, 10
"""Most strata, and labels of each on average at least."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw at random in strata of like confidence, and assist each by the tuned confidence."""
    confidence, outcome = asked.confidence, asked.outcome
    num = min(NUM_STRATA, max(budget // LABELS, 1))
    strata = np.array_split(np.argsort(confidence, kind="stable"), num)
    doubt = confidence * (1 - confidence)
    deviation = np.sqrt([float(doubt[own].mean()) for own in strata])
    sizes = allocate(np.array([len(own) for own in strata]), deviation, budget)
    value, variance, chosen = 0.0, 0.0, []
    for members, size in zip(strata, sizes.tolist(), strict=True):
        mixed = rng.permutation(members)
        labelled, rest, share = mixed[:size], mixed[size:], len(members) / len(outcome)
        own, spread = power_tuned(outcome[labelled], confidence[labelled], confidence[rest])
        value, variance = value + share * own, variance + share**2 * spread
        chosen.append(labelled)
    return normal(value, variance, np.concatenate(chosen), level)
