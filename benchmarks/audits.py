"""Audits of a pool whose outcomes are known: round after round is drawn and labelled, for many seeds on all cores."""

import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY
from opacc_ray.samplers.select import select

IN_ROUNDS = (0.1, 0.2, 0.3, 0.4)
"""Shares of the labels in four rounds that grow."""


class Labelled(NamedTuple):
    """The rounds of an audit with their outcomes."""

    rounds: list[opacc.Selection]
    outcomes: list[NDArray[np.float64]]


def label_rounds(
    view: View,
    outcome: NDArray[np.float64],
    method: str,
    sizes: Sequence[int],
    seed: int,
    history: opacc.History = NO_HISTORY,
    **parameters: Any,
) -> Labelled:
    """Draw batches of these ``sizes``, each knowing the ``outcome`` (N,) of those before it."""
    found = Labelled([], [])
    for size in sizes:
        previous = list(zip(*found, strict=True))
        drawn = select(view, method, size, seed, previous=previous, history=history, **parameters)
        found.rounds.append(drawn)
        found.outcomes.append(outcome[drawn.index])
    return found


def in_rounds(budget: int) -> list[int]:
    """How many labels each of four rounds has."""
    return [round(share * budget) for share in IN_ROUNDS]


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
