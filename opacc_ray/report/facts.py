"""Facts, tables and numbers as people read them: terminal, Markdown and HTML show the same rows.

Numbers are percentages, intervals, counts and durations; JSON keeps fractions.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from opacc_ray.errors import counted
from opacc_ray.estimation.distribution import CONTRADICTED
from opacc_ray.estimation.intervals import Value, clipped
from opacc_ray.labels.formats import few
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, BIAS, ERRORS, FEWEST, MAE, RMSE, WIDEST, parse_metric, tells
from opacc_ray.metrics.scores import BRIER, RANKINGS
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, CROSSING
from opacc_ray.runs import run_documents as documents

Cell = str | tuple[str, str]
"""A text, or a text and a note on it."""


class Fact(NamedTuple):
    """One fact of an answer: a label and a text."""

    label: str
    text: str
    tone: Literal["", "result", "warning", "error", "next"] = ""
    detail: bool = False  # shown with --verbose only


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: Literal["", "n", "code", "text"] = ""  # words, numbers, names in a fixed-width font, or texts of others
    optional: bool = False  # hidden on a narrow page
    title: str = ""  # explanation of the name, for HTML


class Table(NamedTuple):
    """Rows under named columns; the first column names the row."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    greyed: Sequence[bool] = ()  # of each row, for HTML; empty: none


Line = Fact | Table | str
"""A part of an answer; a plain text is printed as it is."""


class StatedInterval(NamedTuple):
    """One of the intervals of a result."""

    name: str
    kind: Literal["own", "srs", "any"]
    value: float | None
    low: float
    high: float


def facts(*pairs: tuple[str, object]) -> list[Fact]:
    """Return facts of (label, text); a text that is empty or None is left out."""
    return [Fact(label, str(text)) for label, text in pairs if text not in (None, "")]


def warned(texts: Iterable[str], label: str = "warning") -> list[Fact]:
    """Return texts as warnings."""
    return [Fact(label, text, "warning") for text in texts]


def next_fact(*words: str) -> Fact:
    """Return the command to run next."""
    return Fact("next:", " ".join(words), "next")


def intervals_of(estimate: documents.AccuracyEstimate) -> list[StatedInterval]:
    """Return the intervals of a result: its own, by the design alone, of a random sample, valid at any time."""
    value, own = clipped(estimate), estimate.by_design
    srs, any_time = estimate.srs, estimate.sequence
    result = [StatedInterval("this audit", "own", value, estimate.low, estimate.high)]
    if own and estimate.allows_for:
        result.append(StatedInterval("by the sampling design alone", "srs", value, own.low, own.high))
    result.append(StatedInterval(f"{thousands(srs.n)} random labels", "srs", value, srs.low, srs.high))
    if (any_time.low, any_time.high) != (0, 1):  # it counts no round yet
        result.append(StatedInterval("valid at any time", "any", None, any_time.low, any_time.high))
    return result


def interval_table(estimate: documents.AccuracyEstimate) -> Table:
    """Return :func:`intervals_of` a result as a table."""
    measure, digits = estimate.measure, digits_for(estimate.low, estimate.high)
    columns = (Column(""), Column(noun(measure), "n"), Column(f"{level_text(estimate.level)} interval", "n"))
    value = number(clipped(estimate), measure, digits)
    rows = [
        (item.name, value if item.kind == "own" else "", ends(item.low, item.high, measure, digits))
        for item in intervals_of(estimate)
    ]
    return Table(columns, rows)


def round_table(rounds: Sequence[documents.RoundCounts], *, method: bool = True) -> Table:
    """Return how many examples of each round are labelled, missing, undecided or given up.

    ``given up`` is a column if any example is.
    """
    counts = {"asked": "budget", "labelled": "labelled", "missing": "missing", "can't tell": "unsure"}
    if any(item.given_up for item in rounds):
        counts["given up"] = "given_up"
    names = ["round", *(["method"] if method else [])]
    rows = []
    for item in rounds:
        numbers = (count_text(getattr(item, field)) for field in counts.values())
        rows.append([*(str(getattr(item, name)) for name in names), *numbers])
    columns = [*map(Column, names), *(Column(name, "n") for name in counts)]
    return Table(columns if rounds else (), rows)


