"""Define what a peer is asked, what it returns, and how it is declared."""

import math
import re
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimation.intervals import normal_quantile
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.slices import Slicing

Array = NDArray[np.float64]

POOL, SLICES, F_MEASURES = "the accuracy of the pool", "the accuracy of slices", "precision, recall and F-measures"
"""What a peer estimates."""


class Positives(NamedTuple):
    """One class against the rest."""

    predicted: Array  # (N,) 1 where the model predicts the class
    probability: Array  # (N,) of the class, as far as the confidence says
    truth: Array  # (N,) 1 for the class; a peer reads only those that it draws
    alpha: float  # 1 for precision, 0 for recall, 1/(1 + β²) for F_β


class Question(NamedTuple):
    """What a peer may read."""

    confidence: Array  # (N,) in [0, 1], the prediction of the outcome
    outcome: Array  # (N,); a peer reads only those that it draws
    positives: Positives | None = None  # for F-measures
    slices: tuple[Slicing, ...] = ()  # the columns that make the slices; their crossing has the numbers


class PeerEstimate(NamedTuple):
    """A number, or one for each slice (S,), estimated by a peer."""

    value: Any
    low: Any
    high: Any
    chosen: NDArray[np.int64]  # labelled examples


class Estimator(Protocol):
    def __call__(self, asked: Question, budget: int, rng: np.random.Generator, level: float) -> PeerEstimate:
        """Draw ``budget`` examples, and estimate."""


class Peer(NamedTuple):
    """A method of others."""

    estimate: Estimator
    least: int = 1  # labels that its variance needs
    kind: str = POOL


def kind_of(metric: str, by: str | None) -> str | None:
    """Return which kind of peer estimates a metric, of the pool or by slices; None if none does."""
    if by is None and weight_of(metric) is not None:
        return F_MEASURES
    if metric != ACCURACY:
        return None
    return POOL if by is None else SLICES


def weight_of(metric: str) -> float | None:
    """Return α of a metric such as ``f1@CLASS``; None if it is no F-measure."""
    name = metric.partition("@")[0]
    found = re.fullmatch(r"f(\d+(?:\.\d+)?)", name)
    return 1 / (1 + float(found[1]) ** 2) if found else {"precision": 1.0, "recall": 0.0}.get(name)


def normal(value: float, variance: float, index: NDArray[np.int64], level: float) -> PeerEstimate:
    """Return the estimate with the interval value ± z · √variance, not cut at 0 and 1."""
    half = normal_quantile(level) * math.sqrt(max(variance, 0.0))
    return PeerEstimate(value, value - half, value + half, index)
