"""Show progress and the remaining time: a bar on a terminal, log lines elsewhere."""

import logging
import os
import shutil
import sys
import time
from typing import Any, Self

log = logging.getLogger(__name__)

LOG = "OPACC_LOG"
"""Environment variable: if it is json, log lines are JSON for programs, and progress is logged even on a terminal."""

ENOUGH_UNITS, ENOUGH_SECONDS = 3, 1.0
"""Work that is needed to estimate the remaining time: units after the first one, and seconds."""


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

    def __init__(self, what: str, unit: str, every: float = 2.0, delay: float = 0.0, *, bar: bool = True) -> None:
        self._what, self._unit, self._every, self._with_bar = what, unit, every, bar
        self._delayed_to = time.monotonic() + delay
        self._shown_at = self._delayed_to - every
        self._kept: int | None = None
        self._first: tuple[float, int] | None = None  # time and number of units when the first one was done
        self._bar: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._kept is None:
            self._kept = done
        if self._first is None and done > self._kept:
            self._first = now, done
        if now < self._delayed_to:
            return
        if self._with_bar and sys.stderr.isatty() and os.environ.get(LOG) != "json":
            self._draw(done, total, now)
        elif done == total or done == self._kept or now - self._shown_at >= self._every:
            self._shown_at = now
            of, left = "" if total is None else f" of {total}", self._left(done, total, now)
            fields = {"work": self._what, "unit": self._unit, "done": done, "total": total}
            said = f"{self._what}: {done}{of} {self._unit}{f', {left}' if left else ''}"
            log.info("%s", said, extra={"fields": fields})

    def _left(self, done: int, total: int | None, now: float) -> str:
        """Return the remaining time in words, once it can be estimated."""
        if self._first is None or total is None or done >= total:
            return ""
        begun, units = self._first
        if done - units < ENOUGH_UNITS or now - begun < ENOUGH_SECONDS:
            return ""
        return f"about {max(1, (now - begun) / (done - units) * (total - done)):.0f} s left"

    def _draw(self, done: int, total: int | None, now: float) -> None:
        if self._bar is None:
            from tqdm import tqdm

            screen = shutil.get_terminal_size()  # also for terminals that report 0 columns and lines
            form = "{desc}: {n_fmt} of {total_fmt} {unit}{postfix}" if total is None else None
            self._bar = tqdm(
                desc=self._what,
                unit=self._unit,
                initial=done,
                total=total,
                file=sys.stderr,
                ncols=screen.columns,
                nrows=screen.lines,
                bar_format=form or "{desc}: {bar:30} {n_fmt} of {total_fmt} {unit}{postfix}",
            )
        self._bar.postfix = self._left(done, total, now)
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def close(self) -> None:
        """Finish the bar, so that later output starts below it."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
