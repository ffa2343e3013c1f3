"""Static importance sampling: C. Sawade, N. Landwehr, T. Scheffer, "Active Estimation of F-Measures", NIPS 2010.

    q = (1 - ε) q*/Σq* + ε/N        by the p of the confidence and the F that they predict, ε = 0.001

with draws, estimate and interval as in :mod:`opacc_ray.study.peers.importance`. The uniform share ε is that of the
implementation in the package of OASIS; the paper has none, and needs p > 0.
"""

import numpy as np

from opacc_ray.study.peers import importance
from opacc_ray.study.peers.peer import PeerEstimate, Question

UNIFORM = 1e-3
"""ε."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw by the probabilities of the class alone."""
    own = importance.positives_of(asked.positives)
    f = importance.guess(own.predicted, own.probability, own.alpha)
    q = importance.best_draw(own.predicted, own.probability, own.alpha, f)
    q = (1 - UNIFORM) * q / q.sum() + UNIFORM / len(q)
    index = importance.draw(q, budget, np.zeros(len(q), dtype=bool), rng, importance.MOST * budget)
    return importance.estimate_f(own, index, 1 / (len(q) * q[index]), level)
