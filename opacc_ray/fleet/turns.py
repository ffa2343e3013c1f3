"""Whose turn it is to extract, among audits that are worked on at the same time.

Audits of one model on one pool share their features: the first one extracts them, the others wait and find them there.
An audit with ``actors: auto`` takes all that the cluster has room for, so it extracts alone; audits that say how many
actors they want extract side by side.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from opacc_ray.audit.stages import Stage
from opacc_ray.spec import ActorRange

WAKE = 0.5
"""Seconds between two looks whether the work is to end."""


class _Claim(NamedTuple):
    """What an audit needs for itself while it extracts."""

    folders: frozenset[str]  # that it may write
    whole_cluster: bool

    def conflicts(self, other: "_Claim") -> bool:
        return self.whole_cluster or other.whole_cluster or not self.folders.isdisjoint(other.folders)


class Turns:
    """Lets audits extract that do not get in each other's way.

    ``check`` is called while one waits, and raises if the work is to end.
    """

    def __init__(self, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._changed = threading.Condition()
        self._held: list[_Claim] = []

    @contextmanager
    def turn(self, stages: Sequence[Stage]) -> Iterator[None]:
        """Wait for the turn of an audit with these stages, and hold it during the block."""
        claim = _claim(stages)
        with self._changed:
            while any(claim.conflicts(other) for other in self._held):
                self._check()
                self._changed.wait(WAKE)
            self._held.append(claim)
        try:
            yield
        finally:
            with self._changed:
                self._held.remove(claim)
                self._changed.notify_all()


def _claim(stages: Sequence[Stage]) -> _Claim:
    uses_actors = any(not stage.job.source.holds_features for stage in stages)
    asked = stages[-1].job.spec.extract.actors
    is_open = asked == "auto" or (isinstance(asked, ActorRange) and asked.max is None)
    return _Claim(frozenset(stage.job.target.uri for stage in stages), uses_actors and is_open)
