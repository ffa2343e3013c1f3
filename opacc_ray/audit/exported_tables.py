"""Export a run as Parquet tables for DuckDB, pandas, Ray Data and Spark, partitioned by run and round.

    URI/dictionary.csv                                description of each column of each table
    URI/views.sql                                     views of the estimates: accuracy by week, worst slices
    URI/features/run=NAME/part-000000.parquet         predictions and features of each example
    URI/selections/run=NAME/round=1/rounds.parquet    the chosen examples, one row per draw; of a track: track-T.parquet
    URI/labels/run=NAME/round=1/rounds.parquet        label and outcome of each of them
    URI/estimates/run=NAME/ID.parquet                 every number of an estimate that was stated (estimate_rows.py)

The same run gives the same files, so a repeated export changes nothing. The tables of many runs share one place, and
``estimates`` is the history of all of them. It may be a Delta table, which appends what it lacks.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field

from opacc_ray.audit.estimate_rows import StatedRows, stated_rows
from opacc_ray.audit.estimate_views import views_sql
from opacc_ray.audit.table_columns import LABELS, SELECTIONS, TABLES, dictionary, table_of
from opacc_ray.documents import Document
from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds
from opacc_ray.lake.parquet_io import encode, read_bytes, read_footer
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.lake.table_logs import storage_options
from opacc_ray.runs.commit_log import digest_of
from opacc_ray.runs.feature_store import read_tables
from opacc_ray.runs.run import Run
from opacc_ray.selection import Selection

ESTIMATES_FOLDER, LOG = "estimates", "_delta_log/"

_OPTIONS = {"compression": "zstd", "write_page_checksum": True}
"""Options of the Parquet files."""

_OWNER = b"opacc.run"
"""Key in the files of a run's tables: the digest of its log's first entry, which a moved run keeps, and its URI."""

DICTIONARY, VIEWS = "dictionary.csv", "views.sql"


class ExportedTables(Document):
    """Report of exported tables."""

    format: Literal["opacc-tables/1"] = Field(default="opacc-tables/1", description="name and version of this form")
    run: str = Field(description="URI of the run")
    to: str = Field(description="URI of the tables")
    rows: dict[str, int] = Field(description="table -> rows of this run")
    dictionary: str = Field(description="URI of the description of all columns")
    views: str | None = Field(default=None, description="URI of the views in SQL; null in documents without views")


def export_tables(run: Run, uri: str, *, features: bool = True, delta: bool = False) -> ExportedTables:
    """Write a run with complete features as tables below ``uri``; tables of other runs there are kept.

    With ``features``, also write these, which are as large as in the run. With ``delta``, the table of estimates is a
    Delta table.

    Raises DataError if the features are incomplete, the estimates there are of the other kind, or another run of the
    same name was exported there; LabelError if labels are in conflict; StorageError if the place is not writable.
    """
    target, own = open_store(uri), digest_of(run.commits[0].to_bytes())
    rows = dict.fromkeys(TABLES, 0)
    _check_kind(target, delta)
    _check_run(target, run, own)
    for name, key, table in _tables(run, features):
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), _OWNER: f"{own} {run.uri}"})
        target.write(f"{name}/run={run.name}/{key}", encode(table, **_OPTIONS))
        rows[name] += len(table)
    stated = list(stated_rows(run))
    rows["estimates"] = sum(len(item.rows) for item in stated)
    if delta:
        _append(target.store(ESTIMATES_FOLDER), f"opacc-{own}", stated)
    for item in () if delta else stated:
        key = f"{ESTIMATES_FOLDER}/run={run.name}/{item.id}.parquet"
        target.write(key, encode(item.rows.drop_columns(["run"]), **_OPTIONS))
    target.write(DICTIONARY, dictionary())
    target.write(VIEWS, f"{views_sql(_source(target, delta))}\n".encode())
    return ExportedTables(
        run=run.uri, to=target.uri, rows=rows, dictionary=target.uri_of(DICTIONARY), views=target.uri_of(VIEWS)
    )


def _source(target: Store, delta: bool) -> str:
    """Return the table of estimates as a source in DuckDB's SQL."""
    place = f"{target.uri}/{ESTIMATES_FOLDER}".replace("'", "''")
    if delta:
        return f"delta_scan('{place}')"
    return f"read_parquet('{place}/*/*.parquet', hive_partitioning = true, union_by_name = true)"


def _check_kind(target: Store, delta: bool) -> None:
    """Raise DataError if the table of estimates is a Delta table and should not be, or the other way round."""
    there = target.list(f"{ESTIMATES_FOLDER}/")
    if there and any(entry.key.startswith(f"{ESTIMATES_FOLDER}/{LOG}") for entry in there) != delta:
        kind, fix = ("Parquet files", "remove --delta") if delta else ("a Delta table", "add --delta")
        raise DataError(f"{target.uri}/{ESTIMATES_FOLDER} is {kind}; {fix}, or export to another place")


