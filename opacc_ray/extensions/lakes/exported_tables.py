"""Export a run as Parquet tables for DuckDB, pandas, Ray Data and Spark, partitioned by run and round.

    URI/dictionary.csv                                description of each column of each table
    URI/views.sql                                     views of the estimates: accuracy by week, worst slices
    URI/features/run=NAME/part-000000.parquet         predictions and features of each example
    URI/selections/run=NAME/round=1/rounds.parquet    the chosen examples, one row per draw
    URI/labels/run=NAME/round=1/rounds.parquet        label and outcome of each of them
    URI/estimates/run=NAME/ID.parquet                 every number of an estimate that was stated

The same run gives the same files, so a repeated export changes nothing. The tables of many runs share one place, and
``estimates`` is the history of all of them. It may be a Delta or an Iceberg table, which appends what it lacks.

The views are in standard SQL. A series is one population and one model by its name. Two populations, or two models, are
never one series.

A row of ``estimates`` has what it is stated for (audit, model, population, time of the data, metric, slice), what was
stated (value, interval, labels, design), and when. So rows of many runs are one history.

The table is kept as Parquet files, a Delta table or an Iceberg table. Each kind has every statement once, however often
a run is exported. Parquet files have one name for each statement. A commit of a Delta table has the last number of the
run's log that it appends, as a transaction of the run: of two commands that append at once, one fails. An Iceberg table
is read before each commit, which has the rows whose key the table lacks, and the catalog refuses it if the table has
changed since it was read; then the table is read again. pyiceberg would repeat such a commit without reading the table
again, and so append twice. The number of its repetitions is set to 0 for this process, not in the table.
"""

import csv
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, SpecError, StorageError, shortened
from opacc_ray.extensions.lakes import catalogs
from opacc_ray.labels.labelled_rounds import LabelledRound, read_rounds
from opacc_ray.lake.parquet_io import encode, pa, pc, read_footer
from opacc_ray.lake.store_uris import CATALOG, Store, open_store
from opacc_ray.registry import require
from opacc_ray.runs.run import Run, read_tables
from opacc_ray.runs.run_documents import AccuracyEstimate, Commit, Draw, NumberRow, digest_of, number_rows
from opacc_ray.runs.series import Population
from opacc_ray.selection import Selection


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


_PLACE = (
    RUN,
    Column("round", "int64", "number of the round (partition)"),
    Column("order", "int64", "position in the order of choice, from 1"),
)

FEATURES = (
    RUN,
    Column("id", "string", "id of the example"),
    Column("uri", "string", "place of the example"),
    Column("hidden", "list<float>", "the recorded hidden layer"),
    Column("output", "list<float>", "the last layer"),
    Column("prediction", "int64 or double", "predicted class, by its number; for a regression the predicted value"),
    Column("confidence", "double", "largest softmax probability, or the score from the pool"),
    Column("dsa", "float", "distance-based surprise"),
    Column("lsa", "float", "likelihood-based surprise"),
    Column("coverage", "list<uint8>", "covered requirements, eight to a byte"),
)
"""Columns of the table of features; each run has those that it extracted."""

SELECTIONS = (
    *_PLACE,
    Column("id", "string", "id of the example; one that is drawn twice has two rows"),
    Column("uri", "string", "place of the example"),
    Column("place", "int64", "position in the pool, from 0"),
    Column("method", "string", "sampling method"),
    Column("seed", "int64", "seed of the draw"),
    Column("weight", "double", "weight by this round's design alone, with all labels; an estimate may add predictions"),
    Column("prediction", "string", "prediction, in the terms of the labels"),
    Column("object", "string", "key of the pool's object with the example; null if unknown"),
    Column("tag", "string", "tag of that object, which identifies its content, when the pool was listed"),
)

LABELS = (
    *_PLACE,
    Column("id", "string", "id of the example"),
    Column(
        "status",
        "string",
        "labelled, missing, unsure (can't tell), given up (the round was closed) or not counted (a labelled "
        "example drawn again, after a draw without a label)",
    ),
    Column("label", "string", "label, from all answers together; null without a label"),
    Column("prediction", "string", "prediction, in the same terms; null without a label"),
    Column(
        "outcome",
        "double",
        "1: the prediction is right, 0: it is wrong; for a regression the score; null without a label",
    ),
)

TABLES = {"features": FEATURES, "selections": SELECTIONS, "labels": LABELS, "estimates": ESTIMATES}


