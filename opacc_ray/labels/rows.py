"""What all kinds of file have in common: rows of manifests, which go out, and rows of labels, which come back.

An empty label is a row that nobody has answered yet: status ``blank``. One of `UNSURE`, as the label or as the status,
says "can't tell": status ``unsure``, never a guess. (A class with such a name is answered by its index.)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from opacc_ray.errors import LabelError, shown
from opacc_ray.labels.messages import quoted
from opacc_ray.lake.examples import LONGEST_ID

Status = Literal["labelled", "unsure", "blank"]

COLUMNS = ("id", "label", "annotator", "status", "run", "round", "labelled_at")
"""What a file of labels may say; other columns are ignored."""

LONGEST = {"id": LONGEST_ID, "label": 1000, "annotator": 200, "status": 100, "run": 200, "round": 20, "labelled_at": 64}
"""Characters that each may have."""

WHOLE = re.compile(r"(\d{1,18})(\.0*)?", re.ASCII)
UNSURE = frozenset({"?", "unsure", "can't tell", "cannot tell", "skipped"})
ANSWERED = frozenset({"", "labelled", "labeled", "done", "completed"})


def checked_annotator(name: object) -> str:
    """An annotator's name as a run keeps it; raises LabelError if it is none."""
    text = name.strip() if isinstance(name, str) else ""
    if not text or len(text) > LONGEST["annotator"] or not text.isprintable():
        raise LabelError(f"annotator {shown(name)}: give a name of 1 to {LONGEST['annotator']} letters")
    return text


@dataclass(frozen=True)
class ManifestRow:
    """One example to label.

    Attributes
    ----------
    id : the example's id in the pool; labels come back under it.
    uri : a link to its content, if there is one that an annotator may open.
    run : the run that chose it.
    round : the round of that run, from 1.
    order : its place in the order of choice, from 1.
    prediction : the model's answer; encoded only on request.
    note : what the annotator must know of this example, such as that its file changed.
    """

    id: str
    uri: str | None
    run: str
    round: int
    order: int
    prediction: str | None = None
    note: str | None = None


@dataclass(frozen=True)
class Task:
    """One example in a labelling tool. It never holds what the model says.

    Attributes
    ----------
    id : the example's id in the pool; labels come back under it.
    image : what the tool shows: a link, the place of a copy, or a picture as a data URI; empty if there is nothing.
    run, round, order : as in :class:`ManifestRow`.
    """

    id: str
    image: str
    run: str
    round: int
    order: int


@dataclass(frozen=True)
class Context:
    """What a format may need to know of the run beside the rows.

    Attributes
    ----------
    classes : what annotators call the classes, by index; None if that is not known, or in a regression.
    task : whether a label is a class or a number.
    """

    classes: tuple[str, ...] | None = None
    task: Literal["classification", "regression"] = "classification"


class Label(NamedTuple):
    """One answer of one person on one example.

    `label` is None unless the status is ``labelled``; `annotator`, `run`, `round` and `labelled_at` are what
    the file says; `place` is where it says so, such as ``batch.csv line 7``. `returned` is the place of the file in the
    order in which files came back; `correction`, if it is above 0, the place of this label among the corrections, each
    of which outranks all that was said before; `lines` is how many lines say the same.
    """

    id: str
    label: str | None
    status: Status = "labelled"
    annotator: str | None = None
    run: str | None = None
    round: int | None = None
    labelled_at: str | None = None
    place: str = ""
    returned: int = 0
    correction: int = 0
    lines: int = 1


def label_of(fields: Mapping[str, str], place: str) -> Label:
    """Build a label from the texts of its columns; the id is kept as it is, the others are trimmed."""
    for column, found in fields.items():
        if len(found) > LONGEST[column]:
            what = f"{len(found)} characters as its {column}, where {LONGEST[column]} are the most"
            raise LabelError(f"{place} has {what}: {quoted(found, 40)}")
    text = {column: found.strip() for column, found in fields.items()}
    id = fields.get("id")
    if not id:
        raise LabelError(f"{place} has no id: labels are joined by id, so give each row the id it answers")
    label = text.get("label", "")
    status = _status(label, text.get("status", ""), place)
    return Label(
        id,
        label if status == "labelled" else None,
        status,
        text.get("annotator") or None,
        text.get("run") or None,
        _round(text["round"], place) if text.get("round") else None,
        text.get("labelled_at") or None,
        place,
    )


def _round(text: str, place: str) -> int:
    number = whole_number(text)
    if number is None:
        raise LabelError(f"{place} has the round {quoted(text)}: use a whole number, or leave it empty")
    return number


def _status(label: str, status: str, place: str) -> Status:
    if says_unsure(label) or says_unsure(status):
        return "unsure"
    if status:
        if _plain(status) not in ANSWERED:
            raise LabelError(f"{place} has the status {quoted(status)}: use labelled or unsure, or leave it empty")
        if not label:
            said = quoted(status)
            raise LabelError(f"{place} has the status {said} but no label: fill it in, or clear the status")
    return "labelled" if label else "blank"


def says_unsure(text: str) -> bool:
    """Tell whether a text, as a label or a status, says "can't tell"."""
    return bool(text) and len(text) <= 40 and _plain(text) in UNSURE


def _plain(text: str) -> str:
    return " ".join(text.replace("’", "'").lower().split())


def whole_number(text: str) -> int | None:
    """Read "7", also as "7.0", which is what some tools make of a column of numbers with gaps."""
    found = WHOLE.fullmatch(text)
    return int(found[1]) if found else None