def _check_run(target: Store, run: Run, own: str) -> None:
    """Raise DataError if the tables there are those of another run of the same name, which would be overwritten."""
    for name in ("selections", "labels", "features"):
        for entry in target.list(f"{name}/run={run.name}/")[:1]:
            metadata = read_footer(target, entry.key, size=entry.size).metadata.metadata or {}
            owner, _, uri = metadata.get(_OWNER, b"").decode().partition(" ")
            if owner and owner != own:
                raise DataError(
                    f"{target.uri} has the tables of another run of the name {run.name}, {uri}; export to another place"
                )


def _append(store: Store, app: str, stated: Sequence[StatedRows]) -> None:
    """Append the estimates that a Delta table lacks, in one commit of the table.

    The commit has the last number of the run's log that it appends, as a transaction of the run, ``app``. Of two
    commands that append at once, one fails.
    """
    import pyarrow as pa

    deltalake, options = _deltalake(), storage_options(store)
    there = deltalake.DeltaTable.is_deltatable(store.uri, storage_options=options)
    table = deltalake.DeltaTable(store.uri, storage_options=options) if there else None
    before = (table and table.transaction_version(app)) or 0
    new = [item for item in stated if item.number > before]
    if not new:
        return
    done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app, new[-1].number)])
    rows = pa.concat_tables([item.rows for item in new])
    access = {} if table else {"storage_options": options}
    try:
        deltalake.write_deltalake(table or store.uri, rows, mode="append", commit_properties=done, **access)
    except deltalake.exceptions.DeltaError as error:
        reason = shortened(str(error), 200)
        raise StorageError(f"cannot append to the table {store.uri} ({reason}); run the same command again") from None


def _deltalake() -> Any:
    try:
        import deltalake.exceptions
    except ImportError as error:
        needed = "a Delta table needs a package that is not installed"
        raise SpecError(f"{needed} ({error}); pip install 'opacc_ray[delta]'") from None
    return deltalake


def read_estimates(uri: str, audit: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the exported rows of an audit's first track, and the URIs of files that cannot be read."""
    store = open_store(f"{uri.rstrip('/')}/{ESTIMATES_FOLDER}")
    unread: list[str] = []
    if store.list(LOG):
        table = _deltalake().DeltaTable(store.uri, storage_options=storage_options(store))
        rows = table.to_pyarrow_table(filters=[("audit", "=", audit)]).to_pylist()
    else:
        keys = [entry.key for entry in store.list(f"run={audit}-") if entry.key.endswith(".parquet")]
        rows = []
        for key, data in zip(keys, store.read_many(keys), strict=True):
            try:
                found = read_bytes(data)
            except DataError:
                unread.append(store.uri_of(key))
                continue
            if "metric" not in found.column_names:  # of an earlier version
                unread.append(store.uri_of(key))
            else:
                rows += found.to_pylist()
    return [row for row in rows if row["audit"] == audit and row["track"] is None], unread


def _tables(run: Run, features: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a table, the key below the run's partition, and rows as an Arrow table."""
    for number, part in enumerate(read_tables(run) if features else ()):
        yield "features", f"part-{number:06d}.parquet", part
    for track in run.tracks():
        file = "rounds.parquet" if track.track is None else f"track-{track.track}.parquet"
        for item in read_rounds(track) if track.rounds() else ():
            yield "selections", f"round={item.number}/{file}", table_of(SELECTIONS, _selection(track, item.selection))
            yield "labels", f"round={item.number}/{file}", table_of(LABELS, _labels(track, item))


def _selection(run: Run, selection: Selection) -> dict[str, Sequence[Any]]:
    chosen, count = run.read_chosen(selection.round), len(selection)
    return {
        "track": [run.track] * count,
        "order": range(1, count + 1),
        "id": selection.ids,
        "uri": chosen.uris,
        "place": selection.index.tolist(),
        "method": [selection.method] * count,
        "seed": [selection.seed] * count,
        "weight": selection.design.weights.tolist(),
        "prediction": [run.spec.model.name_of(value) for value in chosen.predictions],
        "object": chosen.objects,
        "tag": chosen.tags,
    }


def _labels(run: Run, item: LabelledRound) -> dict[str, Sequence[Any]]:
    labelled = item.labelled.tolist()
    known = iter(zip(item.truth, item.predicted, item.outcome.tolist(), strict=True))
    said = [next(known) if is_labelled else (None, None, None) for is_labelled in labelled]
    ids = item.selection.ids
    why = dict.fromkeys(item.missing, "missing") | dict.fromkeys(item.given_up, "given up")
    why |= dict.fromkeys(item.unsure, "unsure")
    state = ["labelled" if own else why.get(name, "not counted") for name, own in zip(ids, labelled, strict=True)]
    return {
        "track": [run.track] * len(ids),
        "order": range(1, len(ids) + 1),
        "id": ids,
        "status": state,
        "label": [label for label, _, _ in said],
        "prediction": [prediction for _, prediction, _ in said],
        "outcome": [outcome for _, _, outcome in said],
    }
