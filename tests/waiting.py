"""Waiting for what comes, instead of for a time: a loaded machine takes minutes for what takes a second."""

import time
from collections.abc import Callable

LONG = 300.0
"""Seconds after which something is not to come: far more than it takes on a loaded machine."""


def until(has_come: Callable[[], object], seconds: float = LONG) -> bool:
    """Wait until something has come, and return whether it has."""
    latest = time.monotonic() + seconds
    while not has_come():
        if time.monotonic() > latest:
            return False
        time.sleep(0.05)
    return True
