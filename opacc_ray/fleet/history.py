"""The runs of an audit, which its output holds under its name, and what each of them stated."""

import re
from typing import Any, NamedTuple

from opacc_ray.errors import DataError
from opacc_ray.fleet.documents import AccuracyHistory, HistoryPoint
from opacc_ray.lake.parquet_io import read_bytes
from opacc_ray.lake.storage import open_store
from opacc_ray.runs.documents import AccuracyEstimate
from opacc_ray.runs.run import HEADER, Run

STATED = ("value", "low", "high", "level", "n", "pool_size", "measure", "design_based")
"""What a point of a history has as it was stated."""


class Runs(NamedTuple):
    """The runs of an audit."""

    found: list[Run]  # the oldest first
    unread: list[str]  # URIs of headers that cannot be read


def runs_of(output: str, name: str) -> Runs:
    """All runs of an audit below an output: NAME and the digest of each, by the time at which they were made."""
    store = open_store(output)
    form = re.compile(rf"({re.escape(name)}-[0-9a-f]{{8}})/{re.escape(HEADER)}")
    keys = [match for entry in store.list(f"{name}-") if (match := form.fullmatch(entry.key))]
    found, unread = [], []
    for match in keys:
        try:
            run = Run.open(store.store(match[1]).uri)
        except DataError:
            unread.append(store.uri_of(match[0]))
            continue
        if run.spec.name == name:
            found.append(run)
    return Runs(sorted(found, key=lambda run: (run.header.created or "", run.name)), unread)


def history_of_runs(name: str, output: str) -> AccuracyHistory:
    """What each run below an output stated last."""
    runs = runs_of(output, name)
    if not runs.found and not runs.unread:
        raise DataError(
            f"there is no run of {name!r} in {open_store(output).uri}; give the name of a spec, and with --output "
            "where its runs are"
        )
    points, waiting, unread = [], [], list(runs.unread)
    for run in runs.found:
        try:
            stated = run.read_estimate()
        except DataError:
            unread.append(run.store.uri_of(run.estimate_key))
            continue
        if stated is None:
            waiting.append(run.uri)
        else:
            points.append(point_of(run, stated))
    source = open_store(output).uri
    return AccuracyHistory(name=name, source=source, points=points, waiting=waiting, unread=unread, picture=None)


def point_of(run: Run, stated: AccuracyEstimate) -> HistoryPoint:
    """What a run stated."""
    return HistoryPoint(
        run=run.uri,
        made=run.header.created,
        methods=list(dict.fromkeys(item.method for item in stated.rounds)),
        model=run.header.model.sha256,
        pool=run.header.pool.digest,
        **{name: getattr(stated, name) for name in STATED},
    )


def history_in_tables(name: str, tables: str) -> AccuracyHistory:
    """What was exported to tables by `opacc export --to`: every estimate that was stated then, of the first track.

    Raises
    ------
    DataError
        There is none of that name.
    """
    store = open_store(f"{tables.rstrip('/')}/estimates")
    points, unread = [], []
    keys = [entry.key for entry in store.list(f"run={name}-") if entry.key.endswith(".parquet")]
    for key, data in zip(keys, store.read_many(keys), strict=True):
        try:
            points += [
                _point(row) for row in read_bytes(data).to_pylist() if row["name"] == name and row["track"] is None
            ]
        except DataError:
            unread.append(store.uri_of(key))
    if not points and not unread:
        raise DataError(f"there is no estimate of {name!r} in {store.uri}; `opacc export RUN --to URI` adds them")
    points.sort(key=lambda point: (point.made or "", point.run))
    return AccuracyHistory(name=name, source=store.uri, points=points, waiting=[], unread=unread, picture=None)


def _point(row: dict[str, Any]) -> HistoryPoint:
    return HistoryPoint(
        run=row["uri"],
        made=row["exported"],
        methods=row["methods"].split(", "),
        model=row["model_sha256"],
        pool=row["pool_digest"],
        **{name: row[name] for name in STATED},
    )
