"""Pools that are Iceberg tables: the Parquet files of one snapshot.

The package ``pyiceberg`` (extra ``iceberg``) reads the metadata, on the driver only. Data files are read as in the
format ``parquet``. ``pool.uri`` is the table's location, of which the newest metadata file counts, or a metadata file.
With ``pool.catalog`` and ``pool.table``, the catalog's address is in pyiceberg's configuration. The snapshot is
``pool.version``, which may name a branch or a tag, the newest at ``pool.timestamp``, or the newest when the run is
made; the run keeps its number.

Columns are identified by field id: a renamed column has its new name, and a reused name has no old values. Imported
files without field ids need the table's property schema.name-mapping.default. Manifests and data files are skipped by
the filter, also by hidden partitions. Rows that delete files name are left out: by place, in deletion vectors, or by
the values of columns. They are found when a pool is planned, so that workers read data files alone. Deletes by value
read their columns of the data files that are older than the deletes.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.extensions.lakes.catalogs import access, entries_of, iceberg_table, load_iceberg, moment, time_of
from opacc_ray.lake.examples import Columns, Constants, Found, Limits, Piece, Rules
from opacc_ray.lake.filters import Combined, Comparison, Condition, Typed, parse_filter
from opacc_ray.lake.formats import TABLE_COLUMNS, Traits, parquet
from opacc_ray.lake.logical_schema import FIELD_ID, rebuilt, with_default
from opacc_ray.lake.parquet_io import pa, read_columns, to_numpy, unless_valid
from opacc_ray.lake.store import S3_OPTIONS, Entry, Store
from opacc_ray.lake.store_uris import split
from opacc_ray.registry import require

KEYS = ("version", "timestamp", "catalog", "table")

TRAITS = Traits(TABLE_COLUMNS, parquet.TRAITS.needs, KEYS, files=(".metadata.json",), patterns=False)

cut = parquet.cut
batches = parquet.batches

_METADATA = re.compile(r"metadata/v?(\d+)(-[^/]*)?\.metadata\.json")


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the data files of a snapshot that may have rows which the filter keeps."""
    table = _open(store, rules, what)
    snapshot = _snapshot(table, store, rules, what)
    version = f"snapshot {snapshot.snapshot_id}"
    schema = _schema_of(table, snapshot, rules)
    condition = iceberg_filter(parse_filter(rules.filter, f"{what}.filter"), schema, table.schema())
    manifests = snapshot.manifests(table.io)
    data = _entries_in(table, [each for each in manifests if each.content.name == "DATA"], condition)
    if not data:
        why = (
            f"{what}.filter {shortened(rules.filter or '', 80)!r} excludes all of its files"
            if rules.filter
            else "no file"
        )
        raise DataError(f"{version} of the table {store.uri} is empty: {why}; check {what}.version and {what}.filter")
    deletes = _entries_in(table, [each for each in manifests if each.content.name == "DELETES"])
    files = [entry.data_file for entry in data]
    _refuse_formats(files, store)
    entries = entries_of(store, [file.file_path for file in (*files, *(each.data_file for each in deletes))], version)
    found = Found(
        tuple(sorted(entries[file.file_path] for file in files)),
        constants={entries[file.file_path].key: _constants(table, schema, file) for file in files},
        version=version,
        schema=_arrow_schema(schema),
        imported=_names(table.name_mapping() or ()),
        data_as_of=time_of(snapshot.timestamp_ms),
    )
    return found._replace(deleted=deleted_rows(store, found, schema, data, deletes, entries) if deletes else {})


def place_of_file(uri: str, access: str | None) -> str:
    """Return the URI of the table of a metadata file."""
    return split(split(uri)[0])[0]


def newest(store: Store, rules: Rules, what: str) -> str:
    """Return the snapshot that the table, or the branch in the rules, has now."""
    version = rules.version if isinstance(rules.version, str) else None
    plain = rules._replace(version=version, timestamp=None)
    return f"snapshot {_snapshot(_open(store, plain, what), store, plain, what).snapshot_id}"


