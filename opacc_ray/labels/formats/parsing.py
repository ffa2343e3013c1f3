"""Labels come back: read the files that people return.

Files answer a manifest days later, in another process: in part, twice, by several people, edited in a spreadsheet.
Columns (or JSON keys) `id` and `label` are needed; `annotator`, `status`, `run`, `round` and `labelled_at` (ISO 8601)
are understood; others are ignored. JSON objects come one per line, or all in one array. `rows.py` says what a row
means, and `joining.py` brings the rows of all files together.

What labelling tools export is recognised by its content, too: see the file of each.

**A new format** is a file with `looks_like` and `parse`, and one line in `FORMATS`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats import csv_file, cvat, ground_truth, jsonl_file, label_studio
from opacc_ray.labels.formats.label_file import LabelFile
from opacc_ray.labels.messages import quoted
from opacc_ray.labels.rows import Label


class LabelFormat(NamedTuple):
    """A kind of file: how to recognise it by its first characters, and how to read its rows."""

    looks_like: Callable[[str], bool]
    parse: Callable[[LabelFile], Iterator[Label]]


FORMATS: dict[str, LabelFormat] = {
    "cvat": LabelFormat(cvat.looks_like, cvat.parse),
    "ground-truth": LabelFormat(ground_truth.looks_like, ground_truth.parse),
    "label-studio": LabelFormat(label_studio.looks_like, label_studio.parse),
    "jsonl": LabelFormat(jsonl_file.looks_like, jsonl_file.parse),
    "csv": LabelFormat(lambda text: True, csv_file.parse),  # the last: it takes what is left
}


def parse(data: bytes, name: str) -> Iterator[Label]:
    """Yield the labels of a file, one per row, unanswered rows included so that they can be counted.

    Raises
    ------
    LabelError : the file is not UTF-8, or a line cannot be understood; the message names the line.
    """
    file = LabelFile(name, data)
    return FORMATS[kind_of(file)].parse(file)


def kind_of(file: LabelFile) -> str:
    """Return the key in `FORMATS` of what a file looks like."""
    head = file.head()
    return next(kind for kind, form in FORMATS.items() if form.looks_like(head))


def check_kind(data: bytes, name: str, expected: str) -> None:
    """Raise LabelError if a file does not look like what a tool writes.

    Parameters
    ----------
    expected : a key of `FORMATS`.
    """
    file = LabelFile(name, data)
    found = kind_of(file)
    if found == "csv" and expected == "label-studio" and csv_file.is_label_studio(file):
        return
    if found != expected:
        start = quoted(file.head()[:40])
        raise LabelError(f"{name} looks like {found}, not {expected}; it starts with {start}: export it again")
