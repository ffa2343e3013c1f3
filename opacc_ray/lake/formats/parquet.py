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

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import Batch, Cut, Found, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.file_footers import FooterReader, common_fields, pieces_of, readable
from opacc_ray.lake.filters import (
    ALL,
    Condition,
    columns_of,
    fields_in,
    needed_of,
    parse_filter,
    rows_kept,
    wanted_columns,
)
from opacc_ray.lake.formats import ROW_COLUMNS, Traits
from opacc_ray.lake.listing import TABLES_HIDE, find_files, partitions_of
from opacc_ray.lake.logical_schema import Placed, column_along, conformed, lacking
from opacc_ray.lake.parquet_io import metadata_of, pa, read_group, taken
from opacc_ray.lake.store import ObjectFile, Store, in_order

SUFFIXES = (".parquet", ".parq")

TRAITS = Traits(columns=ROW_COLUMNS, needs=("image", "array", "uri"), files=SUFFIXES)

THREADS = 16  # footers that are read at a time


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all Parquet files below the prefix, with the values of their folders."""
    found = find_files(store, SUFFIXES, what, hidden=TABLES_HIDE, only=rules.only)
    return found._replace(constants=partitions_of(found.entries))


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard.

    Raises DataError if a file is not Parquet, no file has a column, its types have no common one, or no row remains;
    SpecError if the filter is not valid.
    """
    condition = parse_filter(rules.filter, f"{what}.filter")
    wanted = wanted_columns(rules, condition)
    every = tuple(dict.fromkeys([*wanted, *rules.slices]))
    fields = None if found.schema is None else fields_in(found.schema, every, condition, store.uri)
    kept, is_known = _files_kept(condition, found)
    entries = [found.entries[number] for number in np.flatnonzero(kept)]
    footers = FooterReader(store, found, every, wanted, condition)
    files = list(in_order(footers.read, entries, THREADS))
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
    condition = parse_filter(rules.filter)
    for piece in shard.pieces:
        yield from batches_of(store, piece, rules.columns.names, condition)


def batches_of(store: Store, piece: Piece, names: Sequence[str], condition: Condition = ALL) -> Iterator[Batch]:
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
    condition: Condition,
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield those of some rows of a group that the filter keeps, numbered from its first, and their columns."""
    kept = rows
    if condition != ALL and len(rows):
        mask = np.concatenate([rows_kept(condition, part) for part in tables(columns_of(condition))])
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


def _column(batch: Any, column: Placed, constant: Any, source: str) -> Any:
    """Return a column of a batch by the table's type."""
    kind = column.wanted.type
    try:
        if column.path:
            return conformed(column_along(batch, column.path), column.own, column.wanted)
        return lacking(len(batch), column.wanted) if constant is None else pa.repeat(constant.cast(kind), len(batch))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        own = column.own.type if column.path else constant.type
        raise DataError(
            f"{source} has {column.name!r} as {own}, which does not fit {kind}, its type in the whole pool "
            f"({shortened(str(error), 120)}); write the file again"
        ) from None


def _files_kept(condition: Condition, found: Found) -> tuple[NDArray[np.bool_], bool]:
    """Return which files may have rows that the filter keeps, by their constants; and whether it keeps all of those."""
    values = [dict(found.constants.get(entry.key, ())) for entry in found.entries]
    kept, is_known = np.ones(len(values), dtype=bool), True
    for part in needed_of(condition):
        names = columns_of(part)
        if all(name in own for own in values for name in names):
            columns = {name: pa.chunked_array([pa.repeat(own[name], 1) for own in values]) for name in names}
            kept &= rows_kept(part, pa.table(columns))
        else:
            is_known = False
    return kept, is_known


def _with_deleted(piece: Piece, deleted: Mapping[str, bytes], rows: Mapping[str, NDArray[np.int64]]) -> Piece:
    """Return a piece with those of the deleted rows of its file that are its own."""
    if piece.entry.key not in deleted:
        return piece
    found = np.frombuffer(deleted[piece.entry.key], np.int64)
    first, stop = (rows[piece.entry.key][:group].sum() for group in (piece.start, piece.stop))
    own = found[np.searchsorted(found, first) : np.searchsorted(found, stop)]
    return piece._replace(deleted=own.tobytes())
