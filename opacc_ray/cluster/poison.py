"""Find the example at which workers die, hang or lack memory, by halving a shard that failed again and again.

Each half runs on a worker of its own, which computes and writes nothing. After log₂ n workers one file, row or group of
rows is left; a last worker confirms that it alone fails.
"""

import logging
from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from opacc_ray.cluster.local import unless_lost
from opacc_ray.cluster.tasks import LOST, ran_out_of_memory
from opacc_ray.lake.examples import Piece, Shard

log = logging.getLogger(__name__)

LEAST_SECONDS = 10.0
"""Least time that a part of a shard is given."""

LOADING = 120.0
"""Seconds in which a worker must load the model."""


def find_poison(shard: Shard, start: Callable[[], Any], seconds: float) -> str | None:
    """Return the name of the file or row that fails alone; None if none does. Raises RayError if no worker starts.

    Parameters
    ----------
    start : starts a worker, and returns its handle
    seconds : time in which the whole shard must be computed; a part has its share of it
    """
    whole, part = _size(shard), shard
    log.info("shard %s is halved to find the example that fails", shard.name)
    while _size(part) > 1:
        first, second = _halves(part)
        part = first if _fails(first, start, seconds * _size(first) / whole) else second
    if not _fails(part, start, seconds / whole):
        return None
    if not part.pieces:
        return part.entries[0].key
    [piece] = part.pieces
    return f"{piece.entry.key}, row or row group {piece.start}"


def _fails(part: Shard, start: Callable[[], Any], seconds: float) -> bool:
    """Return whether a worker dies, hangs or lacks memory at a part of a shard; another error is none."""
    worker = start()
    try:
        unless_lost(ray.get, worker.machine.remote(), timeout=LOADING)  # its failure says nothing of the part
    except RayError:
        ray.kill(worker)
        raise
    try:
        unless_lost(ray.get, worker.try_shard.remote(part), timeout=max(seconds, LEAST_SECONDS))
    except (*LOST, GetTimeoutError):
        return True
    except RayError as error:
        return ran_out_of_memory(error)
    finally:
        ray.kill(worker)
    return False


def _size(shard: Shard) -> int:
    return sum(piece.stop - piece.start for piece in shard.pieces) if shard.pieces else len(shard.entries)


def _halves(shard: Shard) -> tuple[Shard, Shard]:
    if not shard.pieces:
        middle = len(shard.entries) // 2
        return shard._replace(entries=shard.entries[:middle]), shard._replace(entries=shard.entries[middle:])
    left, first, second = _size(shard) // 2, list[Piece](), list[Piece]()
    for piece in shard.pieces:
        middle = min(piece.stop, piece.start + left)
        first += [piece._replace(stop=middle)] if middle > piece.start else []
        second += [piece._replace(start=middle)] if middle < piece.stop else []
        left -= middle - piece.start
    return _of(shard, first), _of(shard, second)


def _of(shard: Shard, pieces: list[Piece]) -> Shard:
    return shard._replace(entries=tuple(dict.fromkeys(piece.entry for piece in pieces)), pieces=tuple(pieces))
