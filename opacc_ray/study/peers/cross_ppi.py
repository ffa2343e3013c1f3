"""Cross-prediction: T. Zrnic, E. J. Candès, "Cross-Prediction-Powered Inference", PNAS 121, 2024, arXiv 2309.16598.

    θ̂ = mean_unlabelled( (1/K) Σ_j f_j(x) ) + (1/n) Σ_j Σ_{i in fold j} (y_i - f_j(x_i))
    v = Var_unlabelled(f̄)/M + s²/n        θ̂ ± z√v

The labels are a simple random sample in K = 10 folds, and f_j is trained on all but fold j. For v, B = 30 models are
trained on bootstrap samples of n(1 - 1/K) labels: f̄ is their mean, and s² the mean variance of y - f over the labels
that a model has not seen. Here f is the confidence, recalibrated (:mod:`opacc_ray.study.peers.recalibrated`).

Legend: N pool, n labels, M = N - n, y outcome.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.study.peers.peer import Array, PeerEstimate, Question, normal
from opacc_ray.study.peers.recalibrated import Recalibrated

FOLDS, BOOTSTRAPS = 10, 30
"""K and B."""


def estimate(asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
    """Draw at random, train on folds, and correct each prediction by labels it has not seen."""
    confidence, outcome = asked.confidence, asked.outcome
    index = rng.choice(len(outcome), budget, replace=False)
    rest = np.delete(confidence, index)
    c, y = confidence[index], outcome[index]
    predicted, error = np.zeros(len(rest)), 0.0
    for fold in np.array_split(np.arange(budget), FOLDS):
        model = Recalibrated(np.delete(c, fold), np.delete(y, fold))
        predicted += model.predict(rest) / FOLDS
        error += float((y[fold] - model.predict(c[fold])).sum())
    value = float(predicted.mean()) + error / budget
    return normal(value, _variance(c, y, rest, rng), index, level)


def _variance(c: Array, y: Array, rest: Array, rng: np.random.Generator) -> float:
    """Return v from labels (n,) and the unlabelled confidence (M,)."""
    n, mean, spread = len(y), np.zeros(len(rest)), []
    for _ in range(BOOTSTRAPS):
        taken: NDArray[np.int64] = rng.integers(n, size=n - n // FOLDS)
        model = Recalibrated(c[taken], y[taken])
        mean += model.predict(rest) / BOOTSTRAPS
        unseen = np.setdiff1d(np.arange(n), taken)
        spread.append(float(np.var(y[unseen] - model.predict(c[unseen]))))
    return float(mean.var()) / len(rest) + sum(spread) / len(spread) / n
