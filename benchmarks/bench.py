"""`make bench`: the fast paths beside the plain transcriptions of the papers' formulas, in one process.

    python benchmarks/bench.py [PATTERN]

Each row that has a plain side runs both on the same input, checks that they agree, and prints the ratio; rows at the
sizes that matter run ours alone. Times are medians of 5 calls after one that compiles (compiled code is cached on
disk); memory is what a call allocates over its input at its peak. Machines are noisy: compare ratios.
"""

import argparse
import re
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import covering
import markdown_table as markdown
import numpy as np
from audits import label_rounds

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.extract.reference import Reference
from opacc_ray.parts.view import view_of
from opacc_ray.samplers.select import select

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from oracles import ces as plain_ces
from oracles import deepreduce as plain_deepreduce
from oracles import hgs as plain_hgs
from oracles import surprise as plain_surprise

COLUMNS = ("task", "size", "plain", "ours", "ratio", "ours, memory")


class Sides(NamedTuple):
    """Ours and the plain transcription, ready to be called."""

    ours: Callable[[], Any]
    plain: Callable[[], Any] | None = None
    chosen: int | None = None  # where the method itself says how many


class Task(NamedTuple):
    """One row; ``prepare`` makes its input from a generator."""

    name: str
    size: str
    prepare: Callable[[np.random.Generator], Sides]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pattern", nargs="?", default="", metavar="PATTERN", help="only tasks whose name matches")
    given = parser.parse_args()
    print(markdown.header(COLUMNS, texts=2))
    for task in TASKS:
        if re.search(given.pattern, task.name, re.IGNORECASE):
            print(markdown.row(_cells(task)), flush=True)


def _cells(task: Task) -> list[str]:
    sides = task.prepare(np.random.default_rng(0))
    first = sides.ours()  # compiles
    seconds = statistics.median(_time(sides.ours) for _ in range(5))
    memory = f"{_peak(sides.ours) / 2**20:.0f} MiB"
    name = task.name if sides.chosen is None else f"{task.name} ({sides.chosen} chosen)"
    if sides.plain is None:
        return [name, task.size, "", _duration(seconds), "", memory]
    begun = time.perf_counter()
    expected = sides.plain()
    plain = time.perf_counter() - begun
    assert np.allclose(first, expected, rtol=1e-4), f"{task.name} {task.size}: the two sides disagree"
    return [name, task.size, _duration(plain), _duration(seconds), f"{plain / seconds:,.0f}", memory]


def ces(N: int, m: int, plain: bool, rng: np.random.Generator) -> Sides:
    hidden = _activations(rng, N, m)
    pool = opacc.Pool(hidden=hidden)
    slow = partial(plain_ces.select, hidden, 100, np.random.default_rng([1, 1])) if plain else None
    return Sides(lambda: opacc.select(pool, "ces", 100, seed=1).index, slow)


def deepreduce_small(rng: np.random.Generator) -> Sides:
    output = rng.normal(size=(300, 5)).astype(np.float32)
    codes = plain_deepreduce.equal_count(output, 20)
    pool = opacc.Pool(output=output)
    return Sides(
        lambda: opacc.select(pool, "deepreduce", 40, coverage=False).index,
        lambda: plain_deepreduce.select(codes, 20, budget=40),
    )


def deepreduce(C: int, rng: np.random.Generator) -> Sides:
    pool = opacc.Pool(output=_logits(rng, 10_000, C))
    choose = partial(opacc.select, pool, "deepreduce", coverage=False)
    return Sides(choose, chosen=len(choose()))


def cover(N: int, requirements: int, plain: bool, rng: np.random.Generator) -> Sides:
    covers = _coverage(rng, N, requirements)
    if plain:
        return Sides(partial(covering.cover, covers), partial(plain_hgs.cover, covers))
    return Sides(partial(covering.cover, covers), chosen=len(covering.cover(covers)))


def deepest(rng: np.random.Generator) -> Sides:
    pool = opacc.Pool(confidence=rng.beta(6, 1, 10_000_000))
    return Sides(partial(opacc.select, pool, "deepest", 200, seed=1))


def neyman(rng: np.random.Generator) -> Sides:
    N = 1_000_000
    doubt = rng.beta(0.15, 3, N)
    outcome = (rng.random(N) >= doubt).astype(float)
    pool = opacc.Pool(confidence=1 - doubt, prediction=rng.integers(0, 10, N), dsa=rng.gamma(2, 1, N) + doubt)

    def two_rounds() -> None:
        first = opacc.select(pool, "neyman", 80, seed=1)
        select(pool, "neyman", 120, seed=1, previous=[(first, outcome[first.index])])

    return Sides(two_rounds)


