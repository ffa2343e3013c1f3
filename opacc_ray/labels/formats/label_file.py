"""A file that came back, line by line, so that a table never takes more memory than a line; or as one JSON value.

A line has at most `LONGEST_LINE` characters: whatever holds more is no table of labels.
"""

import io
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from opacc_ray.errors import LabelError

LONGEST_LINE = 1 << 20

HEAD = 1 << 16
"""Bytes by which the kind of a file is told."""

ZIP = b"PK\x03\x04"
"""How archives and workbooks (.xlsx, .ods) start."""


class LabelFile(NamedTuple):
    """The content of a file, and its name for messages."""

    name: str
    data: bytes

    def lines(self, newline: str = "") -> Iterator[str]:
        """Yield the lines with their ends: at line feeds, carriage returns and both; or at ``newline`` alone.

        Raises
        ------
        LabelError : a line is too long, or not UTF-8, and the message names it; or the file is an archive.
        """
        if self.data.startswith(ZIP):
            what = "is a ZIP archive, as tools export, or a workbook"
            raise LabelError(f"{self.name} {what}: import the file of labels in it, or save the sheet as CSV UTF-8")
        text = io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline=newline)
        number = 0
        try:
            while line := text.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise LabelError(
                        f"{self.name} line {number} is longer than {LONGEST_LINE} characters: write one label per line"
                    )
                yield line
        except UnicodeDecodeError:
            place = f"{self.name} line {self._first_undecodable()}"
            raise LabelError(f"{place} is not UTF-8: save it as UTF-8 (in Excel: CSV UTF-8)") from None

    def head(self) -> str:
        """Return the first characters of the file, without white space in front; what is not UTF-8 is replaced."""
        return self.data[:HEAD].decode("utf-8-sig", errors="replace").lstrip()

    def json(self) -> Any:
        """Return what the whole file holds as one JSON value; raises LabelError if it does not."""
        try:
            return json.loads(self.data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise LabelError(f"{self.name} is not UTF-8: export it again") from None
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise LabelError(f"{self.name} is not valid JSON ({reason}): export it again") from None

    def start(self) -> str:
        """Return the first line that is not blank, without white space around it; empty if there is none."""
        return next((line.strip() for line in self.lines() if not line.isspace()), "")

    def _first_undecodable(self) -> int:
        for number, line in enumerate(io.BytesIO(self.data), start=1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
        return 1
