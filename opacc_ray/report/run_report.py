"""Make the report of a run: gather its numbers and pictures, then write page, document and summary.

An object that changed since the pool was listed, or is gone, is not shown: its picture would be of another example.
Pixels are encoded anew, so nothing else reaches the page.
"""

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from operator import attrgetter
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.accuracy import lead_of, measured, request_of, state
from opacc_ray.audit.goals import look_for_goal, read_target
from opacc_ray.audit.history import read_record
from opacc_ray.audit.run_numbers import RunNumbers, measure_accuracy
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.audit.status import command_of, step_of
from opacc_ray.designs.simple_random import Purposive
from opacc_ray.errors import DataError, LabelError, OpaccError, StorageError, counted
from opacc_ray.estimation.constants import BY_CHANCE
from opacc_ray.estimation.intervals import clipped, level_of_each, normal_quantile
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.labels.formats import NUMBER
from opacc_ray.labels.label_log import label_rules
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, weights_of
from opacc_ray.labels.shown_examples import ExampleFiles, Shown, may_have_pictures, read_shown, render
from opacc_ray.lake.store import Entry, in_order, write_files
from opacc_ray.metrics.metric import ACCURACY, FEWEST, Metric, parse_metric
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, Slicing
from opacc_ray.report import facts
from opacc_ray.report import report_documents as documents
from opacc_ray.report.page import SECTIONS, Picture, Pictures, claim, page, summary
from opacc_ray.report.report_documents import Gallery, Misprediction, RunReport, WrittenReport
from opacc_ray.runs.run import Chosen, Run, compare_objects, read_column, versions
from opacc_ray.runs.run_documents import AccuracyEstimate, ConfusionShares, SliceTable, StatedEstimate
from opacc_ray.runs.series import Population, attempts_of, runs_of
from opacc_ray.samplers import find_method
from opacc_ray.selection import Selection
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
    confidence = read_column(run, "confidence").astype(np.float64)
    return PoolPredictions(np.clip(confidence, 0, 1), read_column(run, "prediction").astype(np.int64))


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
    predictions = read_predictions(run)
    is_forecast = facts.is_share(rounds[0].measure)  # whether the confidence is one of what the labels measure
    has_classes = known and run.spec.model.task == "classification"
    bins = bins_of(predictions.confidence, known) if has_classes and predictions else None
    stated, tables, course = _state(run, rounds, least, level, bins, keep=keep) if known else (None, [], [])
    gallery, pictures = gallery_of(run, known, predictions and predictions.confidence) if known else (None, {})
    kept = read_record(run)
    report = RunReport(
        run=run.uri,
        name=run.spec.name,
        measure=rounds[0].measure,
        state="without labels" if not known else "partial" if missing else "complete",
        answer=answer(stated, index.num_examples, rounds),
        worth=worth(stated) if stated else None,
        warnings=stated.warnings if stated else warnings_of(run, ()),
        pool_size=index.num_examples,
        rounds=[item.counts() for item in rounds],
        drawn=[_drawn_by(item.selection) for item in rounds],
        history=kept.sources if kept else None,
        estimate=stated.model_copy(update={"confusion": None}) if stated else None,
        confusion=_cells(stated.confusion) if stated and stated.confusion else None,
        course=course,
        tables=tables,
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
    return decided(run, report, least), pictures


def _state(
    run: Run, rounds: Sequence[LabelledRound], goal: Least | None, level: float, bins: Slicing | None, *, keep: bool
) -> tuple[AccuracyEstimate, list[SliceTable], list[documents.CoursePoint]]:
    """Return an estimate with the metrics of spec and goal, and with all that `opacc estimate` was asked for.

    From the same measurement: the accuracy by predicted class, by true class and by ``bins`` of confidence, and the
    course. Slices of the estimate are those of earlier ones from the same labels at the same level. ``keep`` logs it,
    unless one of these has all of its numbers.
    """
    before = list[AccuracyEstimate]()
    with suppress(DataError):  # then no earlier one counts
        before = [estimate for _, estimate in run.estimates()]
    asked = (name for estimate in before for name in estimate.metrics)
    lead = goal.metric if goal else lead_of(run)
    wanted = list(dict.fromkeys([*run.spec.numbers, *([lead] if lead != ACCURACY else []), *asked]))
    request, slicings = request_of(run, wanted), {} if bins is None else {facts.CONFIDENCE: bins}
    with measured(run, rounds, request, level, True, slicings) as numbers:
        stated = state(numbers, request, level, lead)
        names = (BY_PREDICTION, BY_TRUTH, *slicings) if run.spec.model.task == "classification" else ()
        parts = [numbers.table(Metric(ACCURACY), name, level) for name in names]
        course = course_of(numbers, level)
    tables = {(table.metric, table.by): table for table in stated.by_slice}
    for kept in before:
        if (kept.labels_digest, kept.level) == (stated.labels_digest, stated.level):
            tables = {(table.metric, table.by): table for table in kept.by_slice} | tables
    stated = stated.model_copy(update={"by_slice": list(tables.values())})
    of = attrgetter("labels_digest", "level", "value", "low", "high")
    if keep and not any(own.metrics.keys() >= stated.metrics.keys() and of(own) == of(stated) for own in before):
        run.write_estimate(stated)
    return stated, parts, course


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


def course_of(numbers: RunNumbers, level: float) -> list[documents.CoursePoint]:
    """Return the estimate from the labels of the first round, of the first two, and so on.

    The interval that is valid at any time counts whole rounds only, so a round that waits for labels has none.
    """
    run, known, view, points = numbers.run, numbers.known, numbers.numbers.pool.view, []
    for k in range(1, len(known) + 1):
        accuracy = measure_accuracy(run, known[:k], view) if k < len(known) else numbers.accuracy
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
    states = {} if pool.holds_features else compare_objects(run, [chosen])[1]
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


# -- decisions -------------------------------------------------------------------------------------------------------


MOST_FINDINGS = 5

NEARLY_ALL = 0.8
"""Share of the examples without a label from which a forecast says that it is nearly the whole pool."""


def decided(run: Run, report: RunReport, goal: Least | None) -> RunReport:
    """Return a report with its verdict, checks, findings, next step and the audit before."""
    checks = [_sampling(report), _labels(report), _pool(report), _model(report)]
    update = {"verdict": _verdict(run, report, goal), "checks": checks, "findings": findings(report), "no_findings": ""}
    if report.estimate is not None:
        parts = "class, slice or confusion" if report.tables else "part of the pool"
        update["no_findings"] = f"No {parts} stands out from {counted(report.estimate.n, 'label')}."
    report = report.model_copy(update=update | {"previous": _previous(run)})
    return report.model_copy(update={"next": _next_step(run, report)})


# -- verdict and next step -------------------------------------------------------------------------------


def _verdict(run: Run, report: RunReport, goal: Least | None) -> documents.Verdict | None:
    """Return whether the goal is met, also in words; if that is open, how many labels decide it."""
    estimate = report.estimate
    if estimate is None or goal is None:
        return None
    stated = facts.stated_number(estimate, goal.metric)
    assert stated is not None
    measure = facts.measure_of(goal.metric, report.measure)
    least = facts.number(goal.share, measure).replace(".0 ", " ")
    least += "" if goal.metric == ACCURACY else f" {facts.metric_name(goal.metric)}"
    met, interval = meets(stated, goal.share), facts.stated(stated, measure).interval
    verdict = documents.Verdict(goal=goal.share, metric=goal.metric, met=met)
    if met is not None:
        detail = f"The interval, {interval}, is {'above' if met else 'below'} the goal."
        heading = f"{'Meets' if met else 'Does not meet'} {least}"
        return verdict.model_copy(update={"heading": heading, "detail": detail})
    update: dict[str, object] = {"heading": f"Cannot tell yet whether it meets {least}", "detail": f"{interval}."}
    distance = abs(clipped(stated) - goal.share)
    step = 10.0 ** (math.floor(math.log10(max(distance, 1e-9))) - 1)  # rounded down to two digits
    half_width = max(round(math.floor(distance / step + 1e-9) * step, 12), 0.5 / estimate.pool_size)
    with suppress(LabelError):  # no round is complete
        ahead = look_for_goal(run, half_width, read_target(goal.metric), level=estimate.level)
        labels = max(ahead.labels_to_go, 1)
        update |= {"labels_to_go": labels, "half_width": half_width}
        decide = counted(rounded(labels), "more label decides", "more labels decide")
        update["detail"] = f"{interval}; about {decide}."
    return verdict.model_copy(update=update)


def meets(estimate: StatedEstimate, goal: float) -> bool | None:
    """Return whether an interval is above a goal, or below it; None if it contains the goal."""
    return True if estimate.low >= goal else False if estimate.high < goal else None


def _next_step(run: Run, report: RunReport) -> documents.NextStep:
    """Return what to do next, by the labels, then by the verdict."""
    step = command_of(run, *step_of(run, report.rounds, stated=True))
    missing = sum(item.missing for item in report.rounds)
    if missing:
        what = f"Label the {counted(missing, 'example')} that wait." if missing > 1 else "Label the example that waits."
        return documents.NextStep(why=what, command=step)
    if report.estimate is None:
        return documents.NextStep(why='All answers are "can\'t tell". Draw more examples.', command=step)
    failed = next((item for item in report.checks if item.name == "labels" and item.state == "failed"), None)
    verdict = report.verdict
    if failed:
        why = "Find out where annotators differ, and correct these labels."
        return documents.NextStep(why=why, command=command_of(run, "labels list"))
    if verdict is None and run.newest_goal(reached=False) is not None:
        why = "Draw and label more: the goal of `opacc next --until` is not reached."
        return documents.NextStep(why=why, command=step)
    if verdict is None:
        return _name_a_goal(run, report.estimate)
    if verdict.met is None:
        more, half_width = counted(rounded(verdict.labels_to_go or 1), "more label"), verdict.half_width or 0.01
        left = max(report.pool_size - sum(item.labelled + item.unsure for item in report.rounds), 0)
        why = f"Draw and label about {more}; stop once the interval is ±{100 * half_width:g} points."
        if verdict.labels_to_go and verdict.labels_to_go >= NEARLY_ALL * left:
            why += f" That is nearly the whole pool, of which {facts.thousands(left)} have no label."
        until = f"{half_width:g}" if verdict.metric == ACCURACY else f"'{verdict.metric} ±{half_width:g}'"
        return documents.NextStep(why=why, command=command_of(run, "next", "--until", until))
    if verdict.met:
        why = "Nothing is left to do. Audit again when the pool or the model changes; compare over time with:"
        return documents.NextStep(why=why, command=f"opacc history {run.spec.name} --output {run.spec.output}")
    why = "Improve the model, starting with the findings. Then compare it by the same labels, as NEW_RUN:"
    return documents.NextStep(why=why, command=command_of(run, "compare", "NEW_RUN"))


def _name_a_goal(run: Run, estimate: AccuracyEstimate) -> documents.NextStep:
    """Return how to name a goal; the example is the last multiple of 5 % that the estimate reaches."""
    lead, own = estimate.lead, facts.stated_number(estimate, estimate.lead)
    if own is None or not parse_metric(lead).is_best_high:
        lead, own = ACCURACY, estimate
    share = f"{min(max(math.floor(20 * clipped(own) + 1e-9) / 20, 0.05), 0.95):g}"
    name = facts.noun(estimate.measure) if lead == ACCURACY else facts.metric_name(lead)
    return documents.NextStep(
        why=f"Name the least {name} that the model needs, and the report states whether it is met.",
        command=command_of(run, "report", "--goal", share if lead == ACCURACY else quote(f"{lead} {share}")),
    )


def _previous(run: Run) -> documents.PreviousAudit | None:
    """Return the last run of the same name and population before this one that has an estimate."""
    own, created = Population.of(run.spec), run.header.created or ""
    earlier, _ = runs_of(run.spec.output, run.spec.name)
    for other in reversed(earlier):
        if (other.header.created or "") >= created or Population.of(other.spec) != own:
            continue
        with suppress(DataError):
            if found := other.read_estimate():
                return documents.PreviousAudit(
                    run=other.uri,
                    created=other.header.created,
                    value=clipped(found),
                    low=found.low,
                    high=found.high,
                    same_model=other.header.model.sha256 == run.header.model.sha256,
                )
    return None


def rounded(count: int) -> int:
    """Return a forecast count with two digits."""
    return int(float(f"{count:.2g}"))


# -- the result ------------------------------------------------------------------------------------------


def answer(estimate: AccuracyEstimate | None, pool_size: int, rounds: Sequence[LabelledRound]) -> str:
    """Return the result in one sentence."""
    if estimate is None:
        asked, unsure = sum(len(item.missing) for item in rounds), sum(len(item.unsure) for item in rounds)
        if unsure and not asked:
            return f'There is no label: all {counted(unsure, "answer")} are "can\'t tell".'
        return f"There is no label yet: {facts.thousands(asked)} of {counted(pool_size, 'example')} wait for one."
    own = facts.stated_number(estimate, estimate.lead)
    if estimate.lead != ACCURACY and own is not None:
        texts, accuracy = facts.stated(own, estimate.lead), facts.stated(estimate, estimate.measure)
        between = f"between {texts.interval.replace(' to ', ' and ')} with {facts.level_text(own.level)} confidence"
        return (
            f"The {facts.metric_name(estimate.lead)} over the {counted(pool_size, 'example')} is about {texts.value}: "
            f"{between}, from {counted(own.n, 'label')}. The {facts.noun(estimate.measure)} is about {accuracy.value} "
            f"({accuracy.interval})."
        )
    digits = facts.digits_for(estimate.low, estimate.high)
    numbers = clipped(estimate), estimate.low, estimate.high
    value, low, high = (facts.number(item, estimate.measure, digits) for item in numbers)
    is_known = estimate.low == estimate.high
    value = value if is_known else f"about {value}"
    confidence = f"{facts.level_text(estimate.level)} confidence{'' if estimate.design_based else ' under assumptions'}"
    pool = counted(pool_size, "example")
    if estimate.measure == "accuracy":
        result = f"The model is right on {value} of the {pool}"
    elif estimate.measure.startswith("share in which "):
        result = f"In {value} of the {pool}, {estimate.measure.removeprefix('share in which ')}"
    elif facts.is_share(estimate.measure):
        what = "predictions" if estimate.measure.startswith("share within") else "answers"
        result = f"On the {pool}, {value} of the model's {what} are {estimate.measure.removeprefix('share ')}"
    else:
        result = f"The model scores {value} on average over the {pool} ({estimate.measure})"
    if is_known:
        return f"{result}: every one of them is labelled."
    return f"{result}: between {low} and {high} with {confidence}, from {counted(estimate.n, 'label')}."


def worth(estimate: AccuracyEstimate) -> str | None:
    """Return how many random labels would be as precise; None if that is unknown, or errors of labels matter more."""
    effective, n = estimate.srs.effective_size, estimate.srs.n
    if effective is None or "label noise" in estimate.allows_for:
        return None
    labels, worth = counted(n, "label"), facts.thousands(effective)
    if effective > 1.05 * n:
        return f"These {labels} are worth {worth}: they are as precise as {worth} labels chosen at random."
    if effective < 0.95 * n:
        return (
            f"These {labels} are worth only {worth}: they are as precise as {worth} labels chosen at random. The "
            "method lost precision here, and a simple random sample would have been more precise."
        )
    return f"These {labels} are about as precise as {labels} chosen at random."


# -- what a result rests on ------------------------------------------------------------------------------


def _sampling(report: RunReport) -> documents.Check:
    """Check that the sample is random, and that the interval assumes nothing else."""
    estimate = report.estimate
    own = estimate and facts.stated_number(estimate, estimate.lead)
    methods = ", ".join(dict.fromkeys(item.method for item in report.rounds))
    asked = counted(sum(item.budget for item in report.rounds), "example")
    rounds = f" in {len(report.rounds)} rounds" if len(report.rounds) > 1 else ""
    state: documents.CheckState = "ok"
    text = f"{asked} drawn at random by {methods}{rounds}."
    if not all(item.is_random for item in report.drawn):
        state, text = "failed", f"{asked} chosen by {methods}{rounds}: no random sample, so no interval is certain."
    elif own and not own.design_based:
        state, reason = "warning", facts.sentence(own.reason or "not known")
        text += f" The interval rests on more than that: {reason}"
    elif estimate:
        text += " The interval assumes nothing about model or data."
    if estimate and estimate.goal:
        of = "" if estimate.goal_of == ACCURACY else f" of {estimate.goal_of}"
        text += f" Sampling stopped at ±{100 * estimate.goal:g} points{of}, and the interval allows for that."
    if (tried := report.attempts) and (len(tried.runs) > 1 or tried.removed):
        text += f" {facts.sentence(str(tried))}"
    return documents.Check(name="sampling", state=state, text=text)


def _labels(report: RunReport) -> documents.Check:
    """Check that no label is missing, and that annotators agree."""
    labelled, asked, missing, unsure, given_up = (
        sum(getattr(item, name) for item in report.rounds)
        for name in ("labelled", "budget", "missing", "unsure", "given_up")
    )
    counts = {"missing": missing, "given up": given_up, '"can\'t tell"': unsure}
    parts = [f"{facts.thousands(labelled)} of {facts.thousands(asked)} labelled"]
    parts += [f"{facts.thousands(count)} {what}" for what, count in counts.items() if count]
    state: documents.CheckState = "warning" if missing or unsure or given_up else "ok"
    noise, agreement = report.estimate.label_noise if report.estimate else None, ""
    if noise:
        agreement = f" Two people differ on {noise.differ} of {noise.examples} examples ({facts.agreement(noise)})."
        if noise.alpha is not None and noise.alpha <= BY_CHANCE and noise.differ > 1:
            state, agreement = "failed", f"{agreement} That is no better than chance."
        elif report.estimate and "label noise" in report.estimate.allows_for:
            state, agreement = "warning", f"{agreement} The interval allows for such errors."
    elif labelled:
        state = "warning"
        agreement = " Errors of labels are not measured: label some twice (`opacc label --overlap 0.2`)."
    return documents.Check(name="labels", state=state, text=f"{', '.join(parts)}.{agreement}")


def _pool(report: RunReport) -> documents.Check:
    """Check that the pool is as it was when the model read it, and that all of it was read."""
    objects = report.estimate.objects if report.estimate else None
    examples, left_out = counted(report.pool_size, "example"), list[str]()
    if report.num_excluded:
        left_out.append(f"{counted(report.num_excluded, 'example')} could not be read; the result is for the others.")
    where = "in the pool's folder"
    for kind in report.header.pool.ignored:
        files = counted(kind.num_files, f"other file {where} was", f"other files {where} were")
        left_out.append(f"{files} not read: {kind.kind}, such as {kind.first[0]}.")
    state: documents.CheckState = "warning" if left_out else "ok"
    text = f"{examples}; none of the chosen ones changed since the model read it."
    if objects is None:
        text = f"{examples}."
    elif objects.changed or objects.lost:
        state, text = "failed", facts.sentence(facts.changed_objects(objects))
    elif objects.reason or objects.unknown:
        state, reason = "warning", objects.reason or "there is no record of their files"
        text = f"{examples}; whether they changed is not known: {reason}."
    elif objects.version:
        state, text = "warning", f"{examples}; the table is at {objects.version} now."
    return documents.Check(name="pool", state=state, text=" ".join([text, *left_out]))


def _model(report: RunReport) -> documents.Check:
    """Check that this is probably the intended model."""
    header, model = report.header, report.header.spec.model
    digest, state = header.model.sha256, "ok"
    code = f", code {header.code_digest[:12]}" if header.code_digest else ""
    text = f"Weights {digest[:12]}{code}." if digest else "The spec names no weights, so their digest is not known."
    if header.spec.pool.holds_features:
        text = "The pool holds the model's answers; no model was run."
    elif not digest and not model.program:
        state = "warning"
    if report.warnings:
        more = len(report.warnings) - 1
        text, state = f"{facts.sentence(report.warnings[0])} {text}", "warning"
        text += f" {counted(more, 'more warning')} below." if more else ""
    return documents.Check(name="model", state=state, text=text)  # type: ignore[arg-type]


# -- findings --------------------------------------------------------------------------------------------


def findings(report: RunReport) -> list[documents.Finding]:
    """Return the weaknesses that the labels prove, those that cost most of the pool first, overconfidence last.

    A slice, class or bin is one if its interval that holds for its whole table at once is below the interval of the
    pool; a confusion if its share is above 0 at the level of all confusions together.
    """
    estimate = report.estimate
    if estimate is None:
        return []
    tables = [*report.tables, *(table for table in estimate.by_slice if table.metric == ACCURACY)]
    known = {table.by: table for table in tables}  # classes that were asked for are there already
    found = [item for table in known.values() for item in _weak_parts(estimate, table, report.measure)]
    found += _frequent_confusions(report, estimate)
    belief = report.reliability
    found = sorted(found, key=lambda item: -item.impact)
    if belief and belief.mean_confidence > estimate.high:
        impact = belief.mean_confidence - clipped(estimate)
        found.insert(MOST_FINDINGS - 1, documents.Finding(text=claim(belief, estimate), impact=impact))
    return found[:MOST_FINDINGS]


def _weak_parts(estimate: AccuracyEstimate, table: SliceTable, measure: str) -> Iterator[documents.Finding]:
    for name, part in table.slices.items():
        if part.tells and part.high_together < estimate.low:
            found, size = facts.stated_together(part, measure), part.size / estimate.pool_size
            digits = facts.digits_for(estimate.low, estimate.high)
            whole = facts.number(clipped(estimate), measure, digits)
            what = f"{_part_text(table.by, name)}: {facts.number_of_parts(table.by, ACCURACY, measure)}"
            text = f"{what} {found.value} ({found.interval}); whole pool {whole}. "
            text += f"Covers {facts.percent(size, 0)} of the pool, by {counted(part.n, 'label')}."
            yield documents.Finding(text=text, impact=size * (clipped(estimate) - clipped(part)))
        elif contradiction := facts.contradiction(part):
            impact = part.size / estimate.pool_size * max(clipped(estimate) - clipped(part), 0)
            yield documents.Finding(text=f"{_part_text(table.by, name)}: {contradiction}.", impact=impact)


def _part_text(by: str, name: str) -> str:
    """Return a part of the pool in words."""
    words = {BY_PREDICTION: f"Predicted as {name!r}", BY_TRUTH: f"Labelled as {name!r}"}
    words[facts.CONFIDENCE] = f"Confidence {name}"
    return words.get(by) or f"{facts.parts_name(by)} {name}"


def _frequent_confusions(report: RunReport, estimate: AccuracyEstimate) -> Iterator[documents.Finding]:
    wrong = [cell for cell in report.confusion or [] if cell.true != cell.predicted]
    z = normal_quantile(level_of_each(estimate.level, len(wrong)))
    for cell in wrong:
        low, high = (cell.share + sign * z * cell.standard_error for sign in (-1, 1))
        if cell.labels >= FEWEST and low > 0:
            text = f"{cell.true!r} predicted as {cell.predicted!r}: {facts.percent(cell.share)} of the pool "
            text += f"({facts.ends(low, high)}), by {counted(cell.labels, 'label')}."
            yield documents.Finding(text=text, impact=cell.share)
