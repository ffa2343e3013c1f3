"""What the terminal prints of metrics, classes and slices: a line for each number, a table for each partition."""

from opacc_ray.errors import counted
from opacc_ray.estimators.metrics import tells
from opacc_ray.report import numbers
from opacc_ray.report.facts import Column, Fact, Line, Table, facts
from opacc_ray.report.numbers import level_text, thousands
from opacc_ray.runs.estimate_documents import AccuracyEstimate, SliceEstimate, SliceTable, StatedMetric

GAP = "   "
"""Between the parts of a result: value, interval, labels."""

MOST_ROWS = 15
"""Slices that a table shows; JSON has them all."""

TOO_FEW = "too few labels to tell"


def metrics(document: AccuracyEstimate) -> list[Line]:
    """State each metric of the pool, then each table of slices, the worst slice first."""
    lines = list[Line]()
    for name, found in document.metrics.items():
        own = _texts(name, found)
        parts = [own.value, f"{level_text(found.level)} interval {own.interval}", counted(found.n, "label")]
        lines.append(
            Fact(
                spoken(name),
                GAP.join([*parts, *([] if tells(found.low, found.high, found.n) else [TOO_FEW])]),
                "result",
            )
        )
        lines += _second(name, found)
        lines += facts(("note", found.reason if found.reason != document.reason else None))
    return lines + [line for table in document.by_slice for line in _slices(table, document.measure)]


def spoken(metric: str) -> str:
    """Return how people call a metric: ``f1@defect`` is the f1 of defect."""
    name, of_class, positive = metric.partition("@")
    return f"{name.replace('_', ' ')} of {positive}" if of_class else name.replace("_", " ")


def _texts(metric: str, found: StatedMetric) -> numbers.Stated:
    return numbers.stated(found, "mean" if metric.startswith("mcc") else "accuracy")


def _second(metric: str, found: StatedMetric) -> list[Fact]:
    """State both intervals of a rare class: without and with trust in the confidence."""
    told = found.if_predicted
    if told is None:
        return []
    narrow = numbers.ends(told.low, told.high, "mean" if metric.startswith("mcc") else "accuracy")
    first = f"{_texts(metric, found).interval} holds whatever the confidence is worth"
    second = (
        f"{narrow} if it is right about the examples without a label, unless more than {told.factor:.2g} times as many "
        f"hide there as it says; {counted(told.labels, 'label')} drawn there at random would settle it"
    )
    return facts(("", first), ("", second))


def _slices(table: SliceTable, measure: str) -> list[Line]:
    """Return a table of slices: those that say something first, the worst of them at the top."""
    name = numbers.noun(measure) if table.metric == "accuracy" else spoken(table.metric)
    share = "mean" if table.metric.startswith("mcc") else measure
    ordered = sorted(table.slices.items(), key=lambda item: (not item[1].tells, item[1].value, item[0]))
    level = ordered[0][1].level if ordered else table.level_together
    columns = (
        Column(table.by),
        Column("size", "n"),
        Column("labels", "n"),
        Column(name, "n"),
        Column(f"{level_text(level)} interval", "n"),
    )
    rows = [(key, *_cells(found, share)) for key, found in ordered[:MOST_ROWS]]
    more = len(ordered) - len(rows)
    return [Table(columns, rows), *([f"… and {thousands(more)} more (--json has all)"] if more else [])]


def _cells(found: SliceEstimate, measure: str) -> tuple[str, ...]:
    counts = thousands(found.size), thousands(found.n)
    return (*counts, *numbers.stated(found, measure)) if found.tells else (*counts, "–", TOO_FEW)
