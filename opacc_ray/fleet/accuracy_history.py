"""The runs of an audit and their estimates over time.

Runs of one name may be of different populations, since a filter or a list of classes was changed. Each point names its
population, and the points of one population are a series of their own.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from opacc_ray.audit.estimates_table import estimates_at
from opacc_ray.audit.number_rows import RESULT, NumberName, NumberRow, number_rows
from opacc_ray.audit.status import read_failure
from opacc_ray.audit.table_columns import POPULATION
from opacc_ray.errors import DataError
from opacc_ray.estimators.intervals import clipped
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.fleet.fleet_documents import AccuracyHistory, HistoryPoint, HistoryPopulation
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.facts import stated
from opacc_ray.report.figures import axes, enclosing_ticks, tick_labels, trend, write_alone
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import runs_of
from opacc_ray.svg import WIDE, figure, text

STATED = ("value", "low", "high", "level", "n", "pool_size", "measure", "design_based")
"""Fields of a point that are those of the estimate."""


HEIGHT, MOST_DATES = 230.0, 5
"""Pixels of the height of a picture, and most dates along it."""

USUAL_OUTPUTS = ".", "audits"
"""Folders of runs if no output is given; `opacc run FILE.csv` writes to the second one."""


def history_of_runs(name: str, output: str | None = None, number: NumberName = RESULT) -> AccuracyHistory:
    """Return the last estimate of each run below an output; by default, the first usual output with such a run.

    ``number`` is the one to return of each estimate, by default the accuracy.
    """
    output, runs, unread = _find_runs(name, USUAL_OUTPUTS if output is None else (output,))
    found, waiting, failed, without = [], list[str](), list[str](), list[str]()
    for run in runs:
        try:
            stated = run.read_estimate()
        except DataError:
            unread.append(run.store.uri_of(run.estimate_key))
            continue
        if stated is None:
            (failed if read_failure(run) and not run.rounds() else waiting).append(run.uri)
        elif row := number.find(number_rows(stated)):
            found.append((_as_number(point_of(run, stated), row), Population.of(run.spec)))
        else:
            without.append(run.uri)
    own = _history(name, open_store(output).uri, found, unread)
    rest = {"waiting": waiting, "failed": failed, "without": without, "number": _named(number)}
    return own.model_copy(update=rest)


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


def _as_number(point: HistoryPoint, row: NumberRow) -> HistoryPoint:
    """Return a point with another number of its estimate; that of the accuracy stays as it is."""
    if (row.metric, row.by) == (ACCURACY, None):
        return point
    own = row.model_dump(include={"value", "low", "high", "level", "n", "design_based"})
    size = point.pool_size if row.size is None else row.size
    measure = point.measure if row.metric == ACCURACY else row.metric
    return point.model_copy(update=own | {"pool_size": size, "measure": measure})


def _named(number: NumberName) -> str | None:
    return None if number == RESULT else str(number)


def series_of(points: Sequence[HistoryPoint]) -> list[list[HistoryPoint]]:
    """Return the points of each population, in order of first appearance."""
    found: dict[str | None, list[HistoryPoint]] = {}
    for point in points:
        found.setdefault(point.population, []).append(point)
    return [*found.values()]


def _history(
    name: str,
    source: str,
    found: Sequence[tuple[HistoryPoint, Population]],
    unread: list[str],
) -> AccuracyHistory:
    """Return the history of points and their populations, each with its difference from the one before."""
    points = [point for point, _ in found]
    known = {point.population: population for point, population in found}
    populations: list[HistoryPopulation] = []
    before: Population | None = None
    for series in series_of(points):
        digest = series[0].population
        own = known[digest]
        differs = own.differs(before) if before else None
        populations.append(HistoryPopulation(digest=digest, text=str(own), differs=differs))
        before = own
    return AccuracyHistory(
        name=name,
        source=source,
        points=points,
        populations=populations,
        waiting=[],
        unread=unread,
        picture=None,
    )


def point_of(run: Run, stated: AccuracyEstimate) -> HistoryPoint:
    """Return the estimate of a run as a point of a history."""
    return HistoryPoint(
        run=run.uri,
        made=run.header.created,
        methods=list(dict.fromkeys(item.method for item in stated.rounds)),
        model=run.header.model.sha256,
        pool=run.header.pool.digest,
        population=Population.of(run.spec).digest,
        **{name: getattr(stated, name) for name in STATED},
    )


def history_in_tables(name: str, tables: str, number: NumberName = RESULT) -> AccuracyHistory:
    """Return every estimate of the first track that `opacc export --to` wrote to tables, or another number of these.

    ``tables`` is their URI, or the address of the Iceberg table. Raises DataError if there is none of that name.
    """
    table = estimates_at(tables)
    found, unread = table.read(name)
    rows = [row for row in found if row["audit"] == name and row["track"] is None]
    rows.sort(key=lambda row: (row["run_created"], row["uri"], row["log_entry"]))
    stated = {row["estimate"]: row for row in rows}
    wanted = [row for row in rows if (row["metric"], row["sliced_by"], row["slice"]) == number]
    if not rows and not unread:
        raise DataError(f"there is no estimate of {name!r} in {table.uri}; `opacc export RUN --to URI` adds them")
    points = [(_point(row), _population(row)) for row in wanted]
    having = {row["estimate"] for row in wanted}
    without = [row["uri"] for id, row in stated.items() if id not in having]
    return _history(name, table.uri, points, unread).model_copy(update={"without": without, "number": _named(number)})


def _point(row: Mapping[str, Any]) -> HistoryPoint:
    """Return the point of a number in the table of estimates."""
    is_result = (row["metric"], row["sliced_by"]) == (ACCURACY, None)
    own = (
        {"value": row["unclipped"]} if is_result else {"pool_size": row["pool_size" if row["size"] is None else "size"]}
    )
    measure = row["measure"] if row["metric"] == ACCURACY else row["metric"]
    return HistoryPoint(
        run=row["uri"],
        made=row["run_created"].isoformat(timespec="milliseconds"),
        methods=list(dict.fromkeys(row["methods"].split(", "))),
        model=row["model_digest"],
        pool=row["pool_digest"],
        population=row["population"],
        **{name: row[name] for name in STATED} | own | {"measure": measure},
    )


def _population(row: Mapping[str, Any]) -> Population:
    """Return the population of an exported estimate."""
    return Population.named(**{key: row[column] for key, column in POPULATION.items()})


def with_picture(history: AccuracyHistory, uri: str) -> AccuracyHistory:
    """Draw a history to a file or object; return it with that URI.

    Raises
    ------
    DataError
        There is no estimate, or estimates have different measures.
    """
    measures = {point.measure for point in history.points}
    if len(measures) != 1:
        reason = f"have different measures: {', '.join(sorted(measures))}" if measures else "have no estimate yet"
        raise DataError(f"the runs of {history.name!r} {reason}, so there is no picture; remove --picture")
    drawn = str(_drawn(history.points, f"{history.number or 'Accuracy'} over time"))
    return history.model_copy(update={"picture": write_alone(drawn, uri)})


def _drawn(points: Sequence[HistoryPoint], title: str) -> Markup:
    """Draw numbers over time: one line per population, whose first point has a number if there are several."""
    times, measure = _times(points), points[0].measure
    marks = enclosing_ticks([v for point in points for v in (point.low, point.high)], 5)
    first, last = times[0], max(times[-1], times[0] + 1)
    margin = (last - first) * 0.04
    span, labels = (first - margin, last + margin), tick_labels(marks, measure)
    x, y, parts = axes((WIDE, HEIGHT), span, _dates(times), marks, labels)
    placed = [(x(time), point) for time, point in zip(times, points, strict=True)]
    populations = dict.fromkeys(point.population for point in points)
    for place, population in enumerate(populations, start=1):
        own = [(across, point) for across, point in placed if point.population == population]
        parts += trend(own, y, 4.5)
        if len(populations) > 1:
            parts.append(text(own[0][0] - 10, y(clipped(own[0][1])) + 4, str(place), "tick", "end"))
    description = "; ".join(f"{(point.made or '')[:10]}: {', '.join(stated(point, measure))}" for point in points)
    return figure("history", title, description, (WIDE, HEIGHT), parts)


def _times(points: Sequence[HistoryPoint]) -> list[float]:
    """Return the second of each run, or its place in their order where times are missing."""
    if any(point.made is None for point in points):
        return [float(place) for place in range(len(points))]
    return [datetime.fromisoformat(point.made or "").timestamp() for point in points]


def _dates(times: Sequence[float]) -> list[tuple[float, str]]:
    """Return dates along the axis, each with its text."""
    first, last = times[0], times[-1]
    if last < 1e6:  # an order, no times
        return []
    num = max(2, min(MOST_DATES, len(set(times)))) if last > first else 1
    places = [first + (last - first) * place / max(num - 1, 1) for place in range(num)]
    form = "%Y-%m-%d" if last - first >= 2 * 86400 or num == 1 else "%m-%d %H:%M"
    return [(time, datetime.fromtimestamp(time, UTC).strftime(form)) for time in places]
