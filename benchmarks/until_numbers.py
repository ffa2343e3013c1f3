"""Rounds until the interval of a metric, a class or a slice is ±W: labels, forecasts, and errors of what is stated.

    python benchmarks/until_numbers.py CASE:NUMBER[:BY]:W… [--repetitions 100] [--first 50]

CASE is a case of `opacc study` with labels, NUMBER such as f1@1 or recall@3, BY the slices that it holds in:
`prediction`, or columns of the case. `neyman` serves the number. Printed is a Markdown table, row by row as it is
measured:

*forecast* is the number of labels that `opacc budget` predicts before any label. Then labels and rounds until the goal,
median and 95th percentile; how many of the intervals that were stated exclude the truth (of a slice, the one with the
widest interval); *other* the same of the accuracy of the pool, stated beside it; and the mean of the value minus the
truth in standard errors, which stopping would bias.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import markdown_table as markdown
import numpy as np
from numpy.typing import NDArray

import opacc_ray as opacc
from opacc_ray.audit.goals import Target, goal_on_classes, read_target
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.interim_analyses import InterimAnalysis, forecast, interim_level
from opacc_ray.estimators.metrics import ACCURACY, find_place
from opacc_ray.samplers.metric_estimates import MetricEstimates, Sample
from opacc_ray.samplers.neyman import Parameters
from opacc_ray.samplers.neyman.forecast import NumberForecast
from opacc_ray.slices import BY_PREDICTION, Slicing
from opacc_ray.study import target as study
from opacc_ray.study.cases import Case, Source, read_case
from opacc_ray.study.target import truths_of

LEVEL = 0.95
COLUMNS = ("case", "number", "±W", "forecast", "labels", "95th", "rounds", "95th", "errors", "other", "bias")


class Stop(NamedTuple):
    """Where one run ended."""

    labels: int
    rounds: int
    error: bool
    other: bool  # whether the interval of the accuracy excludes the truth
    bias: float  # in standard errors


class Task(NamedTuple):
    """A case and what is asked of it."""

    case: Case
    target: Target
    slicings: dict[str, Slicing]
    serve: tuple[str, ...]
    predicted: NDArray[np.int32]


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("rows", nargs="+", metavar="CASE:NUMBER[:BY]:W")
    found.add_argument("--repetitions", type=int, default=100)
    found.add_argument("--first", type=int, default=50, help="labels of the first round")
    return found


def main() -> None:
    given = parser().parse_args()
    print(markdown.header(COLUMNS, texts=2))
    for text in given.rows:
        path, metric, *by, width = text.split(":")
        task, goal = read_task(Path(path), metric, by[0] if by else None), float(width)
        stops = [run_until(task, goal, given.first, seed) for seed in range(given.repetitions)]
        labels, rounds = [stop.labels for stop in stops], [stop.rounds for stop in stops]
        cells = [Path(path).stem.replace("_", " "), str(task.target), width, str(forecast_of(task, goal))]
        for values in (labels, rounds):
            cells += [f"{np.median(values):.0f}", f"{np.quantile(values, 0.95):.0f}"]
        for errors in ([stop.error for stop in stops], [stop.other for stop in stops]):
            cells.append(f"{sum(errors)}/{len(errors)}")
        print(markdown.row([*cells, f"{np.mean([stop.bias for stop in stops]):+.2f}"]), flush=True)


def read_task(path: Path, metric: str, by: str | None) -> Task:
    columns = () if by in (None, BY_PREDICTION) else (by,)
    case = read_case(Source(path.stem, str(path), slices=columns))
    target = goal_on_classes(read_target(metric, by), case.classes)
    own = target.metric
    number = f"{own.name}@{find_place(own, case.classes)}" if own.positive is not None else own.name
    serve = (*((number,) if own.name != ACCURACY or by is None else ()), *((by,) if by else ()))
    predicted = case.view.column("prediction").astype(np.int32)
    return Task(case, target, {name: case.view.slicing(name) for name in columns}, serve, predicted)


def forecast_of(task: Task, goal: float) -> int:
    """The labels that `opacc budget` predicts."""

    def chosen(numbers: MetricEstimates, level: float) -> Estimate:
        return task.target.choose(numbers.interim(task.target.metric, task.target.by, level))[1].estimate

    pool = task.case.view, task.predicted, task.case.classes, task.slicings
    return NumberForecast(*pool, chosen, Parameters(serve=task.serve)).labels(goal, LEVEL)[0]


def run_until(task: Task, goal: float, size: int, seed: int) -> Stop:
    """Draw rounds as planned until the goal is reached."""
    case, rounds, seen = task.case, list[tuple[opacc.Selection, NDArray[np.float64]]](), list[InterimAnalysis]()
    while True:
        chosen = opacc.select(case.view, "neyman", size, seed, previous=rounds, serve=list(task.serve))
        rounds.append((chosen, case.outcome[chosen.index]))
        selections, outcomes = [item for item, _ in rounds], [item for _, item in rounds]
        index = np.concatenate([item.index for item in selections])
        sample = Sample(selections, outcomes, case.truth[index])
        numbers = MetricEstimates(sample, task.predicted, case.classes, task.slicings, case.view)
        part, found = task.target.choose(numbers.interim(task.target.metric, task.target.by, interim_level(LEVEL)))
        half = (found.estimate.high - found.estimate.low) / 2
        seen.append(InterimAnalysis(len(index), half, found.met))
        ahead = forecast(seen, goal, case.view.size)
        if ahead.reached:
            plain = opacc.estimate(selections, outcomes, interim_level(LEVEL), pool=case.view)
            true = true_value(task, part)
            bias = (found.estimate.value - true) / max(found.estimate.standard_error, 1e-9)
            other = outside(plain, float(case.outcome.mean()))
            return Stop(len(index), len(rounds), outside(found.estimate, true), other, bias)
        size = ahead.sizes[0]


def outside(found: Estimate, true: float) -> bool:
    return not found.low - 1e-9 <= true <= found.high + 1e-9


def true_value(task: Task, part: str) -> float:
    """The number on the whole pool, or in a slice."""
    case, inside = task.case, np.ones(task.case.view.size, dtype=bool)
    if task.target.by == BY_PREDICTION:
        inside = task.predicted == case.classes.index(part)
    elif task.target.by is not None:
        slicing = task.slicings[task.target.by]
        inside = slicing.codes == slicing.names.index(part)
    if task.target.metric.name == ACCURACY:
        return float(case.outcome[inside].mean())
    return truths_of(case, study.Target(str(task.target.metric)))[study.ALL].value


if __name__ == "__main__":
    main()
