"""Make the report of a run: gather its numbers, then write page, document and summary."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from opacc_ray.audit import accuracy, sanity
from opacc_ray.audit.accuracy import accuracy_of
from opacc_ray.audit.label_budget import width_course
from opacc_ray.audit.prior_knowledge import read_record
from opacc_ray.designs.purposive import Purposive
from opacc_ray.errors import DataError, OpaccError, counted
from opacc_ray.estimators.design_based import confidence_sequence
from opacc_ray.labels.label_log import Score, read_log
from opacc_ray.labels.label_rows import NUMBER
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, weights_of
from opacc_ray.labels.shown_rows import Shown, read_shown
from opacc_ray.lake.store import write_files
from opacc_ray.report import sentences
from opacc_ray.report.calibration import PoolPredictions, read_predictions, reliability_of, tables_of
from opacc_ray.report.characterized import read_characterization
from opacc_ray.report.decision import decided
from opacc_ray.report.facts import is_share
from opacc_ray.report.gallery import Pictures, pictures_of
from opacc_ray.report.page import page, summary
from opacc_ray.report.report_documents import (
    ConfusionCell,
    CoursePoint,
    DrawnBy,
    ExcludedExample,
    Gallery,
    LabelledValue,
    Misprediction,
    RunReport,
    WrittenReport,
)
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ConfusionShares, SliceTable
from opacc_ray.runs.identity import versions
from opacc_ray.runs.run import Run
from opacc_ray.samplers import find_method
from opacc_ray.selection import Selection
from opacc_ray.spec.steps import Least

PAGE, DOCUMENT, SUMMARY = "report.html", "report.json", "report.md"

SAID = "run", "answer", "state", "verdict", "checks", "findings", "next"
"""Fields of a report that the answer of `opacc report` repeats."""

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
    conflict: str | None = None,
    score: Score | None = None,
    goal: float | Mapping[str, float] | None = None,
    keep: bool = False,
) -> tuple[RunReport, Pictures]:
    """Return the numbers of a report and the pictures of its gallery.

    Labels may be missing: the report then states which. The same run gives the same report.

    Parameters
    ----------
    level : confidence level of the intervals
    conflict, score : rule for labels that differ; score of a regression; None: those of the run
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
    rounds = read_rounds(run, conflict=conflict, score=score)
    missing, known = sum(len(item.missing) for item in rounds), having_labels(rounds)
    stated = _stated(run, least, keep=keep, level=level, conflict=conflict, score=score) if known else None
    predictions, shares = read_predictions(run), is_share(rounds[0].measure)  # else a confidence is no forecast of it
    tables, edges = list[SliceTable](), np.empty(0)
    if known and run.spec.model.task == "classification":
        tables, edges = tables_of(run, rounds, known, predictions, level)
    gallery, pictures = _gallery(run, known, predictions) if known else (None, {})
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
        tables=tables,
        reliability=reliability_of(run, predictions, tables, edges) if predictions and shares else None,
        values=_values(known) if run.spec.model.task == "regression" else None,
        gallery=gallery,
        excluded=[ExcludedExample(id=item.id, reason=item.reason) for item in index.bad[:LISTED]],
        num_excluded=len(index.bad),
        characterization=read_characterization(run),
        header=run.header,
        made_with=versions()["opacc_ray"],
    )
    return decided(run, report, least), pictures


def _stated(run: Run, goal: Least | None, *, keep: bool, **options: Any) -> AccuracyEstimate:
    """Return an estimate with the metrics of spec and goal, and with all that `opacc estimate` was asked for.

    Slices are those of earlier estimates from the same labels at the same level. ``keep`` logs it, unless one of these
    has all of its numbers.
    """
    before = _readable(run)
    asked = (name for estimate in before for name in estimate.metrics)
    wanted = list(dict.fromkeys([*run.spec.numbers, *([goal.metric] if goal else []), *asked]))
    stated = accuracy.estimate(run, keep=False, partial=True, metrics=wanted, **options)
    tables = {(table.metric, table.by): table for table in stated.by_slice}
    for kept in before:
        if (kept.labels_digest, kept.level) == (stated.labels_digest, stated.level):
            tables = {(table.metric, table.by): table for table in kept.by_slice} | tables
    stated = stated.model_copy(update={"by_slice": list(tables.values())})
    if keep and not any(_states(own, stated) for own in before):
        run.write_estimate(stated)
    return stated


def _readable(run: Run) -> list[AccuracyEstimate]:
    """Return the estimates stated so far; none if one cannot be read."""
    with suppress(DataError):
        return [estimate for _, estimate in run.estimates()]
    return []


def _states(before: AccuracyEstimate, stated: AccuracyEstimate) -> bool:
    """Return whether an earlier estimate has all numbers of another one from the same labels."""
    same = ("labels_digest", "level", "value", "low", "high")
    has_metrics = before.metrics.keys() >= stated.metrics.keys()
    return has_metrics and all(getattr(before, name) == getattr(stated, name) for name in same)


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
        is_random=not isinstance(selection.design, Purposive),
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


def _gallery(run: Run, known: Sequence[LabelledRound], predictions: PoolPredictions | None) -> tuple[Gallery, Pictures]:
    """Return the mispredicted examples with their rows, or the reason where there is no picture; and the pictures."""
    wrong = mispredictions(known, predictions)
    pictures, rows = pictures_of(run, wrong.examples), _rows_of(run, wrong)
    notes = {id: found for id, found in pictures.items() if isinstance(found, str)}
    examples = [
        item.model_copy(update={"not_shown": notes.get(item.id), "shown": dict(rows.get(item.id, {}))})
        for item in wrong.examples
    ]
    return wrong.model_copy(update={"examples": examples}), pictures


def _rows_of(run: Run, gallery: Gallery) -> dict[str, Shown]:
    """Return what annotators see of the examples of a gallery; nothing if the pool cannot be read any more."""
    rounds = {item.round for item in gallery.examples}
    with suppress(OpaccError):
        return read_shown(run, map(run.read_chosen, sorted(rounds)), read_log(run).show)
    return {}


def _short(text: str) -> str:
    """Return a number with six digits, and a grade as it is."""
    return f"{float(text):.6g}" if NUMBER.fullmatch(text) else text


def mispredictions(known: Sequence[LabelledRound], predictions: PoolPredictions | None) -> Gallery:
    """Return the mispredicted examples, each once: highest confidence or lowest score first.

    An example is mispredicted if its outcome is below 1; in a regression, if its score is below one half.
    """
    is_score, weight_of = known[0].measure != "accuracy", weights_of(known)
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
                    weight=weight_of.get(id),
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


# -- files --------------------------------------------------------------------------------------------------------


def make_report(
    run: Run,
    out: str | None = None,
    *,
    level: float = 0.95,
    conflict: str | None = None,
    score: Score | None = None,
    goal: float | Mapping[str, float] | None = None,
) -> tuple[WrittenReport, RunReport]:
    """Write the page, the document and the summary of a run; return their URIs, and the report.

    ``out`` is the URI of a folder; None: the prefix of the run, or of its track. The others are as for :func:`gather`.
    A report in the run's prefix logs its estimate, unless it is logged already; elsewhere, the run stays as it is.
    """
    report, pictures = gather(run, level=level, conflict=conflict, score=score, goal=goal, keep=out is None)
    files = {PAGE: page(report, pictures).encode(), DOCUMENT: report.to_bytes(), SUMMARY: summary(report).encode()}
    uris = write_files(run.results(out), files)
    return WrittenReport(files=uris, **{name: getattr(report, name) for name in SAID}), report
