"""Rounds until the interval is ±W: labels and rounds, beside a number of labels planned in advance, and errors.

    python benchmarks/until.py CASE… [--repetitions 40] [--goals 0.05 0.03 0.02] [--methods srs neyman]

CASE is any case of `opacc study`; a method that needs a feature which a case lacks is left out. Printed are Markdown
tables, the first row by row as it is measured:

1. By case, method and goal. *Planned* is the number of labels at which half of the ordinary 95 % intervals are ±W or
   narrower, by a cubic through the medians of a ladder of numbers of labels: in one round, and of methods that learn in
   rounds of 10, 20, 30 and 40 %. Then labels and rounds until the goal, median and 95th percentile, from a first round
   of 30 labels; how much more than planned the median is; and how many of the intervals that were stated exclude the
   truth.
2. The same by method, over all rows; the ordinary intervals of the ladder are beside it.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray
from processes import repeat

import opacc_ray as opacc
from opacc_ray.errors import DataError
from opacc_ray.estimation import sequential
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.extensions.study.cases import Case, Source, read_case
from opacc_ray.samplers.select import select

LADDER = (30, 1.4)
"""First number of labels, and what multiplies it from rung to rung."""

FIRST = 30
"""Labels of the first round."""

LEARNS = ("neyman",)
"""Methods that are better in rounds than in one."""

COLUMNS = ("case", "method", "±W", "planned", "labels", "95th", "overshoot", "rounds", "95th", "errors")
SUMMARY = (
    "method",
    "rows",
    "overshoot",
    "from 100 planned",
    "largest of them",
    "rounds",
    "errors",
    "errors of planned",
)


class Rung(NamedTuple):
    """What so many labels give in rounds that were planned."""

    labels: int
    half_width: float  # median
    errors: int
    repetitions: int


class Stop(NamedTuple):
    """Where one run ended."""

    labels: int
    rounds: int
    error: bool


class Row(NamedTuple):
    """A case, a method and a goal."""

    method: str
    planned: float
    stops: list[Stop]

    @property
    def overshoot(self) -> float:
        return float(np.median([stop.labels for stop in self.stops])) / self.planned - 1


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("cases", type=Path, nargs="+", metavar="CASE")
    found.add_argument("--repetitions", type=int, default=40)
    found.add_argument("--goals", type=float, nargs="+", default=[0.05, 0.03, 0.02], metavar="W")
    found.add_argument("--methods", nargs="+", default=["srs", "css", "neyman"])
    return found


def main() -> None:
    given = parser().parse_args()
    pairs = [(path, method) for path in given.cases for method in given.methods]
    rows: list[Row] = []
    ladders: dict[str, list[Rung]] = {method: [] for method in given.methods}
    print(markdown.header(COLUMNS, texts=2))
    measure = partial(_measure, pairs, given.goals, given.repetitions)
    for (path, method), (rungs, own) in zip(pairs, repeat(measure, range(len(pairs))), strict=True):
        ladders[method] += rungs
        rows += own
        for goal, row in zip(given.goals, own, strict=False):
            cells = [path.stem.replace("_", " "), method, f"{goal:g}", f"{row.planned:.0f}"]
            print(markdown.row([*cells, *measured(row)]), flush=True)
    print("\n" + markdown.header(SUMMARY))
    for method in given.methods:
        print(markdown.row(summary(method, [row for row in rows if row.method == method], ladders[method])), flush=True)


def _measure(
    pairs: Sequence[tuple[Path, str]], goals: Sequence[float], repetitions: int, i: int
) -> tuple[list[Rung], list[Row]]:
    """The ladder and a row of each goal, of a case and a method; nothing if the case lacks a feature."""
    path, method = pairs[i]
    case = read_case(Source(path.stem, str(path)))
    try:
        rungs = ladder(case, method, min(goals), max(repetitions // 2, 5))
    except DataError:
        return [], []
    stops = ([run_until(case, method, goal, seed) for seed in range(repetitions)] for goal in goals)
    return rungs, [Row(method, planned(rungs, goal), own) for goal, own in zip(goals, stops, strict=True)]


def measured(row: Row) -> Iterator[str]:
    for name, form in (("labels", ".0f"), ("rounds", ".0f")):
        values = [getattr(stop, name) for stop in row.stops]
        yield format(float(np.median(values)), form)
        yield format(float(np.quantile(values, 0.95)), form)
        if name == "labels":
            yield f"{row.overshoot:+.0%}"
    yield f"{sum(stop.error for stop in row.stops)}/{len(row.stops)}"


def summary(method: str, rows: Sequence[Row], rungs: Sequence[Rung]) -> list[str]:
    stops = [stop for row in rows for stop in row.stops]
    large = [row.overshoot for row in rows if row.planned >= 100]
    by_plan = sum(rung.errors for rung in rungs) / max(sum(rung.repetitions for rung in rungs), 1)
    return [
        method,
        str(len(rows)),
        f"{np.median([row.overshoot for row in rows]):+.0%}",
        f"{np.median(large):+.0%}" if large else "–",
        f"{max(large):+.0%}" if large else "–",
        f"{np.median([stop.rounds for stop in stops]):.0f}",
        f"{np.mean([stop.error for stop in stops]):.1%} of {len(stops)}",
        f"{by_plan:.1%}",
    ]


# -- on cases ------------------------------------------------------------------------------------------------


def run_until(case: Case, method: str, goal: float, seed: int) -> Stop:
    """Draw rounds as planned until the goal is reached."""
    rounds: list[tuple[opacc.Selection, NDArray[np.float64]]] = []
    seen: list[sequential.InterimAnalysis] = []
    size = FIRST
    while True:
        rounds.append(draw(case, method, size, seed, rounds))
        selections, outcomes = [item for item, _ in rounds], [item for _, item in rounds]
        pool = (
            case.view if method in LEARNS else None
        )  # where rounds learn from all labels, by the pool's features, too
        estimate = estimate_outcomes(selections, outcomes, sequential.interim_level(0.95), pool=pool)
        found = sequential.analyse(join(selections, outcomes), estimate)
        seen.append(found)
        ahead = sequential.forecast(seen, goal, case.view.size)
        if ahead.reached:
            true = float(case.outcome.mean())
            return Stop(found.labels, len(rounds), not estimate.low <= true <= estimate.high)
        size = ahead.sizes[0]


def draw(
    case: Case, method: str, size: int, seed: int, before: Sequence[tuple[opacc.Selection, NDArray[np.float64]]]
) -> tuple[opacc.Selection, NDArray[np.float64]]:
    chosen = select(case.view, method, size, seed, previous=before)
    return chosen, case.outcome[chosen.index]


def ladder(case: Case, method: str, least: float, repetitions: int) -> list[Rung]:
    """Rungs up to one whose half-width is below ``least``."""
    rungs: list[Rung] = []
    labels = float(LADDER[0])
    while not rungs or (rungs[-1].half_width > 0.9 * least and rungs[-1].labels < case.view.size):
        rungs.append(_rung(case, method, min(round(labels), case.view.size), repetitions))
        labels *= LADDER[1]
    return rungs


def _rung(case: Case, method: str, labels: int, repetitions: int) -> Rung:
    cuts = [round(share * labels) for share in (0.1, 0.3, 0.6, 1)] if method in LEARNS else [labels]
    widths, errors, true = [], 0, float(case.outcome.mean())
    for seed in range(10**6, 10**6 + repetitions):
        rounds: list[tuple[opacc.Selection, NDArray[np.float64]]] = []
        for size in np.diff([0, *cuts]).tolist():
            rounds.append(draw(case, method, size, seed, rounds))
        found = estimate_outcomes([item for item, _ in rounds], [item for _, item in rounds], pool=case.view)
        widths.append((found.high - found.low) / 2)
        errors += not found.low <= true <= found.high
    return Rung(labels, float(np.median(widths)), errors, repetitions)


def planned(rungs: Sequence[Rung], goal: float) -> float:
    """Labels at which the median half-width is the goal; 30 if it is that narrow on the first rung."""
    if rungs[0].half_width <= goal:
        return float(rungs[0].labels)
    x, y = np.log([rung.labels for rung in rungs]), np.log([rung.half_width for rung in rungs])
    curve = np.poly1d(np.polyfit(x, y - math.log(goal), min(3, len(rungs) - 1)))
    grid = np.linspace(x[0], x[-1], 2000)
    below = grid[curve(grid) <= 0]
    return float(np.exp(below[0] if len(below) else x[-1]))


if __name__ == "__main__":
    main()
