"""Rounds until the interval is ±W: labels, rounds and errors, where an audit stops by the width alone.

    python benchmarks/until.py CASE… [--repetitions 40] [--goals 0.05 0.03 0.02] [--methods srs neyman]

CASE is any case of `opacc study`; a method that needs a feature which a case lacks is left out. Printed is a Markdown
table, row by row as it is measured: by case, method and goal, the labels and rounds until the goal, median and 95th
percentile, from a first round of 30 labels; and how many of the intervals that were stated exclude the truth. The last
rows have the errors of each method.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from audits import repeat

from opacc_ray.errors import DataError
from opacc_ray.estimation import sequential
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.extensions.study.cases import Case, Source, read_case
from opacc_ray.samplers.select import select
from opacc_ray.selection import Outcome, Selection

FIRST = 30
"""Labels of the first round."""

LEARNS = ("neyman",)
"""Methods whose estimate reads the features of the pool, because rounds learn from all labels by them."""

COLUMNS = ("case", "method", "±W", "labels", "95th", "rounds", "95th", "errors")


class Stop(NamedTuple):
    """Where one run ended."""

    labels: int
    rounds: int
    error: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path, nargs="+", metavar="CASE")
    parser.add_argument("--repetitions", type=int, default=40)
    parser.add_argument("--goals", type=float, nargs="+", default=[0.05, 0.03, 0.02], metavar="W")
    parser.add_argument("--methods", nargs="+", default=["srs", "css", "neyman"])
    given = parser.parse_args()
    rows = [(path, method, goal) for path in given.cases for method in given.methods for goal in given.goals]
    errors: dict[str, list[bool]] = {method: [] for method in given.methods}
    print(markdown.header(COLUMNS, texts=2))
    measured = repeat(partial(stops_of, rows, given.repetitions), range(len(rows)))
    for (path, method, goal), stops in zip(rows, measured, strict=True):
        if stops:
            errors[method] += [stop.error for stop in stops]
            print(markdown.row([path.stem.replace("_", " "), method, f"{goal:g}", *cells(stops)]), flush=True)
    for method, found in errors.items():
        print(markdown.row(["all", method, *[""] * 5, f"{sum(found)}/{len(found)}"]))


def stops_of(rows: Sequence[tuple[Path, str, float]], repetitions: int, place: int) -> list[Stop]:
    """Return where the runs of a row end; none if the case lacks a feature."""
    path, method, goal = rows[place]
    case = read_case(Source(path.stem, str(path)))
    try:
        return [run_until(case, method, goal, seed) for seed in range(repetitions)]
    except DataError:
        return []


def cells(stops: Sequence[Stop]) -> list[str]:
    values = [[stop.labels for stop in stops], [stop.rounds for stop in stops]]
    quantiles = [f"{np.quantile(numbers, share):.0f}" for numbers in values for share in (0.5, 0.95)]
    return [*quantiles, f"{sum(stop.error for stop in stops)}/{len(stops)}"]


def run_until(case: Case, method: str, goal: float, seed: int) -> Stop:
    """Draw rounds as planned until the goal is reached."""
    rounds: list[tuple[Selection, Outcome]] = []
    analyses: list[sequential.InterimAnalysis] = []
    size, pool = FIRST, case.view if method in LEARNS else None
    while True:
        chosen = select(case.view, method, size, seed, previous=rounds)
        rounds.append((chosen, case.outcome[chosen.index]))
        selections, outcomes = [selection for selection, _ in rounds], [outcome for _, outcome in rounds]
        estimate = estimate_outcomes(selections, outcomes, sequential.interim_level(0.95), pool=pool)
        analyses.append(sequential.analyse(join(selections, outcomes), estimate))
        ahead = sequential.forecast(analyses, goal, case.view.size)
        if ahead.reached:
            is_outside = not estimate.low <= float(case.outcome.mean()) <= estimate.high
            return Stop(analyses[-1].labels, len(rounds), is_outside)
        size = ahead.sizes[0]


if __name__ == "__main__":
    main()
