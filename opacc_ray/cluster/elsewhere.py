"""What another command on the same run finishes meanwhile.

Nothing keeps two commands from working on one run: they write the same bytes. What one has finished, the other need not
do again, and says so.
"""

import logging
import time
from collections import deque

from opacc_ray.errors import OpaccError
from opacc_ray.extract.planned import check_plan
from opacc_ray.extract.shards import ShardReport, read_report
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.store_uris import Store

log = logging.getLogger(__name__)

LOOK = 20.0
"""Seconds between two listings of the features."""


class Elsewhere:
    """Notices shards that appear in a folder of features and were not written by this command."""

    def __init__(self, target: Store, kind: str) -> None:
        self._target, self._kind = target, kind  # of the pool
        self._before = {entry.key: entry.tag for entry in target.list()}  # damaged files among them
        self._last_look = time.monotonic()

    def take(self, pending: deque[Shard]) -> list[tuple[Shard, ShardReport]]:
        """Remove the shards that are finished from the queue and return them with their reports."""
        if not pending or time.monotonic() - self._last_look < LOOK:
            return []
        self._last_look = time.monotonic()
        try:
            found = {entry.key: entry for entry in self._target.list()}
            new = [shard for shard in pending if shard.file in found and self._is_new(found[shard.file].tag, shard)]
            taken = [(shard, self._report(shard, found[shard.file].size)) for shard in new]
        except OpaccError as error:  # it was a look for work that may be saved
            log.warning("%s; the shards are extracted here", error)
            return []
        for shard, _ in taken:
            pending.remove(shard)
        if taken:
            log.info("another command on this run is ahead: it has finished %d of the shards left here", len(taken))
        return taken

    def _report(self, shard: Shard, size: int) -> ShardReport:
        report = read_report(self._target, shard.file, size)
        check_plan(self._target, self._kind, shard, report)
        return report

    def _is_new(self, tag: str, shard: Shard) -> bool:
        return self._before.get(shard.file) != tag
