"""A line now and then: how much is done and how long the rest will take."""

import logging
import time

log = logging.getLogger(__name__)


class Progress:
    """Logs "extract: 3 of 12 shards, about 8 s left", at most every ``every`` seconds.

    Called with (done, total). The first call tells what was done before, which does not count towards the speed.
    """

    def __init__(self, what: str, unit: str, every: float = 2.0) -> None:
        self._what, self._unit, self._every = what, unit, every
        self._begun = self._told = time.monotonic()
        self._kept: int | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self._kept is None:
            self._kept = done
        if done < total and now - self._told < self._every and done > self._kept:
            return
        self._told = now
        worked = done - self._kept
        left = (now - self._begun) / worked * (total - done) if worked else 0
        log.info("%s: %d of %d %s%s", self._what, done, total, self._unit, f", about {left:.0f} s left" * (left > 0))