def _open(store: Store, rules: Rules, what: str) -> Any:
    require(f"{what}.format: iceberg", "pyiceberg")
    from pyiceberg import exceptions
    from pyiceberg import table as tables

    with unless_valid(f"the Iceberg table {store.uri} cannot be opened"):
        try:
            options = access(store, S3_OPTIONS)
            if rules.catalog is not None:
                return load_iceberg(iceberg_table(*rules.catalog))
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
    if isinstance(rules.version, str):
        found, wanted = table.snapshot_by_name(rules.version), f"branch or tag {rules.version!r}"
        if found is None:
            names = shortened(", ".join(sorted(table.metadata.refs)) or "none", 200)
            raise DataError(f"the table {store.uri} has no {wanted}; its branches and tags are {names}")
    elif rules.version is not None:
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
        times = {item.snapshot_id: time_of(item.timestamp_ms).isoformat(timespec="seconds") for item in there[-3:]}
        last = ", ".join(f"{number} at {time}" for number, time in times.items()) or "none"
        raise DataError(
            f"the table {store.uri} has no {wanted}; its last are {last}; correct {what}.version or {what}.timestamp"
        )
    return found


def _schema_of(table: Any, snapshot: Any, rules: Rules) -> Any:
    """Return the table's schema: that of the snapshot if one is chosen, and the newest for a branch."""
    reference = table.metadata.refs.get(rules.version) if isinstance(rules.version, str) else None
    is_chosen = rules.version is not None or rules.timestamp is not None
    is_branch = reference is not None and str(reference.snapshot_ref_type) == "branch"
    if is_chosen and not is_branch and snapshot.schema_id is not None:
        return table.schemas()[snapshot.schema_id]
    return table.schema()


def _entries_in(table: Any, manifests: Sequence[Any], condition: Any = None) -> list[Any]:
    """Return the entries of manifests for files that may have rows of a condition of pyiceberg."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.table import ManifestGroupPlanner

    planner = ManifestGroupPlanner(table.metadata, table.io, AlwaysTrue() if condition is None else condition)
    return [entry for entries in planner.plan_manifest_entries(manifests) for entry in entries]


def _refuse_formats(files: Sequence[Any], store: Store) -> None:
    other = next((file for file in files if not str(file.file_format).upper().endswith("PARQUET")), None)
    if other is not None:
        raise DataError(f"the table {store.uri} has {other.file_path}, which is not Parquet; only Parquet is supported")


def _names(mapping: Any, prefix: str = "") -> dict[str, int]:
    """Return the field ids that a name mapping gives to names in files, ``struct.field`` for nested ones."""
    found: dict[str, int] = {}
    for field in mapping:
        for name in field.names:
            if field.field_id is not None:
                found[prefix + name] = field.field_id
            found |= _names(field.fields, f"{prefix}{name}.")
    return found


def _arrow_schema(schema: Any) -> Any:
    """Return a schema of pyiceberg as one of Arrow, whose fields have their numbers and initial defaults."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    def with_own_default(field: Any, _: str) -> Any:
        default = schema.find_field(int(field.metadata[FIELD_ID])).initial_default
        return field if default is None else with_default(field, pa.scalar(default, field.type))

    return pa.schema(rebuilt(schema_to_pyarrow(schema), with_own_default))