def count_text(number: int) -> str:
    """Format a count of a table: a dash for zero."""
    return thousands(number) if number else "-"


# -- numbers ---------------------------------------------------------------------------------------------------


GAP = "   "
"""Between the parts of a result."""


class Stated(NamedTuple):
    """A value and its interval as texts."""

    value: str  # 68.2 %
    interval: str  # 65.1 to 71.1


def stated(estimate: Value, measure: str = "accuracy") -> Stated:
    """Format a value, cut to its interval, with as many digits as the width of the interval allows."""
    digits = digits_for(estimate.low, estimate.high)
    return Stated(number(clipped(estimate), measure, digits), ends(estimate.low, estimate.high, measure, digits))


def in_a_line(texts: Stated, level: float, *notes: str) -> str:
    """Return a value with its interval and notes: 68.2 %   95 % interval 65.1 to 71.1   559 labels."""
    return GAP.join([texts.value, f"{level_text(level)} interval {texts.interval}", *notes])


def change(estimate: Value, measure: str = "accuracy") -> Stated:
    """Format a difference with signs, in percentage points where its numbers are percentages."""
    digits = digits_for(estimate.low, estimate.high)
    value, low, high = (difference(part, measure, digits) for part in (clipped(estimate), estimate.low, estimate.high))
    return Stated(f"{value} points" if in_percent(measure) else value, f"{low} to {high}")


def percent(value: float, digits: int = 1) -> str:
    """Format a fraction: 0.843 -> 84.3 %; 1 and 0 without decimals."""
    text = f"{100 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if value in (0, 1) else text} %"


def points(half_width: float, digits: int = 3) -> str:
    """Format a half-width: 0.03 -> ±3 points."""
    return f"±{100 * half_width:.{digits}g} points"


def points_apart(first: float, second: float) -> tuple[str, str]:
    """Format two half-widths, with more digits where they would read alike: ±2 and ±2.004 points."""
    for digits in range(3, 7):
        texts = points(first, digits), points(second, digits)
        if texts[0] != texts[1]:
            break
    return texts


def level_text(level: float) -> str:
    """Format a confidence level: 0.95 -> 95 %."""
    return f"{100 * level:.6g} %"


def digits_for(low: float, high: float) -> int:
    """Return the decimals of a percentage that show two figures of the width of its interval."""
    width = 100 * (high - low)
    if width > 200:  # of numbers that are no shares
        return max(-2, 1 - math.floor(math.log10(width)))
    return 1 if width >= 1 or width <= 0 else min(4, 1 - math.floor(math.log10(width)))


def number(value: float, measure: str, digits: int = 1) -> str:
    """Format a share or a score as a percentage, other numbers as they are."""
    return percent(value, digits) if in_percent(measure) else f"{value:,.{digits + 2}f}"


def ends(low: float, high: float, measure: str = "accuracy", digits: int = 1) -> str:
    """Format the ends of an interval as :func:`number`, without the sign: 65.1 to 71.1."""
    return " to ".join(number(end, measure, digits).removesuffix(" %") for end in (low, high))


def difference(value: float, measure: str, digits: int = 1) -> str:
    """Format a difference with its sign, in percentage points as :func:`number`; one that rounds to 0 has no sign."""
    text = f"{100 * value:+.{digits}f}" if in_percent(measure) else f"{value:+.{digits + 2}f}"
    return text if float(text) else text[1:]


def in_percent(measure: str) -> bool:
    """Return whether a measure is read as a percentage: a share, or a score of which 1 is the full one.

    Correlations, agreements, areas under curves, errors of values and costs are plain numbers.
    """
    return measure not in ERRORS and not measure.startswith(("mean cost", "mcc", "kappa", BRIER, *RANKINGS))


def is_share(measure: str) -> bool:
    """Return whether a result is a share of the examples; the others are means of a score."""
    return not measure.startswith("mean ")


def noun(measure: str) -> str:
    """Return what a result is called: a metric by its name, and a mean of scores is no accuracy."""
    return "score" if measure.startswith(("mean ", "share ")) else measure


def thousands(value: float) -> str:
    """Format a count: 6000 -> 6,000."""
    return f"{value:,.0f}"


