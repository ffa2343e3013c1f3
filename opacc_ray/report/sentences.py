"""Results as people read them: the names of numbers, sentences and tables. Every rendering shows the same rows."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opacc_ray.errors import counted
from opacc_ray.estimation.intervals import Value, clipped
from opacc_ray.labels.label_rows import few
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, BIAS, ERRORS, FEWEST, MAE, RMSE, WIDEST, parse_metric, tells
from opacc_ray.report.facts import (
    Cell,
    Column,
    Fact,
    Line,
    Stated,
    Table,
    changed_texts,
    digits_for,
    facts,
    in_a_line,
    in_percent,
    is_share,
    level_text,
    noun,
    number,
    percent,
    points,
    points_apart,
    stated,
    thousands,
)
from opacc_ray.runs.estimate_documents import (
    AccuracyEstimate,
    SliceEstimate,
    SliceTable,
    StatedEstimate,
    StatedJudge,
    StatedMetric,
)
from opacc_ray.runs.run_documents import GoalProgress
from opacc_ray.slices import BY_TRUTH, CROSSING

if TYPE_CHECKING:
    from opacc_ray.audit.label_budget import LabelBudget
    from opacc_ray.labels.labelled_rounds import LabelledRound
    from opacc_ray.report.report_documents import Reliability, RunReport, Verdict
    from opacc_ray.runs.estimate_documents import ChangedObjects, LabelNoise, NumberRow
    from opacc_ray.runs.run_documents import HistorySource


TOO_FEW = "too few labels to tell"

LEAST_KNOWN = 4
"""Labels that a slice with fewer counts as having, where its need is forecast: without any its interval is [0, 1]."""

MOST_VAGUE = 3
"""Slices with too few labels to tell that have a row each."""

MOST_ROWS = 15
"""Slices that a table on the terminal shows; JSON has them all."""

_NAMES = {
    "npv": "negative predictive value",
    "balanced_accuracy": "balanced accuracy",
    "jaccard": "Jaccard index",
    "mcc": "Matthews correlation",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "auc": "AUC",
    "average_precision": "average precision",
    MAE: "MAE",
    RMSE: "RMSE",
}

_MEANINGS = {
    ACCURACY: "share of the examples that the model gets right",
    "precision": "share of the examples predicted as the class that belong to it",
    "recall": "share of the examples of the class that the model finds",
    "specificity": "share of the examples of other classes that are not predicted as the class",
    "npv": "share of the examples not predicted as the class that do not belong to it",
    "balanced_accuracy": "mean of recall and specificity",
    "jaccard": "share of the examples of the class, or predicted as it, that are both",
    "mcc": "correlation of prediction and truth: 1 if all are right, 0 if they are unrelated",
    "kappa": "agreement of prediction and truth beyond chance: 1 if all are right, 0 if they are unrelated",
    "prevalence": "share of the examples that belong to the class",
    "brier": "mean square of confidence minus correctness (0 or 1): 0 is best",
    "overconfidence": "mean confidence minus accuracy",
    "calibration_error": "mean distance of confidence and accuracy, over ten ranges of the confidence",
    "auc": "chance that an example of the class has a higher score than another",
    MAE: "mean distance of prediction and label",
    RMSE: "root of the mean square of prediction minus label",
    BIAS: "mean of prediction minus label: above 0 if predictions are too high",
    "average_precision": "mean precision among the examples that score at least as high as one of the class",
}

CONFIDENCE = "confidence"
"""Name of the slices that are bins of confidence."""

_OF_JUDGES = ("sensitivity", "specificity", "kappa")

_PARTS = {"prediction": "predicted class", "truth": "true class"}


# -- names and sentences ---------------------------------------------------------------------------------


def metric_name(text: str) -> str:
    """Return the name of a metric for people: ``f1@defect`` -> F1 of defect, ``macro_f1`` -> mean F1 of all classes."""
    metric = parse_metric(text)
    if metric.name in AVERAGES:
        return f"mean {_own_name(AVERAGES[metric.name])} of all classes"
    own = _own_name(metric.name)
    return own if metric.positive is None else f"{own} of {metric.positive}"


def number_of(goal: "GoalProgress | LabelBudget") -> str:
    """Return the number that a goal is about, and a space; nothing for the accuracy of the pool."""
    if goal.by is None:
        return "" if goal.metric == ACCURACY else f"{metric_name(goal.metric)} "
    return f"{metric_name(goal.metric)} by {goal.by} "


def round_done(goal: GoalProgress) -> str:
    """Return what is known after a round, and what its goal still takes."""
    look, what = goal.looks[-1], number_of(goal)
    asked, half_width = (text.removesuffix(" points") for text in points_apart(goal.half_width, look.half_width))
    known = f"round {look.round} done: {what}{stated(goal, goal.metric).value}, {half_width}"
    if goal.reached:
        return f"{known}; that is enough for {asked}"
    return f"{known}; round {look.round + 1}: {goal.sizes[0]} more for {asked}"


def _own_name(name: str) -> str:
    return _NAMES.get(name) or (name.upper() if name[0] == "f" else name)


def meaning_of(text: str) -> str:
    """Return what a metric is, in a few words."""
    name, ratio = parse_metric(text).name, parse_metric(text).ratio
    if ratio is not None:
        return f"{'1 minus the ratio' if ratio.from_one else 'ratio'} of totals over the pool"
    if name in AVERAGES:
        return "every class counts the same"
    if name in _MEANINGS:
        return _MEANINGS[name]
    beta = name.removeprefix("f")
    return "harmonic mean of precision and recall" + f"; recall counts {beta} times" * (beta != "1")


def parts_name(by: str) -> str:
    """Return the name of slices for people: ``camera*region`` -> camera and region."""
    return _PARTS.get(by) or by.replace(CROSSING, " and ")


def measure_of(metric: str, measure: str) -> str:
    """Return what the numbers of a metric are; in a regression, ``accuracy`` is the mean score."""
    return measure if metric == ACCURACY else metric


def number_of_parts(by: str, metric: str, measure: str) -> str:
    """Return what the numbers of slices are called: the accuracy in a true class is its recall."""
    if metric != ACCURACY:
        return metric_name(metric)
    return "recall" if (by, measure) == (BY_TRUTH, ACCURACY) else noun(measure)


def slices_title(table: SliceTable, measure: str) -> str:
    """Return the title of a table of slices."""
    name = number_of_parts(table.by, table.metric, measure)
    return f"{_first(name)} by {parts_name(table.by)}"


def _first(name: str) -> str:
    """Return the name of a number as the first words of a line; a ratio begins with a name of the user's."""
    return name if " / " in name else f"{name[:1].upper()}{name[1:]}"


