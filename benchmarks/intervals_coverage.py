"""How often the intervals around the estimate cover: by class, two models, costs, sequences and replicates.

    python benchmarks/intervals_coverage.py CASE.npz [--repetitions 300] [--only PATTERN]

CASE.npz is a fully labelled classification: `hidden` (N, m), `logits` (N, C), `pred`, `label`, `confidence` (N,). The
second model of the comparison is the first one with normal noise of 1 on its logits; of the costs, missing class 6
costs 10 and every other error 1. Every line is printed when it is measured. Level 95 %.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.comparison import compare
from opacc_ray.estimators.domain import by_class, mean_cost
from opacc_ray.estimators.replicates import replicate, replicated
from opacc_ray.estimators.sequence import confidence_sequence
from opacc_ray.view import View, view_of

COSTS = {6: 10.0}
METHODS = ("srs", "css", "deepest", "sups", "rhcs", "ssrs", "neyman")


class Case(NamedTuple):
    """A pool whose labels are known."""

    pool: opacc.Pool
    truth: NDArray[np.int64]  # (N,)
    prediction: NDArray[np.int64]  # (N,)
    other: NDArray[np.int64]  # (N,) predictions of another model

    @property
    def outcome(self) -> NDArray[np.float64]:
        return (self.truth == self.prediction).astype(np.float64)


Measure = Callable[[int], Iterator[tuple[Estimate, float]]]
"""From a seed: estimates with what is true."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--only", default="", metavar="PATTERN")
    given = parser.parse_args()
    for name, measure in measures(read_case(given.case)).items():
        if re.search(given.only, name):
            print(f"{name:<40} {summary(measure, given.repetitions)}", flush=True)


def read_case(path: Path) -> Case:
    with np.load(path) as arrays:
        logits = arrays["logits"]
        other = (logits + np.random.default_rng(0).normal(size=logits.shape)).argmax(axis=1)
        pool = opacc.Pool(hidden=arrays["hidden"], output=logits, confidence=arrays["confidence"])
        return Case(pool, arrays["label"].astype(np.int64), arrays["pred"].astype(np.int64), other)


def summary(measure: Measure, repetitions: int) -> str:
    found = [item for seed in range(repetitions) for item in measure(seed)]
    covers = np.mean([estimate.low <= true <= estimate.high for estimate, true in found])
    width = np.mean([estimate.high - estimate.low for estimate, _ in found])
    error = np.mean([(estimate.value - true) ** 2 for estimate, true in found])
    return f"covers {covers:6.1%}   width {width:.3f}   rms error {np.sqrt(error):.4f}"


def measures(case: Case) -> dict[str, Measure]:
    found: dict[str, Measure] = {}
    for n in (60, 200):
        for method in METHODS:
            found[f"class    {method} n={n}"] = _classes(case, method, n)
            found[f"compare  {method} n={n}"] = _comparison(case, method, n)
            found[f"cost     {method} n={n}"] = _cost(case, method, n)
    for method in ("srs", "sups", "deepest", "css"):
        found[f"sequence {method} n=200"] = _sequence(case, method)
    for num, initial in ((5, 5), (5, 30), (3, 5)):
        found[f"replicates ces n=150 R={num} initial={initial}"] = _replicates(case, num, initial)
    found["replicates ces n=150 none"] = _alone(case)
    return found


def _classes(case: Case, method: str, n: int) -> Measure:
    true = {c: float(case.outcome[case.truth == c].mean()) for c in np.unique(case.truth).tolist()}

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        for c, estimate in by_class(chosen, case.outcome[chosen.index], case.truth[chosen.index]).items():
            yield estimate, true[c]

    return measure


def _comparison(case: Case, method: str, n: int) -> Measure:
    other = (case.truth == case.other).astype(np.float64)
    true = float(case.outcome.mean() - other.mean())

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        yield compare(chosen, case.outcome[chosen.index], other[chosen.index]).difference, true

    return measure


def _cost(case: Case, method: str, n: int) -> Measure:
    true = float(np.mean((1 - case.outcome) * np.where(case.truth == 6, COSTS[6], 1.0)))

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        yield mean_cost(chosen, case.truth[chosen.index], case.prediction[chosen.index], COSTS), true

    return measure


def _sequence(case: Case, method: str) -> Measure:
    """The last of a sequence is inside all before it: if it covers, all do. css is labelled in four rounds of 50."""

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        rounds: list[tuple[opacc.Selection, NDArray[np.float64]]] = []
        for _ in range(4):
            chosen = opacc.select(case.pool, method, 50, seed, previous=rounds)
            rounds.append((chosen, case.outcome[chosen.index]))
        yield confidence_sequence(*map(list, zip(*rounds, strict=True))), float(case.outcome.mean())

    return measure


def _replicates(case: Case, num: int, initial: int) -> Measure:
    view = view_of(case.pool)
    nothing = np.empty(0, dtype=np.int64)

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        def choose(part: View, share: int | None, number: int) -> opacc.Selection:
            return opacc.select(part, "ces", share, seed * num + number, initial=initial)

        chosen = replicate(view, num, 150, nothing, np.random.default_rng(seed), choose)
        yield replicated(chosen, case.outcome[chosen.index], 0.95), float(case.outcome.mean())

    return measure


def _alone(case: Case) -> Measure:
    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, "ces", 150, seed)
        yield opacc.estimate(chosen, case.outcome[chosen.index]), float(case.outcome.mean())

    return measure


if __name__ == "__main__":
    main()