def changed_texts(objects: documents.ChangedObjects) -> list[str]:
    """Return how many objects of chosen examples changed, and how many are gone."""
    is_gone = "is gone" if objects.lost == 1 else "are gone"
    counts = ((objects.changed, "changed since extraction"), (objects.lost, is_gone))
    names = "object of a chosen example", "objects of chosen examples"
    return [f"{counted(count, *names)} {what}" for count, what in counts if count]


def seconds(number: float) -> str:
    """Format a number of seconds."""
    if number < 120:
        return f"{number:.0f} s"
    return f"{number / 60:.0f} min" if number < 7200 else f"{number / 3600:.1f} hours"


def duration(days: float) -> str:
    """Format a number of days."""
    if days < 1:
        hours = int(24 * days)
        return "less than an hour" if hours < 1 else counted(hours, "hour")
    return counted(int(days), "day")


def size(num: int) -> str:
    """Format a number of bytes with at most four digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if num < 10_000:
            return f"{num:.0f} {unit}"
        num = round(num / 1000)
    return f"{num} TB"


def minute(time: str) -> str:
    """Format a time of ISO 8601 in UTC: 2026-11-26 10:40 UTC."""
    return f"{time[:16].replace('T', ' ')} UTC"


def sentence(text: str) -> str:
    """Return a text of ours with a capital letter and a full stop."""
    return stopped(f"{text[:1].upper()}{text[1:]}")


def stopped(text: str) -> str:
    """Return a text with a full stop; it may begin with a name, which stays as it is."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


# -- names of numbers -------------------------------------------------------------------------------------------

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


def metric_name(text: str) -> str:
    """Return the name of a metric for people: ``f1@defect`` -> F1 of defect, ``macro_f1`` -> mean F1 of all classes."""
    metric = parse_metric(text)
    stem = AVERAGES.get(metric.name, metric.name)
    name = _NAMES.get(stem) or (stem.upper() if stem[0] == "f" else stem)
    if metric.name in AVERAGES:
        return f"mean {name} of all classes"
    return name if metric.positive is None else f"{name} of {metric.positive}"


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
    classes = {BY_PREDICTION: "predicted class", BY_TRUTH: "true class"}
    return classes.get(by) or by.replace(CROSSING, " and ")


def measure_of(metric: str, measure: str) -> str:
    """Return what the numbers of a metric are; in a regression, ``accuracy`` is the mean score."""
    return measure if metric == ACCURACY else metric


def number_of_parts(by: str, metric: str, measure: str) -> str:
    """Return what the numbers of slices are called: the accuracy in a true class is its recall."""
    if metric != ACCURACY:
        return metric_name(metric)
    return "recall" if (by, measure) == (BY_TRUTH, ACCURACY) else noun(measure)


def slices_title(table: documents.SliceTable, measure: str) -> str:
    """Return the title of a table of slices."""
    name = number_of_parts(table.by, table.metric, measure)
    return f"{_first(name)} by {parts_name(table.by)}"


def _first(name: str) -> str:
    """Return the name of a number as the first words of a line; a ratio begins with a name of the user's."""
    return name if " / " in name else f"{name[:1].upper()}{name[1:]}"


def if_predicted_text(metric: str, found: documents.StatedMetric) -> str | None:
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
        f"{_first(name)}: {own}{unit} allows for a confidence that is wrong. If the confidence is right "
        f"about the examples without a label, it is {trusting}{unit}. It is {'above' if rises else 'below'} {end} only "
        f"if more than {second.factor:.3g} times as many examples of {positive} hide among these as the confidence "
        f"predicts. {counted(second.labels, 'label')} drawn there at random would settle that."
    )


def part_tells(part: documents.StatedEstimate, metric: str = ACCURACY) -> bool:
    """Return whether the interval of a metric says something."""
    if metric in ERRORS:  # no width is wide in an unknown unit
        return part.n >= FEWEST
    return part.tells if isinstance(part, documents.SliceEstimate) else tells(part.low, part.high, part.n)


def contradiction(part: documents.SliceEstimate) -> str | None:
    """Return how the labels of a part contradict its predictions; None if they do not."""
    _, found, text = (part.reason or "").partition(CONTRADICTED)
    return found + text or None


