"""Make the report of a run: gather its numbers, then write page, document and summary."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit import accuracy, sanity
from opacc_ray.audit.accuracy import accuracy_of
from opacc_ray.audit.label_budget import width_course
from opacc_ray.audit.prior_knowledge import read_history, read_record
from opacc_ray.audit.run_numbers import RunNumbers, open_for_estimates
from opacc_ray.errors import DataError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.confidence_sequence import confidence_sequence
from opacc_ray.estimators.metrics import ACCURACY, Metric
from opacc_ray.estimators.prediction_powered import label_free_accuracy
from opacc_ray.labels.label_log import Score
from opacc_ray.labels.label_rows import NUMBER
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
from opacc_ray.lake.store import write_files
from opacc_ray.report import sentences
from opacc_ray.report.characterized import read_characterization
from opacc_ray.report.gallery import Pictures, pictures_of
from opacc_ray.report.page import page, summary
from opacc_ray.report.report_documents import (
    ClassFailures,
    ConfidenceBin,
    ConfusionCell,
    CoursePoint,
    DrawnBy,
    ExcludedExample,
    Gallery,
    LabelledValue,
    Misprediction,
    Reliability,
    RunReport,
    WrittenReport,
)
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ConfusionShares, StatedEstimate
from opacc_ray.runs.identity import versions
from opacc_ray.runs.run import Run
from opacc_ray.samplers import find_method
from opacc_ray.selection import Selection
from opacc_ray.slices import Slicing

PAGE, DOCUMENT, SUMMARY = "report.html", "report.json", "report.md"

MOST_BINS, LABELS_PER_BIN = 6, 15
"""Bins of confidence at most, and labels that each should have."""

LISTED = 20
"""Most excluded examples that a report names."""

SHOWN_VALUES = 1000
"""Most labels of a regression that a figure shows."""

SHOWN = 40
"""Most mispredicted examples of a page."""


class PoolPredictions(NamedTuple):
    """Confidence and prediction of every example of the pool."""

    confidence: NDArray[np.float64]  # (N,) in [0, 1]
    prediction: NDArray[np.int64]  # (N,)


def gather(
    run: Run, *, level: float = 0.95, conflict: str | None = None, score: Score | None = None
) -> tuple[RunReport, Pictures]:
    """Return the numbers of a report and the pictures of its gallery; nothing is written.

    Labels may be missing: the report then states which. The same run gives the same report.

    Parameters
    ----------
    level : confidence level of the intervals
    conflict, score : rule for labels that differ; score of a regression; None: those of the run

    Raises
    ------
    LabelError
        No round is drawn yet, or labels are in conflict.
    DataError
        The features are not complete.
    """
    index = run.complete_features().index
    rounds = read_rounds(run, conflict=conflict, score=score)
    missing = sum(len(item.missing) for item in rounds)
    known = having_labels(rounds)
    stated = None
    if known:
        fresh = accuracy.estimate(run, keep=False, level=level, partial=True, conflict=conflict, score=score)
        stated = _with_asked(run, fresh)
    predictions = read_predictions(run)
    wrong = mispredictions(known, predictions) if known else None
    pictures = pictures_of(run, wrong.examples) if wrong else {}
    kept = read_record(run)
    report = RunReport(
        run=run.uri,
        track=run.track,
        name=run.spec.name,
        measure=rounds[0].measure,
        state="without labels" if not known else "partial" if missing else "complete",
        answer=sentences.answer(stated, index.num_examples, rounds),
        worth=sentences.worth(stated) if stated else None,
        waits_for=counted(missing, "label") if missing else None,
        warnings=stated.warnings if stated else sanity.warnings_of(run, ()),
        pool_size=index.num_examples,
        rounds=[item.counts() for item in rounds],
        drawn=[_drawn_by(item.selection) for item in rounds],
        history=kept.sources if kept else None,
        estimate=stated.model_copy(update={"confusion": None}) if stated else None,
        confusion=_cells(stated.confusion) if stated and stated.confusion else None,
        course=course_of(run, known, level),
        widths=width_course(run, level=level),
        reliability=reliability_of(run, known, predictions, stated, level) if predictions else None,
        values=_values(known) if run.spec.model.task == "regression" else None,
        gallery=_with_notes(wrong, pictures) if wrong else None,
        excluded=[ExcludedExample(id=item.id, reason=item.reason) for item in index.bad[:LISTED]],
        num_excluded=len(index.bad),
        characterization=read_characterization(run),
        header=run.header,
        made_with=versions()["opacc_ray"],
    )
    return report, pictures


def _with_asked(run: Run, stated: AccuracyEstimate) -> AccuracyEstimate:
    """Return an estimate with what `opacc estimate` was asked for in addition, from the same labels at the same level.

    A kept estimate that cannot be read adds nothing.
    """
    kept = None
    with suppress(DataError):
        kept = run.read_estimate()
    if kept is None or (kept.labels_digest, kept.level) != (stated.labels_digest, stated.level):
        return stated
    known = [(table.metric, table.by) for table in stated.by_slice]
    more = [table for table in kept.by_slice if (table.metric, table.by) not in known]
    update = {"metrics": kept.metrics | stated.metrics, "by_slice": [*stated.by_slice, *more]}
    return stated.model_copy(update=update)


def _drawn_by(selection: Selection) -> DrawnBy:
    text = find_method(selection.method).__doc__ or selection.method
    title = " ".join(text.strip().split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return DrawnBy(
        round=selection.round,
        method=selection.method,
        title=re.sub(rf"^{selection.method}: ", "", title, flags=re.IGNORECASE),
        seed=selection.seed,
        parameters={name: json.dumps(value) for name, value in selection.parameters.items()},
        replicates=selection.design.num_replicates,
    )


def _values(known: Sequence[LabelledRound]) -> list[LabelledValue]:
    """Return the labels and predictions of a regression, each example once."""
    found: dict[str, LabelledValue] = {}
    for item in known:
        for id, label, predicted, outcome in zip(item.known.ids, item.truth, item.predicted, item.outcome, strict=True):
            found[id] = LabelledValue(id=id, label=float(label), prediction=float(predicted), outcome=float(outcome))
    return list(found.values())[:SHOWN_VALUES]


def _cells(confusion: ConfusionShares) -> list[ConfusionCell]:
    """Return the cells that hold a label: with many classes most are empty."""
    found, names = [], confusion.classes
    rows = zip(names, confusion.share, confusion.standard_error, confusion.num, strict=True)
    for true, shares, errors, nums in rows:
        for predicted, share, error, num in zip(names, shares, errors, nums, strict=True):
            if num:
                cell = ConfusionCell(true=true, predicted=predicted, share=share, standard_error=error, labels=num)
                found.append(cell)
    return sorted(found, key=lambda cell: (-cell.share, cell.true, cell.predicted))


def _with_notes(gallery: Gallery, pictures: Pictures) -> Gallery:
    """Return the gallery; each example without a picture has the reason."""
    notes = {id: found for id, found in pictures.items() if isinstance(found, str)}
    examples = [item.model_copy(update={"not_shown": notes.get(item.id)}) for item in gallery.examples]
    return gallery.model_copy(update={"examples": examples})


def _short(text: str) -> str:
    """Return a number with six digits, and a grade as it is."""
    return f"{float(text):.6g}" if NUMBER.fullmatch(text) else text


def mispredictions(known: Sequence[LabelledRound], predictions: PoolPredictions | None) -> Gallery:
    """Return the mispredicted examples, each once: highest confidence or lowest score first.

    An example is mispredicted if its outcome is below 1; in a regression, if its score is below one half.
    """
    is_score = known[0].measure != "accuracy"
    found: dict[str, Misprediction] = {}
    for item in known:
        confidence = predictions.confidence[item.known.index].tolist() if predictions else [None] * len(item.outcome)
        rows = zip(item.known.ids, item.predicted, item.truth, confidence, item.outcome.tolist(), strict=True)
        for id, predicted, truth, confidence_of, outcome in rows:
            if id not in found and outcome < (0.5 if is_score else 1):
                found[id] = Misprediction(
                    id=id,
                    round=item.number,
                    prediction=_short(predicted) if is_score else predicted,
                    label=_short(truth) if is_score else truth,
                    confidence=confidence_of,
                    outcome=outcome,
                    not_shown=None,
                )
    ordered = sorted(found.values(), key=lambda item: (item.outcome, -(item.confidence or 0.0), item.id))
    order = "lowest scores" if is_score else "highest confidence" if predictions else "by id"
    return Gallery(total=len(ordered), order=order, examples=ordered[:SHOWN])


def course_of(run: Run, known: Sequence[LabelledRound], level: float) -> list[CoursePoint]:
    """Return the estimate from the labels of the first round, of the first two, and so on.

    The interval that is valid at any time counts whole rounds only, so a round that waits for labels has none.
    """
    points = []
    for k in range(1, len(known) + 1):
        selections, outcomes = [item.known for item in known[:k]], [item.outcome for item in known[:k]]
        found = accuracy_of(run, selections, outcomes, level)
        is_whole = not any(item.missing for item in known[:k])
        anytime = confidence_sequence(selections, outcomes, level) if is_whole else None
        points.append(
            CoursePoint(
                round=known[k - 1].number,
                labels=sum(len(outcome) for outcome in outcomes),
                value=found.value,
                low=found.low,
                high=found.high,
                anytime_low=anytime.low if anytime else None,
                anytime_high=anytime.high if anytime else None,
            )
        )
    return points


# -- confidence and labels ----------------------------------------------------------------------------------------


def read_predictions(run: Run) -> PoolPredictions | None:
    """Return confidence and predicted class of the whole pool; None without a confidence."""
    index = run.read_index()
    if index is None or "confidence" not in index.features or run.spec.model.task == "regression":
        return None
    confidence = feature_store.read_column(run, "confidence").astype(np.float64)
    return PoolPredictions(np.clip(confidence, 0, 1), feature_store.read_column(run, "prediction").astype(np.int64))


def reliability_of(
    run: Run,
    known: Sequence[LabelledRound],
    predictions: PoolPredictions,
    stated: AccuracyEstimate | None,
    level: float,
) -> Reliability:
    """Compare the model's confidence with the labels; without labels, return the confidence alone.

    A bin of confidence, like a predicted class, is a slice of the pool.
    """
    return Reliability(
        mean_confidence=float(predictions.confidence.mean()),
        without_labels=label_free_accuracy(predictions.confidence, *_of_reference(run)),
        bins=_bins(run, known, predictions.confidence, level) if known else [],
        classes=_classes(run, predictions, (stated.by_predicted_class if stated else None) or {}),
    )


def _of_reference(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[()]:
    """Return confidence and outcome (k,) of the labelled reference that the run started from, if any."""
    kept = read_record(run)
    if kept is None or not kept.sources or kept.sources[0].kind != "reference":
        return ()
    pool, outcome = read_history(run, keep=False).labelled[0]
    return () if pool.confidence is None else (np.clip(pool.confidence.astype(np.float64), 0, 1), np.asarray(outcome))


def _bins(
    run: Run, known: Sequence[LabelledRound], confidence: NDArray[np.float64], level: float
) -> list[ConfidenceBin]:
    edges = _edges(confidence[_places(known)], confidence)
    bin_of = np.searchsorted(edges[1:-1], confidence, side="right")  # (N,)
    pool = np.bincount(bin_of, minlength=len(edges) - 1)
    total = np.bincount(bin_of, weights=confidence, minlength=len(edges) - 1)
    by_bin, found = _by_slice(run, known, bin_of, len(pool), level), []
    for b in np.flatnonzero(pool).tolist():
        own = by_bin[b] if by_bin[b].n else None
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
    """Return the edges (bins + 1,) of the bins, from the least to the largest confidence of the pool.

    They are quantiles of the labelled examples, whatever their labels are: every bin has about as many labels.
    """
    num = int(np.clip(len(labelled) // LABELS_PER_BIN, 1, MOST_BINS))
    inner = np.unique(np.quantile(labelled, np.arange(1, num) / num))
    least, largest = confidence.min(), confidence.max()
    return np.concatenate([[least], inner[(inner > least) & (inner < largest)], [largest]])


def _classes(
    run: Run, predictions: PoolPredictions, by_prediction: Mapping[str, StatedEstimate]
) -> list[ClassFailures]:
    pool = np.bincount(predictions.prediction)
    doubt = np.bincount(predictions.prediction, weights=1 - predictions.confidence)
    found = []
    for c in sorted(np.flatnonzero(pool).tolist(), key=lambda c: (-doubt[c], c)):
        name = run.spec.model.name_of(c)
        own = by_prediction.get(name)
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


def _by_slice(
    run: Run, known: Sequence[LabelledRound], codes: NDArray[np.int64], num: int, level: float
) -> list[Estimate]:
    """Return the accuracy in each of ``num`` slices; ``codes`` (N,) is that of each example."""
    slicing = Slicing(tuple(map(str, range(num))), codes.astype(np.int32))
    with open_for_estimates(run, [item.known for item in known]) as view:
        numbers = RunNumbers(run, known, known, view, {"": slicing})
        return list(numbers.estimates.by_slice(Metric(ACCURACY), "", level).values())


def _places(known: Sequence[LabelledRound]) -> NDArray[np.int64]:
    """Return the rows of the labelled examples in the pool, (n,) over all rounds."""
    return np.concatenate([item.known.index for item in known])


# -- files --------------------------------------------------------------------------------------------------------


def make_report(
    run: Run, out: str | None = None, *, level: float = 0.95, conflict: str | None = None, score: Score | None = None
) -> tuple[WrittenReport, RunReport]:
    """Write the page, the document and the summary of a run; return their URIs, and the report.

    ``out`` is the URI of a folder; None: the prefix of the run, or of its track. The others are as for :func:`gather`.
    """
    report, pictures = gather(run, level=level, conflict=conflict, score=score)
    files = {PAGE: page(report, pictures).encode(), DOCUMENT: report.to_bytes(), SUMMARY: summary(report).encode()}
    uris = write_files(run.results(out), files)
    return WrittenReport(run=run.uri, answer=report.answer, state=report.state, files=uris), report
