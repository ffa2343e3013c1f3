"""Labels come back: read the files that people return.

Files answer a manifest days later, in another process: in part, twice, by several people, edited in a spreadsheet.
Columns (or JSON keys) `id` and `label` are needed; `annotator`, `status`, `run`, `round` and `labelled_at` (ISO 8601)
are understood; others are ignored. `rows.py` says what a row means, and `joining.py` brings the rows of all files
together.

**A new format** is a file with `looks_like` and `parse`, and one line in `FORMATS`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from opacc_ray.labelling import csv_file, jsonl_file
from opacc_ray.labelling.label_file import LabelFile
from opacc_ray.labelling.rows import Label


class LabelFormat(NamedTuple):
    """A kind of file: how to recognise it by its first line, and how to read its rows."""

    looks_like: Callable[[str], bool]
    parse: Callable[[LabelFile], Iterator[Label]]


FORMATS: tuple[LabelFormat, ...] = (
    LabelFormat(jsonl_file.looks_like, jsonl_file.parse),
    LabelFormat(lambda text: True, csv_file.parse),  # the last: it takes what is left
)


def parse(data: bytes, name: str) -> Iterator[Label]:
    """Yield the labels of a file, one per row, unanswered rows included so that they can be counted.

    Raises
    ------
    LabelError : the file is not UTF-8, or a line cannot be understood; the message names the line.
    """
    file = LabelFile(name, data)
    start = file.start()
    return next(form for form in FORMATS if form.looks_like(start)).parse(file)