def labels_to_tell(part: documents.SliceEstimate) -> int:
    """Return about how many labels a slice needs for an interval that says something: its width shrinks as 1/√n."""
    needed = math.ceil(max(part.n, LEAST_KNOWN) * ((part.high - part.low) / (2 * WIDEST)) ** 2)
    return min(max(needed, FEWEST), max(part.size, 1))


def lowest_first(table: documents.SliceTable) -> list[tuple[str, documents.SliceEstimate]]:
    """Return the slices by rising value, then those with too few labels to tell."""
    return sorted(table.slices.items(), key=lambda item: (not item[1].tells, clipped(item[1]), -item[1].size))


def stated_number(estimate: documents.AccuracyEstimate, metric: str) -> documents.StatedEstimate | None:
    """Return a number of the whole pool; with two classes, a metric may leave out the class. None: it is not stated."""
    if metric == ACCURACY:
        return estimate
    return next((own for name, own in estimate.metrics.items() if metric in (name, name.partition("@")[0])), None)


# -- tables ---------------------------------------------------------------------------------------------------


def metric_table(estimate: documents.AccuracyEstimate) -> Table | None:
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


def judge_table(judges: Mapping[str, documents.StatedJudge]) -> Table:
    """Return what each judge is worth by the labels."""
    columns = (
        Column("judge"),
        Column("judged", "n", optional=True, title="examples of the pool that it has judged"),
        Column("labels", "n", title="labelled examples that it has judged"),
        Column("sensitivity", "n", title="share of the right answers that it calls right"),
        Column("specificity", "n", title="share of the wrong answers that it calls wrong"),
        Column("kappa", "n", title="agreement with the labels beyond chance: 1 is perfect, 0 is none"),
    )
    rows = list[Sequence[Cell]]()
    for name, judge in judges.items():
        worth = (_number_cell(getattr(judge, key), key) for key in ("sensitivity", "specificity", "kappa"))
        rows.append((name, thousands(judge.judged), thousands(judge.labels), *worth))
    return Table(columns, rows)


def slice_table(table: documents.SliceTable, measure: str, most: int) -> tuple[Table, int]:
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
    rows = list[Sequence[Cell]]()
    for name, part in ordered[:most]:
        labels: Cell = thousands(part.n)
        if not part.tells:
            labels = thousands(part.n), f"of about {thousands(labels_to_tell(part))}"
        together = stated_together(part, own).interval
        rows.append((name, f"{about}{thousands(part.size)}", labels, _number_cell(part, own), together))
    greyed = [not part.tells for _, part in ordered[:most]]
    if len(vague) > MOST_VAGUE:
        size, num = (thousands(sum(getattr(part, name) for part in vague)) for name in ("size", "n"))
        rows.append((f"{thousands(len(vague))} {'others' if ordered else 'in all'}", size, num, (TOO_FEW, ""), ""))
        greyed.append(True)
    return Table(columns, rows, greyed), max(len(ordered) - most, 0)


def stated_together(part: documents.SliceEstimate | documents.NumberRow, measure: str) -> Stated:
    """Format a number with the interval that holds for all slices of its table together."""
    return stated(part.model_copy(update={"low": part.low_together, "high": part.high_together}), measure)


def _number_cell(part: documents.StatedEstimate, measure: str) -> Cell:
    """Return a number and its interval; an interval that says little has no number."""
    texts = stated(part, measure)
    return (texts.value if part_tells(part, measure) else TOO_FEW), texts.interval


def changed_objects(objects: documents.ChangedObjects) -> str:
    """Return which objects of chosen examples changed since the model read them, or are gone; empty if none is."""
    such = f", such as {', '.join(objects.first)}: their labels may be of other examples"
    return " and ".join(changed_texts(objects)) + such if objects.changed or objects.lost else ""


def agreement(noise: documents.LabelNoise) -> str:
    """Return how far annotators agree beyond chance, of all and of each two."""
    alpha = "not defined" if noise.alpha is None else f"{noise.alpha:.2f}"
    kappas = [f"{own.kappa:.2f} of {own.first} and {own.second}" for own in noise.pairs if own.kappa is not None]
    return f"Krippendorff's alpha {alpha}" + (f"; Cohen's kappa {few(kappas, most=3)}" if kappas else "")
