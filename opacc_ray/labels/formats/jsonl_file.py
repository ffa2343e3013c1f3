"""JSON Lines: one object per line, in manifests and in files of labels; or the same objects in one JSON array."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats.label_file import LabelFile
from opacc_ray.labels.rows import COLUMNS, Context, Label, ManifestRow, label_of

OF_TASKS = frozenset({"opacc_id", "data", "annotations", "annotation_id", "result"})
"""Keys by which a task of Label Studio is told from a row of labels."""


def encode(rows: Sequence[ManifestRow], context: Context) -> bytes:
    """Write a manifest."""
    lines = [json.dumps(_json_fields(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    return "".join(lines).encode()


def _json_fields(row: ManifestRow) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": row.id,
        "uri": row.uri,
        "run": row.run,
        "round": row.round,
        "order": row.order,
        "label": None,
    }
    said = {"prediction": row.prediction, "note": row.note}
    return fields | {name: text for name, text in said.items() if text is not None}


def looks_like(head: str) -> bool:
    """Whether a text is one JSON object or an array of rows, by its first characters."""
    return head.startswith("{") or is_array_of_rows(head)


def is_array_of_rows(head: str) -> bool:
    """Whether a text is an array of objects with the keys id and label, and nothing that a labelling tool adds."""
    if not head.startswith("["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(head[1:].lstrip())
    except (ValueError, RecursionError):
        return False
    return _is_row(first) and not OF_TASKS & set(first)


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield labels: objects with the keys id and label."""
    if is_array_of_rows(file.head()):
        rows = enumerate(file.json(), start=1)
        return (_label_of_row(row, f"{file.name} item {number}") for number, row in rows)
    lines = enumerate(file.lines("\n"), start=1)  # other ends of lines may lie inside a string
    return (_label_of_json(line, f"{file.name} line {number}") for number, line in lines if not line.isspace())


def _label_of_json(line: str, place: str) -> Label:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise LabelError(f"{place} is not valid JSON: write one JSON object per line") from None
    return _label_of_row(found, place, ": write one per line")


def _is_row(found: Any) -> bool:
    return isinstance(found, dict) and "id" in found and bool({"label", "status"} & set(found))


def _label_of_row(found: Any, place: str, remedy: str = "") -> Label:
    if not _is_row(found):
        raise LabelError(f"{place} is not a JSON object with the keys id and label{remedy}")
    return label_of({column: _text(found[column], column, place) for column in COLUMNS if column in found}, place)


def _text(value: object, column: str, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise LabelError(f"{place} has half a character as its {column}, which is not valid Unicode: write it anew")
        return value
    if isinstance(value, int | float):
        return json.dumps(value)  # 7 → "7", true → "true", a float as its shortest exact repr
    raise LabelError(f"{place} has a {type(value).__name__} as its {column}: use a text or a number")
