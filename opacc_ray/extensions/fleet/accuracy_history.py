"""The runs of an audit and their estimates over time.

Runs of one name may be of different populations, since a filter or a list of classes was changed. Each point names its
population, and the points of one population are a series of their own.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from opacc_ray.audit.status import read_failure
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError
from opacc_ray.lake.store_uris import open_store
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report.facts import stated
from opacc_ray.runs.run import ESTIMATE, Run
from opacc_ray.runs.run_documents import RESULT, AccuracyEstimate, NumberName, NumberRow, number_rows
from opacc_ray.runs.series import Population, runs_of

USUAL_OUTPUTS = ".", "audits"
"""Folders of runs if no output is given; `opacc run FILE.csv` writes to the second one."""


class HistoryPoint(Part):
    """Estimate of a run."""

    run: str  # URI of the run
    made: str  # time at which the pool was listed: ISO 8601, UTC
    value: float  # estimate
    low: float  # lower end of the interval
    high: float  # upper end of the interval
    level: float = Field(gt=0, lt=1)  # confidence level
    n: int = Field(ge=0)  # number of draws that the estimate uses
    pool_size: int = Field(ge=0)  # number of examples in its population
    measure: str  # measure that is estimated: accuracy, or the score of a regression
    methods: list[str]  # sampling methods of the rounds, in order
    model: str | None  # digest of the model's weights; null if the spec names none
    pool: str  # digest of the pool's listing
    design_based: bool  # whether the interval holds by the sampling design alone
    population: Population  # population that it is for; points of one are a series over time

    @property
    def time(self) -> float:
        """Seconds since 1970 of ``made``."""
        return datetime.fromisoformat(self.made).timestamp()


class AccuracyHistory(Document):
    """Estimates of the runs of an audit over time: the answer of `opacc history`."""

    format: Literal["opacc-history/1"] = "opacc-history/1"
    name: str  # name of the audit
    source: str  # URI of the output that holds its runs
    number: str | None = None  # the number of the points, such as f1@defect in camera=north; null: the result
    points: list[HistoryPoint]  # estimates of the runs, oldest first
    waiting: list[str] = Field(default=[])  # URIs of runs without an estimate yet
    failed: list[str] = Field(default=[])  # URIs of runs that failed before their first round
    without: list[str] = Field(default=[])  # URIs of runs whose estimate does not state the number
    unread: list[str] = Field(default=[])  # files that cannot be read


def history_of_runs(name: str, output: str | None = None, number: NumberName = RESULT) -> AccuracyHistory:
    """Return the last estimate of each run below an output; by default, the first usual output with such a run.

    ``number`` is the one to return of each estimate, by default the accuracy.
    """
    output, runs, unread = _find_runs(name, USUAL_OUTPUTS if output is None else (output,))
    points, others = list[HistoryPoint](), defaultdict[str, Any](list, unread=unread)
    for run in runs:
        try:
            estimate = run.read_estimate()
        except DataError:
            unread.append(run.store.uri_of(ESTIMATE))
            continue
        if estimate is None:
            others["failed" if read_failure(run) and not run.rounds() else "waiting"].append(run.uri)
        elif row := number.find(number_rows(estimate)):
            points.append(point_of(run, estimate, row))
        else:
            others["without"].append(run.uri)
    named = None if number == RESULT else str(number)
    return AccuracyHistory(name=name, source=open_store(output).uri, number=named, points=points, **others)


def _find_runs(name: str, outputs: Sequence[str]) -> tuple[str, list[Run], list[str]]:
    """Return the first output with runs of an audit, with :func:`runs_of` it; raise DataError without any."""
    for output in outputs:
        runs, unread = runs_of(output, name)
        if runs or unread:
            return output, runs, unread
    audit = name.rpartition("-")[0]
    if audit and any(runs_of(output, audit)[0] for output in outputs):
        raise DataError(f"{name!r} is not the name of an audit, and {audit!r} is one: give that name, not a run's")
    places = " or ".join(open_store(place).uri for place in outputs)
    raise DataError(
        f"there is no run of {name!r} in {places}; give the name of a spec, and with --output where its runs are"
    )


def point_of(run: Run, estimate: AccuracyEstimate, row: NumberRow | None = None) -> HistoryPoint:
    """Return a number of the estimate of a run, by default the accuracy, as a point of a history."""
    row = row or next(number_rows(estimate))
    is_result = (row.metric, row.by) == (ACCURACY, None)
    return HistoryPoint(
        run=run.uri,
        made=run.header.created,
        methods=list(dict.fromkeys(drawn.method for drawn in estimate.rounds)),
        model=run.header.model.sha256,
        pool=run.header.pool.digest,
        population=Population.of(run.spec),
        value=row.unclipped if is_result and row.unclipped is not None else row.value,
        pool_size=estimate.pool_size if row.size is None else row.size,
        measure=estimate.measure if row.metric == ACCURACY else row.metric,
        **row.model_dump(include={"low", "high", "level", "n", "design_based"}),
    )


def series_of(points: Sequence[HistoryPoint]) -> list[list[HistoryPoint]]:
    """Return the points of each population, in order of first appearance."""
    series = defaultdict[str, list[HistoryPoint]](list)
    for point in points:
        series[point.population.digest].append(point)
    return [*series.values()]


def texts_of(points: Sequence[HistoryPoint]) -> str:
    """Return the points of a course for those who do not see it."""
    return "; ".join(f"{point.made[:10]}: {', '.join(stated(point, point.measure))}" for point in points)
