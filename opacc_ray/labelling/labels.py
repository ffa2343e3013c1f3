"""Labels come back: parse the files people return, join them to a selection, turn them into outcomes.

Files answer a manifest days later, in another process: in part, twice, by several people, edited in a
spreadsheet. Three steps keep them honest.

`parse` reads one file. Columns (or JSON keys) `id` and `label` are needed; `annotator`, `status`, `run`,
`round` and `labelled_at` (ISO 8601) are understood; others are ignored. An empty label is a row that nobody
has answered yet: status ``blank``. One of `UNSURE`, as the label or as the status, says "can't tell": status
``unsure``, never a guess. (A class with such a name is answered by its index.)

`join` brings all labels of a run together, by id alone: never by order, never by file name. Its result
depends on which labels came back, not on the order of files or lines.

- Repeats that agree are one label.
- An annotator who answers an example again corrects it if `labelled_at` says which answer is later, in
  whatever file. Without it his answers are in conflict. Lines without an annotator may come from different
  people: none of them replaces another.
- A label stands beside somebody's "can't tell"; an example is unsure when nobody could tell.
- Labels in conflict are refused, or the most frequent one is taken: one vote for each line without an
  annotator; one for each annotator and label, however often a file was exported and imported again.

`outcome_of_classes` and `outcome_of_values` compare a label with the model's prediction.
"""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labelling.manifest import from_spreadsheet

Status = Literal["labelled", "unsure", "blank"]

COLUMNS = ("id", "label", "annotator", "status", "run", "round", "labelled_at")
UNSURE = frozenset({"?", "unsure", "can't tell", "cannot tell", "skipped"})
ANSWERED = frozenset({"", "labelled", "labeled", "done", "completed"})


@dataclass(frozen=True)
class Label:
    """One answer of one person on one example.

    `label` is None unless the status is ``labelled``; `annotator`, `run`, `round` and `labelled_at` are what
    the file says; `place` is where it says so, such as ``batch.csv line 7``.
    """

    id: str
    label: str | None
    status: Status = "labelled"
    annotator: str | None = None
    run: str | None = None
    round: int | None = None
    labelled_at: str | None = None
    place: str = ""


@dataclass(frozen=True)
class Joined:
    """The labels of a selection, as far as they came back; each selected id is in one of the first three.

    Attributes
    ----------
    label : id → label, in the order of the selection.
    unsure : ids on which nobody could tell, in the order of the selection.
    missing : ids without an answer, in the order of the selection.
    repeated : number of ids with more than one answer.
    overruled : number of answers that are not the result: corrected, outvoted, "can't tell" beside a label.
    blank : number of rows that nobody had filled in.
    num_annotators : number of distinct names among the answers.
    """

    label: dict[str, str]
    unsure: tuple[str, ...]
    missing: tuple[str, ...]
    repeated: int
    overruled: int
    blank: int
    num_annotators: int


