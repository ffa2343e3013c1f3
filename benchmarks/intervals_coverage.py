"""How often the intervals around the estimate cover: by class, two models, costs, sequences, replicates, assisted.

    python benchmarks/intervals_coverage.py CASE [--repetitions 300] [--only PATTERN]

CASE is a fully labelled classification, an .npz with `hidden` (N, m), `logits` (N, C), `pred`, `label`, `confidence`
(N,). The second model of the comparison is the first one with normal noise of 1 on its logits; of the costs, missing
class 6 costs 10 and every other error 1. Any case of `opacc study` that has a confidence will do for the estimates that
it assists, and by outcomes of which 15 % are turned round; they are stated beside each other without assistance, with
strength 1 and tuned, E being the mean squared error over that of SRS. Every line is printed when it is measured. Level
95 %.
"""

import argparse
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.estimators.assisted import assist
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.calibration import calibrate
from opacc_ray.estimators.comparison import compare
from opacc_ray.estimators.domain import by_class, mean_cost
from opacc_ray.estimators.linear import linear_estimator
from opacc_ray.estimators.sequence import confidence_sequence
from opacc_ray.study import cases as study

COSTS = {6: 10.0}
METHODS = ("srs", "css", "deepest", "sups", "rhcs", "ssrs", "neyman")
ASSISTED = ("srs", "css", "ssrs", "gbs", "sups", "rhcs", "two_ups", "deepest")


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

Line = Callable[[int], str]
"""What to print, from the number of repetitions."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", type=Path)
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--only", default="", metavar="PATTERN")
    given = parser.parse_args()
    lines: dict[str, Line] = assisted_lines(study.read_case(study.Source(given.case.stem, str(given.case))))
    if given.case.suffix == ".npz":
        found = measures(read_case(given.case))
        lines = {name: partial(summary, measure) for name, measure in found.items()} | lines
    for name, line in lines.items():
        if re.search(given.only, name):
            print(f"{name:<40} {line(given.repetitions)}", flush=True)


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
            found[f"class    {method} n={n} calibrated"] = _classes(case, method, n, calibrated=True)
            found[f"compare  {method} n={n}"] = _comparison(case, method, n)
            found[f"cost     {method} n={n}"] = _cost(case, method, n)
    for method in ("srs", "sups", "deepest", "css", "neyman"):
        found[f"sequence {method} n=200"] = _sequence(case, method)
    for num, initial in ((5, 5), (5, 30), (3, 5)):
        found[f"replicates ces n=150 R={num} initial={initial}"] = _replicates(case, num, initial)
    found["replicates ces n=150 none"] = _alone(case)
    return found


def _classes(case: Case, method: str, n: int, calibrated: bool = False) -> Measure:
    count = dict(enumerate(np.bincount(case.prediction).tolist()))
    true = {c: float(case.outcome[case.truth == c].mean()) for c in np.unique(case.truth).tolist()}

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, method, n, seed)
        design = calibrate(chosen, case.prediction[chosen.index], count) if calibrated else linear_estimator(chosen)
        for c, estimate in by_class(design, case.outcome[chosen.index], case.truth[chosen.index]).items():
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
    """The last of a sequence is inside all before it: if it covers, all do. Four rounds of 50 labels."""

    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        rounds: list[tuple[opacc.Selection, NDArray[np.float64]]] = []
        for _ in range(4):
            chosen = opacc.select(case.pool, method, 50, seed, previous=rounds)
            rounds.append((chosen, case.outcome[chosen.index]))
        yield confidence_sequence(*map(list, zip(*rounds, strict=True))), float(case.outcome.mean())

    return measure


def _replicates(case: Case, num: int, initial: int) -> Measure:
    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, "ces", 150, seed, replicates=num, initial=initial)
        yield opacc.estimate(chosen, case.outcome[chosen.index]), float(case.outcome.mean())

    return measure


def _alone(case: Case) -> Measure:
    def measure(seed: int) -> Iterator[tuple[Estimate, float]]:
        chosen = opacc.select(case.pool, "ces", 150, seed)
        yield opacc.estimate(chosen, case.outcome[chosen.index]), float(case.outcome.mean())

    return measure


def assisted_lines(case: study.Case) -> dict[str, Line]:
    confidence, found = case.view.column("confidence"), dict[str, Line]()
    flipped = np.random.default_rng(0).random(len(case.outcome)) < 0.15
    wrong = np.where(flipped, 1 - case.outcome, case.outcome)  # such as whether another model agrees
    for n in (50, 100, 200):
        for method in ASSISTED:
            draw = partial(_once, case, method, n)
            found[f"assisted {method} n={n}"] = partial(_assisted, case, confidence, n, draw)
            found[f"assisted {method} n={n} wrong in 15 %"] = partial(_assisted, case, wrong, n, draw)
    found["assisted srs, css n=50+50"] = partial(_assisted, case, confidence, 100, partial(_twice, case))
    replicates = partial(_once, case, "srs", 100, replicates=5)
    found["assisted srs n=100 R=5"] = partial(_assisted, case, confidence, 100, replicates)
    return found


Rounds = tuple[list[opacc.Selection], list[NDArray[np.float64]]]


def _assisted(
    case: study.Case, prediction: NDArray[np.float64], n: int, draw: Callable[[int], Rounds], repetitions: int
) -> str:
    """Three numbers each: without assistance, strength 1, tuned."""
    true, found = float(case.outcome.mean()), []
    for seed in range(repetitions):
        rounds, outcomes = draw(seed)
        assisted = [assist(rounds, outcomes, prediction, strength=strength) for strength in (1.0, None)]
        found.append([(item.value, item.low, item.high) for item in (opacc.estimate(rounds, outcomes), *assisted)])
    value, low, high = np.array(found).transpose(2, 1, 0)  # (3, repetitions) each
    expected = case.outcome.var(ddof=1) * (1 / n - 1 / case.view.size)  # squared error of SRS
    error, bias = ((value - true) ** 2).mean(axis=1) / expected, (value.mean(axis=1) - true) / np.sqrt(expected)
    covers, width = ((low <= true) & (true <= high)).mean(axis=1), (high - low).mean(axis=1)
    columns = {"E": (error, "5.2f"), "bias": (bias, "+.2f"), "covers": (covers, "6.1%"), "width": (width, ".3f")}
    return "   ".join(f"{name} " + " ".join(f"{v:{form}}" for v in values) for name, (values, form) in columns.items())


def _once(case: study.Case, method: str, n: int, seed: int, replicates: int | None = None) -> Rounds:
    chosen = opacc.select(case.view, method, n, seed, replicates=replicates)
    return [chosen], [case.outcome[chosen.index]]


def _twice(case: study.Case, seed: int) -> Rounds:
    first = opacc.select(case.view, "srs", 50, seed)
    outcome = case.outcome[first.index]
    second = opacc.select(case.view, "css", 50, seed, previous=[(first, outcome)])
    return [first, second], [outcome, case.outcome[second.index]]


if __name__ == "__main__":
    main()