def if_predicted_text(metric: str, found: StatedMetric) -> str | None:
    """Return the second statement on a metric, which trusts the confidence where no label is; None without one."""
    second = found.if_predicted
    if second is None:
        return None
    name, positive = metric_name(metric), parse_metric(metric).positive or "the class"
    rises = metric.startswith("prevalence")
    end = number(second.high if rises else second.low, metric, digits_for(second.low, second.high))
    own, trusting = (stated(item, metric).interval for item in (found, second))
    unit = " %" * in_percent(metric)
    return (
        f"{_first(name)}: {own}{unit} holds whatever the confidence is worth. If the confidence is right "
        f"about the examples without a label, it is {trusting}{unit}. It is {'above' if rises else 'below'} {end} only "
        f"if more than {second.factor:.3g} times as many examples of {positive} hide among these as the confidence "
        f"predicts. {counted(second.labels, 'label')} drawn there at random would settle that."
    )


def part_tells(part: StatedEstimate, metric: str = ACCURACY) -> bool:
    """Return whether the interval of a metric says something."""
    if metric in ERRORS:  # no width is wide in an unknown unit
        return part.n >= FEWEST
    return part.tells if isinstance(part, SliceEstimate) else tells(part.low, part.high, part.n)


def labels_to_tell(part: SliceEstimate) -> int:
    """Return about how many labels a slice needs for an interval that says something: its width shrinks as 1/√n."""
    needed = math.ceil(max(part.n, LEAST_KNOWN) * ((part.high - part.low) / (2 * WIDEST)) ** 2)
    return min(max(needed, FEWEST), max(part.size, 1))


def _labels_cell(part: SliceEstimate) -> Cell:
    """Return the labels of a slice, and if they are too few, how many tell something."""
    return thousands(part.n) if part.tells else (thousands(part.n), f"of about {thousands(labels_to_tell(part))}")


def lowest_first(table: SliceTable) -> list[tuple[str, SliceEstimate]]:
    """Return the slices by rising value, then those with too few labels to tell."""
    return sorted(table.slices.items(), key=lambda item: (not item[1].tells, clipped(item[1]), -item[1].size))


# -- tables ----------------------------------------------------------------------------------------------