def parse(data: bytes, name: str) -> list[Label]:
    """Read a file of labels: one per row, unanswered rows included so that they can be counted.

    Raises
    ------
    LabelError : the file is not UTF-8, or a line cannot be understood; the message names the line.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LabelError(f"{name} line {line} is not UTF-8: save it as UTF-8 (in Excel: CSV UTF-8)") from None
    return next(form for form in FORMATS if form.sniff(text, name)).parse(text, name)


def join(
    labels: Iterable[Label],
    selected: Sequence[str],
    *,
    run: str,
    pool_contains: Callable[[str], bool] | None = None,
    conflict: str = "error",
    source: str = "labels",
    check: Callable[[str, str], object] | None = None,
) -> Joined:
    """Find the label of each selected example, by id.

    Parameters
    ----------
    labels : all labels that came back so far, of all files, in any order.
    selected : ids of the selection; an id may stand in it more than once.
    run : the run that is answered.
    pool_contains : tells whether an id is in the run's pool, to say what is wrong with an unknown one.
    conflict : ``error`` refuses labels that differ, ``majority`` takes the most frequent.
    source : what the labels are called in messages.
    check : given the id and the text of a label in conflict, raises if it is no label at all, which is said first.

    Raises
    ------
    LabelError : a label names another run, an id is unknown, labels are in conflict (``majority``: tied).
    SpecError : `conflict` is neither of the two.
    """
    if conflict not in ("error", "majority"):
        raise SpecError(f"conflict {conflict!r} is unknown: use error or majority")
    rows = list(labels)
    _refuse_other_runs(rows, run, source)
    _refuse_unknown_ids({row.id for row in rows} - set(selected), selected, pool_contains, source)
    answers: dict[str, list[Label]] = {id: [] for id in selected}
    for row in rows:
        if row.status != "blank":
            answers[row.id].append(row)
    winners = {id: _winners(given, conflict) for id, given in answers.items() if given}
    for id, text in [(id, text) for id, texts in winners.items() if len(texts) > 1 for text in texts]:
        if check:
            check(id, text)
    _refuse_disputes(winners, answers, conflict, source)
    chosen = {id: texts[0] if texts else None for id, texts in winners.items()}
    return Joined(
        label={id: text for id, text in chosen.items() if text is not None},
        unsure=tuple(id for id, text in chosen.items() if text is None),
        missing=tuple(id for id, given in answers.items() if not given),
        repeated=sum(len(given) > 1 for given in answers.values()),
        overruled=sum(row.label != chosen[row.id] for given in answers.values() for row in given),
        blank=sum(row.status == "blank" for row in rows),
        num_annotators=len({row.annotator for given in answers.values() for row in given} - {None}),
    )


class LabelFormat(NamedTuple):
    """A kind of file: how to recognise it and how to parse it, by its text and its name."""

    name: str
    sniff: Callable[[str, str], bool]
    parse: Callable[[str, str], list[Label]]


def _parse_jsonl(text: str, name: str) -> list[Label]:
    lines = enumerate(text.split("\n"), start=1)  # splitlines() would also split inside a string
    return [_label_of_json(line, f"{name} line {number}") for number, line in lines if line.strip()]


def _label_of_json(line: str, place: str) -> Label:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise LabelError(f"{place} is not valid JSON: write one JSON object per line") from None
    if not isinstance(found, dict) or "id" not in found or not {"label", "status"} & set(found):
        raise LabelError(f"{place} is not a JSON object with the keys id and label: write one per line")
    return _label({column: _text(found.get(column), column, place) for column in COLUMNS}, place)


def _text(value: object, column: str, place: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int | float):
        return json.dumps(value)  # 7 → "7", true → "true", a float as its shortest exact repr
    raise LabelError(f"{place} has a {type(value).__name__} as its {column}: use a text or a number")


def _parse_csv(text: str, name: str) -> list[Label]:
    headers = {mark: _header(text, mark) for mark in ",;\t"}
    delimiter = next((mark for mark, names in headers.items() if {"id", "label"} <= set(names)), None)
    if delimiter is None:
        first = text.strip().partition("\n")[0][:80]
        raise LabelError(f"{name} starts with {first!r}: start it with a header with the columns id and label")
    header = headers[delimiter]
    twice = [column for column in COLUMNS if header.count(column) > 1]
    if twice:
        raise LabelError(f"{name} has two columns {twice[0]!r} in its header: keep one of them")
    rows = _csv_rows(text, name, delimiter)
    next(rows)  # the header
    return [_label_of_cells(header, cells, place) for place, cells in rows]


def _header(text: str, delimiter: str) -> list[str]:
    try:
        _, cells = next(_csv_rows(text, "", delimiter), ("", []))
    except LabelError:  # quotes that make no sense with this delimiter
        return []
    return [cell.strip().lower() for cell in cells]


def _csv_rows(text: str, name: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and cells of each row that is not blank; a place names the row's first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    cells: list[str] | None = []
    while cells is not None:
        place = f"{name} line {reader.line_num + 1}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise LabelError(f"{place} is not valid CSV ({error}): check the quotes from there on") from None
        if cells and any(map(str.strip, cells)):
            yield place, cells


def _label_of_cells(header: list[str], cells: list[str], place: str) -> Label:
    if any(map(str.strip, cells[len(header) :])):
        counts = f"{len(cells)} cells, but the header has {len(header)}"
        raise LabelError(f"{place} has {counts}: put quotes around a text that holds the separator")
    return _label(dict(zip(header, map(from_spreadsheet, cells), strict=False)), place)


def _label(fields: Mapping[str, str], place: str) -> Label:
    """Build a label from the texts of its columns; the id is kept as it is, the others are trimmed."""
    if not fields.get("id"):
        raise LabelError(f"{place} has no id: labels are joined by id, so give each row the id it answers")
    text = {column: fields.get(column, "").strip() for column in COLUMNS}
    status = _status(text["label"], text["status"], place)
    round = whole_number(text["round"])
    if text["round"] and round is None:
        raise LabelError(f"{place} has the round {text['round']!r}: use a whole number, or leave it empty")
    return Label(
        id=fields["id"],
        label=text["label"] if status == "labelled" else None,
        status=status,
        annotator=text["annotator"] or None,
        run=text["run"] or None,
        round=round,
        labelled_at=text["labelled_at"] or None,
        place=place,
    )


def _status(label: str, status: str, place: str) -> Status:
    said = [" ".join(text.replace("’", "'").lower().split()) for text in (label, status)]
    if not UNSURE.isdisjoint(said):
        return "unsure"
    if said[1] not in ANSWERED:
        raise LabelError(f"{place} has the status {status!r}: use labelled or unsure, or leave it empty")
    if status and not label:
        raise LabelError(f"{place} has the status {status!r} but no label: fill it in, or clear the status")
    return "labelled" if label else "blank"


def whole_number(text: str) -> int | None:
    """Read "7", also as "7.0", which is what some tools make of a column of numbers with gaps."""
    found = re.fullmatch(r"(\d{1,18})(\.0*)?", text, re.ASCII)
    return int(found[1]) if found else None


# A new format is one line, in front of csv, which takes what is left.
FORMATS: tuple[LabelFormat, ...] = (
    LabelFormat("jsonl", lambda text, name: text.lstrip().startswith(("{", "[")), _parse_jsonl),
    LabelFormat("csv", lambda text, name: True, _parse_csv),
)


def _refuse_other_runs(rows: Sequence[Label], run: str, source: str) -> None:
    others = sorted((row.place, row.run) for row in rows if row.run is not None and row.run != run)
    for place, other in others[:1]:
        what = f"{len(others)} row(s) answer another run, {other!r} ({place}), not {run!r}"
        raise LabelError(f"{source}: {what}: import them into the run that they answer")


def _refuse_unknown_ids(
    unknown: set[str], selected: Sequence[str], pool_contains: Callable[[str], bool] | None, source: str
) -> None:
    if not unknown:
        return
    strangers = {id for id in unknown if pool_contains and not pool_contains(id)}
    passed_over = ("in the pool but " if pool_contains else "") + "not selected for labelling"
    parts = [(strangers, "not in the pool of this run"), (unknown - strangers, passed_over)]
    said = "; ".join(f"{len(ids)} id(s) {what}: {few(sorted(map(repr, ids)))}" for ids, what in parts if ids)
    remedy = "import the file into the run that it answers"
    shortened = {id.lstrip("0") for id in selected if id.startswith("0")}
    if any(id in shortened or re.fullmatch(r"\d(\.\d+)?E\+\d+", id) for id in unknown):
        remedy = "a spreadsheet rewrote ids as numbers, so open the manifest with its id column as text"
    raise LabelError(f"{source}: {said}: {remedy}")


def _winners(answers: Sequence[Label], conflict: str) -> list[str]:
    """Return the labels that stand: none if nobody could tell, more than one if there is a dispute."""
    by_annotator: dict[str | None, list[Label]] = {}
    for answer in answers:
        by_annotator.setdefault(answer.annotator, []).append(answer)
    votes: Counter[str] = Counter(row.label for row in by_annotator.pop(None, []) if row.label is not None)
    for given in by_annotator.values():
        votes.update({row.label for row in _latest(given) if row.label is not None})
    fewest = max(votes.values(), default=0) if conflict == "majority" else 1
    return sorted(text for text, count in votes.items() if count >= fewest)


def _latest(answers: Sequence[Label]) -> list[Label]:
    """Return the last answers of one annotator; all of them if one has no time to order them by."""
    times = [_time(answer.labelled_at or "") for answer in answers]
    last = None if None in times else max(time for time in times if time)
    return [answer for answer, time in zip(answers, times, strict=True) if last in (None, time)]


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _refuse_disputes(
    winners: Mapping[str, list[str]], answers: Mapping[str, list[Label]], conflict: str, source: str
) -> None:
    said = [_dispute(id, texts, answers[id]) for id, texts in winners.items() if len(texts) > 1]
    if not said:
        return
    what, remedy = "labels in conflict", "settle them, or take the most frequent with --conflict majority"
    if conflict == "majority":
        what, remedy = "a tie between labels", "have one more person label them"
    raise LabelError(f"{source}: {what} on {len(said)} example(s): {few(said, '; ')}: {remedy}")


def _dispute(id: str, texts: Sequence[str], answers: Sequence[Label]) -> str:
    places = {text: min(row.place for row in answers if row.label == text) for text in texts}
    return f"{id!r} is " + " and ".join(f"{text!r} ({place})" for text, place in places.items())


def few(texts: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])
