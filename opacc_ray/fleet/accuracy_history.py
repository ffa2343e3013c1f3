"""The runs of an audit and their estimates over time.

Runs of one name may be of different populations, since a filter or a list of classes was changed. Each point names its
population, and the points of one population are a series of their own.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opacc_ray.audit.exported_tables import POPULATION
from opacc_ray.audit.number_rows import RESULT, NumberName, NumberRow, number_rows
from opacc_ray.audit.status import read_failure
from opacc_ray.errors import DataError
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.fleet.fleet_documents import AccuracyHistory, HistoryPoint, HistoryPopulation
from opacc_ray.fleet.summary_page import history_at
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.figures import write_alone
from opacc_ray.runs.estimate_documents import AccuracyEstimate
from opacc_ray.runs.identity import Population
from opacc_ray.runs.run import HEADER, Run
from opacc_ray.svg import WIDE

STATED = ("value", "low", "high", "level", "n", "pool_size", "measure", "design_based")
"""Fields of a point that are those of the estimate."""


def runs_of(output: str, name: str) -> tuple[list[Run], list[str]]:
    """Return all runs of an audit below an output, the oldest first, and the URIs of headers that cannot be read."""
    store = open_store(output)
    form = re.compile(rf"({re.escape(name)}-[0-9a-f]{{8}})/{re.escape(HEADER)}")
    found, unread = [], []
    for match in filter(None, [form.fullmatch(entry.key) for entry in store.list(f"{name}-")]):
        try:
            run = Run.open(store.store(match[1]).uri)
        except DataError:
            unread.append(store.uri_of(match[0]))
            continue
        if run.spec.name == name:
            found.append(run)
    return sorted(found, key=lambda run: (run.header.created or "", run.name)), unread


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
    found: Sequence[tuple[HistoryPoint, Population | None]],
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
        text = "not known: exported by an earlier version; export these runs again" if own is None else str(own)
        differs = own.differs(before) if own and before else None
        populations.append(HistoryPopulation(digest=digest, text=text, differs=differs))
        before = own or before
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
    """Return the estimates of the main track that `opacc export --to` wrote to tables, or another number of these.

    Raises
    ------
    DataError
        There is none of that name.
    """
    store = open_store(f"{tables.rstrip('/')}/estimates")
    found, unread, without = [], list[str](), list[str]()
    keys = [entry.key for entry in store.list(f"run={name}-") if entry.key.endswith(".parquet")]
    for key, data in zip(keys, store.read_many(keys), strict=True):
        try:
            rows = [row for row in read_bytes(data).to_pylist() if row["name"] == name and row["track"] is None]
            points = [_point_with(number, row, tables, key) for row in rows]
        except DataError:
            unread.append(store.uri_of(key))
            continue
        found += [(point, _population(row)) for point, row in zip(points, rows, strict=True) if point]
        without += [row["uri"] for point, row in zip(points, rows, strict=True) if point is None]
    if not found and not unread and not without:
        raise DataError(f"there is no estimate of {name!r} in {store.uri}; `opacc export RUN --to URI` adds them")
    found.sort(key=lambda item: (item[0].made or "", item[0].run))
    history = _history(name, store.uri, found, unread)
    return history.model_copy(update={"without": without, "number": _named(number)})


def _point_with(number: NumberName, row: Mapping[str, Any], tables: str, key: str) -> HistoryPoint | None:
    """Return the point of an exported estimate with one of its numbers; None if it does not state it."""
    point = _point(row)
    if number == RESULT:
        return point
    own = number.find(_numbers(tables, key))
    return None if own is None else _as_number(point, own)


def _numbers(tables: str, key: str) -> list[NumberRow]:
    """Return the exported numbers of an estimate; none if an earlier version exported it."""
    data = open_store(f"{tables.rstrip('/')}/numbers").read_if_there(key)
    rows = read_bytes(data).to_pylist() if data else []
    return [NumberRow(**{name: row[name] for name in NumberRow.model_fields}) for row in rows]


def _point(row: Mapping[str, Any]) -> HistoryPoint:
    return HistoryPoint(
        run=row["uri"],
        made=row["exported"],
        methods=row["methods"].split(", "),
        model=row["model_sha256"],
        pool=row["pool_digest"],
        population=row.get("population"),
        **{name: row[name] for name in STATED},
    )


def _population(row: Mapping[str, Any]) -> Population | None:
    """Return the population of an exported estimate; None if an earlier version exported it."""
    if row.get("population") is None:
        return None
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
    title = f"{history.number or 'accuracy'} over time"
    drawn = str(history_at(history.points, "history", WIDE, f"{title[:1].upper()}{title[1:]}"))
    return history.model_copy(update={"picture": write_alone(drawn, uri)})
