"""Columns and row groups of Parquet files, as their footers state them: one schema of a pool, bounds of row groups."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.columns import chain_of, is_text, no_column
from opacc_ray.lake.examples import Constants, Found, Piece
from opacc_ray.lake.filter_parser import Condition, columns_of
from opacc_ray.lake.filters import Bounds, check_filter, may_keep
from opacc_ray.lake.logical_schema import (
    FIELD_ID,
    Layout,
    Placed,
    common_type,
    conformed,
    default_of,
    keeps_order,
    numbered,
    place,
    plain,
    rebuilt,
)
from opacc_ray.lake.parquet_io import leaves_of, metadata_of, pa, to_numpy, unless_valid
from opacc_ray.lake.store import Entry, Store

log = logging.getLogger(__name__)

Chains = dict[str, list[Any]]
"""The fields of each column of a table, from the top level down to the column itself."""


class Statistics(NamedTuple):
    """What a footer states of a column in a row group."""

    least: Any = None  # Python value; None: unknown
    most: Any = None
    may_be_null: bool = True
    may_have_values: bool = True


class FileFooter(NamedTuple):
    """A file's columns and row groups, according to its footer and its constants."""

    entry: Entry
    source: str  # its URI
    schema: Any  # pyarrow.Schema, with the numbers of its columns if the table has them
    constants: Constants
    rows: NDArray[np.int64]  # (G,) of each row group
    sizes: NDArray[np.int64]  # (G,) bytes of the columns that are read
    statistics: Mapping[str, list[Statistics]]  # (G,) of each column of the filter that has some


class _Columns(NamedTuple):
    """The columns of files with one schema."""

    schema: Any  # pyarrow.Schema, with the numbers of its columns if the table has them
    leaves: Sequence[int]  # numbers of the columns without fields that are read
    filtered: Mapping[str, int]  # those of the filter's columns, but for lists


class FooterReader:
    """Reads the footers of a pool's files.

    Parameters
    ----------
    wanted : columns that are read, with those of the filter
    filtered : the latter
    """

    def __init__(self, store: Store, found: Found, wanted: Sequence[str], filtered: Sequence[str]) -> None:
        self._store, self._found = store, found
        self._wanted, self._filtered = wanted, filtered
        self._columns: dict[bytes, _Columns] = {}  # by schema: most files have the same

    def read(self, entry: Entry) -> FileFooter:
        """Return what the footer of a file states; raises DataError if there is none."""
        source = self._store.uri_of(entry.key)
        with self._store.open_entry(entry) as file, readable(source):
            metadata = metadata_of(self._store, entry, file)
            schema = metadata.schema.to_arrow_schema().remove_metadata()
            known = schema.serialize().to_pybytes()
            if known not in self._columns:
                self._columns.setdefault(known, self._columns_of(metadata, schema, source))
            columns = self._columns[known]
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
            sizes = [sum(group.column(leaf).total_compressed_size for leaf in columns.leaves) for group in groups]
            return FileFooter(
                entry,
                source,
                columns.schema,
                self._found.constants.get(entry.key, ()),
                np.array([group.num_rows for group in groups], dtype=np.int64),
                np.array(sizes, dtype=np.int64),
                {
                    name: [statistics_of(group.column(leaf)) for group in groups]
                    for name, leaf in columns.filtered.items()
                },
            )

    def _columns_of(self, metadata: Any, schema: Any, source: str) -> _Columns:
        schema = self._numbered(schema, source)
        paths = {name: self._path_in(schema, name) for name in self._wanted}
        leaves = leaves_of(metadata, [path for path in paths.values() if path])
        found = {leaf: metadata.schema.column(leaf) for leaf in leaves}
        own = {column.path: leaf for leaf, column in found.items() if not column.max_repetition_level}
        return _Columns(schema, leaves, {name: own[paths[name]] for name in self._filtered if paths[name] in own})

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

    def _path_in(self, schema: Any, name: str) -> str:
        """Return the path of a column in a file, with dots; empty if the file lacks it."""
        if self._found.schema is None:
            return ".".join(field.name for field in chain_of(schema, name))
        return ".".join(place(name, chain_of(self._found.schema, name), schema).path)


def _is_numbered(schema: Any) -> bool:
    return schema is not None and any(FIELD_ID in (field.metadata or {}) for field in schema)


def readable(source: str) -> AbstractContextManager[None]:
    """Raise any error of Arrow as DataError, which names the file."""
    return unless_valid(f"{source} is not valid Parquet", "; write it again, or remove it")


def chains_in(schema: Any, names: Sequence[str], condition: Condition, source: str) -> Chains:
    """Return the fields of each column in a schema; raises DataError if it lacks one, or the filter does not fit."""
    chains = {name: chain_of(schema, name) for name in names}
    missing = next((name for name, chain in chains.items() if not chain), None)
    if missing is not None:
        raise no_column(source, missing, schema)
    _check_types(condition, chains)
    return chains


def common_chains(files: Sequence[FileFooter], names: Sequence[str], condition: Condition, what: str) -> Chains:
    """Return the fields of each column of plain files, with a type for all files; warns of files that lack one.

    Raises DataError if all files lack a column, its types have no common one, or the filter does not fit.
    """
    chains = {name: _common_chain(files, name, what) for name in names} if files else {}
    if files:
        _check_types(condition, chains)
    return chains


