"""What all kinds of file have in common: rows of manifests, which go out, and rows of labels, which come back.

An empty label is a row that nobody has answered yet: status ``blank``. One of `UNSURE`, as the label or as the status,
says "can't tell": status ``unsure``, never a guess. (A class with such a name is answered by its index.)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from opacc_ray.errors import LabelError

Status = Literal["labelled", "unsure", "blank"]

COLUMNS = ("id", "label", "annotator", "status", "run", "round", "labelled_at")
"""What a file of labels may say; other columns are ignored."""

UNSURE = frozenset({"?", "unsure", "can't tell", "cannot tell", "skipped"})
ANSWERED = frozenset({"", "labelled", "labeled", "done", "completed"})


@dataclass(frozen=True)
class ManifestRow:
    """One example to label.

    Attributes
    ----------
    id : the example's id in the pool; labels come back under it.
    uri : where its content lies, if the pool knows.
    run : the run that chose it.
    round : the round of that run, from 1.
    order : its place in the order of choice, from 1.
    design : what the design says of it, such as ``{"stratum": 2}`` or ``{"draw_probability": 0.01}``.
    prediction : the model's answer; encoded only on request.
    predicted : what the design expects of that answer, such as ``{"predicted_failure": 0.3}``; encoded among the design
        fields, and only on request.
    """

    id: str
    uri: str | None
    run: str
    round: int
    order: int
    design: dict[str, float | int] = field(default_factory=dict)
    prediction: str | None = None
    predicted: dict[str, float | int] = field(default_factory=dict)

    @property
    def fields_of_design(self) -> dict[str, float | int]:
        """Sorted by name."""
        return dict(sorted((self.design | self.predicted).items()))


@dataclass(frozen=True)
class Context:
    """What a format may need to know of the run beside the rows: the names of the classes, by index."""

    classes: tuple[str, ...] | None = None


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


def label_of(fields: Mapping[str, str], place: str) -> Label:
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