def neyman_step(step: str, rng: np.random.Generator) -> Sides:
    """One step of an audit in rounds of 20, 40, 60 and 80 labels, whose signals stay in memory after the first."""
    N = 1_000_000
    confidence, hidden = rng.beta(6, 1, N), _activations(rng, N, 64)
    outcome = (rng.random(N) < confidence).astype(float)
    pool = opacc.Pool(confidence=confidence, prediction=rng.integers(0, 100, N), hidden=hidden)
    view = view_of(pool)
    labelled = label_rounds(view, outcome, "neyman", (20, 40, 60, 80), seed=1)
    steps = {
        "first round": lambda: opacc.select(pool, "neyman", 20, seed=1),
        "next round": lambda: select(view, "neyman", 80, seed=1, previous=list(zip(*labelled, strict=True))[:3]),
        "estimate": lambda: estimate_outcomes(*labelled, pool=view),
    }
    return Sides(steps[step])


def surprise_small(name: str, rng: np.random.Generator) -> Sides:
    hidden, traces = _activations(rng, 20, 84), _activations(rng, 2000, 84)
    predicted, classes = rng.integers(0, 10, 20), rng.integers(0, 10, 2000)
    fast, slow = getattr(Reference, name), getattr(plain_surprise, name)
    return Sides(
        lambda: fast(Reference(traces, classes), hidden, predicted), lambda: slow(hidden, predicted, traces, classes)
    )


def surprise(name: str, rng: np.random.Generator) -> Sides:
    hidden, traces = _activations(rng, 10_000, 84), _activations(rng, 60_000, 84)
    predicted, classes = rng.integers(0, 10, 10_000), rng.integers(0, 10, 60_000)
    fast = getattr(Reference, name)
    return Sides(lambda: fast(Reference(traces, classes), hidden, predicted))


TASKS = (
    Task("CES, n=100", "2,000 × 84", partial(ces, 2000, 84, True)),
    Task("CES, n=100", "10,000 × 84", partial(ces, 10_000, 84, False)),
    Task("CES, n=100", "50,000 × 4,096", partial(ces, 50_000, 4096, False)),
    Task("DeepReduce, KL phase, n=40", "300 × 5", deepreduce_small),
    Task("DeepReduce, KL phase to α=0.001", "10,000 × 10", partial(deepreduce, 10)),
    Task("DeepReduce, KL phase to α=0.001", "10,000 × 100", partial(deepreduce, 100)),
    Task("HGS, full look-ahead", "1,000 × 300", partial(cover, 1000, 300, True)),
    Task("HGS, full look-ahead", "10,000 × 3,432", partial(cover, 10_000, 3432, False)),
    Task("DeepEST, n=200", "10⁷", deepest),
    Task("neyman, rounds of 80 and 120", "10⁶", neyman),
    *(
        Task(f"neyman, {step}", "10⁶ × 64, 100 classes", partial(neyman_step, step))
        for step in ("first round", "next round", "estimate")
    ),
    Task("DSA", "20 × 2,000 × 84", partial(surprise_small, "dsa")),
    Task("DSA", "10,000 × 60,000 × 84", partial(surprise, "dsa")),
    Task("LSA", "20 × 2,000 × 84", partial(surprise_small, "lsa")),
    Task("LSA", "10,000 × 60,000 × 84", partial(surprise, "lsa")),
)


def _activations(rng: np.random.Generator, N: int, m: int) -> np.ndarray:
    """Outputs of a layer with ReLU: half of them 0, neighbours correlated, float32."""
    values = rng.standard_normal((N, m), dtype=np.float32)
    values[:, 1:] += values[:, :-1]
    return np.maximum(values, 0, out=values)


def _logits(rng: np.random.Generator, N: int, C: int) -> np.ndarray:
    values = rng.standard_normal((N, C), dtype=np.float32)
    values[np.arange(N), rng.integers(0, C, N)] += 6
    return values


def _coverage(rng: np.random.Generator, N: int, requirements: int) -> np.ndarray:
    """Neurons that fire seldom and often: shares log-uniform from 1/2000 to 1/2."""
    share = np.exp(rng.uniform(np.log(5e-4), np.log(0.5), requirements))
    return rng.random((N, requirements)) < share


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


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"


if __name__ == "__main__":
    main()
