"""Rounds until the interval is ±W: labels and rounds, beside a number of labels planned in advance, and errors.

    python benchmarks/until.py CASE… [--repetitions 40] [--counts 500] [--goals 0.05 0.03 0.02] [--methods srs neyman]

CASE is any case of `opacc study`; a method that needs a feature which a case lacks is left out. Printed are Markdown
tables, the first row by row as it is measured:

1. By case, method and goal. *Planned* is the number of labels at which half of the ordinary 95 % intervals are ±W or
   narrower, by a cubic through the medians of a ladder of numbers of labels: in one round, and of methods that learn in
   rounds of 10, 20, 30 and 40 %. Then labels and rounds until the goal, median and 95th percentile, from a first round
   of 30 labels; how much more than planned the median is; and how many of the intervals that were stated exclude the
   truth.
2. The same by method, over all rows; the ordinary intervals of the ladder are beside it.
3. Three rules on counts of failures from an endless pool, with exact intervals and first rounds of 20, 30, 60 and 100:
   labels as a multiple of those planned, median and 95th percentile, and the share of stated intervals that exclude the
   truth. *As it is*; *plain*, with all of α at every look and no caution where few failures are met; and *spent*, α
   spent over the looks with the correlation of successive shares: four fifths at the planned last look, half of what is
   left at each further one, and none at rounds that learn.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray
from processes import repeat
from scipy.optimize import brentq
from scipy.special import betaincinv, ndtr, ndtri

import opacc_ray as opacc
from opacc_ray.errors import DataError
from opacc_ray.estimators import interim_analyses
from opacc_ray.estimators.design_based import design_based_estimate
from opacc_ray.study.cases import Case, Source, read_case

LADDER = (30, 1.4)
"""First number of labels, and what multiplies it from rung to rung."""

FIRST = 30
"""Labels of the first round."""

LEARNS = ("neyman",)
"""Methods that are better in rounds than in one."""

ENDLESS = 10**9
SHARES, FIRST_COUNTS = (0.02, 0.04, 0.06, 0.1, 0.2, 0.5), (20, 30, 60, 100)
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
RULES = ("as it is", "plain", "spent")
BINOMIAL = (
    "±W",
    "failures",
    "planned",
    *(f"{rule}: {name}" for rule in RULES for name in ("labels", "95th", "errors")),
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
    found.add_argument("--counts", type=int, default=500, help="repetitions of each row of the third table")
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
    print("\n" + markdown.header(BINOMIAL, texts=0))
    grid = [(goal, share) for goal in given.goals for share in SHARES]
    for cells in repeat(partial(_binomial, grid, given.counts), range(len(grid))):
        print(markdown.row(cells), flush=True)


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


def _binomial(grid: Sequence[tuple[float, float]], repetitions: int, i: int) -> list[str]:
    return binomial_cells(*grid[i], repetitions)


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
    seen: list[interim_analyses.InterimAnalysis] = []
    size = FIRST
    while True:
        rounds.append(draw(case, method, size, seed, rounds))
        selections, outcomes = [item for item, _ in rounds], [item for _, item in rounds]
        found, estimate = interim_analyses.analyse(selections, outcomes, estimator=estimator_of(case, method))
        seen.append(found)
        ahead = interim_analyses.forecast(seen, goal, case.view.size)
        if ahead.reached:
            true = float(case.outcome.mean())
            return Stop(found.labels, len(rounds), not estimate.low <= true <= estimate.high)
        size = ahead.sizes[0]


def estimator_of(case: Case, method: str) -> interim_analyses.Estimator:
    """The estimate that an audit states: where rounds learn from all labels, by the pool's features, too."""
    if method not in LEARNS:
        return design_based_estimate
    return lambda selections, outcomes, level: opacc.estimate(selections, outcomes, level, pool=case.view)


def draw(
    case: Case, method: str, size: int, seed: int, before: Sequence[tuple[opacc.Selection, NDArray[np.float64]]]
) -> tuple[opacc.Selection, NDArray[np.float64]]:
    chosen = opacc.select(case.view, method, size, seed, previous=before)
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
        found = opacc.estimate([item for item, _ in rounds], [item for _, item in rounds], pool=case.view)
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


# -- counts with exact intervals -----------------------------------------------------------------------------


