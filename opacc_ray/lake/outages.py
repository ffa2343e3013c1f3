"""Outages of storage: a server that does not answer is waited for, within a budget of time.

A first request fails at once where the address itself is wrong, as a name that does not exist. Workers of a cluster
wait for that one as well, since their driver has had answers. What waits for storage is no failed attempt of a shard.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from opacc_ray.errors import SpecError, StorageError

log = logging.getLogger(__name__)

Result = TypeVar("Result")

PATIENCE = "OPACC_STORAGE_PATIENCE"
"""Environment variable: most seconds that a request waits for storage; 0: none."""

DEFAULT, PAUSE, MOST_PAUSE = 180.0, 1.0, 10.0
"""Seconds: of patience, before the first further try, and at most before each."""

_answered: set[str] = set()
_lock, _down = threading.Lock(), dict[str, float]()


def expect_answers() -> None:
    """Wait for every outage, even if this process has had no answer yet."""
    _answered.add("")


def patience() -> float:
    """Return the most seconds that a request waits; raises SpecError if the environment has no such number."""
    given = os.environ.get(PATIENCE, "")
    try:
        found = float(given or DEFAULT)
    except ValueError:
        found = -1.0
    if not 0 <= found < 86400:
        raise SpecError(f"{PATIENCE} is {given!r}; set it to seconds, such as 180")
    return found


def answered(
    request: Callable[[], Result], place: str, is_outage: Callable[[BaseException | None, bool], bool]
) -> Result:
    """Return what a request to a place does, which is made again while there is an outage.

    ``is_outage`` tells so by the cause of the error, and by whether the place answered before.
    """
    begun, pause = time.monotonic(), PAUSE
    while True:
        try:
            found = request()
        except StorageError as error:
            left = begun + patience() - time.monotonic()
            known = not _answered.isdisjoint(("", place))
            if left <= 0 or not is_outage(error.__cause__, known):
                raise
            _begin(place, str(error), left)
            time.sleep(min(pause, left))
            pause = min(2 * pause, MOST_PAUSE)
        else:
            _end(place)
            return found


def _begin(place: str, why: str, left: float) -> None:
    with _lock:
        if place not in _down:
            _down[place] = time.monotonic()
            log.warning("%s; waiting up to %.0f s for it", why, left)


def _end(place: str) -> None:
    _answered.add(place)
    if _down:
        with _lock:
            since = _down.pop(place, None)
        if since is not None:
            log.info("%s answers again, after %.0f s", place, time.monotonic() - since)
