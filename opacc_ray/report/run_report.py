"""Make the report of a run: gather its numbers and pictures, then write page, document and summary.

An object that changed since the pool was listed, or is gone, is not shown: its picture would be of another example.
Pixels are encoded anew, so nothing else reaches the page.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit import accuracy, sanity
from opacc_ray.audit.accuracy import lead_of, measure_accuracy, measure_run, open_for_estimates
from opacc_ray.audit.prior_knowledge import read_record
from opacc_ray.designs.simple_random import Purposive
from opacc_ray.errors import DataError, OpaccError, StorageError
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.labels.formats import NUMBER
from opacc_ray.labels.label_log import label_rules
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, weights_of
from opacc_ray.labels.shown_examples import ExampleFiles, Shown, may_have_pictures, read_shown, render
from opacc_ray.lake.store import Entry, in_order, write_files
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.report import decision, facts
from opacc_ray.report import report_documents as documents
from opacc_ray.report.page import SECTIONS, Picture, Pictures, page, summary
from opacc_ray.report.report_documents import Gallery, Misprediction, RunReport, WrittenReport
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ConfusionShares, SliceTable
from opacc_ray.runs.run import Chosen, Run, versions
from opacc_ray.runs.series import attempts_of
from opacc_ray.samplers import find_method
from opacc_ray.selection import Selection
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, Slicing
from opacc_ray.spec.spec_sections import Least

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
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], bins: Slicing | None, level: float
) -> list[SliceTable]:
    """Return the accuracy by predicted class, by true class and by bins of confidence."""
    slicings = {} if bins is None else {facts.CONFIDENCE: bins}
    with open_for_estimates(run, [item.known for item in known]) as view:
        numbers = measure_run(run, rounds, known, view, slicings)
        return [numbers.table(Metric(ACCURACY), name, level) for name in (BY_PREDICTION, BY_TRUTH, *slicings)]


def reliability_of(run: Run, predictions: PoolPredictions, bins: Slicing | None) -> documents.Reliability:
    """Return what the model's confidence says of the pool, of each bin and of each predicted class."""
    confidence, prediction = predictions
    failures, pool = np.bincount(prediction, weights=1 - confidence), np.bincount(prediction)
    by_failures = sorted(np.flatnonzero(pool).tolist(), key=lambda c: (-failures[c], c))
    means = dict[str, float]()
    if bins is not None:
        total = np.bincount(bins.codes, weights=confidence, minlength=len(bins.names))
        num = np.bincount(bins.codes, minlength=len(bins.names))
        means = {name: min(total[b] / num[b], 1.0) for b, name in enumerate(bins.names) if num[b]}
    return documents.Reliability(
        mean_confidence=float(confidence.mean()),
        bins=means,
        expected={run.spec.model.name_of(c): float(np.clip(1 - failures[c] / pool[c], 0, 1)) for c in by_failures},
        histogram=np.histogram(confidence, bins=20, range=(0, 1))[0].tolist(),
    )


