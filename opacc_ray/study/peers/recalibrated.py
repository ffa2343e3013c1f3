"""Recalibrate the confidence by labels: the model that peers train, because a peer has no other feature.

logit P(y = 1) = a + b · logit c        (a, b) ~ N((0, 1), 1): without labels it is the confidence
"""

import numpy as np

from opacc_ray.study.peers.peer import Array

_STEPS, _CLOSE = 20, 1e-6


class Recalibrated:
    """The model, by the outcomes of labelled examples."""

    def __init__(self, confidence: Array, outcome: Array) -> None:
        """Fit by Newton's method; both arrays are (n,), n may be 0."""
        x, start = _columns(confidence), np.array([0.0, 1.0])
        self.coefficients = start
        for _ in range(_STEPS):
            p = self._predict(x)
            gradient = x.T @ (outcome - p) - (self.coefficients - start)
            curvature = (x * (p * (1 - p))[:, None]).T @ x + np.eye(2)
            step = np.clip(np.linalg.solve(curvature, gradient), -1, 1)
            self.coefficients = self.coefficients + step
            if np.abs(step).max() < _CLOSE:
                break

    def predict(self, confidence: Array) -> Array:
        """Return the probability (k,) that each outcome is 1."""
        return self._predict(_columns(confidence))

    def _predict(self, x: Array) -> Array:
        return np.asarray(1 / (1 + np.exp(-np.clip(x @ self.coefficients, -30, 30))))


def _columns(confidence: Array) -> Array:
    inside = np.clip(confidence, 1e-6, 1 - 1e-6)
    return np.column_stack([np.ones(len(inside)), np.log(inside / (1 - inside))])