def _constants(table: Any, schema: Any, file: Any) -> Constants:
    """Return the values of a file's identity partitions; other columns, such as of days, are in the file."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    columns, found = {column.field_id: column for column in schema.fields}, []
    for place, field in enumerate(table.specs()[file.spec_id].fields):
        column = columns.get(field.source_id)
        if column is not None and str(field.transform) == "identity":
            is_text = str(column.field_type) == "string"
            kind = pa.string() if is_text else schema_to_pyarrow(column.field_type)
            found.append((column.name, pa.scalar(file.partition[place], kind)))
    return tuple(found)


_PREDICATES = {
    "==": "EqualTo",
    "!=": "NotEqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}

_LONGEST = "2026-01-31 12:00:00.123456+00:00"  # a time with more digits is not one of microseconds


def iceberg_filter(condition: Condition, schema: Any, current: Any) -> Any:
    """Return an expression of pyiceberg that is true wherever a condition is.

    Parameters
    ----------
    schema : of the snapshot, which has the columns of the condition
    current : of the table; pyiceberg finds columns by its names
    """
    import pyiceberg.expressions as expressions

    if isinstance(condition, Comparison) and condition.values:
        condition = condition.each()
    if isinstance(condition, Combined):
        join = expressions.And if condition.word == "and" else expressions.Or
        parts = [iceberg_filter(part, schema, current) for part in condition.parts]
        return join(*parts) if len(parts) > 1 else (parts or [expressions.AlwaysTrue()])[0]
    with suppress(ValueError, TypeError, ArithmeticError):  # a column that is missing now, or a literal of another type
        found = _predicate(condition, schema, current)
        if found is not None:
            return found
    return expressions.AlwaysTrue()


def _predicate(condition: Comparison, schema: Any, current: Any) -> Any:
    """Return the predicate of a comparison; None if pyiceberg has another meaning of it, as for NaN."""
    import pyiceberg.expressions as expressions
    from pyiceberg.expressions.visitors import bind

    _, operator, value, cast, _ = condition
    field = schema.find_field(condition.column)
    name, kind = current.find_column_name(field.field_id), str(field.field_type)
    if name is None or cast is not None or operator.endswith("like"):
        return None
    if operator.endswith("null"):
        return (expressions.IsNull if operator == "null" else expressions.NotNull)(name)
    literal: Any = value.text if isinstance(value, Typed) else value
    if isinstance(literal, Decimal):
        is_whole = literal == literal.to_integral_value()
        if kind in ("int", "long") and is_whole and abs(literal) < 2**31:
            literal = int(literal)
        elif kind.startswith("decimal"):
            scale = int(kind.rpartition(" ")[2].rstrip(")"))
            if literal != round(literal, scale):
                return None
            literal = round(literal, scale)
        elif kind in ("float", "double") and operator in ("==", "<", "<="):
            literal = float(np.float32(literal)) if kind == "float" else float(literal)
        else:
            return None
    elif kind in ("timestamp", "timestamptz") and isinstance(literal, str) and len(literal) <= len(_LONGEST):
        time = datetime.fromisoformat(literal)
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        literal = time.isoformat() if kind == "timestamptz" else time.replace(tzinfo=None).isoformat()
    elif kind not in ("string", "date", "boolean"):
        return None
    found = getattr(expressions, _PREDICATES[operator])(name, literal)
    bind(current, found, case_sensitive=True)  # raises if the literal does not fit
    return found


_WHOLE = Limits(1 << 62, 1 << 62)


def deleted_rows(
    store: Store, found: Found, schema: Any, data: Sequence[Any], deletes: Sequence[Any], entries: Mapping[str, Entry]
) -> dict[str, bytes]:
    """Return the numbers of the deleted rows of each data file that has some, as int64 in their order, by key.

    Parameters
    ----------
    schema : of the snapshot, by pyiceberg
    data, deletes : entries of the snapshot's manifests
    entries : listed objects, by the paths in manifests
    """
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    index, by_value = DeleteFileIndex(), []
    for delete in deletes:
        if delete.data_file.content.name == "EQUALITY_DELETES":
            by_value.append(delete)
        else:
            index.add_delete_file(delete, partition_key=delete.data_file.partition)

    @cache
    def placed(path: str) -> dict[str, NDArray[np.int64]]:
        return _placed(store, entries[path])

    @cache
    def values(path: str, names: tuple[str, ...]) -> Any:
        return _read(store, found._replace(entries=(entries[path],), constants={}), names)[1]

    rows: dict[str, bytes] = {}
    for own in data:
        file, number = own.data_file, own.sequence_number or 0
        parts = [
            placed(each.file_path).get(file.file_path, np.empty(0, np.int64))
            for each in index.for_data_file(number, file, partition_key=file.partition)
        ]
        for delete in by_value:
            if (delete.sequence_number or 0) > number and _same_partition(delete.data_file, file):
                names = _names_deleted_by(schema, delete.data_file, store)
                own_file = found._replace(entries=(entries[file.file_path],))
                parts.append(_equal(store, own_file, names, values(delete.data_file.file_path, names)))
        if deleted := np.unique(np.concatenate([np.empty(0, np.int64), *parts])).astype(np.int64).tobytes():
            rows[entries[file.file_path].key] = deleted
    return rows


def _placed(store: Store, entry: Entry) -> dict[str, NDArray[np.int64]]:
    """Return the rows that a file of deletes names, by the path of their data file."""
    source = store.uri_of(entry.key)
    with unless_valid(f"{source} is not a valid delete file", "; restore it"):
        if entry.key.endswith(".puffin"):
            from pyiceberg.io.pyarrow import deletion_vectors_from_puffin_file
            from pyiceberg.table.puffin import PuffinFile

            vectors = deletion_vectors_from_puffin_file(PuffinFile(store.read_entry(entry)))
            return {own.referenced_data_file: to_numpy(own.to_vector()).astype(np.int64) for own in vectors}
        table = read_columns(store, entry.key, ["file_path", "pos"], size=entry.size)
        paths = table["file_path"].combine_chunks().dictionary_encode()
        codes, places = to_numpy(paths.indices), to_numpy(table["pos"])
        return {path: places[codes == code] for code, path in enumerate(paths.dictionary.to_pylist())}


def _same_partition(delete: Any, file: Any) -> bool:
    """Return whether a delete by value applies to the partition of a file; one without a partition applies to all."""
    is_global = not len(delete.partition)
    return is_global or (delete.spec_id == file.spec_id and delete.partition == file.partition)


def _names_deleted_by(schema: Any, delete: Any, store: Store) -> tuple[str, ...]:
    names = tuple(schema.find_column_name(number) for number in delete.equality_ids)
    if None in names:
        raise DataError(
            f"the table {store.uri} deletes rows by a column that it has dropped; rewrite its data files, and choose "
            "the snapshot after that"
        )
    return names


def _read(store: Store, found: Found, names: Sequence[str]) -> tuple[NDArray[np.int64], Any]:
    """Return the numbers of all rows of one file, and some of its columns."""
    rules = Rules(columns=Columns(features=(("keys", tuple(names)),)))
    [pieces] = parquet.cut(store, found, rules, _WHOLE, "pool").shards
    batches = [batch for piece in pieces for batch in parquet.batches_of(store, cast(Piece, piece), names)]
    return np.concatenate([batch.rows for batch in batches]), pa.concat_tables([batch.columns for batch in batches])


def _equal(store: Store, found: Found, names: Sequence[str], values: Any) -> NDArray[np.int64]:
    """Return the rows of the one file found that have one of the values, by all of some columns; nulls are equal."""
    rows, own = _read(store, found, names)
    codes = _codes([own[name] for name in names], [values[name] for name in names])
    return rows[np.isin(codes[: len(rows)], codes[len(rows) :])]


def _codes(first: Iterable[Any], second: Iterable[Any]) -> NDArray[np.int64]:
    """Return one number for each row of two tables, equal where all columns are."""
    codes = None
    for own, other in zip(first, second, strict=True):
        parts = [chunk for column in (own, other) for chunk in column.chunks]
        parts = [getattr(chunk, "storage", chunk) for chunk in parts]
        encoded = pa.concat_arrays(parts).dictionary_encode(null_encoding="encode")
        found = to_numpy(encoded.indices).astype(np.int64)
        both = found if codes is None else codes * (len(encoded.dictionary) + 1) + found
        codes = np.unique(both, return_inverse=True)[1]
    assert codes is not None
    return codes
