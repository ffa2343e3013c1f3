"""Pools that are Iceberg tables: the Parquet files of one snapshot.

The package ``pyiceberg`` (extra ``iceberg``) reads the metadata, on the driver only. Data files are read as in the
format ``parquet``. ``pool.uri`` is the table's location, of which the newest metadata file counts, or a metadata file.
With ``pool.catalog`` and ``pool.table``, the catalog's address is in pyiceberg's configuration. The snapshot is
``pool.version``, the newest at ``pool.timestamp``, or the newest when the run is made; the run keeps its number.

Columns are identified by field id: a renamed column has its new name, and a reused name has no old values. Imported
files without field ids need the table's property schema.name-mapping.default. Snapshots with delete files are refused.
"""

import re
from datetime import UTC, datetime
from typing import Any

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import Constants, Found, Rules
from opacc_ray.lake.filters import parse_filter
from opacc_ray.lake.formats import FEATURE_COLUMNS, ROW_COLUMNS, Traits, parquet
from opacc_ray.lake.formats.parquet import wanted_columns
from opacc_ray.lake.parquet_io import unless_valid
from opacc_ray.lake.store import Store
from opacc_ray.lake.store_uris import split
from opacc_ray.lake.table_logs import access, entries_of, import_package, moment

TRAITS = Traits(
    (*ROW_COLUMNS, *FEATURE_COLUMNS),
    parquet.TRAITS.needs,
    ("filter", "version", "timestamp", "catalog", "table"),
    (".metadata.json",),
)

cut = parquet.cut
batches = parquet.batches

S3_OPTIONS = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")

_METADATA = re.compile(r"metadata/v?(\d+)(-[^/]*)?\.metadata\.json")


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the data files of a snapshot, with the values of identity partitions."""
    table = _open(store, rules, what)
    snapshot = _snapshot(table, store, rules, what)
    version = f"snapshot {snapshot.snapshot_id}"
    is_chosen = rules.version is not None or rules.timestamp is not None
    schema = table.schemas()[snapshot.schema_id] if is_chosen and snapshot.schema_id is not None else table.schema()
    tasks = list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
    if not tasks:
        raise DataError(f"{version} of the table {store.uri} has no file; check {what}.version")
    _refuse_unfit(tasks, store, version)
    _refuse_defaults(schema, store, rules)
    mapping = table.name_mapping() or ()  # for files without field ids
    entries = entries_of(store, (task.file.file_path for task in tasks), version)
    return Found(
        tuple(sorted(entries.values())),
        constants={entries[task.file.file_path].key: _constants(table, schema, task.file) for task in tasks},
        version=version,
        optional=frozenset(column.name for column in schema.fields),
        field_ids={column.name: column.field_id for column in schema.fields},
        imported={name: field.field_id for field in mapping if field.field_id is not None for name in field.names},
        data_as_of=datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC),
    )


def place_of_file(uri: str) -> str:
    """Return the URI of the table of a metadata file."""
    return split(split(uri)[0])[0]


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the snapshot that the table has now."""
    plain = rules._replace(version=None, timestamp=None)
    return f"snapshot {_snapshot(_open(store, plain, what), store, plain, what).snapshot_id}"


def _open(store: Store, rules: Rules, what: str) -> Any:
    tables = import_package("pyiceberg.table", "iceberg", what)
    exceptions = import_package("pyiceberg.exceptions", "iceberg", what)
    with unless_valid(f"the Iceberg table {store.uri} cannot be opened"):
        try:
            options = access(store, S3_OPTIONS)
            if rules.catalog is not None:
                catalog, name = rules.catalog
                load = import_package("pyiceberg.catalog", "iceberg", what).load_catalog
                return load(catalog, **options).load_table(name)
            return tables.StaticTable.from_metadata(rules.file or _newest_metadata(store, what), options)
        except (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, FileNotFoundError) as error:
            raise DataError(f"there is no Iceberg table: {shortened(str(error), 200)}; check {what}.uri") from None


def _newest_metadata(store: Store, what: str) -> str:
    """Return the URI of the metadata file with the highest number."""
    keys = (entry.key for entry in store.list("metadata/"))
    found = [(int(match[1]), key) for key in keys if (match := _METADATA.fullmatch(key))]
    if not found:
        raise DataError(
            f"there is no Iceberg table at {store.uri}: it has no metadata/....metadata.json; check {what}.uri"
        )
    last = max(number for number, _ in found)
    several = sorted(key for number, key in found if number == last)
    if len(several) > 1:
        raise DataError(
            f"the table {store.uri} has {len(several)} metadata files of number {last}; "
            f"give one as {what}.uri, such as {store.uri_of(several[0])}, or {what}.catalog and {what}.table"
        )
    return store.uri_of(several[0])


def _snapshot(table: Any, store: Store, rules: Rules, what: str) -> Any:
    there = table.metadata.snapshots
    if rules.version is not None:
        found = table.snapshot_by_id(rules.version)
        wanted = f"snapshot {rules.version}"
    elif rules.timestamp is not None:
        time = moment(rules.timestamp, what).timestamp() * 1000
        log = [item for item in table.history() if item.timestamp_ms <= time]
        found = table.snapshot_by_id(log[-1].snapshot_id) if log else None
        wanted = f"snapshot at {rules.timestamp}"
    else:
        found, wanted = table.current_snapshot(), "snapshot"
    if found is None:
        last = ", ".join(f"{item.snapshot_id} at {_text(item.timestamp_ms)}" for item in there[-3:]) or "none"
        raise DataError(
            f"the table {store.uri} has no {wanted}; its last are {last}; correct {what}.version or {what}.timestamp"
        )
    return found


def _text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000).astimezone().isoformat(timespec="seconds")


def _refuse_unfit(tasks: list[Any], store: Store, version: str) -> None:
    deleted = next((task.file.file_path for task in tasks if task.delete_files), None)
    if deleted is not None:
        raise DataError(
            f"{version} of the table {store.uri} has delete files, such as one for {deleted}; "
            "rewrite its data files and choose the snapshot after that"
        )
    files = (task.file for task in tasks)
    other = next((file for file in files if not str(file.file_format).upper().endswith("PARQUET")), None)
    if other is not None:
        raise DataError(f"the table {store.uri} has {other.file_path}, which is not Parquet; only Parquet is supported")


def _refuse_defaults(schema: Any, store: Store, rules: Rules) -> None:
    wanted = wanted_columns(rules, parse_filter(rules.filter))
    given = [column.name for column in schema.fields if column.initial_default is not None and column.name in wanted]
    if given:
        raise DataError(
            f"the table {store.uri} gives {given[0]!r} an initial default for older files, which is not supported; "
            "rewrite its data files"
        )


def _constants(table: Any, schema: Any, file: Any) -> Constants:
    """Return the values of a file's identity partitions; other columns, such as of days, are in the file."""
    import pyarrow as pa
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    found = []
    columns = {column.field_id: column for column in schema.fields}
    for place, field in enumerate(table.specs()[file.spec_id].fields):
        column = columns.get(field.source_id)
        if column is not None and str(field.transform) == "identity":
            kind = pa.string() if str(column.field_type) == "string" else schema_to_pyarrow(column.field_type)
            found.append((column.name, pa.scalar(file.partition[place], kind)))
    return tuple(found)