def _common_chain(files: Sequence[FileFooter], name: str, what: str) -> list[Any]:
    own = [(file, chain_of(file.schema, name), dict(file.constants).get(name)) for file in files]
    there = [(file, chain, constant) for file, chain, constant in own if chain or constant is not None]
    if not there:
        constants = [pa.field(key, value.type) for key, value in files[0].constants]
        raise no_column(files[0].source, name, pa.schema([*files[0].schema, *constants]))
    common: Any = pa.null()
    for file, chain, constant in there:
        kind: Any = plain(chain[-1].type) if chain else getattr(constant, "type", None)
        wider = common_type(common, kind)
        if wider is None:
            raise DataError(
                f"{file.source} has {name!r} as {kind}, and other files, such as {there[0][0].entry.key}, as {common}: "
                "no type holds both; write the files with one schema"
            )
        common = wider
    if len(there) < len(files):
        lacking = [file.entry.key for file, chain, constant in own if not chain and constant is None]
        named = shortened(", ".join(lacking[:3]), 200)
        log.warning(
            "%s of %s files of the %s lack the column %r, which is null there: %s",
            *(len(lacking), len(files), what, name, named),
        )
    fields = next((chain for _, chain, _ in there if chain), [pa.field(name, common)])
    return [*(pa.field(field.name, pa.null()) for field in fields[:-1]), pa.field(fields[-1].name, common)]


def _check_types(condition: Condition, chains: Mapping[str, Sequence[Any]]) -> None:
    check_filter(condition, pa.schema({name: chains[name][-1].type for name in columns_of(condition)}))


def pieces_of(
    files: Sequence[FileFooter], chains: Chains, condition: Condition
) -> tuple[list[Piece], list[tuple[int, int]]]:
    """Return the row groups that may have rows which the filter keeps, and the rows and bytes of each."""
    layouts: dict[int, Layout] = {}  # by schema, of which there are few
    pieces, sizes = [], []
    for file in files:
        if id(file.schema) not in layouts:
            layouts[id(file.schema)] = tuple(place(name, chain, file.schema) for name, chain in chains.items())
        layout = layouts[id(file.schema)]
        kept = _groups_kept(condition, file, layout) & (file.rows > 0)
        for group in np.flatnonzero(kept).tolist():
            pieces.append(Piece(file.entry, group, group + 1, file.constants, layout))
            sizes.append((int(file.rows[group]), int(file.sizes[group])))
    return pieces, sizes


def _groups_kept(condition: Condition, file: FileFooter, layout: Layout) -> NDArray[np.bool_]:
    """Return which row groups of a file may have rows that the filter keeps."""
    bounds, constants, size = {}, dict(file.constants), len(file.rows)
    filtered = set(columns_of(condition))
    for column in layout if size else ():
        kind = column.wanted.type
        if column.name in file.statistics:
            bounds[column.name] = bounds_of(file.statistics[column.name], column)
        elif column.name in filtered and not column.path:
            value = constants.get(column.name, default_of(column.wanted))
            value = pa.scalar(None, kind) if value is None else value
            bounds[column.name] = constant_bounds([value] * size, kind)
    return may_keep(condition, {name: own for name, own in bounds.items() if own is not None}, size)


def statistics_of(chunk: Any) -> Statistics:
    """Return the statistics of a column chunk of a Parquet file."""
    found = chunk.statistics if chunk.is_stats_set else None
    if found is None:
        return Statistics()
    least = most = None
    if found.has_min_max:
        with suppress(ValueError, OverflowError, NotImplementedError):  # dates beyond those of Python
            least, most = found.min, found.max
    num_nulls = found.null_count if found.has_null_count else None
    return Statistics(least, most, num_nulls != 0, num_nulls is None or num_nulls < chunk.num_values)


def bounds_of(statistics: Sequence[Statistics], column: Placed) -> Bounds | None:
    """Return the bounds of a column in each row group of a file; None if its conversion changes their order."""
    kind = getattr(column.own.type, "value_type", column.own.type)
    if not keeps_order(kind, column.wanted.type):
        return None
    own = column.own.with_type(kind)
    limits = [_array([getattr(each, name) for each in statistics], kind) for name in ("least", "most")]
    try:
        least, most = (conformed(limit, own, column.wanted) for limit in limits)
    except pa.ArrowInvalid:  # a value that the common type cannot hold: reading it says so
        return None
    nulls, values = ([getattr(each, name) for each in statistics] for name in ("may_be_null", "may_have_values"))
    return Bounds(least, most, np.array(nulls), np.array(values))


def constant_bounds(values: Sequence[Any], kind: Any) -> Bounds:
    """Return the bounds of columns with one value for each part: Arrow scalars, or None where that is unknown."""
    there = np.array([value is not None for value in values], dtype=bool)
    column = pa.concat_arrays(
        [pa.nulls(1, kind) if value is None else pa.repeat(value.cast(kind), 1) for value in values]
    )
    null = to_numpy(column.is_null())
    return Bounds(column, column, null | ~there, ~null | ~there, may_be_nan=not there.all())


def _array(values: Sequence[Any], kind: Any) -> Any:
    kind = pa.string() if is_text(kind) else kind
    return pa.concat_arrays([_one(value, kind) for value in values])


def _one(value: Any, kind: Any) -> Any:
    if value is not None:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            return pa.repeat(pa.scalar(value, kind), 1)
    return pa.nulls(1, kind)