def bins_of(confidence: NDArray[np.float64], known: Sequence[LabelledRound]) -> Slicing:
    """Return bins from the least to the largest confidence of the pool, as percentages with enough decimals to differ.

    Their edges are quantiles of the labelled examples, whatever their labels are: every bin has about as many labels.
    """
    labelled = confidence[np.concatenate([item.known.index for item in known])]
    num = int(np.clip(len(labelled) // LABELS_PER_BIN, 1, MOST_BINS))
    inner = np.unique(np.quantile(labelled, np.arange(1, num) / num))
    least, largest = confidence.min(), confidence.max()
    edges = np.concatenate([[least], inner[(inner > least) & (inner < largest)], [largest]])
    names: tuple[str, ...] = ()
    for digits in range(7):
        names = tuple(f"{facts.ends(low, high, digits=digits)} %" for low, high in pairwise(edges.tolist()))
        if len(set(names)) == len(names):
            break
    return Slicing(names, np.searchsorted(edges[1:-1], confidence, side="right").astype(np.int32))


PAGE, DOCUMENT, SUMMARY = "report.html", "report.json", "report.md"

LISTED = 20
"""Most excluded examples that a report names."""

SHOWN_VALUES = 1000
"""Most labels of a regression that a figure shows."""


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
    has_classes = known and run.spec.model.task == "classification"
    bins = bins_of(predictions.confidence, known) if has_classes and predictions else None
    gallery, pictures = gallery_of(run, known, predictions and predictions.confidence) if known else (None, {})
    kept = read_record(run)
    report = RunReport(
        run=run.uri,
        name=run.spec.name,
        measure=rounds[0].measure,
        state="without labels" if not known else "partial" if missing else "complete",
        answer=decision.answer(stated, index.num_examples, rounds),
        worth=decision.worth(stated) if stated else None,
        warnings=stated.warnings if stated else sanity.warnings_of(run, ()),
        pool_size=index.num_examples,
        rounds=[item.counts() for item in rounds],
        drawn=[_drawn_by(item.selection) for item in rounds],
        history=kept.sources if kept else None,
        estimate=stated.model_copy(update={"confusion": None}) if stated else None,
        confusion=_cells(stated.confusion) if stated and stated.confusion else None,
        course=course_of(run, known, level),
        tables=tables_of(run, rounds, known, bins, level) if has_classes else [],
        reliability=reliability_of(run, predictions, bins) if predictions and is_forecast else None,
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


# -- mispredicted examples ----------------------------------------------------------------------------------------

SHOWN = 40
"""Most mispredicted examples of a page."""

LONGEST, LOSSLESS = 192, 64
"""Most pixels of a picture's longer side, and pixels of it up to which a picture is kept without loss."""

MOST_BYTES = 1 << 30
"""Most bytes of files with many examples that are read for all pictures of a page."""

STATES = {"changed": "its object changed since extraction", "lost": "its object is gone"}


def gallery_of(
    run: Run, known: Sequence[LabelledRound], confidence: NDArray[np.float64] | None
) -> tuple[Gallery, Pictures]:
    """Return the mispredicted examples with their rows, and their pictures; ``confidence`` is that of the pool, (N,).

    Each is there once, highest confidence or lowest score first. An example is mispredicted if its outcome is below 1;
    in a regression, if its score is below one half.
    """
    is_score, weight_of = known[0].measure != "accuracy", weights_of(known)
    found = dict[str, Misprediction]()
    for part in known:
        sure = [None] * len(part.outcome) if confidence is None else confidence[part.known.index].tolist()
        for row in zip(part.known.ids, part.predicted, part.truth, sure, part.outcome.tolist(), strict=True):
            id, outcome = row[0], row[-1]
            if id not in found and outcome < (0.5 if is_score else 1):
                found[id] = _misprediction(row, part.number, weight_of.get(id), is_score=is_score)
    ordered = sorted(found.values(), key=lambda item: (item.outcome, -(item.confidence or 0.0), item.id))
    first, rows = ordered[:SHOWN], dict[str, Shown]()
    pictures = pictures_of(run, first)
    with suppress(OpaccError):  # the pool cannot be read any more
        rows = read_shown(run, map(run.read_chosen, sorted({item.round for item in first})), label_rules(run).show)
    notes = {id: picture for id, picture in pictures.items() if isinstance(picture, str)}
    examples = [
        item.model_copy(update={"not_shown": notes.get(item.id), "shown": dict(rows.get(item.id, {}))})
        for item in first
    ]
    order = "lowest scores" if is_score else "by id" if confidence is None else "highest confidence"
    return Gallery(total=len(ordered), order=order, examples=examples), pictures


def _misprediction(row: tuple[Any, ...], round: int, weight: float | None, *, is_score: bool) -> Misprediction:
    """Return an example that the model got wrong; numbers have six digits, grades stay as they are."""
    id, predicted, truth, confidence, outcome = row
    if is_score:
        predicted, truth = (f"{float(text):.6g}" if NUMBER.fullmatch(text) else text for text in (predicted, truth))
    return Misprediction(
        id=id,
        round=round,
        prediction=predicted,
        label=truth,
        confidence=confidence,
        outcome=outcome,
        weight=weight,
        not_shown=None,
    )


def pictures_of(run: Run, examples: Sequence[Misprediction]) -> Pictures:
    """Return a picture of each example, or the reason why there is none; each file is read once."""
    wanted, pool, numbers = {item.id for item in examples}, run.spec.pool, run.rounds()
    if pool.holds_features and not may_have_pictures(run):
        return dict.fromkeys(wanted, "the pool holds features, no pictures")
    rows = [row for number in numbers for row in zip(*run.read_chosen(number), strict=True) if row[0] in wanted]
    if not rows:
        return {}
    chosen, files = Chosen(*map(list, zip(*rows, strict=True))), ExampleFiles(run, numbers)
    states = {} if pool.holds_features else feature_store.compare_objects(run, [chosen])[1]
    notes: Pictures = {
        id: STATES[states[key]] for id, key in zip(chosen.ids, chosen.objects, strict=True) if key in states
    }

    def draw(id: str) -> Picture | str:
        try:
            found = files.picture(id, LONGEST)
            small = render(found.data, longest=LONGEST, lossless=LOSSLESS)
        except StorageError:
            return "its file cannot be read as a picture"
        except OpaccError as error:
            return str(error)
        uri = f"data:{small.kind};base64,{base64.b64encode(small.data).decode()}"
        return Picture(uri, found.width, found.height)

    read, paid = set[Entry](), list[str]()
    try:
        for id in files.in_pool_order(wanted - notes.keys()):
            read.update(files.entries(id))
            if sum(entry.size for entry in read) <= MOST_BYTES:
                paid.append(id)
            else:
                notes[id] = f"pictures would take more than {MOST_BYTES >> 20} MiB of the pool"
    except OpaccError as error:
        return dict.fromkeys(wanted, f"the pool cannot be read: {error}")
    return notes | dict(zip(paid, in_order(draw, paid, threads=4), strict=True))


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
