"""Make the report of a run: gather its numbers, then write page, document and summary."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit import accuracy, sanity
from opacc_ray.audit.accuracy import lead_of, measure_accuracy, measure_run, open_for_estimates
from opacc_ray.audit.goals import width_course
from opacc_ray.audit.prior_knowledge import read_history, read_record
from opacc_ray.designs.simple_random import Purposive
from opacc_ray.errors import DataError, OpaccError, counted
from opacc_ray.estimation.failures import label_free_accuracy
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.labels.formats import NUMBER
from opacc_ray.labels.label_log import label_rules
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, weights_of
from opacc_ray.labels.shown_examples import Shown, read_shown
from opacc_ray.lake.store import write_files
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.report import decision, facts
from opacc_ray.report import report_documents as documents
from opacc_ray.report.gallery import Pictures, pictures_of
from opacc_ray.report.page import SECTIONS, page, summary
from opacc_ray.report.report_documents import RunReport, WrittenReport
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ConfusionShares, SliceEstimate, SliceTable
from opacc_ray.runs.run import Run, versions
from opacc_ray.runs.series import attempts_of
from opacc_ray.samplers import find_method
from opacc_ray.selection import Selection
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, Slicing
from opacc_ray.spec.steps import Least

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
        slicings[facts.CONFIDENCE] = Slicing(_bin_names(edges), _codes(predictions.confidence, edges))
        by.append(facts.CONFIDENCE)
    with open_for_estimates(run, [item.known for item in known]) as view:
        numbers = measure_run(run, rounds, known, view, slicings)
        return [numbers.table(Metric(ACCURACY), name, level) for name in by], edges


def reliability_of(
    run: Run, predictions: PoolPredictions, tables: Sequence[SliceTable], edges: NDArray[np.float64]
) -> documents.Reliability:
    """Compare the model's confidence with the labels; without labels, return the confidence alone."""
    known = {table.by: table for table in tables}
    confidence = predictions.confidence
    return documents.Reliability(
        mean_confidence=float(confidence.mean()),
        without_labels=label_free_accuracy(confidence, *_of_reference(run)),
        bins=_bins(confidence, edges, known[facts.CONFIDENCE]) if known else [],
        classes=_classes(run, predictions, known[BY_PREDICTION].slices if known else {}),
        histogram=np.histogram(confidence, bins=20, range=(0, 1))[0].tolist(),
    )


def _of_reference(run: Run) -> tuple[NDArray[np.float64], NDArray[np.float64]] | tuple[()]:
    """Return confidence and outcome (k,) of the labelled reference that the run started from, if any."""
    kept = read_record(run)
    if kept is None or not kept.sources or kept.sources[0].kind != "reference":
        return ()
    pool, failure = read_history(run, keep=False).failures()[0]
    return () if pool.confidence is None else (np.clip(pool.confidence.astype(np.float64), 0, 1), 1 - failure)


def _bins(
    confidence: NDArray[np.float64], edges: NDArray[np.float64], table: SliceTable
) -> list[documents.ConfidenceBin]:
    codes = _codes(confidence, edges)
    total = np.bincount(codes, weights=confidence, minlength=len(edges) - 1).tolist()
    return [
        documents.ConfidenceBin(
            low=low,
            high=high,
            pool=part.size,
            confidence=min(mass / part.size, 1.0),
            labels=part.n,
            accuracy=part.value if part.n else None,
            accuracy_low=part.low if part.n else None,
            accuracy_high=part.high if part.n else None,
        )
        for (low, high), mass, part in zip(pairwise(edges.tolist()), total, table.slices.values(), strict=True)
        if part.size
    ]


