"""JSON Lines: one object per line, in manifests and in files of labels; or the same objects in one JSON array."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opacc_ray.errors import LabelError
from opacc_ray.labels.label_rows import COLUMNS, Context, Label, LabelFile, Task, label_of, text_of_counts

IMAGES = ("addresses", "links", "copies", "thumbnails")

TASK_KEYS = frozenset({"opacc_id", "data", "annotations", "annotation_id", "result"})
"""Keys that a task of Label Studio has, and a row of labels has not."""


PLACE = "opacc_place"
"""Key of a row that was taken from another file: its place there, for messages."""


def as_jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON Lines; half a character of a text is kept, so that whoever reads it names its place."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(errors="surrogatepass")


def write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``manifest.jsonl``."""
    rows = []
    for task in tasks:
        fields: dict[str, Any] = {name: getattr(task, name) for name in ("id", "uri", "run", "round", "order")}
        fields |= dict.fromkeys(context.counts or ("label",))
        fields |= {} if task.note is None else {"note": task.note}
        fields |= {"shown": dict(task.shown)} if task.shown else {}
        rows.append(fields)
    return {"manifest.jsonl": as_jsonl(rows)}


def looks_like(head: str) -> bool:
    """Return whether a file starts with a JSON object, or with an array of rows."""
    return head.startswith("{") or is_array_of_rows(head)


def is_array_of_rows(head: str) -> bool:
    """Return whether a file starts with an array of objects with the keys id and label, and no key of a tool."""
    if not head.startswith("["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(head[1:].lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "id" in first and not TASK_KEYS & set(first)


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield the labels of objects with the keys id and label, or id and all counts."""
    if is_array_of_rows(file.head()):
        rows = enumerate(file.json(), start=1)
        return (_label_of_row(row, file, f"{file.name} item {number}") for number, row in rows)
    lines = file.json_lines("write one JSON object per line")
    return (_label_of_row(found, file, place, ": write one per line") for place, found in lines)


def _label_of_row(found: Any, file: LabelFile, place: str, remedy: str = "") -> Label:
    if isinstance(found, dict):
        found = dict(zip(file.own_names([*found]), found.values(), strict=True))
    if not isinstance(found, dict) or "id" not in found or not {"label", "status", *file.counts} & found.keys():
        keys = ", ".join(["id", *file.counts]) if file.counts else "id and label"
        raise LabelError(f"{place} is not a JSON object with the keys {keys}{remedy}")
    place = _text(found.get(PLACE), PLACE, place) or place
    fields = {column: _text(found[column], column, place) for column in COLUMNS if column in found}
    if set(file.counts) & set(found) and not fields.get("label"):
        own = {name: _text(found.get(name), name, place) for name in file.counts}
        fields["label"] = text_of_counts(own, place)
    return label_of(fields, place)


def _text(value: object, column: str, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise LabelError(f"{place} has half a character in {column}, which is not valid Unicode: write it anew")
        return value
    if isinstance(value, int | float):
        return json.dumps(value)  # 7 → "7", true → "true", a float as its shortest exact repr
    raise LabelError(f"{place} has a {type(value).__name__} in {column}: use a text or a number")
