"""Show progress and the remaining time: a bar on a terminal, log lines elsewhere."""

import logging
import os
import shutil
import sys
import time
from typing import ClassVar, Self

log = logging.getLogger(__name__)

LOG = "OPACC_LOG"
"""Environment variable: if it is json, log lines are JSON for programs, and progress is logged even on a terminal."""

ENOUGH_UNITS, ENOUGH_SECONDS = 3, 1.0
"""Work that is needed to estimate the remaining time: units after the first one, and seconds."""

REDRAWN, WIDTH = 0.1, 30
"""Seconds between two drawings of a bar, and its width in characters."""

CLEARED = "\r\x1b[K"  # back to the start of the line, which is emptied


class Progress:
    """Show "extract: 3 of 12 shards, about 8 s left"; use it as a context, which closes the bar.

    The first call reports earlier work, which does not count towards the speed. Neither does the first unit, because it
    includes the start of actors and the compilation of code.

    Parameters
    ----------
    what, unit : name of the work, and of its units
    every : minimum seconds between two log lines
    delay : seconds before anything is shown
    bar : whether to show a bar on a terminal; log lines are better for parallel work
    """

    drawn: ClassVar[str] = ""  # the bar that is on the terminal; a log line goes above it
    load: ClassVar[str] = ""  # what limits the work, in words

    def __init__(self, what: str, unit: str, every: float = 2.0, delay: float = 0.0, *, bar: bool = True) -> None:
        self._what, self._unit, self._every, self._with_bar = what, unit, every, bar
        self._delayed_to = time.monotonic() + delay
        self._shown_at = self._delayed_to - every
        self._kept: int | None = None
        self._first: tuple[float, int] | None = None  # time and number of units when the first one was done

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._kept is None:
            self._kept = done
        if self._first is None and done > self._kept:
            self._first = now, done
        if now < self._delayed_to:
            return
        on_terminal = self._with_bar and sys.stderr.isatty() and os.environ.get(LOG) != "json"
        every = REDRAWN if on_terminal else self._every
        if done not in (total, self._kept) and now - self._shown_at < every:
            return
        self._shown_at = now
        of, left = "" if total is None else f" of {total}", self._left(done, total, now)
        load = Progress.load if self._with_bar else ""  # a command that does one thing
        counts = f"{done}{of} {self._unit}{f', {left}' if left else ''}{f'; {load}' if load else ''}"
        if on_terminal:
            self._draw(counts, None if total is None else done / total if total else 1.0)
        else:
            fields = {"work": self._what, "unit": self._unit, "done": done, "total": total}
            log.info("%s", f"{self._what}: {counts}", extra={"fields": fields})

    def _left(self, done: int, total: int | None, now: float) -> str:
        """Return the remaining time in words, once it can be estimated."""
        if self._first is None or total is None or done >= total:
            return ""
        begun, units = self._first
        if done - units < ENOUGH_UNITS or now - begun < ENOUGH_SECONDS:
            return ""
        return f"about {max(1, (now - begun) / (done - units) * (total - done)):.0f} s left"

    def _draw(self, counts: str, share: float | None) -> None:
        bar = "" if share is None else f"{'█' * round(share * WIDTH):{WIDTH}} "
        Progress.drawn = f"{self._what}: {bar}{counts}"[: shutil.get_terminal_size().columns - 1]
        print(f"{CLEARED}{Progress.drawn}", end="", file=sys.stderr, flush=True)
        if share == 1:
            self.close()

    def close(self) -> None:
        """Finish the bar, so that later output starts below it."""
        if Progress.drawn:
            print(file=sys.stderr)
            Progress.drawn = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