def binomial_cells(goal: float, share: float, repetitions: int) -> list[str]:
    by_plan = planned_count(share, goal)
    cells = [f"{goal:g}", f"{share:g}", str(by_plan)]
    for rule in (as_it_is, plain, spent):
        stops = []
        for number in range(repetitions):
            rng = np.random.default_rng([number, round(1e4 * share)])
            stops.append(rule(rng, share, goal, FIRST_COUNTS[number % len(FIRST_COUNTS)]))
        labels = [stop.labels / by_plan for stop in stops]
        errors = np.mean([stop.error for stop in stops])
        cells += [f"{np.median(labels):.2f}", f"{np.quantile(labels, 0.95):.2f}", f"{errors:.1%}"]
    return cells


@cache
def exact(failures: float, labels: int, alpha: float) -> tuple[float, float]:
    """C. J. Clopper and E. S. Pearson's interval."""
    low = betaincinv(failures, labels - failures + 1, alpha / 2) if failures > 0 else 0.0
    high = betaincinv(failures + 1, labels - failures, 1 - alpha / 2) if failures < labels else 1.0
    return float(low), float(high)


def _half(failures: float, labels: int, alpha: float) -> float:
    low, high = exact(failures, labels, alpha)
    return (high - low) / 2


@cache
def planned_count(share: float, goal: float, alpha: float = 0.05) -> int:
    """Labels at which the exact interval of the mean count is as narrow as the goal."""
    low, high = 1, 10**6
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _half(share * middle, middle, alpha) <= goal else (middle, high)
    return high


def as_it_is(rng: np.random.Generator, share: float, goal: float, first: int) -> Stop:
    return _by_rule(rng, share, goal, first, interim_analyses.INTERIM_SHARE * 0.05, cautious=True)


def plain(rng: np.random.Generator, share: float, goal: float, first: int) -> Stop:
    return _by_rule(rng, share, goal, first, 0.05, cautious=False)


def _by_rule(rng: np.random.Generator, share: float, goal: float, size: int, alpha: float, *, cautious: bool) -> Stop:
    seen: list[interim_analyses.InterimAnalysis] = []
    labels = failures = 0
    while True:
        labels, failures = labels + size, failures + int(rng.binomial(size, share))
        met = min(failures, labels - failures) if cautious else math.inf
        seen.append(interim_analyses.InterimAnalysis(labels, _half(failures, labels, alpha), met))
        ahead = interim_analyses.forecast(seen, goal, ENDLESS)
        if ahead.reached:
            low, high = exact(failures, labels, alpha)
            return Stop(labels, len(seen), not low <= share <= high)
        size = ahead.sizes[0]


def spent(rng: np.random.Generator, share: float, goal: float, first: int) -> Stop:
    labels, failures, rounds = first, int(rng.binomial(first, share)), 1
    while (
        total := planned_count(round((failures + 0.5) / (labels + 1), 3), goal, 0.04)
    ) > interim_analyses.CLOSE * labels:
        then = math.ceil(min(0.6 * total, 3 * labels))
        labels, failures, rounds = then, failures + int(rng.binomial(then - labels, share)), rounds + 1
    left, bound, then = 0.01, float(-ndtri(0.02)), math.ceil(max(1.05 * total, 1.1 * labels))
    while True:
        failures, labels, rounds = failures + int(rng.binomial(then - labels, share)), then, rounds + 1
        low, high = exact(failures, labels, float(2 * ndtr(-bound)))
        if (high - low) / 2 <= goal:
            return Stop(labels, rounds, not low <= share <= high)
        left, then, bound = _next_look(failures / labels, labels, goal, left, bound)


def _next_look(rate: float, labels: int, goal: float, left: float, before: float) -> tuple[float, int, float]:
    """α that is left, labels and bound of the first further look at which the goal is expected to be reached."""
    then = math.ceil(1.1 * labels)
    while True:
        bound = _bound(before, round(math.sqrt(labels / then), 3), left / 2)
        if _half(rate * then, then, float(2 * ndtr(-bound))) <= goal:
            return left / 2, then, bound
        then = math.ceil(1.05 * then)


@cache
def _bound(before: float, correlation: float, alpha: float) -> float:
    """c with P(|Z'| > c, |Z| <= before) = α for successive normal Z and Z': D. Hunter's bound on a union."""
    nodes, weight = np.polynomial.legendre.leggauss(80)
    z = before + 4 * (nodes + 1)
    density = 4 * weight * np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    spread = math.sqrt(1 - correlation**2)

    def excess(c: float) -> float:
        tails = ndtr((correlation * z - c) / spread) + ndtr((-c - correlation * z) / spread)
        return float(2 * ndtr(-c) - 2 * density @ tails) - alpha

    return float(brentq(excess, 0.1, 8))


if __name__ == "__main__":
    main()
