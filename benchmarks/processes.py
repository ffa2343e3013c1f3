"""The same work for many seeds, on all cores: the results are those of one process, in the same order."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

Result = TypeVar("Result")

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that keep a process to one core, which the others share."""


def repeat(work: Callable[[int], Result], seeds: Iterable[int]) -> Iterator[Result]:
    """``work(seed)`` of each seed, in their order. ``work`` and its results are pickled; what is not asked for ends."""
    os.environ |= dict.fromkeys(_ONE_THREAD, "1")
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        try:
            yield from pool.map(work, seeds)
        finally:
            pool.shutdown(cancel_futures=True)
