"""Facts and tables that every rendering draws: terminal, Markdown and HTML show the same rows."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from opacc_ray.estimators.intervals import clipped
from opacc_ray.report.numbers import digits_for, ends, level_text, noun, number, thousands
from opacc_ray.runs.estimate_documents import AccuracyEstimate, RoundCounts

Cell = str | tuple[str, str]
"""A text, or a text and a note on it."""


class Fact(NamedTuple):
    """One fact of an answer: a label and a text."""

    label: str
    text: str
    tone: Literal["", "result", "warning", "error"] = ""
    detail: bool = False  # shown with --verbose only


class Column(NamedTuple):
    """A column of a table."""

    name: str
    kind: Literal["", "n", "code"] = ""  # text, numbers, or names in a fixed-width font
    optional: bool = False  # hidden on a narrow page
    title: str = ""  # explanation of the name, for HTML


class Table(NamedTuple):
    """Rows under named columns; the first column names the row."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


Line = Fact | Table | str
"""A part of an answer; a plain text is printed as it is."""


class StatedInterval(NamedTuple):
    """One of the intervals of a result."""

    name: str
    kind: Literal["own", "srs", "any"]
    value: float | None
    low: float
    high: float


def facts(*pairs: tuple[str, object], tone: Literal["", "result", "warning", "error"] = "") -> list[Fact]:
    """Return facts of (label, text); a text that is empty or None is left out."""
    return [Fact(label, str(text), tone) for label, text in pairs if text not in (None, "")]


def warned(texts: Iterable[str], label: str = "warning") -> list[Fact]:
    """Return texts as warnings."""
    return [Fact(label, text, "warning") for text in texts]


def doubts(estimate: AccuracyEstimate) -> list[str]:
    """Return what a reader must know of a number: its notes, then what it rests on, each once."""
    return list(dict.fromkeys([*estimate.notes, *([estimate.reason] if estimate.reason else [])]))


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

    Rounds of several tracks have a column ``track``; ``given up`` is a column if any example is.
    """
    tracks = [getattr(item, "track", None) for item in rounds]
    shown = {"track": any(tracks), "method": method, "given up": any(item.given_up for item in rounds)}
    rows = []
    for item, track in zip(rounds, tracks, strict=True):
        counts = {"asked": item.budget, "labelled": item.labelled, "missing": item.missing}
        counts |= {"can't tell": item.unsure, "given up": item.given_up}
        cells = {"round": str(item.round), "track": track or "main", "method": item.method}
        cells |= {name: count_text(number) for name, number in counts.items()}
        rows.append({name: text for name, text in cells.items() if shown.get(name, True)})
    columns = [Column(name, "" if name in ("round", "track", "method") else "n") for name in (rows[0] if rows else ())]
    return Table(columns, [tuple(row.values()) for row in rows])


def count_text(number: int) -> str:
    """Format a count of a table: a dash for zero."""
    return thousands(number) if number else "-"
