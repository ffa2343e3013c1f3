"""Sequential active inference: T. Zrnic, E. J. Candès, "Active Statistical Inference", ICML 2024, arXiv 2403.03208,
with a model that is trained again while labels are collected.

    Δ_t = f_t(x_t) + ξ_t (y_t - f_t(x_t))/π_t        ξ_t ~ Bernoulli(π_t)        θ̂ = mean Δ_t,  v = Var(Δ_t)/N

Examples come in a random order; f_t and π_t know only the labels before. Here the pool comes in T = 10 parts; before
each, f is the confidence recalibrated by all labels so far (:mod:`opacc_ray.study.peers.recalibrated`), and π is that
of :mod:`opacc_ray.study.peers.active` for the part's share of the labels that are left.

Legend: N pool, y outcome, π probability to be labelled.
"""

import numpy as np

from opacc_ray.study.peers.active import MIX, active, mixed
from opacc_ray.study.peers.peer import PeerEstimate, Question, normal
from opacc_ray.study.peers.recalibrated import Recalibrated

PARTS = 10
"""T."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Go through the pool once, and train on what was labelled."""
    confidence, outcome = asked.confidence, asked.outcome
    order = rng.permutation(len(outcome))
    term, chosen, left = np.empty(len(order)), np.empty(0, dtype=np.int64), len(order)
    for part in np.array_split(order, PARTS):
        own = Recalibrated(confidence[chosen], outcome[chosen]).predict(confidence[part])
        share = max(budget - len(chosen), 0) * len(part) / left
        probability = mixed(active(own, share), share, MIX)
        drawn = rng.random(len(part)) < probability
        error = np.divide(outcome[part] - own, probability, out=np.zeros(len(part)), where=drawn)
        term[part] = own + error
        chosen, left = np.concatenate([chosen, part[drawn]]), left - len(part)
    return normal(float(term.mean()), float(term.var()) / len(term), chosen, level)
