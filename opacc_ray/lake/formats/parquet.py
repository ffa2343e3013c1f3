"""Pools of Parquet files: one example per row.

``pool.columns`` names the example: ``image``, a column of image files (bytes, or a struct with ``bytes``, as Hugging
Face writes them); ``array``, a column of numbers in lists and structs, nested to any depth, or several columns of one
number each; or ``uri`` alone, a column of image files at s3:// or below the pool's prefix. ``id`` is a column of unique
ids, or several that make one. Without it, an id is the file's key and the row's number in it, ``part-0.parquet#7``,
regardless of the filter. ``struct.field`` is a column. A shard is some row groups of one or more files. Folders named
``column=value`` are columns, as Hive writes them.

A plan reads the footer of every file, and no row. Each column has one type for the whole pool, to which the batches of
all files are converted. Conditions on columns from folders, or in a table's log, skip whole files, and the statistics
in footers skip row groups. Of the others, the columns of the filter are read first, and the rest if any row remains.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake import filters
from opacc_ray.lake import logical_schema as schemas
from opacc_ray.lake.examples import Batch, Constants, Cut, Found, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.formats import ROW_COLUMNS, Traits
from opacc_ray.lake.parquet_io import leaves_of, metadata_of, pa, read_group, schema_of, taken, unless_valid
from opacc_ray.lake.pools import TABLES_HIDE, find_files, partitions_of
from opacc_ray.lake.store import Entry, ObjectFile, Store, in_order

log = logging.getLogger(__name__)

SUFFIXES = (".parquet", ".parq")

TRAITS = Traits(columns=ROW_COLUMNS, needs=("image", "array", "uri"), files=SUFFIXES)


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all Parquet files below the prefix, with the values of their folders."""
    found = find_files(store, SUFFIXES, what, hidden=TABLES_HIDE, only=rules.only)
    return found._replace(constants=partitions_of(found.entries))


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard.

    Raises DataError if a file is not Parquet, no file has a column, its types have no common one, or no row remains;
    SpecError if the filter is not valid.
    """
    condition = filters.parse_filter(rules.filter, f"{what}.filter")
    wanted = filters.wanted_columns(rules, condition)
    every = tuple(dict.fromkeys([*wanted, *rules.slices]))
    fields = None if found.schema is None else filters.fields_in(found.schema, every, condition, store.uri)
    constants = [found.constants.get(entry.key, ()) for entry in found.entries]
    rows = {own: pa.table({name: pa.repeat(value, 1) for name, value in own}) for own in dict.fromkeys(constants)}
    kept = {own: bool(filters.may_keep(condition, {}, row, 1)[0]) for own, row in rows.items()}
    entries = [entry for entry, own in zip(found.entries, constants, strict=True) if kept[own]]
    is_known = all(set(filters.columns_of(condition)) <= dict(own).keys() for own in kept)
    footers = FooterReader(store, found, every, wanted, condition)
    files = list(in_order(footers.read, entries))
    if fields is None:
        fields = common_fields(files, every, condition, what)
    pieces, sizes = pieces_of(files, fields, condition)
    if not pieces:
        left = "rows" if files else "files"
        excluded = f"{what}.filter {shortened(rules.filter or '', 80)!r} excludes all of its {left}"
        why = excluded if rules.filter else "it has no row"
        raise DataError(f"the {what} {store.uri} is empty: {why}; check {what}.uri and {what}.filter")
    rows_of = {file.entry.key: file.rows for file in files}
    shards = [
        tuple(_with_deleted(piece, found.deleted, rows_of) for piece in shard)
        for shard in in_shards(pieces, sizes, limits)
    ]
    num_rows = sum(rows for rows, _ in sizes) - sum(len(piece.deleted) // 8 for shard in shards for piece in shard)
    return Cut(shards, num_rows if is_known else None)


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules.

    Raises DataError if a file is not valid Parquet, and ChangedError if it has changed since the plan.
    """
    condition = filters.parse_filter(rules.filter)
    for piece in shard.pieces:
        yield from batches_of(store, piece, rules.columns.names, condition)


