"""Put the question of a study to the methods of others: which columns of a case they may read."""

import numpy as np

from opacc_ray.slices import CROSSING
from opacc_ray.study.cases import Case
from opacc_ray.study.peers.peer import Positives, Question, weight_of
from opacc_ray.study.target import Target, class_of, predicted_of


def question(case: Case, target: Target) -> Question:
    """Return what peers may read of a case, made once."""
    return case.view.once("study question", target, lambda: _question(case, target))


def _question(case: Case, target: Target) -> Question:
    confidence = np.clip(case.view.column("confidence"), 0, 1)
    names = [] if target.by is None else [name.strip() for name in target.by.split(CROSSING)]
    slices = tuple(case.view.slicing(name) for name in names)
    alpha = weight_of(target.name)
    positives = None if alpha is None else _positives(case, target, confidence, alpha)
    return Question(confidence, case.outcome, positives, slices)


def _positives(case: Case, target: Target, confidence: np.ndarray, alpha: float) -> Positives:
    """Return one class against the rest; what the confidence leaves is shared equally by the other classes."""
    c = class_of(case, target.metric)
    assert case.truth is not None
    predicted = predicted_of(case) == c
    probability = np.where(predicted, confidence, (1 - confidence) / max(len(case.classes) - 1, 1))
    return Positives(predicted.astype(np.float64), probability, (case.truth == c).astype(np.float64), alpha)
