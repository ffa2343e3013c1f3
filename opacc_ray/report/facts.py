"""Facts, tables and numbers as people read them: terminal, Markdown and HTML show the same rows.

Numbers are percentages, intervals, counts and durations; JSON keeps fractions.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from opacc_ray.errors import counted
from opacc_ray.estimation.intervals import Value, clipped
from opacc_ray.metrics.metric import ERRORS
from opacc_ray.metrics.scores import BRIER, RANKINGS
from opacc_ray.runs.estimate_documents import AccuracyEstimate, ChangedObjects, RoundCounts

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


def intervals_of(estimate: AccuracyEstimate) -> list[StatedInterval]:
    """Return the intervals of a result: its own, by the design alone, of a random sample, valid at any time."""
    value, own = clipped(estimate), estimate.by_design
    srs, any_time = estimate.srs, estimate.sequence
    found = [StatedInterval("this audit", "own", value, estimate.low, estimate.high)]
    if own and estimate.allows_for:
        found.append(StatedInterval("by the sampling design alone", "srs", value, own.low, own.high))
    found.append(StatedInterval(f"{thousands(srs.n)} random labels", "srs", value, srs.low, srs.high))
    if (any_time.low, any_time.high) != (0, 1):  # it counts no round yet
        found.append(StatedInterval("valid at any time", "any", None, any_time.low, any_time.high))
    return found


def interval_table(estimate: AccuracyEstimate) -> Table:
    """Return :func:`intervals_of` a result as a table."""
    measure, digits = estimate.measure, digits_for(estimate.low, estimate.high)
    columns = (Column(""), Column(noun(measure), "n"), Column(f"{level_text(estimate.level)} interval", "n"))
    rows = [
        (item.name, number(item.value or 0.0, measure, digits) if item.kind == "own" else "",
         ends(item.low, item.high, measure, digits))
        for item in intervals_of(estimate)
    ]  # fmt: skip
    return Table(columns, rows)


def round_table(rounds: Sequence[RoundCounts], *, method: bool = True) -> Table:
    """Return how many examples of each round are labelled, missing, undecided or given up.

    ``given up`` is a column if any example is.
    """
    shown = {"method": method, "given up": any(item.given_up for item in rounds)}
    rows = []
    for item in rounds:
        counts = {"asked": item.budget, "labelled": item.labelled, "missing": item.missing}
        counts |= {"can't tell": item.unsure, "given up": item.given_up}
        cells = {"round": str(item.round), "method": item.method}
        cells |= {name: count_text(number) for name, number in counts.items()}
        rows.append({name: text for name, text in cells.items() if shown.get(name, True)})
    columns = [Column(name, "" if name in ("round", "method") else "n") for name in (rows[0] if rows else ())]
    return Table(columns, [tuple(row.values()) for row in rows])


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


def changed_texts(objects: ChangedObjects) -> list[str]:
    """Return how many objects of chosen examples changed, and how many are gone."""
    is_gone = "is gone" if objects.lost == 1 else "are gone"
    counts = ((objects.changed, "changed since extraction"), (objects.lost, is_gone))
    names = "object of a chosen example", "objects of chosen examples"
    return [f"{counted(count, *names)} {what}" for count, what in counts if count]


def duration(days: float) -> str:
    """Format a number of days."""
    if days < 1:
        hours = int(24 * days)
        return "less than an hour" if hours < 1 else counted(hours, "hour")
    return counted(int(days), "day")


def minute(time: str) -> str:
    """Format a time of ISO 8601 in UTC: 2026-11-26 10:40 UTC."""
    return f"{time[:16].replace('T', ' ')} UTC"


def sentence(text: str) -> str:
    """Return a text of ours with a capital letter and a full stop."""
    return stopped(f"{text[:1].upper()}{text[1:]}")


def stopped(text: str) -> str:
    """Return a text with a full stop; it may begin with a name, which stays as it is."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
