"""Predictions of failure that no label had a part in to which they are compared.

The labels are cut in K folds, and each fold's failures are predicted by a model that was fitted to the others'
(cross-fitting: P. Robinson, "Root-N-consistent semiparametric regression", Econometrica 56, 1988; V. Chernozhukov and
others, The Econometrics Journal 21, 2018).

Legend: N pool, k labels, K folds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opacc_ray.failure.model import Forecast, Lesson, predict_failure
from opacc_ray.failure.signals import PoolSignals

NUM_FOLDS = 5


def fold_of(num_labels: Sequence[int]) -> NDArray[np.int64]:
    """Fold of each label (k,), over all rounds: as even as can be in all of them together and in each.

    ``num_labels`` are those of each round, which hands its examples out in random order.
    """
    total = sum(num_labels)
    return np.arange(total) % min(NUM_FOLDS, max(total, 1))


def predict_without_fold(
    signals: PoolSignals,
    labelled: NDArray[np.int64],
    failure: NDArray[np.float64],
    fold: NDArray[np.int64],
    lessons: Sequence[Lesson] = (),
) -> list[Forecast]:
    """p⁽⁻ᵏ⁾ for each fold, from the failures (k,) of the examples ``labelled`` (k,) that are in other folds."""
    predicted = []
    for left_out in range(int(fold.max()) + 1):
        others = fold != left_out
        predicted.append(predict_failure(signals, labelled[others], failure[others], lessons))
    return predicted
