"""The runs of an audit and their estimates over time.

Runs of one name may be of different populations, since a filter or a list of classes was changed. Each point names its
population, and the points of one population are a series of their own.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opacc_ray.audit.exported_tables import POPULATION
from opacc_ray.audit.status import read_failure
from opacc_ray.errors import DataError
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


def history_of_runs(name: str, output: str | None = None) -> AccuracyHistory:
    """Return the last estimate of each run below an output; by default, the first usual output with such a run."""
    outputs = USUAL_OUTPUTS if output is None else (output,)
    for output in outputs:
        runs, unread = runs_of(output, name)
        if runs or unread:
            break
    else:
        places = " or ".join(open_store(place).uri for place in outputs)
        raise DataError(
            f"there is no run of {name!r} in {places}; give the name of a spec, and with --output where its runs are"
        )
    found, waiting, failed = [], list[str](), list[str]()
    for run in runs:
        try:
            stated = run.read_estimate()
        except DataError:
            unread.append(run.store.uri_of(run.estimate_key))
            continue
        if stated is None:
            (failed if read_failure(run) and not run.rounds() else waiting).append(run.uri)
        else:
            found.append((point_of(run, stated), Population.of(run.spec)))
    return _history(name, open_store(output).uri, found, unread, waiting, failed)


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
    waiting: Sequence[str] = (),
    failed: Sequence[str] = (),
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
        waiting=list(waiting),
        failed=list(failed),
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


def history_in_tables(name: str, tables: str) -> AccuracyHistory:
    """Return the estimates of the main track that `opacc export --to` wrote to tables.

    Raises
    ------
    DataError
        There is none of that name.
    """
    store = open_store(f"{tables.rstrip('/')}/estimates")
    found, unread = [], []
    keys = [entry.key for entry in store.list(f"run={name}-") if entry.key.endswith(".parquet")]
    for key, data in zip(keys, store.read_many(keys), strict=True):
        try:
            rows = [row for row in read_bytes(data).to_pylist() if row["name"] == name and row["track"] is None]
            found += [(_point(row), _population(row)) for row in rows]
        except DataError:
            unread.append(store.uri_of(key))
    if not found and not unread:
        raise DataError(f"there is no estimate of {name!r} in {store.uri}; `opacc export RUN --to URI` adds them")
    found.sort(key=lambda item: (item[0].made or "", item[0].run))
    return _history(name, store.uri, found, unread)


def _point(row: dict[str, Any]) -> HistoryPoint:
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
    drawn = str(history_at(history.points, "history", WIDE))
    return history.model_copy(update={"picture": write_alone(drawn, uri)})
