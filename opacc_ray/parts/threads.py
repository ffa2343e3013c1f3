"""Spread loops over rows on the cores of this process."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np

Result = TypeVar("Result")

_VALUES_PER_THREAD = 1 << 20
"""Below this many values a thread costs more than it saves."""


def num_threads() -> int:
    """Return OMP_NUM_THREADS where it is set, as Ray does for its actors, else the cores this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_threads(function: Callable[[int, int], Result], num_rows: int, values_per_row: int) -> list[Result]:
    """Return ``function(start, stop)`` for consecutive ranges that cover ``num_rows`` rows, in their order.

    The ranges depend on the number of threads, so a result must not depend on where it is cut: whole numbers that are
    summed, or rows that are computed one by one. The function runs in parallel where it releases the GIL.
    """
    useful = num_rows * values_per_row // _VALUES_PER_THREAD
    num = max(1, min(num_threads(), useful, num_rows))
    if num == 1:
        return [function(0, num_rows)]
    edges = np.linspace(0, num_rows, num + 1).astype(int).tolist()
    with ThreadPoolExecutor(num) as executor:
        return list(executor.map(lambda edge: function(*edge), pairwise(edges)))
