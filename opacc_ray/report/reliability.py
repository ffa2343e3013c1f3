"""Compare the model's confidence with the labels, by bins of confidence and by predicted class.

A bin of confidence, like a predicted class, is a part of the pool whose size is known: its accuracy is a ratio of two
estimated means, calibrated with the pool's counts where the design bears it (:mod:`opacc_ray.estimators.domain`). Edges
are quantiles of the confidences of the labelled examples, whatever their labels are, so that every bin has about as
many labels.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.prior_knowledge import read_history, read_record
from opacc_ray.estimators.domain import by_class, design_for_classes
from opacc_ray.estimators.intervals import Estimate
from opacc_ray.estimators.prediction_powered import label_free_accuracy
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.report_documents import ClassFailures, ConfidenceBin, Reliability
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run

MOST_BINS, LABELS_PER_BIN = 6, 15
"""Bins at most, and labels that each should have."""


class PoolPredictions(NamedTuple):
    """Confidence and prediction of every example of the pool."""

    confidence: NDArray[np.float64]  # (N,) in [0, 1]
    prediction: NDArray[np.int64]  # (N,)


def read_predictions(run: Run) -> PoolPredictions | None:
    """Return confidence and predicted class of the whole pool; None without a confidence."""
    index = run.read_index()
    if index is None or "confidence" not in index.features or run.spec.model.task == "regression":
        return None
    confidence = feature_store.read_column(run, "confidence").astype(np.float64)
    return PoolPredictions(np.clip(confidence, 0, 1), feature_store.read_column(run, "prediction").astype(np.int64))


def reliability_of(run: Run, known: Sequence[LabelledRound], predictions: PoolPredictions, level: float) -> Reliability:
    """Compare the model's confidence with the labels; without labels, return the confidence alone."""
    return Reliability(
        mean_confidence=float(predictions.confidence.mean()),
        without_labels=label_free_accuracy(predictions.confidence, *_of_reference(run)),
        bins=_bins(known, predictions.confidence, level) if known else [],
        classes=_classes(run, known, predictions, level),
    )


def _of_reference(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[()]:
    """Return confidence and outcome (k,) of the labelled reference that the run started from, if any."""
    kept = read_record(run)
    if kept is None or not kept.sources or kept.sources[0].kind != "reference":
        return ()
    pool, outcome = read_history(run, keep=False).labelled[0]
    return () if pool.confidence is None else (np.clip(pool.confidence.astype(np.float64), 0, 1), np.asarray(outcome))


def _bins(known: Sequence[LabelledRound], confidence: NDArray[np.float64], level: float) -> list[ConfidenceBin]:
    edges = _edges(confidence[_places(known)], confidence)
    bin_of = np.searchsorted(edges[1:-1], confidence, side="right")  # (N,)
    pool = np.bincount(bin_of, minlength=len(edges) - 1)
    total = np.bincount(bin_of, weights=confidence, minlength=len(edges) - 1)
    by_bin, found = _by_part(known, bin_of, pool, level), []
    for b in np.flatnonzero(pool).tolist():
        own = by_bin.get(b)
        found.append(
            ConfidenceBin(
                low=float(edges[b]),
                high=float(edges[b + 1]),
                pool=int(pool[b]),
                confidence=min(float(total[b] / pool[b]), 1.0),
                labels=own.n if own else 0,
                accuracy=own.value if own else None,
                accuracy_low=own.low if own else None,
                accuracy_high=own.high if own else None,
            )
        )
    return found


def _edges(labelled: NDArray[np.float64], confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges (bins + 1,) of the bins, from the least to the largest confidence of the pool."""
    num = int(np.clip(len(labelled) // LABELS_PER_BIN, 1, MOST_BINS))
    inner = np.unique(np.quantile(labelled, np.arange(1, num) / num))
    least, largest = confidence.min(), confidence.max()
    return np.concatenate([[least], inner[(inner > least) & (inner < largest)], [largest]])


def _classes(
    run: Run, known: Sequence[LabelledRound], predictions: PoolPredictions, level: float
) -> list[ClassFailures]:
    pool = np.bincount(predictions.prediction)
    doubt = np.bincount(predictions.prediction, weights=1 - predictions.confidence)
    by_prediction, found = _by_part(known, predictions.prediction, pool, level) if known else {}, []
    for c in sorted(np.flatnonzero(pool).tolist(), key=lambda c: (-doubt[c], c)):
        own = by_prediction.get(c)
        found.append(
            ClassFailures(
                name=run.spec.model.name_of(c),
                pool=int(pool[c]),
                expected=float(np.clip(doubt[c] / pool[c], 0, 1)),
                labels=own.n if own else 0,
                found=1 - own.value if own else None,
                found_low=1 - own.high if own else None,
                found_high=1 - own.low if own else None,
            )
        )
    return found


def _by_part(
    known: Sequence[LabelledRound], part: NDArray[Any], pool: NDArray[np.int64], level: float
) -> dict[int, Estimate]:
    """Return the accuracy in each part of the pool that has labels.

    Parameters
    ----------
    part : (N,) the part of each example
    pool : (parts,) how many examples each has
    """
    labelled = part[_places(known)]  # (n,)
    counts = {c: num for c, num in enumerate(pool.tolist()) if num}
    design = design_for_classes([item.known for item in known], labelled, counts)
    return by_class(design, np.concatenate([item.outcome for item in known]), labelled, level)


def _places(known: Sequence[LabelledRound]) -> NDArray[np.int64]:
    """Return the rows of the labelled examples in the pool, (n,) over all rounds."""
    return np.concatenate([item.known.index for item in known])