def dictionary() -> bytes:
    """Return the description of every column of every table, as CSV."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(["table", "column", "type", "meaning"])
    writer.writerows([name, *column] for name, columns in TABLES.items() for column in columns)
    return sink.getvalue().encode()


_OWNER = b"opacc.run"
"""Key in the files of a run's tables: the digest of its log's first entry, which a moved run keeps, and its URI."""

DICTIONARY = "dictionary.csv"


class ExportedTables(Document):
    """Report of exported tables."""

    format: Literal["opacc-tables/1"] = "opacc-tables/1"
    run: str  # URI of the run
    to: str  # URI of the tables
    rows: dict[str, int]  # table -> rows of this run
    dictionary: str  # URI of the description of all columns
    views: str | None = None  # URI of the views in SQL; null in documents without views


def export_tables(
    run: Run, uri: str, *, features: bool = True, delta: bool = False, iceberg: str | None = None
) -> ExportedTables:
    """Write a run with complete features as tables below ``uri``; tables of other runs there are kept.

    With ``features``, also write these, which are as large as in the run. With ``delta``, the table of estimates is a
    Delta table; with ``iceberg``, it is the Iceberg table of that address.

    Raises DataError if the features are incomplete, the estimates there are of the other kind, or another run of the
    same name was exported there; LabelError if labels are in conflict; StorageError if the place is not writable.
    """
    target, own = open_store(uri), digest_of(run.commits[0].to_bytes())
    rows = dict.fromkeys(TABLES, 0)
    estimates = estimates_of(target, delta=delta, iceberg=iceberg)
    _check_run(target, run, own)
    for name, key, table in _tables(run, features):
        table = table.replace_schema_metadata({**(table.schema.metadata or {}), _OWNER: f"{own} {run.uri}"})
        target.write(f"{name}/run={run.name}/{key}", encode(table, **OPTIONS))
        rows[name] += len(table)
    stated = list(stated_rows(run))
    rows["estimates"] = sum(len(item.rows) for item in stated)
    estimates.append(own, stated)
    target.write(DICTIONARY, dictionary())
    target.write(VIEWS, f"{views_sql(estimates.sql)}\n".encode())
    return ExportedTables(
        run=run.uri, to=target.uri, rows=rows, dictionary=target.uri_of(DICTIONARY), views=target.uri_of(VIEWS)
    )


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


def _tables(run: Run, features: bool) -> Iterator[tuple[str, str, Any]]:
    """Yield the name of a table, the key below the run's partition, and rows as an Arrow table."""
    for number, part in enumerate(read_tables(run) if features else ()):
        yield "features", f"part-{number:06d}.parquet", part
    for item in read_rounds(run) if run.rounds() else ():
        file = f"round={item.number}/rounds.parquet"
        yield "selections", file, table_of(SELECTIONS, _selection(run, item.selection))
        yield "labels", file, table_of(LABELS, _labels(item))


def _selection(run: Run, selection: Selection) -> dict[str, Sequence[Any]]:
    chosen, count = run.read_chosen(selection.round), len(selection)
    return {
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


def _labels(item: LabelledRound) -> dict[str, Sequence[Any]]:
    labelled = item.labelled.tolist()
    known = iter(zip(item.truth, item.predicted, item.outcome.tolist(), strict=True))
    said = [next(known) if is_labelled else (None, None, None) for is_labelled in labelled]
    ids = item.selection.ids
    why = dict.fromkeys(item.missing, "missing") | dict.fromkeys(item.given_up, "given up")
    why |= dict.fromkeys(item.unsure, "unsure")
    state = ["labelled" if own else why.get(name, "not counted") for name, own in zip(ids, labelled, strict=True)]
    return {
        "order": range(1, len(ids) + 1),
        "id": ids,
        "status": state,
        "label": [label for label, _, _ in said],
        "prediction": [prediction for _, prediction, _ in said],
        "outcome": [outcome for _, _, outcome in said],
    }


# -- estimates ------------------------------------------------------------------------------------------------


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

    uri, options, app = store.uri, catalogs.storage_options(store), f"opacc-{owner}"
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


# -- views ----------------------------------------------------------------------------------------------------


class View(NamedTuple):
    """A view in SQL."""

    name: str
    meaning: str
    select: str  # the query


LATEST = View(
    "latest_estimates",
    "every number of the newest estimate for each population, version of a model and time of the data",
    """
SELECT * FROM (
  SELECT *, rank() OVER (
    PARTITION BY population, model, model_digest, data_as_of ORDER BY stated DESC, estimate
  ) AS age
  FROM estimates WHERE metric IS NOT NULL
) AS ranked WHERE age = 1""",
)

BY_WEEK = View(
    "accuracy_by_week",
    "the accuracy of each model on each population in each week of its data, with the change since its last week; the "
    "newest data of a week count",
    """
SELECT population, population_name, pool, pool_filter, classes, model, week, data_as_of, value, low, high, level, n,
  value - lag(value) OVER (PARTITION BY population, model ORDER BY week) AS change, measure, design_based, model_digest,
  run, uri, stated
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY population, model, week ORDER BY data_as_of DESC, stated DESC, estimate
  ) AS place
  FROM latest_estimates WHERE metric = 'accuracy' AND sliced_by IS NULL
) AS weekly WHERE place = 1
ORDER BY population, model, week""",
)

WORST = View(
    "worst_slices",
    "the slices with enough labels in the newest data of each model and population, the lowest value first",
    """
SELECT population, population_name, model, data_as_of, metric, sliced_by, slice, value, low_together, high_together,
  level, n, size, row_number() OVER (PARTITION BY population, model, metric ORDER BY value, sliced_by, slice) AS place,
  run, uri, stated
FROM (
  SELECT *, dense_rank() OVER (PARTITION BY population, model ORDER BY data_as_of DESC, stated DESC, estimate) AS turn
  FROM latest_estimates
) AS newest WHERE turn = 1 AND tells
ORDER BY population, model, metric, place""",
)


def views_sql(source: str) -> str:
    """Return the statements that create the view ``estimates`` of a source in SQL, and all other views."""
    estimates = View("estimates", "all numbers of all estimates that were stated", f"\nSELECT * FROM {source}")
    return "\n\n".join(
        f"-- {view.name}: {view.meaning}\nCREATE OR REPLACE VIEW {view.name} AS{view.select};"
        for view in (estimates, LATEST, BY_WEEK, WORST)
    )
