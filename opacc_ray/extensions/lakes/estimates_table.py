"""The table of estimates: a row for each number of each estimate that a run stated, by its log.

A row has what it is stated for (audit, model, population, time of the data, metric, slice), what was stated (value,
interval, labels, design), and when. So rows of many runs are one history. The same run always gives the same rows.

The table is kept as Parquet files, a Delta table or an Iceberg table. Each kind has every statement once, however often
a run is exported. Parquet files have one name for each statement. A
commit of a Delta table has the last number of the run's log that it appends, as a transaction of the run: of two
commands that append at once, one fails. An Iceberg table is read before each commit, which has the rows whose key the
table lacks, and the catalog refuses it if the table has changed since it was read; then the table is read again.
pyiceberg would repeat such a commit without reading the table again, and so append twice. The number of its repetitions
is set to 0 for this process, not in the table.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, get_args

from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.extensions.lakes import catalogs
from opacc_ray.extensions.lakes.catalogs import storage_options
from opacc_ray.lake.parquet_io import encode, pa, pc
from opacc_ray.lake.store_uris import CATALOG, Store
from opacc_ray.registry import require
from opacc_ray.runs.estimate_documents import AccuracyEstimate, NumberRow, number_rows
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Commit, Draw, digest_of
from opacc_ray.runs.series import Population


class Column(NamedTuple):
    """A column of a table."""

    name: str
    type: str  # of Arrow; timestamp: microseconds in UTC
    meaning: str


NAMES = {"by": "sliced_by"}
"""Columns of fields of a number whose name SQL reserves."""

_TYPES = {str: "string", float: "double", int: "int64", bool: "bool"}


def _of_numbers(*names: str) -> Iterator[Column]:
    """Yield the columns for fields of :class:`NumberRow`, which say what they mean."""
    for name in names:
        field = NumberRow.model_fields[name]
        kind = next(own for own in (field.annotation, *get_args(field.annotation)) if own in _TYPES)
        yield Column(NAMES.get(name, name), _TYPES[kind], str(field.description))


RUN = Column("run", "string", "name of the run (partition)")
ESTIMATES = (
    RUN,
    Column("estimate", "string", "id of the statement: rows with the same one were stated together"),
    Column("log_entry", "int64", "number of its entry in the log of the run"),
    Column("stated", "timestamp", "when it was stated"),
    Column("audit", "string", "name of the audit, in its spec"),
    Column("uri", "string", "URI of the run"),
    Column("run_created", "timestamp", "when the run was created"),
    Column("data_as_of", "timestamp", "time of the data; see data_as_of_from"),
    Column(
        "data_as_of_from",
        "string",
        "spec: its key data_as_of; version: when that version of the table was written; files: when the newest file "
        "of the pool was written; run: when the run was created, since nothing else is known",
    ),
    Column("week", "date", "the Monday before data_as_of, in UTC"),
    Column("population", "string", "digest of the population: rows with the same one are a series over time"),
    Column("population_name", "string", "name of the population in the spec; null: the pool, its filter and so on"),
    Column("pool", "string", "URI of the pool"),
    Column("pool_digest", "string", "digest of the pool's listing"),
    Column("pool_version", "string", "version of the pool's table; null if the pool is no table"),
    Column("pool_format", "string", "format of the pool"),
    Column("pool_filter", "string", "filter of the pool's rows; null: all"),
    Column("pool_split", "string", "split of the pool's dataset; null: its only one"),
    Column("pool_catalog", "string", "catalog of the pool's table; null: the table is found by its URI"),
    Column("pool_table", "string", "name of the pool's table in the catalog"),
    Column("task", "string", "classification or regression"),
    Column("classes", "list<string>", "names of the classes, sorted; null: no names"),
    Column(
        "model",
        "string",
        "model.name of the spec; without it, the factory, program or function with its weights, or the column of "
        "predictions and its pool",
    ),
    Column("model_digest", "string", "digest of the model's weights; null if the spec has none"),
    Column("features_digest", "string", "digest of the predictions and features that the last round was drawn from"),
    *_of_numbers("metric"),
    Column("measure", "string", "meaning of the accuracy: accuracy, or the score of a regression"),
    *_of_numbers("by", "slice", "value", "low", "high", "level", "low_together", "high_together", "tells"),
    *_of_numbers("unclipped", "standard_error", "method", "design_based", "reason", "n", "size"),
    Column("pool_size", "int64", "examples of the pool"),
    Column("excluded", "int64", "further examples that could not be read"),
    Column("methods", "string", "sampling methods of the rounds, in order"),
    Column("rounds", "int64", "number of rounds"),
    Column("labels_digest", "string", "digest of its labels"),
)
"""Columns of the table of estimates: a row for each number of each estimate that was stated."""


def table_of(columns: Sequence[Column], values: Mapping[str, Sequence[Any]]) -> Any:
    """Return the columns that have values as an Arrow table whose fields state their meaning."""
    others = {"list<string>": pa.list_(pa.string()), "timestamp": pa.timestamp("us", "UTC"), "date": pa.date32()}
    fields = [
        pa.field(name, others.get(kind) or pa.type_for_alias(kind), metadata={"comment": meaning})
        for name, kind, meaning in columns
        if name in values
    ]
    return pa.table([pa.array(values[field.name], field.type) for field in fields], schema=pa.schema(fields))


class StatedRows(NamedTuple):
    """An estimate that was stated, as rows."""

    id: str
    number: int  # of its entry in the log of the run
    rows: Any  # pyarrow.Table with all columns of the table


def stated_rows(run: Run) -> Iterator[StatedRows]:
    """Yield every estimate that was stated, in the order of the log."""
    for commit, estimate in run.estimates():
        id = digest_of(commit.to_bytes())[:16]
        yield StatedRows(id, commit.number, _rows(run, commit, estimate, id))


def _rows(run: Run, commit: Commit, estimate: AccuracyEstimate, id: str) -> Any:
    numbers = [row.model_dump() for row in number_rows(estimate)]
    stated = estimate.model_dump(include={"measure", "pool_size", "excluded", "labels_digest"})
    stated |= {
        "estimate": id,
        "log_entry": commit.number,
        "stated": datetime.fromisoformat(commit.at),
        "features_digest": _drawn_from(run, commit.number),
        "methods": ", ".join(item.method for item in estimate.rounds),
        "rounds": len(estimate.rounds),
    }
    values: dict[str, Sequence[Any]] = {name: [value] * len(numbers) for name, value in (_of(run) | stated).items()}
    return table_of(ESTIMATES, values | {NAMES.get(name, name): [row[name] for row in numbers] for name in numbers[0]})


def _of(run: Run) -> dict[str, Any]:
    """Return what all rows of a run have."""
    header, spec, pool, population = run.header, run.spec, run.spec.pool, Population.of(run.spec)
    time, source = _time_of_data(run)
    return {
        "run": run.name,
        "audit": spec.name,
        "uri": run.uri,
        "run_created": _utc(header.created),
        "data_as_of": time,
        "data_as_of_from": source,
        "week": (time - timedelta(days=time.weekday())).date(),
        "population": population.digest,
        **{f"pool_{key}": getattr(pool, key) for key in ("format", "filter", "split", "catalog", "table")},
        "population_name": population.name,
        "task": population.task,
        "classes": population.classes,
        "pool": pool.uri,
        "pool_digest": header.pool.digest,
        "pool_version": header.pool.version,
        "model": spec.model.name or _model(run),
        "model_digest": header.model.sha256,
    }


def _model(run: Run) -> str:
    """Return what identifies a model without a name."""
    model, pool = run.spec.model, run.spec.pool
    if pool.holds_features:
        columns, place = pool.columns, pool.table or pool.uri
        said = [columns.prediction] if columns.prediction else columns.features.get("output") or columns.answer
        return f"column {', '.join(said)} of {place}" if said else f"the model of {place}"
    return " ".join(filter(None, [model.factory or model.program or model.function, model.weights]))


def _time_of_data(run: Run) -> tuple[datetime, str]:
    """Return the time of the data, and what it is from."""
    pool = run.header.pool
    if run.spec.data_as_of is not None:
        return _utc(run.spec.data_as_of), "spec"
    if pool.data_as_of is not None:
        return _utc(pool.data_as_of), "files" if pool.version is None else "version"
    return _utc(run.header.created), "run"


def _utc(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


def _drawn_from(run: Run, before: int) -> str | None:
    """Return the digest of the features of the last draw before an entry of the log."""
    drawn = [draw.features for commit, draw in run.logged(Draw) if commit.number < before]
    return drawn[-1] if drawn else None


# -- where it is kept ------------------------------------------------------------------------------------------

VIEWS = "views.sql"

OPTIONS = {"compression": "zstd", "write_page_checksum": True}
"""Options of the Parquet files."""

_FOLDER, _LOG = "estimates", "_delta_log/"


class EstimatesTable(NamedTuple):
    """A table of estimates."""

    sql: str  # the table as a source in DuckDB's SQL
    append: Callable[[str, Sequence[StatedRows]], None]  # append what it lacks; the digest that names the run first


_SOURCES = {
    "parquet": "read_parquet('{}/*/*.parquet', hive_partitioning = true, union_by_name = true)",
    "delta": "delta_scan('{}')",
}

_FIX = {
    "parquet": "Parquet files; use neither --delta nor --iceberg",
    "delta": "a Delta table; use --delta",
    "iceberg": "an Iceberg table; use --iceberg",
}
"""What each kind of table is, and what a command needs for it."""


def estimates_of(target: Store, *, delta: bool = False, iceberg: str | None = None) -> EstimatesTable:
    """Return the table of estimates of exported tables; raises SpecError for an address that is none.

    Raises DataError if the estimates there are kept in another kind of table.
    """
    if delta and iceberg is not None:
        raise SpecError("--delta and --iceberg cannot be combined; remove one")
    kind, there = "iceberg" if iceberg is not None else "delta" if delta else "parquet", _kind_at(target)
    if there not in (None, kind):
        raise DataError(f"the estimates of {target.uri} are in {_FIX[there]}, or export to another place")
    if iceberg is not None:
        return _in_catalog(iceberg)
    kept = target.store(_FOLDER)
    append = partial(_append_delta if delta else _append_files, kept)
    return EstimatesTable(_SOURCES[kind].format(kept.uri.replace("'", "''")), append)


def _in_catalog(address: str) -> EstimatesTable:
    catalog, _, name = address.removeprefix(CATALOG).partition("/")
    if not (address.startswith(CATALOG) and catalog and "." in name):
        raise SpecError(f"{address} is not the address of an Iceberg table; write catalog://CATALOG/NAMESPACE.TABLE")
    parts = catalog, *name.split(".")
    sql = ".".join(part if part.isidentifier() else f'"{part}"' for part in parts)
    return EstimatesTable(sql, partial(_append_iceberg, catalog, name))


def _kind_at(target: Store) -> str | None:
    """Return the kind of table that keeps the estimates of exported tables; None if there is none yet."""
    keys = [entry.key for entry in target.list(f"{_FOLDER}/")]
    if keys:
        return "delta" if any(key.startswith(f"{_FOLDER}/{_LOG}") for key in keys) else "parquet"
    views = target.read_if_there(VIEWS)
    is_iceberg = views is not None and b"_scan(" not in views and b"read_parquet(" not in views
    return "iceberg" if is_iceberg else None


def _append_files(store: Store, owner: str, stated: Sequence[StatedRows]) -> None:
    """Write a file for each statement, ``run=NAME/ID.parquet``."""
    for item in stated:
        run = item.rows["run"][0].as_py()
        store.write(f"run={run}/{item.id}.parquet", encode(item.rows.drop_columns(["run"]), **OPTIONS))


def _append_delta(store: Store, owner: str, stated: Sequence[StatedRows]) -> None:
    require("a Delta table", "deltalake")
    import deltalake
    from deltalake.exceptions import DeltaError

    uri, options, app = store.uri, storage_options(store), f"opacc-{owner}"
    there = deltalake.DeltaTable.is_deltatable(uri, storage_options=options)
    table = deltalake.DeltaTable(uri, storage_options=options) if there else None
    before = (table and table.transaction_version(app)) or 0
    new = [item for item in stated if item.number > before]
    if not new:
        return
    done = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app, new[-1].number)])
    rows = pa.concat_tables([item.rows for item in new])
    access = {"schema_mode": "merge"} if table else {"storage_options": options}
    try:
        deltalake.write_deltalake(table or uri, rows, mode="append", commit_properties=done, **access)
    except DeltaError as error:
        reason = shortened(str(error), 200)
        raise StorageError(f"cannot append to the table {uri} ({reason}); run the same command again") from None


def _append_iceberg(catalog: str, name: str, owner: str, stated: Sequence[StatedRows]) -> None:
    require("an Iceberg table", "pyiceberg")
    if stated:
        rows = pa.concat_tables([item.rows for item in stated])
        append_missing(catalogs.iceberg_table(catalog, name), rows, key="estimate")


ATTEMPTS, PAUSE, MOST_PAUSE = 10, 0.2, 2.0  # of a commit that meets others, and seconds between them

_NO_REPETITION = {"commit.retry.num-retries": "0"}


def append_missing(table: catalogs.IcebergTable, rows: Any, key: str) -> None:
    """Append those of some rows, an Arrow table, whose key the table lacks; create it, and add columns, if need be.

    Raises SpecError, or StorageError if the catalog is not reached or other commits come first again and again.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    with catalogs.refused(table):
        catalog = catalogs.iceberg_catalog(table)
        for attempt in range(ATTEMPTS):
            try:
                return _append(_made(catalog, table.name, rows.schema), rows, key)
            except (CommitFailedException, CommitStateUnknownException, *catalogs.busy()) as error:
                reason = shortened(str(error), 200)
            time.sleep(min(PAUSE * 2**attempt, MOST_PAUSE))
    raise StorageError(
        f"cannot append to the table {table.name} of the catalog {table.catalog!r} ({reason}); run the same command "
        "again, which appends what is missing"
    )