def metric_table(estimate: AccuracyEstimate) -> Table | None:
    """Return the metrics of an estimate, with what each is; None without any."""
    if not estimate.metrics:
        return None
    level = next(iter(estimate.metrics.values())).level
    columns = (
        Column("number"),
        Column("what it is", optional=True),
        Column("labels", "n"),
        Column(f"estimate, {level_text(level)} interval", "n"),
    )
    rows = [
        (metric_name(name), meaning_of(name), thousands(own.n), _number_cell(own, name))
        for name, own in estimate.metrics.items()
    ]
    return Table(columns, rows)


def judge_table(judges: Mapping[str, StatedJudge]) -> Table:
    """Return what each judge is worth by the labels."""
    columns = (
        Column("judge"),
        Column("judged", "n", optional=True, title="examples of the pool that it has judged"),
        Column("labels", "n", title="labelled examples that it has judged"),
        Column("sensitivity", "n", title="share of the right answers that it calls right"),
        Column("specificity", "n", title="share of the wrong answers that it calls wrong"),
        Column("kappa", "n", title="agreement with the labels beyond chance: 1 is perfect, 0 is none"),
    )
    rows = [
        (
            name,
            thousands(own.judged),
            thousands(own.labels),
            *(_number_cell(getattr(own, key), key) for key in _OF_JUDGES),
        )
        for name, own in judges.items()
    ]
    return Table(columns, rows)


def slice_table(table: SliceTable, measure: str, most: int) -> tuple[Table, int]:
    """Return the first slices, the lowest first, and how many were left out; those with few labels in one row."""
    own = measure_of(table.metric, measure)
    columns = (
        Column(parts_name(table.by)),
        Column("in the pool", "n", optional=True, title="examples of the pool in the slice"),
        Column("labels", "n", title="labelled examples in the slice"),
        Column(number_of_parts(table.by, table.metric, measure), "n"),
        Column("all at once", "n", title="interval that holds for all slices of the table together"),
    )
    ordered = lowest_first(table)
    vague = [part for _, part in ordered if not part.tells]
    if len(vague) > MOST_VAGUE:
        ordered = ordered[: -len(vague)]
    about = "about " if table.by == BY_TRUTH else ""  # sizes of true classes are estimates
    rows = [
        (
            name,
            f"{about}{thousands(part.size)}",
            _labels_cell(part),
            _number_cell(part, own),
            stated_together(part, own).interval,
        )
        for name, part in ordered[:most]
    ]
    greyed = [not part.tells for _, part in ordered[:most]]
    if len(vague) > MOST_VAGUE:
        size, labels = (thousands(sum(getattr(part, name) for part in vague)) for name in ("size", "n"))
        rows.append((f"{thousands(len(vague))} {'others' if ordered else 'in all'}", size, labels, (TOO_FEW, ""), ""))
        greyed.append(True)
    return Table(columns, rows, greyed), max(len(ordered) - most, 0)


def stated_together(part: "SliceEstimate | NumberRow", measure: str) -> Stated:
    """Format a number with the interval that holds for all slices of its table together."""
    return stated(part.model_copy(update={"low": part.low_together, "high": part.high_together}), measure)


def _number_cell(part: StatedEstimate, measure: str) -> Cell:
    """Return a number and its interval; an interval that says little has no number."""
    texts = stated(part, measure)
    return (texts.value if part_tells(part, measure) else TOO_FEW), texts.interval


# -- lines -----------------------------------------------------------------------------------------------


def metric_lines(name: str, found: StatedMetric, estimate: AccuracyEstimate) -> list[Line]:
    """Return a metric of an estimate in a line, what else is known of it, and its reason unless that is of all."""
    stop = f", stopped at {points(estimate.goal)}" if estimate.goal and estimate.goal_of == name else ""
    notes = [f"{counted(found.n, 'label')}{stop}", *([] if part_tells(found, name) else [TOO_FEW])]
    own = Fact(metric_name(name), in_a_line(stated(found, name), found.level, *notes), "result")
    reason = found.reason if found.reason != estimate.reason else None
    return [own, *facts(("", if_predicted_text(name, found)), ("note", reason))]


def slice_lines(table: SliceTable, measure: str) -> list[Line]:
    """Return a title, the table of the slices with the lowest numbers, and how many more there are."""
    rows, more = slice_table(table, measure, MOST_ROWS)
    return [slices_title(table, measure), rows, *([f"… and {thousands(more)} more (--json has all)"] if more else [])]


