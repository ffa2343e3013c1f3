"""How much is done and how long the rest will take: a bar on a terminal, elsewhere a log line now and then."""

import logging
import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from opacc_ray.samplers.base import Report

log = logging.getLogger(__name__)

ENOUGH_UNITS, ENOUGH_SECONDS = 3, 1.0
"""Work after which the time that is left can be estimated: units beyond the first one, and seconds."""


def log_is_json() -> bool:
    """Whether log lines are read by a program: then progress is lines, too, wherever they go."""
    return os.environ.get("OPACC_LOG") == "json"


def combine_progress(first: "Report", second: "Report") -> "Report":
    """Return a report that calls both."""

    def report(done: int, total: int | None) -> None:
        first(done, total)
        second(done, total)

    return report


class Progress:
    """Shows "extract: 3 of 12 shards, about 8 s left"; a context, which ends the bar.

    The first call says what was done before, and does not count towards the speed. Nor does the first unit, which waits
    for actors to start and for code to be compiled.

    Parameters
    ----------
    what, unit : the work, and what is counted
    every : least seconds between two log lines
    delay : seconds of work before anything is shown
    bar : whether a terminal shows a bar; log lines suit work beside other work
    """

    def __init__(self, what: str, unit: str, every: float = 2.0, delay: float = 0.0, *, bar: bool = True) -> None:
        self._what, self._unit, self._every, self._with_bar = what, unit, every, bar
        self._shown_at = time.monotonic() + delay - every
        self._delayed_to = time.monotonic() + delay
        self._kept: int | None = None
        self._first: tuple[float, int] | None = None  # when the first unit was done, and how many were then
        self._bar: Any = None

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._kept is None:
            self._kept = done
        if self._first is None and done > self._kept:
            self._first = now, done
        if now < self._delayed_to:
            return
        if self._with_bar and sys.stderr.isatty() and not log_is_json():
            self._draw(done, total, now)
        elif done == total or done == self._kept or now - self._shown_at >= self._every:
            self._shown_at = now
            of = f"{done}" if total is None else f"{done} of {total}"
            left = self._left(done, total, now)
            fields = {"work": self._what, "unit": self._unit, "done": done, "total": total}
            said = f"{self._what}: {of} {self._unit}{f', {left}' if left else ''}"
            log.info("%s", said, extra={"fields": fields})

    def _left(self, done: int, total: int | None, now: float) -> str:
        """The time that is left in words, once it can be estimated."""
        if self._first is None or total is None or done >= total:
            return ""
        begun, units = self._first
        if done - units < ENOUGH_UNITS or now - begun < ENOUGH_SECONDS:
            return ""
        return f"about {max(1, (now - begun) / (done - units) * (total - done)):.0f} s left"

    def _draw(self, done: int, total: int | None, now: float) -> None:
        if self._bar is None:
            from tqdm import tqdm

            screen = shutil.get_terminal_size()  # also where a terminal has 0 columns and lines, as it says
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
        """Leave the bar as it is and go on below it."""
        if self._bar is not None:
            self._bar.refresh()
            self._bar.close()
            self._bar = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
