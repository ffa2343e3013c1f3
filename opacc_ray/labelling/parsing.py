"""Labels come back: read the files that people return.

Files answer a manifest days later, in another process: in part, twice, by several people, edited in a spreadsheet.
Columns (or JSON keys) `id` and `label` are needed; `annotator`, `status`, `run`, `round` and `labelled_at` (ISO 8601)
are understood; others are ignored. `rows.py` says what a row means, and `joining.py` brings the rows of all files
together.

**A new format** is a file with `looks_like` and `parse`, and one line in `FORMATS`.
"""

from collections.abc import Callable
from typing import NamedTuple

from opacc_ray.errors import LabelError
from opacc_ray.labelling import csv_file, jsonl_file
from opacc_ray.labelling.rows import Label


class LabelFormat(NamedTuple):
    """A kind of file: how to recognise it by its text, and how to parse its text, given its name."""

    looks_like: Callable[[str], bool]
    parse: Callable[[str, str], list[Label]]


FORMATS: tuple[LabelFormat, ...] = (
    LabelFormat(jsonl_file.looks_like, jsonl_file.parse),
    LabelFormat(lambda text: True, csv_file.parse),  # the last: it takes what is left
)


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
    return next(form for form in FORMATS if form.looks_like(text)).parse(text, name)