def whole_pool(estimate: AccuracyEstimate, metric: str) -> Value | None:
    """Return a metric of the whole pool; None if it is not stated."""
    return estimate if metric == ACCURACY else estimate.metrics.get(metric)


def stated_number(estimate: AccuracyEstimate, metric: str) -> StatedEstimate | None:
    """Return a number of the whole pool; with two classes, a metric may leave out the class. None: it is not stated."""
    if metric == ACCURACY:
        return estimate
    return next((own for name, own in estimate.metrics.items() if metric in (name, name.partition("@")[0])), None)


# -- sentences of a report -------------------------------------------------------------------------------


def answer(estimate: "AccuracyEstimate | None", pool_size: int, rounds: "Sequence[LabelledRound]") -> str:
    """Return the result in one sentence."""
    if estimate is None:
        asked, unsure = sum(len(item.missing) for item in rounds), sum(len(item.unsure) for item in rounds)
        if unsure and not asked:
            return f'There is no label: all {counted(unsure, "answer")} are "can\'t tell".'
        return f"There is no label yet: {thousands(asked)} of {counted(pool_size, 'example')} wait for one."
    own = stated_number(estimate, estimate.lead)
    if estimate.lead != ACCURACY and own is not None:
        texts, accuracy, name = (
            stated(own, estimate.lead),
            stated(estimate, estimate.measure),
            metric_name(estimate.lead),
        )
        between = f"between {texts.interval.replace(' to ', ' and ')} with {level_text(own.level)} confidence"
        return (
            f"The {name} over the {counted(pool_size, 'example')} is about {texts.value}: {between}, from "
            f"{counted(own.n, 'label')}. The {noun(estimate.measure)} is about {accuracy.value} ({accuracy.interval})."
        )
    digits = digits_for(estimate.low, estimate.high)
    value, low, high = (
        number(item, estimate.measure, digits) for item in (clipped(estimate), estimate.low, estimate.high)
    )
    is_known = estimate.low == estimate.high
    value = value if is_known else f"about {value}"
    confidence = f"{level_text(estimate.level)} confidence{'' if estimate.design_based else ' under assumptions'}"
    pool = counted(pool_size, "example")
    if estimate.measure == "accuracy":
        result = f"The model is right on {value} of the {pool}"
    elif estimate.measure.startswith("share in which "):
        result = f"In {value} of the {pool}, {estimate.measure.removeprefix('share in which ')}"
    elif is_share(estimate.measure):
        what = "predictions" if estimate.measure.startswith("share within") else "answers"
        result = f"On the {pool}, {value} of the model's {what} are {estimate.measure.removeprefix('share ')}"
    else:
        result = f"The model scores {value} on average over the {pool} ({estimate.measure})"
    if is_known:
        return f"{result}: every one of them is labelled."
    return f"{result}: between {low} and {high} with {confidence}, from {counted(estimate.n, 'label')}."


def worth(estimate: "AccuracyEstimate") -> str | None:
    """Return how many random labels would be as precise; None if that is unknown, or errors of labels matter more."""
    effective, n = estimate.srs.effective_size, estimate.srs.n
    if effective is None or "label noise" in estimate.allows_for:
        return None
    labels, worth = counted(n, "label"), thousands(effective)
    if effective > 1.05 * n:
        return f"These {labels} are worth {worth}: they are as precise as {worth} labels chosen at random."
    if effective < 0.95 * n:
        return (
            f"These {labels} are worth only {worth}: they are as precise as {worth} labels chosen at random. The "
            "method lost precision here, and a simple random sample would have been more precise."
        )
    return f"These {labels} are about as precise as {labels} chosen at random."


def started_from(sources: "Sequence[HistorySource] | None") -> str | None:
    """Return what a run used before its first label; None if it asked for nothing."""
    if sources is None:
        return None
    if not sources:
        return "It was to start from earlier audits of the same weights, and found none with labels."
    known = []
    for source in sources:
        kind = "reference" if source.kind == "reference" else "audit"
        labels = f"{counted(source.examples, 'label')} from the {kind} {source.uri}"
        known.append(f"the column {source.column} of the pool" if source.column else labels)
    return f"Used before the first label: {'; '.join(known)}. The interval does not rely on it."