def _codes(confidence: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the bin of each example, (N,)."""
    return np.searchsorted(edges[1:-1], confidence, side="right").astype(np.int32)


def _bin_names(edges: NDArray[np.float64]) -> tuple[str, ...]:
    """Return the bins as percentages, with enough decimals to differ."""
    names: tuple[str, ...] = ()
    for digits in range(7):
        names = tuple(f"{facts.ends(low, high, digits=digits)} %" for low, high in pairwise(edges.tolist()))
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


def _classes(
    run: Run, predictions: PoolPredictions, by_prediction: Mapping[str, SliceEstimate]
) -> list[documents.ClassFailures]:
    pool = np.bincount(predictions.prediction)
    doubt = np.bincount(predictions.prediction, weights=1 - predictions.confidence)
    found = []
    for c in sorted(np.flatnonzero(pool).tolist(), key=lambda c: (-doubt[c], c)):
        name = run.spec.model.name_of(c)
        own = part if (part := by_prediction.get(name)) and part.n else None
        found.append(
            documents.ClassFailures(
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


PAGE, DOCUMENT, SUMMARY = "report.html", "report.json", "report.md"

LISTED = 20
"""Most excluded examples that a report names."""

SHOWN_VALUES = 1000
"""Most labels of a regression that a figure shows."""

SHOWN = 40
"""Most mispredicted examples of a page."""


def gather(
    run: Run,
    *,
    level: float = 0.95,
    goal: float | Mapping[str, float] | None = None,
    keep: bool = False,
) -> tuple[RunReport, Pictures]:
    """Return the numbers of a report and the pictures of its gallery.

    Labels may be missing: the report then states which. The same run gives the same report.

    Parameters
    ----------
    level : confidence level of the intervals
    goal : least accuracy, or mean score, that the model must have, or ``{metric: least value}``; None: that of the spec
    keep : log the estimate, unless an earlier one has stated it; else nothing is written

    Raises
    ------
    LabelError
        No round is drawn yet, or labels are in conflict.
    DataError
        The features are not complete.
    """
    index, least = run.complete_features().index, run.spec.least if goal is None else Least.of(goal)
    rounds = read_rounds(run)
    missing, known = sum(len(item.missing) for item in rounds), having_labels(rounds)
    stated = _stated(run, least, level, keep=keep) if known else None
    predictions = read_predictions(run)
    is_forecast = facts.is_share(rounds[0].measure)  # whether the confidence is one of what the labels measure
    tables, edges = list[SliceTable](), np.empty(0)
    if known and run.spec.model.task == "classification":
        tables, edges = tables_of(run, rounds, known, predictions, level)
    gallery, pictures = _gallery(run, known, predictions) if known else (None, {})
    kept = read_record(run)
    report = RunReport(
        run=run.uri,
        name=run.spec.name,
        measure=rounds[0].measure,
        state="without labels" if not known else "partial" if missing else "complete",
        answer=decision.answer(stated, index.num_examples, rounds),
        worth=decision.worth(stated) if stated else None,
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
        tables=tables,
        reliability=reliability_of(run, predictions, tables, edges) if predictions and is_forecast else None,
        values=_values(known) if run.spec.model.task == "regression" else None,
        gallery=gallery,
        excluded=[documents.ExcludedExample(id=item.id, reason=item.reason) for item in index.bad[:LISTED]],
        num_excluded=len(index.bad),
        sections={name: own.to_dict() for name in SECTIONS if (own := SECTIONS[name].read(run))},
        header=run.header,
        attempts=attempts_of(run),
        made_with=versions()["opacc_ray"],
    )
    return decision.decided(run, report, least), pictures


def _stated(run: Run, goal: Least | None, level: float, *, keep: bool) -> AccuracyEstimate:
    """Return an estimate with the metrics of spec and goal, and with all that `opacc estimate` was asked for.

    Slices are those of earlier estimates from the same labels at the same level. ``keep`` logs it, unless one of these
    has all of its numbers.
    """
    before = list[AccuracyEstimate]()
    with suppress(DataError):  # then no earlier one counts
        before = [estimate for _, estimate in run.estimates()]
    asked = (name for estimate in before for name in estimate.metrics)
    lead = goal.metric if goal else lead_of(run)
    wanted = list(dict.fromkeys([*run.spec.numbers, *([lead] if lead != ACCURACY else []), *asked]))
    stated = accuracy.estimate(run, keep=False, partial=True, metrics=wanted, lead=lead, level=level)
    tables = {(table.metric, table.by): table for table in stated.by_slice}
    for kept in before:
        if (kept.labels_digest, kept.level) == (stated.labels_digest, stated.level):
            tables = {(table.metric, table.by): table for table in kept.by_slice} | tables
    stated = stated.model_copy(update={"by_slice": list(tables.values())})
    if keep and not any(_states(own, stated) for own in before):
        run.write_estimate(stated)
    return stated


def _states(before: AccuracyEstimate, stated: AccuracyEstimate) -> bool:
    """Return whether an earlier estimate has all numbers of another one from the same labels."""
    same = ("labels_digest", "level", "value", "low", "high")
    has_metrics = before.metrics.keys() >= stated.metrics.keys()
    return has_metrics and all(getattr(before, name) == getattr(stated, name) for name in same)


def _drawn_by(selection: Selection) -> documents.DrawnBy:
    text = find_method(selection.method).__doc__ or selection.method
    title = " ".join(text.strip().split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
    return documents.DrawnBy(
        round=selection.round,
        method=selection.method,
        title=re.sub(rf"^{selection.method}: ", "", title, flags=re.IGNORECASE),
        seed=selection.seed,
        parameters={name: json.dumps(value) for name, value in selection.parameters.items()},
        is_random=not isinstance(selection.design, Purposive),
    )


def _values(known: Sequence[LabelledRound]) -> list[documents.LabelledValue]:
    """Return the labels and predictions of a regression, each example once."""
    found: dict[str, documents.LabelledValue] = {}
    for item in known:
        for id, label, predicted, outcome in zip(item.known.ids, item.truth, item.predicted, item.outcome, strict=True):
            found[id] = documents.LabelledValue(
                id=id, label=float(label), prediction=float(predicted), outcome=float(outcome)
            )
    return list(found.values())[:SHOWN_VALUES]


def _cells(confusion: ConfusionShares) -> list[documents.ConfusionCell]:
    """Return the cells that hold a label: with many classes most are empty."""
    names, cells = confusion.classes, []
    for i, j in np.argwhere(confusion.num).tolist():
        cell = {"share": confusion.share[i][j], "standard_error": confusion.standard_error[i][j]}
        cells.append(documents.ConfusionCell(true=names[i], predicted=names[j], labels=confusion.num[i][j], **cell))
    return sorted(cells, key=lambda cell: (-cell.share, cell.true, cell.predicted))


def _gallery(
    run: Run, known: Sequence[LabelledRound], predictions: PoolPredictions | None
) -> tuple[documents.Gallery, Pictures]:
    """Return the mispredicted examples with their rows, or the reason where there is no picture; and the pictures."""
    wrong = mispredictions(known, predictions)
    pictures, rows = pictures_of(run, wrong.examples), dict[str, Shown]()
    rounds = {item.round for item in wrong.examples}
    with suppress(OpaccError):  # the pool cannot be read any more
        rows = read_shown(run, map(run.read_chosen, sorted(rounds)), label_rules(run).show)
    notes = {id: found for id, found in pictures.items() if isinstance(found, str)}
    examples = [
        item.model_copy(update={"not_shown": notes.get(item.id), "shown": dict(rows.get(item.id, {}))})
        for item in wrong.examples
    ]
    return wrong.model_copy(update={"examples": examples}), pictures


def mispredictions(known: Sequence[LabelledRound], predictions: PoolPredictions | None) -> documents.Gallery:
    """Return the mispredicted examples, each once: highest confidence or lowest score first.

    An example is mispredicted if its outcome is below 1; in a regression, if its score is below one half.
    """
    is_score, weight_of = known[0].measure != "accuracy", weights_of(known)
    found: dict[str, documents.Misprediction] = {}
    for item in known:
        confidence = predictions.confidence[item.known.index].tolist() if predictions else [None] * len(item.outcome)
        rows = zip(item.known.ids, item.predicted, item.truth, confidence, item.outcome.tolist(), strict=True)
        for id, predicted, truth, confidence_of, outcome in rows:
            if id not in found and outcome < (0.5 if is_score else 1):
                if is_score:  # numbers with six digits, grades as they are
                    texts = predicted, truth
                    predicted, truth = (f"{float(text):.6g}" if NUMBER.fullmatch(text) else text for text in texts)
                found[id] = documents.Misprediction(
                    id=id,
                    round=item.number,
                    prediction=predicted,
                    label=truth,
                    confidence=confidence_of,
                    outcome=outcome,
                    weight=weight_of.get(id),
                    not_shown=None,
                )
    ordered = sorted(found.values(), key=lambda item: (item.outcome, -(item.confidence or 0.0), item.id))
    order = "lowest scores" if is_score else "highest confidence" if predictions else "by id"
    return documents.Gallery(total=len(ordered), order=order, examples=ordered[:SHOWN])


def course_of(run: Run, known: Sequence[LabelledRound], level: float) -> list[documents.CoursePoint]:
    """Return the estimate from the labels of the first round, of the first two, and so on.

    The interval that is valid at any time counts whole rounds only, so a round that waits for labels has none.
    """
    points = []
    for k in range(1, len(known) + 1):
        accuracy = measure_accuracy(run, known[:k])
        found, is_whole = accuracy.estimate(level), not any(item.missing for item in known[:k])
        anytime = confidence_sequence(accuracy.sample, level) if is_whole else None
        points.append(
            documents.CoursePoint(
                round=known[k - 1].number,
                labels=len(accuracy.sample.outcome),
                value=found.value,
                low=found.low,
                high=found.high,
                anytime_low=anytime.low if anytime else None,
                anytime_high=anytime.high if anytime else None,
            )
        )
    return points


# -- files --------------------------------------------------------------------------------------------------------


def make_report(
    run: Run,
    out: str | None = None,
    *,
    level: float = 0.95,
    goal: float | Mapping[str, float] | None = None,
) -> tuple[WrittenReport, RunReport]:
    """Write the page, the document and the summary of a run; return their URIs, and the report.

    ``out`` is the URI of a folder; None: the prefix of the run. The others are as for :func:`gather`.
    A report in the run's prefix logs its estimate, unless it is logged already; elsewhere, the run stays as it is.
    """
    report, pictures = gather(run, level=level, goal=goal, keep=out is None)
    files = {PAGE: page(report, pictures).encode(), DOCUMENT: report.to_bytes(), SUMMARY: summary(report).encode()}
    uris = write_files(run.results(out), files)
    return WrittenReport(
        files=uris, **{name: getattr(report, name) for name in documents.Conclusion.model_fields}
    ), report
