"""The same work for many seeds, on all cores: the results are those of one process, in the same order."""

import os
import sys
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that keep a process to one core, which the others share."""


def repeat(work: Callable[[int], Result], seeds: Iterable[int]) -> Generator[Result, None, None]:
    """``work(seed)`` of each seed, in their order. ``work`` and its results are pickled; what is not asked for ends."""
    os.environ |= dict.fromkeys(_ONE_THREAD, "1")
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        try:
            yield from pool.map(work, seeds)
        finally:
            pool.shutdown(cancel_futures=True)


def repeat_within(minutes: float, work: Callable[[int], Result], num: int) -> list[Result]:
    """``work(seed)`` of the seeds 0, 1, ... below ``num``; it ends with the one in which the minutes are up."""
    found: list[Result] = []
    end = time.monotonic() + 60 * minutes
    with closing(repeat(work, range(num))) as results:
        for own in results:
            found.append(own)
            print(f"repetition {len(found)}", end="\r", file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    return found
