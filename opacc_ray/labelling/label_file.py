"""The lines of a file that came back, decoded one by one: what is read never takes more memory than a line.

A line has at most `LONGEST_LINE` characters: whatever holds more is no table of labels.
"""

import io
from collections.abc import Iterator
from typing import NamedTuple

from opacc_ray.errors import LabelError

LONGEST_LINE = 1 << 20


class LabelFile(NamedTuple):
    """The content of a file, and its name for messages."""

    name: str
    data: bytes

    def lines(self, newline: str = "") -> Iterator[str]:
        """Yield the lines with their ends: at line feeds, carriage returns and both; or at ``newline`` alone.

        Raises
        ------
        LabelError : a line is too long, or not UTF-8; the message names it.
        """
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
