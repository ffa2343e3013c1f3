"""Compare the model's confidence, and its predicted classes, with the labels."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.prior_knowledge import read_history, read_record
from opacc_ray.audit.run_numbers import RunNumbers, open_for_estimates
from opacc_ray.estimators.metrics import ACCURACY, Metric
from opacc_ray.estimators.prediction_powered import label_free_accuracy
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.report.facts import ends
from opacc_ray.report.report_documents import ClassFailures, ConfidenceBin, Reliability
from opacc_ray.report.stated_numbers import CONFIDENCE
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import SliceEstimate, SliceTable
from opacc_ray.runs.run import Run
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, Slicing

MOST_BINS, LABELS_PER_BIN = 6, 15
"""Bins of confidence at most, and labels that each should have."""


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


def tables_of(
    run: Run,
    rounds: Sequence[LabelledRound],
    known: Sequence[LabelledRound],
    predictions: PoolPredictions | None,
    level: float,
) -> tuple[list[SliceTable], NDArray[np.float64]]:
    """Return the accuracy by predicted class, by true class and by bins of confidence, and the edges of the bins."""
    slicings, by, edges = {}, [BY_PREDICTION, BY_TRUTH], np.array([0.0, 1.0])
    if predictions:
        labelled = np.concatenate([item.known.index for item in known])
        edges = _edges(predictions.confidence[labelled], predictions.confidence)
        slicings[CONFIDENCE] = Slicing(_bin_names(edges), _codes(predictions.confidence, edges))
        by.append(CONFIDENCE)
    with open_for_estimates(run, [item.known for item in known]) as view:
        numbers = RunNumbers(run, rounds, known, view, slicings)
        return [numbers.table(Metric(ACCURACY), name, level) for name in by], edges


def reliability_of(
    run: Run, predictions: PoolPredictions, tables: Sequence[SliceTable], edges: NDArray[np.float64]
) -> Reliability:
    """Compare the model's confidence with the labels; without labels, return the confidence alone."""
    known = {table.by: table for table in tables}
    confidence = predictions.confidence
    return Reliability(
        mean_confidence=float(confidence.mean()),
        without_labels=label_free_accuracy(confidence, *_of_reference(run)),
        bins=_bins(confidence, edges, known[CONFIDENCE]) if known else [],
        classes=_classes(run, predictions, known[BY_PREDICTION].slices if known else {}),
        histogram=np.histogram(confidence, bins=20, range=(0, 1))[0].tolist(),
    )


def _of_reference(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[()]:
    """Return confidence and outcome (k,) of the labelled reference that the run started from, if any."""
    kept = read_record(run)
    if kept is None or not kept.sources or kept.sources[0].kind != "reference":
        return ()
    pool, outcome = read_history(run, keep=False).labelled[0]
    return () if pool.confidence is None else (np.clip(pool.confidence.astype(np.float64), 0, 1), np.asarray(outcome))


def _bins(confidence: NDArray[np.float64], edges: NDArray[np.float64], table: SliceTable) -> list[ConfidenceBin]:
    codes = _codes(confidence, edges)
    total = np.bincount(codes, weights=confidence, minlength=len(edges) - 1)
    found = []
    for b, part in enumerate(table.slices.values()):
        if part.size:
            found.append(
                ConfidenceBin(
                    low=float(edges[b]),
                    high=float(edges[b + 1]),
                    pool=part.size,
                    confidence=min(float(total[b] / part.size), 1.0),
                    labels=part.n,
                    accuracy=part.value if part.n else None,
                    accuracy_low=part.low if part.n else None,
                    accuracy_high=part.high if part.n else None,
                )
            )
    return found


def _codes(confidence: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the bin of each example, (N,)."""
    return np.searchsorted(edges[1:-1], confidence, side="right").astype(np.int32)


def _bin_names(edges: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the bins as percentages, with enough decimals to differ."""
    names: tuple[str, ...] = ()
    for digits in range(7):
        names = tuple(f"{ends(low, high, digits=digits)} %" for low, high in pairwise(edges.tolist()))
        if len(set(names)) == len(names):
            break
    return names


def _edges(labelled: NDArray[np.float64], confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the edges (bins + 1,) of the bins, from the least to the largest confidence of the pool.

    They are quantiles of the labelled examples, whatever their labels are: every bin has about as many labels.
    """
    num = int(np.clip(len(labelled) // LABELS_PER_BIN, 1, MOST_BINS))
    inner = np.unique(np.quantile(labelled, np.arange(1, num) / num))
    least, largest = confidence.min(), confidence.max()
    return np.concatenate([[least], inner[(inner > least) & (inner < largest)], [largest]])


def _classes(run: Run, predictions: PoolPredictions, by_prediction: Mapping[str, SliceEstimate]) -> list[ClassFailures]:
    pool = np.bincount(predictions.prediction)
    doubt = np.bincount(predictions.prediction, weights=1 - predictions.confidence)
    found = []
    for c in sorted(np.flatnonzero(pool).tolist(), key=lambda c: (-doubt[c], c)):
        name = run.spec.model.name_of(c)
        own = by_prediction.get(name)
        own = own if own and own.n else None
        found.append(
            ClassFailures(
                name=name,
                pool=int(pool[c]),
                expected=float(np.clip(doubt[c] / pool[c], 0, 1)),
                labels=own.n if own else 0,
                found=1 - own.value if own else None,
                found_low=1 - own.high if own else None,
                found_high=1 - own.low if own else None,
            )
        )
    return found
