"""Columns and row groups of Parquet files, by their footers: one schema of a pool, and what a filter keeps."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import Constants, Found, Piece
from opacc_ray.lake.filters import Bounds, Condition, Fields, check_types, columns_of, may_keep
from opacc_ray.lake.logical_schema import (
    FIELD_ID,
    Layout,
    Placed,
    chain_of,
    common_type,
    default_of,
    is_text,
    no_column,
    numbered,
    place,
    plain,
    rebuilt,
)
from opacc_ray.lake.parquet_io import leaves_of, metadata_of, pa, schema_of, unless_valid
from opacc_ray.lake.store import Entry, Store

log = logging.getLogger(__name__)

"""The field of each column, with its type in the whole pool."""


class FileFooter(NamedTuple):
    """A file's columns and row groups, according to its footer and its constants."""

    entry: Entry
    source: str  # its URI
    schema: Any  # pyarrow.Schema, with the numbers of its columns if the table has them
    columns: Mapping[str, Placed]  # that are read; without a table, each has no field but the file's
    constants: Constants
    rows: NDArray[np.int64]  # (G,) of each row group
    sizes: NDArray[np.int64]  # (G,) bytes of the columns that are read
    kept: NDArray[np.bool_]  # (G,) whether rows may meet the filter, by the file's own types


class _Columns(NamedTuple):
    """The columns of files with one schema, of which there are few."""

    schema: Any  # pyarrow.Schema, with the numbers of its columns if the table has them
    placed: dict[str, Placed]
    leaves: dict[str, list[int]]  # numbers in the file of the columns without fields that are, or belong to, each


class FooterReader:
    """Reads the footers of a pool's files.

    Parameters
    ----------
    names : columns that are read
    counted : of these, the columns whose bytes are counted
    """

    def __init__(
        self, store: Store, found: Found, names: Sequence[str], counted: Sequence[str], condition: Condition
    ) -> None:
        self._store, self._found, self._condition = store, found, condition
        self._names, self._counted = names, counted
        self._columns: dict[bytes, _Columns] = {}  # by schema

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
            return FileFooter(entry, source, columns.schema, columns.placed, constants, rows, num_bytes, kept)

    def _columns_of(self, metadata: Any, source: str) -> _Columns:
        schema = schema_of(metadata).remove_metadata()
        content = schema.serialize().to_pybytes()
        if content not in self._columns:
            own = self._numbered(pa.schema(rebuilt(schema, _with_plain_json)), source)
            placed = {name: self._placed(name, own) for name in self._names}
            leaves = {name: leaves_of(metadata, [".".join(column.path)]) for name, column in placed.items()}
            self._columns.setdefault(content, _Columns(own, placed, leaves))
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
        return pa.schema(rebuilt(schema, lambda field, path: numbered(field, numbers.get(path))))

    def _placed(self, name: str, schema: Any) -> Placed:
        if self._found.schema is not None:
            return place(name, chain_of(self._found.schema, name), schema)
        chain = chain_of(schema, name)
        return Placed(name, None, tuple(field.name for field in chain), chain[-1] if chain else None)

    def _kept(self, metadata: Any, columns: _Columns, constants: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return which row groups may have rows that the filter keeps, (G,); all if it does not fit a type."""
        filtered = [columns.placed[name] for name in columns_of(self._condition)]
        values = {own.name: constants.get(own.name, default_of(own.wanted)) for own in filtered if not own.path}
        table = pa.table({name: pa.nulls(1) if own is None else pa.repeat(own, 1) for name, own in values.items()})
        bounds = {own.name: bounds_of(metadata, own, columns.leaves[own.name]) for own in filtered if own.path}
        known = {name: own for name, own in bounds.items() if own is not None}
        try:
            return may_keep(self._condition, known, table, metadata.num_row_groups)
        except DataError:
            return np.ones(metadata.num_row_groups, dtype=bool)


def bounds_of(metadata: Any, column: Placed, leaves: Sequence[int]) -> Bounds | None:
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
    return Bounds(
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
    return schema is not None and any(FIELD_ID in (field.metadata or {}) for field in schema)


def readable(source: str) -> AbstractContextManager[None]:
    """Raise any error of Arrow as DataError, which names the file."""
    return unless_valid(f"{source} is not valid Parquet", "; write it again, or remove it")


def common_fields(files: Sequence[FileFooter], names: Sequence[str], condition: Condition, what: str) -> Fields:
    """Return the field of each column of plain files, with a type for all files; warns of files that lack one.

    Raises DataError if all files lack a column, its types have no common one, or the filter does not fit.
    """
    fields = {name: _common_field(files, name, what) for name in names} if files else {}
    if files:
        check_types(condition, fields)
    return fields


def _common_field(files: Sequence[FileFooter], name: str, what: str) -> Any:
    own = [(file, file.columns[name].own, dict(file.constants).get(name)) for file in files]
    there = [(file, field, constant) for file, field, constant in own if field is not None or constant is not None]
    if not there:
        constants = [pa.field(key, value.type) for key, value in files[0].constants]
        raise no_column(files[0].source, name, pa.schema([*files[0].schema, *constants]))
    common: Any = pa.null()
    for file, field, constant in there:
        kind: Any = getattr(constant, "type", None) if field is None else plain(field.type)
        wider = common_type(common, kind)
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
    files: Sequence[FileFooter], fields: Fields, condition: Condition
) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Return the row groups that may have rows which the filter keeps, and the rows and bytes of each."""
    layouts: dict[int, Layout] = {}  # by the columns of a schema, of which there are few
    pieces, sizes = [], []
    for file in files:
        if id(file.columns) not in layouts:
            placed = (
                own if own.wanted is not None else own._replace(wanted=fields[name])
                for name, own in file.columns.items()
            )
            layouts[id(file.columns)] = tuple(placed)
        layout = layouts[id(file.columns)]
        kept = file.kept if _has_types(file, layout, condition) else file.rows > 0
        for group in np.flatnonzero(kept).tolist():
            pieces.append(Piece(file.entry, group, group + 1, file.constants, layout))
            sizes.append((int(file.rows[group]), int(file.sizes[group])))
    return pieces, sizes


def _has_types(file: FileFooter, layout: Layout, condition: Condition) -> bool:
    """Return whether the columns of the filter have the pool's types in a file."""
    filtered, constants = columns_of(condition), dict(file.constants)
    for name, wanted, path, own in layout:
        kind = own.type if path else getattr(constants.get(name), "type", wanted.type)
        if name in filtered and kind != wanted.type and not (is_text(kind) and is_text(wanted.type)):
            return False
    return True