def guessed(reliability: "Reliability", estimate: "AccuracyEstimate") -> str | None:
    """Return the accuracies that a labelled reference predicts without labels of the pool; None without one."""
    if len(reliability.without_labels) < 2:
        return None
    guesses = ", ".join(f"{percent(value)} ({name})" for name, value in reliability.without_labels.items())
    return (
        f"Without labels of the pool, the confidence and the labelled reference predict {guesses}. Such a prediction "
        f"has no error bound; the labels give {percent(estimate.low)} to {percent(estimate.high)}."
    )


def claim(reliability: "Reliability", estimate: "AccuracyEstimate") -> str:
    """Compare the model's mean confidence with its accuracy."""
    confidence, accuracy = reliability.mean_confidence, clipped(estimate)
    found = "the mean confidence is within the interval"
    if not estimate.low <= confidence <= estimate.high:
        kind, points = "over" if confidence > accuracy else "under", 100 * abs(confidence - accuracy)
        found = f"it is {kind}confident by about {points:.1f} points"
    means = f"{percent(confidence)}, its accuracy about {percent(accuracy)}"
    return f"The model's mean confidence over the pool is {means}: {found}."


def verdict(goal: "Verdict", measure: str, estimate: "AccuracyEstimate") -> tuple[str, str]:
    """Return whether a goal is met, in a heading and a sentence; ``measure`` is that of the accuracy."""
    is_accuracy = goal.metric == ACCURACY
    measure = measure if is_accuracy else goal.metric
    least = number(goal.goal, measure).replace(".0 ", " ")
    own = stated(stated_number(estimate, goal.metric) or estimate, measure)
    least += "" if is_accuracy else f" {metric_name(goal.metric)}"
    if goal.met is None:
        more = ""
        if goal.labels_to_go:
            more = f"; about {counted(rounded(goal.labels_to_go), 'more label')} {_be(goal.labels_to_go, 'decides')}"
        return f"Cannot tell yet whether it meets {least}", f"{own.interval}{more}."
    side = "above" if goal.met else "below"
    return f"{'Meets' if goal.met else 'Does not meet'} {least}", f"The interval, {own.interval}, is {side} the goal."


def unlabelled(report: "RunReport") -> int:
    """Return how many examples of the pool have no label."""
    return max(report.pool_size - sum(item.labelled + item.unsure for item in report.rounds), 0)


def rounded(count: int) -> int:
    """Return a forecast count with two digits."""
    return int(float(f"{count:.2g}"))


def previous(report: "RunReport") -> str:
    """Return the result of the audit before; empty if there is none."""
    before = report.previous
    if before is None:
        return ""
    model = "the same model" if before.same_model else "another model"
    when = f" of {before.created[:10]}" if before.created else ""
    texts = stated(before, report.measure)
    return f"The last audit{when}, of {model}: {texts.value} ({texts.interval})."


def no_findings(report: "RunReport") -> str:
    """Return what to say in place of findings; empty without labels."""
    if report.estimate is None:
        return ""
    parts = "class, slice or confusion" if report.tables else "part of the pool"
    return f"No {parts} stands out from {counted(report.estimate.n, 'label')}."


def not_read(report: "RunReport") -> list[str]:
    """Return one sentence for each kind of file and example of the pool that could not be read."""
    found = []
    if report.num_excluded:
        found.append(f"{counted(report.num_excluded, 'example')} could not be read; the result is for the others.")
    for kind in report.header.pool.ignored:
        files = counted(kind.num_files, "other file")
        found.append(
            f"{files} in the pool's folder {_be(kind.num_files, 'was')} not read: {kind.kind}, such as {kind.first[0]}."
        )
    return found


def _be(count: int, verb: str) -> str:
    """Return a verb in the singular or plural."""
    return verb if count == 1 else {"was": "were", "is": "are", "decides": "decide"}[verb]


def changed_objects(objects: "ChangedObjects") -> str:
    """Return which objects of chosen examples changed since the model read them, or are gone; empty if none is."""
    found = changed_texts(objects)
    if not found:
        return ""
    return f"{' and '.join(found)}, such as {', '.join(objects.first)}: their labels may be of other examples"


def agreement(noise: "LabelNoise") -> str:
    """Return how far annotators agree beyond chance, of all and of each two."""
    alpha = "not defined" if noise.alpha is None else f"{noise.alpha:.2f}"
    kappas = [f"{own.kappa:.2f} of {own.first} and {own.second}" for own in noise.pairs if own.kappa is not None]
    return f"Krippendorff's alpha {alpha}" + (f"; Cohen's kappa {few(kappas, most=3)}" if kappas else "")