def batches_of(
    store: Store, piece: Piece, names: Sequence[str], condition: filters.Condition = filters.ALL
) -> Iterator[Batch]:
    """Yield the rows of a piece that a condition keeps, with some columns; raises as :func:`batches`."""
    source = store.uri_of(piece.entry.key)
    deleted = np.frombuffer(piece.deleted, np.int64)
    with store.open_entry(piece.entry) as file:
        with readable(source):
            metadata = metadata_of(store, piece.entry, file)
        first = sum(metadata.row_group(group).num_rows for group in range(piece.start))
        for group in range(piece.start, piece.stop):
            stop = first + metadata.row_group(group).num_rows
            gone = deleted[np.searchsorted(deleted, first) : np.searchsorted(deleted, stop)] - first
            tables = partial(_tables, file, metadata, group, piece, source)
            for rows, columns in _filtered(tables, np.delete(np.arange(stop - first), gone), names, condition):
                yield Batch(piece.entry, first + rows, columns)
            first = stop
            file.forget()


def _filtered(
    tables: Callable[[Sequence[str]], Iterator[Any]],
    rows: NDArray[np.int64],
    names: Sequence[str],
    condition: filters.Condition,
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield those of some rows of a group that the filter keeps, numbered from its first, and their columns."""
    kept = rows
    if condition != filters.ALL and len(rows):
        mask = np.concatenate([filters.rows_kept(condition, part) for part in tables(filters.columns_of(condition))])
        kept = rows[mask[rows]]
    start = 0
    for table in tables(names) if len(kept) else ():
        own = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + len(table))]
        if len(own):
            yield own, taken(table, own - start)
        start += len(table)


def _tables(
    file: ObjectFile, metadata: Any, group: int, piece: Piece, source: str, names: Sequence[str]
) -> Iterator[Any]:
    """Yield some columns of a row group in batches, by the table's types, with constants for those that it lacks."""
    constants, layout = dict(piece.constants), {column.name: column for column in piece.layout}
    paths = list(dict.fromkeys(".".join(layout[name].path) for name in names if layout[name].path))
    with readable(source):
        none = pa.RecordBatch.from_arrays([pa.nulls(metadata.row_group(group).num_rows)], ["no column"])
        for batch in read_group(file, metadata, group, paths) if paths else [none]:
            batch.validate(full=True)  # lengths and texts are unchecked so far
            yield pa.table({name: _column(batch, layout[name], constants.get(name), source) for name in names})


def _column(batch: Any, column: schemas.Placed, constant: Any, source: str) -> Any:
    """Return a column of a batch by the table's type."""
    kind = column.wanted.type
    try:
        if column.path:
            return schemas.conformed(schemas.column_along(batch, column.path), column.own, column.wanted)
        return (
            schemas.lacking(len(batch), column.wanted)
            if constant is None
            else pa.repeat(constant.cast(kind), len(batch))
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        own = column.own.type if column.path else constant.type
        raise DataError(
            f"{source} has {column.name!r} as {own}, which does not fit {kind}, its type in the whole pool "
            f"({shortened(str(error), 120)}); write the file again"
        ) from None


def _with_deleted(piece: Piece, deleted: Mapping[str, bytes], rows: Mapping[str, NDArray[np.int64]]) -> Piece:
    """Return a piece with those of the deleted rows of its file that are its own."""
    if piece.entry.key not in deleted:
        return piece
    found = np.frombuffer(deleted[piece.entry.key], np.int64)
    first, stop = (rows[piece.entry.key][:group].sum() for group in (piece.start, piece.stop))
    own = found[np.searchsorted(found, first) : np.searchsorted(found, stop)]
    return piece._replace(deleted=own.tobytes())


# -- footers ----------------------------------------------------------------------------------------------------


class FileColumns(NamedTuple):
    """The columns of files with one schema, of which there are few."""

    schema: Any  # pyarrow.Schema, with the numbers of its columns if the table has them
    placed: dict[str, schemas.Placed]  # that are read; without a table, each has no field but the file's
    leaves: dict[str, list[int]]  # numbers in the file of the columns without fields that are, or belong to, each


class FileFooter(NamedTuple):
    """A file's columns and row groups, according to its footer and its constants."""

    entry: Entry
    source: str  # its URI
    columns: FileColumns
    constants: Constants
    rows: NDArray[np.int64]  # (G,) of each row group
    sizes: NDArray[np.int64]  # (G,) bytes of the columns that are read
    kept: NDArray[np.bool_]  # (G,) whether rows may meet the filter, by the file's own types


class FooterReader:
    """Reads the footers of a pool's files.

    Parameters
    ----------
    names : columns that are read
    counted : of these, the columns whose bytes are counted
    """

    def __init__(
        self, store: Store, found: Found, names: Sequence[str], counted: Sequence[str], condition: filters.Condition
    ) -> None:
        self._store, self._found, self._condition = store, found, condition
        self._names, self._counted = names, counted
        self._columns: dict[bytes, FileColumns] = {}  # by schema

    def read(self, entry: Entry) -> FileFooter:
        """Return what the footer of a file states; raises DataError if there is none."""
        source, constants = self._store.uri_of(entry.key), self._found.constants.get(entry.key, ())
        with self._store.open_entry(entry) as file, readable(source):
            metadata = metadata_of(self._store, entry, file)
            columns = self._columns_of(metadata, source)
            leaves = {leaf for name in self._counted for leaf in columns.leaves[name]}
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
            sizes = [sum(group.column(leaf).total_compressed_size for leaf in leaves) for group in groups]
            rows = np.array([group.num_rows for group in groups], dtype=np.int64)
            kept = (rows > 0) & self._kept(metadata, columns, dict(constants))
            num_bytes = np.array(sizes, dtype=np.int64)
            return FileFooter(entry, source, columns, constants, rows, num_bytes, kept)

    def _columns_of(self, metadata: Any, source: str) -> FileColumns:
        schema = schema_of(metadata).remove_metadata()
        content = schema.serialize().to_pybytes()
        if content not in self._columns:
            own = self._numbered(pa.schema(schemas.rebuilt(schema, _with_plain_json)), source)
            placed = {name: self._placed(name, own) for name in self._names}
            leaves = {name: leaves_of(metadata, [".".join(column.path)]) for name, column in placed.items()}
            self._columns.setdefault(content, FileColumns(own, placed, leaves))
        return self._columns[content]

    def _numbered(self, schema: Any, source: str) -> Any:
        """Return the schema of a file; raises DataError if it has no numbers, and the table none for its names."""
        if not _is_numbered(self._found.schema) or _is_numbered(schema):
            return schema
        if not self._found.imported:
            raise DataError(
                f"{source} has no field ids, and its table has no schema.name-mapping.default for the file's names; "
                "set that property, or rewrite the table's data files"
            )
        numbers = {path: str(number) for path, number in self._found.imported.items()}
        return pa.schema(schemas.rebuilt(schema, lambda field, path: schemas.numbered(field, numbers.get(path))))

    def _placed(self, name: str, schema: Any) -> schemas.Placed:
        if self._found.schema is not None:
            return schemas.place(name, schemas.chain_of(self._found.schema, name), schema)
        chain = schemas.chain_of(schema, name)
        return schemas.Placed(name, None, tuple(field.name for field in chain), chain[-1] if chain else None)

    def _kept(self, metadata: Any, columns: FileColumns, constants: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which row groups may have rows that the filter keeps, (G,); all if it does not fit a type."""
        filtered = [columns.placed[name] for name in filters.columns_of(self._condition)]
        values = {own.name: constants.get(own.name, schemas.default_of(own.wanted)) for own in filtered if not own.path}
        table = pa.table({name: pa.nulls(1) if own is None else pa.repeat(own, 1) for name, own in values.items()})
        bounds = {own.name: bounds_of(metadata, own, columns.leaves[own.name]) for own in filtered if own.path}
        known = {name: own for name, own in bounds.items() if own is not None}
        try:
            return filters.may_keep(self._condition, known, table, metadata.num_row_groups)
        except DataError:
            return np.ones(metadata.num_row_groups, dtype=bool)


def bounds_of(metadata: Any, column: schemas.Placed, leaves: Sequence[int]) -> filters.Bounds | None:
    """Return the bounds of a column in each row group of a file; None for lists, structs and other types of Arrow."""
    if column.own.type.num_fields or len(leaves) != 1 or isinstance(column.own.type, pa.BaseExtensionType):
        return None
    chunks = [metadata.row_group(group).column(leaves[0]) for group in range(metadata.num_row_groups)]
    found = [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]
    nulls = [own.null_count if own is not None and own.has_null_count else None for own in found]
    kind = getattr(column.own.type, "value_type", column.own.type)
    try:
        least, most = (pa.array([_limit(own, name) for own in found], kind) for name in ("min", "max"))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return None
    return filters.Bounds(
        least,
        most,
        np.array([num != 0 for num in nulls]),
        np.array([num is None or num < chunk.num_values for num, chunk in zip(nulls, chunks, strict=True)]),
    )


def _limit(statistics: Any, name: str) -> Any:
    """Return a limit that the statistics of a column chunk state, None if there is none."""
    with suppress(ValueError, OverflowError, NotImplementedError):  # dates beyond those of Python
        return getattr(statistics, name) if statistics is not None and statistics.has_min_max else None
    return None


def _with_plain_json(field: Any, path: str) -> Any:
    """Return a field of JSON as one of text."""
    return field.with_type(field.type.storage_type) if isinstance(field.type, pa.JsonType) else field


def _is_numbered(schema: Any) -> bool:
    return schema is not None and any(schemas.FIELD_ID in (field.metadata or {}) for field in schema)


def readable(source: str) -> AbstractContextManager[None]:
    """Raise any error of Arrow as DataError, which names the file."""
    return unless_valid(f"{source} is not valid Parquet", "; write it again, or remove it")


def common_fields(
    files: Sequence[FileFooter], names: Sequence[str], condition: filters.Condition, what: str
) -> filters.Fields:
    """Return the field of each column of plain files, with a type for all files; warns of files that lack one.

    Raises DataError if all files lack a column, its types have no common one, or the filter does not fit.
    """
    fields = {name: _common_field(files, name, what) for name in names} if files else {}
    if files:
        filters.check_types(condition, fields)
    return fields


def _common_field(files: Sequence[FileFooter], name: str, what: str) -> Any:
    own = [(file, file.columns.placed[name].own, dict(file.constants).get(name)) for file in files]
    there = [(file, field, constant) for file, field, constant in own if field is not None or constant is not None]
    if not there:
        constants = [pa.field(key, value.type) for key, value in files[0].constants]
        raise schemas.no_column(files[0].source, name, pa.schema([*files[0].columns.schema, *constants]))
    common: Any = pa.null()
    for file, field, constant in there:
        kind: Any = getattr(constant, "type", None) if field is None else schemas.plain(field.type)
        wider = schemas.common_type(common, kind)
        if wider is None:
            raise DataError(
                f"{file.source} has {name!r} as {kind}, and other files, such as {there[0][0].entry.key}, as {common}: "
                "no type holds both; write the files with one schema"
            )
        common = wider
    if len(there) < len(files):
        lacking = [file.entry.key for file, field, constant in own if field is None and constant is None]
        named = shortened(", ".join(lacking[:3]), 200)
        log.warning(
            "%s of %s files of the %s lack the column %r, which is null there: %s",
            *(len(lacking), len(files), what, name, named),
        )
    return pa.field(next((field.name for _, field, _ in there if field is not None), name), common)


def pieces_of(
    files: Sequence[FileFooter], fields: filters.Fields, condition: filters.Condition
) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Return the row groups that may have rows which the filter keeps, and the rows and bytes of each."""
    layouts: dict[int, schemas.Layout] = {}  # by the columns of a schema, of which there are few
    pieces, sizes = [], []
    for file in files:
        if id(file.columns) not in layouts:
            placed = (
                own if own.wanted is not None else own._replace(wanted=fields[name])
                for name, own in file.columns.placed.items()
            )
            layouts[id(file.columns)] = tuple(placed)
        layout = layouts[id(file.columns)]
        kept = file.kept if _has_types(file, layout, condition) else file.rows > 0
        for group in np.flatnonzero(kept).tolist():
            pieces.append(Piece(file.entry, group, group + 1, file.constants, layout))
            sizes.append((int(file.rows[group]), int(file.sizes[group])))
    return pieces, sizes


def _has_types(file: FileFooter, layout: schemas.Layout, condition: filters.Condition) -> bool:
    """Return whether the columns of the filter have the pool's types in a file."""
    filtered, constants = filters.columns_of(condition), dict(file.constants)
    for name, wanted, path, own in layout:
        kind = own.type if path else getattr(constants.get(name), "type", wanted.type)
        if name in filtered and kind != wanted.type and not (schemas.is_text(kind) and schemas.is_text(wanted.type)):
            return False
    return True