def _made(catalog: Any, name: str, schema: Any) -> Any:
    """Return a table with at least the columns of a schema."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    wanted = pa.schema([field.with_metadata({"doc": (field.metadata or {}).get(b"comment", b"")}) for field in schema])
    try:
        found = catalog.load_table(name)
    except (NoSuchTableError, NoSuchNamespaceError):
        space = name.rpartition(".")[0]
        _unless(partial(catalog.namespace_exists, space), partial(catalog.create_namespace, space))
        _unless(partial(catalog.table_exists, name), partial(catalog.create_table, name, wanted))
        found = catalog.load_table(name)
    if not set(schema.names) <= set(found.schema().column_names):
        with found.update_schema() as update:
            update.union_by_name(wanted)
    return found


def _unless(there: Callable[[], bool], make: Callable[[], Any]) -> None:
    """Make something that another process may make now; the error of the later one depends on the catalog."""
    try:
        make()
    except Exception:
        if not there():
            raise


def _append(table: Any, rows: Any, key: str) -> None:
    from pyiceberg.expressions import In

    wanted = rows[key].unique()
    there = table.scan(In(key, wanted.to_pylist()), selected_fields=(key,)).to_arrow()[key].unique()
    new = rows.filter(pc.invert(pc.is_in(rows[key], there.cast(wanted.type))))
    if len(new):
        properties = {**table.metadata.properties, **_NO_REPETITION}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        table.append(new)
