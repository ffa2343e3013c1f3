"""`make bench`: the fast paths beside the plain transcriptions of the papers' formulas, in one process.

    python benchmarks/bench.py [PATTERN]

Each row that has a plain side runs both on the same input, checks that they agree, and prints the ratio; rows at the
sizes that matter run ours alone. Times are medians of 5 calls after one that compiles (compiled code is cached on
disk); memory is what a call allocates over its input at its peak. Machines are noisy: compare ratios.
"""

import re
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import opacc_ray as opacc
from opacc_ray.extract.surprise import Reference
from opacc_ray.neurons import set_cover

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import ces as plain_ces
from oracles import deepreduce as plain_deepreduce
from oracles import hgs as plain_hgs
from oracles import surprise as plain_surprise

RNG = np.random.default_rng(0)


class Task(NamedTuple):
    name: str
    size: str
    ours: Callable[[], Any]
    plain: Callable[[], Any] | None = None


def main(pattern: str) -> None:
    print("| task | size | plain | ours | ratio | ours, memory |")
    print("|---|---|---:|---:|---:|---:|")
    for make in (ces, deepreduce, cover, deepest, surprise, neyman):
        if re.search(pattern, make.__name__):
            for task in make():
                print(_row(task), flush=True)


def _row(task: Task) -> str:
    first = task.ours()  # compiles
    seconds = statistics.median(_time(task.ours) for _ in range(5))
    memory = f"{_peak(task.ours) / 2**20:.0f} MiB"
    if task.plain is None:
        return f"| {task.name} | {task.size} | | {_told(seconds)} | | {memory} |"
    begun = time.perf_counter()
    expected = task.plain()
    plain = time.perf_counter() - begun
    assert np.allclose(first, expected, rtol=1e-4), f"{task.name} {task.size}: the two sides disagree"
    return f"| {task.name} | {task.size} | {_told(plain)} | {_told(seconds)} | {plain / seconds:,.0f} | {memory} |"


def ces() -> Iterator[Task]:
    small = _activations(2000, 84)
    yield Task(
        "CES, n=100",
        "2,000 × 84",
        lambda: opacc.select(opacc.Pool(hidden=small), "ces", 100, seed=1).index,
        lambda: plain_ces.select(small, 100, np.random.default_rng([1, 1])),
    )
    for N, m in ((10_000, 84), (50_000, 4096)):
        pool = opacc.Pool(hidden=_activations(N, m))
        yield Task("CES, n=100", f"{N:,} × {m:,}", lambda pool=pool: opacc.select(pool, "ces", 100, seed=1).index)


def deepreduce() -> Iterator[Task]:
    small = RNG.normal(size=(300, 5)).astype(np.float32)
    codes = plain_deepreduce.equal_count(small, 20)
    yield Task(
        "DeepReduce, KL phase, n=40",
        "300 × 5",
        lambda: opacc.select(opacc.Pool(output=small), "deepreduce", 40, coverage=False).index,
        lambda: plain_deepreduce.select(codes, 20, budget=40),
    )
    for C in (10, 100):
        pool = opacc.Pool(output=_logits(10_000, C))
        chosen = len(opacc.select(pool, "deepreduce", coverage=False))
        name = f"DeepReduce, KL phase to α=0.001 ({chosen} chosen)"
        yield Task(name, f"10,000 × {C}", lambda pool=pool: opacc.select(pool, "deepreduce", coverage=False).index)


def cover() -> Iterator[Task]:
    small, large = _coverage(1000, 300), _coverage(10_000, 3432)
    yield Task("HGS, full look-ahead", "1,000 × 300", lambda: set_cover.cover(small), lambda: plain_hgs.cover(small))
    chosen = len(set_cover.cover(large))
    yield Task(f"HGS, full look-ahead ({chosen} chosen)", "10,000 × 3,432", lambda: set_cover.cover(large))


def deepest() -> Iterator[Task]:
    pool = opacc.Pool(confidence=RNG.beta(6, 1, 10_000_000))
    yield Task("DeepEST, n=200", "10⁷", lambda: opacc.select(pool, "deepest", 200, seed=1).index)


def neyman() -> Iterator[Task]:
    doubt = RNG.beta(0.15, 3, 1_000_000)
    outcome = (RNG.random(1_000_000) >= doubt).astype(float)
    pool = opacc.Pool(
        confidence=1 - doubt, prediction=RNG.integers(0, 10, 1_000_000), dsa=RNG.gamma(2, 1, 1_000_000) + doubt
    )

    def two_rounds() -> None:
        first = opacc.select(pool, "neyman", 80, seed=1)
        opacc.select(pool, "neyman", 120, seed=1, previous=[(first, outcome[first.index])])

    yield Task("neyman, rounds of 80 and 120", "10⁶", two_rounds)


def surprise() -> Iterator[Task]:
    hidden, traces = _activations(10_000, 84), _activations(60_000, 84)
    predicted, classes = RNG.integers(0, 10, 10_000), RNG.integers(0, 10, 60_000)
    few = slice(0, 20)
    for name in ("dsa", "lsa"):
        fast, slow = getattr(Reference, name), getattr(plain_surprise, name)
        yield Task(
            name.upper(),
            "20 × 2,000 × 84",
            lambda fast=fast: fast(Reference(traces[:2000], classes[:2000]), hidden[few], predicted[few]),
            lambda slow=slow: slow(hidden[few], predicted[few], traces[:2000], classes[:2000]),
        )
        yield Task(
            name.upper(),
            "10,000 × 60,000 × 84",
            lambda fast=fast: fast(Reference(traces, classes), hidden, predicted),
        )


def _activations(N: int, m: int) -> np.ndarray:
    """Outputs of a layer with ReLU: half of them 0, neighbours correlated, float32."""
    values = RNG.standard_normal((N, m), dtype=np.float32)
    values[:, 1:] += values[:, :-1]
    return np.maximum(values, 0, out=values)


def _logits(N: int, C: int) -> np.ndarray:
    values = RNG.standard_normal((N, C), dtype=np.float32)
    values[np.arange(N), RNG.integers(0, C, N)] += 6
    return values


def _coverage(N: int, requirements: int) -> np.ndarray:
    """Neurons that fire seldom and often: shares log-uniform from 1/2000 to 1/2."""
    share = np.exp(RNG.uniform(np.log(5e-4), np.log(0.5), requirements))
    return RNG.random((N, requirements)) < share


def _time(call: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _peak(call: Callable[[], Any]) -> int:
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _told(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
