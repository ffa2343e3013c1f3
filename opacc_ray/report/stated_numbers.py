"""Metrics, classes and slices as people read them: names, sentences and tables. Every rendering shows the same rows."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from opacc_ray.errors import counted
from opacc_ray.estimators.intervals import Value, clipped
from opacc_ray.estimators.metrics import ACCURACY, AVERAGES, FEWEST, WIDEST, parse_metric, tells
from opacc_ray.report.facts import (
    Cell,
    Column,
    Fact,
    Line,
    Stated,
    Table,
    digits_for,
    facts,
    in_a_line,
    in_percent,
    level_text,
    noun,
    number,
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
    from opacc_ray.audit.number_rows import NumberRow

TOO_FEW = "too few labels to tell"

LEAST_KNOWN = 4
"""Labels that a slice with fewer counts as having, where its need is forecast: without any its interval is [0, 1]."""

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


def part_tells(part: StatedEstimate) -> bool:
    """Return whether the interval of a number says something."""
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


def worst_slice(table: SliceTable) -> tuple[str, SliceEstimate] | None:
    """Return the slice with the lowest value, of those with enough labels; None without one."""
    return next((item for item in lowest_first(table) if item[1].tells), None)


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
    """Return the first slices, the lowest first, and how many were left out."""
    own = measure_of(table.metric, measure)
    columns = (
        Column(parts_name(table.by)),
        Column("in the pool", "n", optional=True, title="examples of the pool in the slice"),
        Column("labels", "n", title="labelled examples in the slice"),
        Column(number_of_parts(table.by, table.metric, measure), "n"),
        Column("all at once", "n", title="interval that holds for all slices of the table together"),
    )
    ordered = lowest_first(table)
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
    return Table(columns, rows, greyed), max(len(ordered) - most, 0)


def stated_together(part: "SliceEstimate | NumberRow", measure: str) -> Stated:
    """Format a number with the interval that holds for all slices of its table together."""
    return stated(part.model_copy(update={"low": part.low_together, "high": part.high_together}), measure)


def _number_cell(part: StatedEstimate, measure: str) -> Cell:
    """Return a number and its interval; an interval that says little has no number."""
    texts = stated(part, measure)
    return (texts.value if part_tells(part) else TOO_FEW), texts.interval


# -- lines -----------------------------------------------------------------------------------------------


def metric_lines(name: str, found: StatedMetric, basis: str | None) -> list[Line]:
    """Return a metric in a line, what else is known of it, and its reason unless that is the ``basis`` of all."""
    notes = [counted(found.n, "label"), *([] if part_tells(found) else [TOO_FEW])]
    own = Fact(metric_name(name), in_a_line(stated(found, name), found.level, *notes), "result")
    reason = found.reason if found.reason != basis else None
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
