"""Pools of Parquet files: one example per row.

``pool.columns`` names the example: ``image``, a column of image files (bytes, or a struct with ``bytes``, as Hugging
Face writes them); ``array``, a column of lists of numbers, nested to any depth, or several columns of one number each;
or ``uri`` alone, a column of image files at s3:// or below the pool's prefix. ``id`` is a column of unique ids. Without
it, an id is the file's key and the row's number in it, ``part-0.parquet#7``, regardless of the filter. A shard is some
row groups of one or more files. Folders named ``column=value`` are columns, as Hive writes them.

A plan reads the footer of every file, and no row. All files must have the required columns, of one type. In a table
that numbers its columns, the number identifies a column, whatever its name in a file. Conditions on columns from
folders skip whole files. Rows are read by row group: first the columns of the filter, then the others if any row
remains.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import Batch, Constants, Cut, Found, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.filters import ALL, Condition, check_filter, columns_of, keeps, needed_of, parse_filter, rows_kept
from opacc_ray.lake.formats import ROW_COLUMNS, Traits
from opacc_ray.lake.listing import find_files
from opacc_ray.lake.parquet_io import Footer, chunks_of, footer_at, read_group, taken, unless_valid
from opacc_ray.lake.store import Entry, ObjectFile, Store, in_order

TRAITS = Traits(columns=ROW_COLUMNS, needs=("image", "array", "uri"), keys=("filter",))

SUFFIXES = (".parquet", ".parq")

NULL = "__HIVE_DEFAULT_PARTITION__"

THREADS = 16  # footers that are read at a time

_FIELD_ID = b"PARQUET:field_id"


class _File(NamedTuple):
    """A file's columns and row groups, according to its footer and its constants."""

    entry: Entry
    source: str  # its URI
    types: dict[str, Any]  # of the wanted columns that it has
    every: list[str]  # names of all columns
    names: tuple[tuple[str, str | None], ...]  # wanted columns with another name in the file: see Piece
    groups: list[tuple[int, int]]  # rows and bytes of each row group


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all Parquet files below the prefix, with the values of their folders."""
    found = find_files(store, SUFFIXES, what, hidden=False)
    return found._replace(constants=partitions_of(found.entries))


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard.

    Raises DataError if a file is not Parquet, lacks a column or has it with another type, or no row remains; SpecError
    if the filter is not valid.
    """
    condition = parse_filter(rules.filter, f"{what}.filter")
    wanted = wanted_columns(rules, condition)
    every = tuple(dict.fromkeys([*wanted, *rules.slices]))
    entries = [entry for entry in found.entries if _may_keep(condition, found.constants.get(entry.key, ()))]
    files = list(in_order(lambda entry: _describe(store, entry, wanted, every, found), entries, THREADS))
    _check_schema(files, found, every, condition)
    pieces, sizes = [], []
    for file in files:
        constants = found.constants.get(file.entry.key, ())
        for group, size in enumerate(file.groups):
            if size[0]:
                pieces.append(Piece(file.entry, group, group + 1, constants, file.names))
                sizes.append(size)
    if not pieces:
        filtered = f"{what}.filter {shortened(rules.filter or '', 80)!r} excludes all of its files"
        why = filtered if rules.filter else "it has no row"
        raise DataError(f"the {what} {store.uri} is empty: {why}; check {what}.uri and {what}.filter")
    is_known = all(_is_constant(part, pieces[0].constants) for part in needed_of(condition))
    return Cut(in_shards(pieces, sizes, limits), sum(rows for rows, _ in sizes) if is_known else None)


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules.

    Raises DataError if a file is not valid Parquet, and ChangedError if it has changed since the plan.
    """
    condition = parse_filter(rules.filter)
    for piece in shard.pieces:
        source = store.uri_of(piece.entry.key)
        with store.open_entry(piece.entry) as file:
            metadata = readable_footer(file, source).metadata
            lengths = [metadata.row_group(group).num_rows for group in range(piece.stop)]
            for group in range(piece.start, piece.stop):
                tables = partial(_tables, file, metadata, group, piece, source)
                for rows, columns in _filtered(tables, lengths[group], rules.columns.names, condition):
                    yield Batch(piece.entry, sum(lengths[:group]) + rows, columns)


def wanted_columns(rules: Rules, condition: Condition) -> tuple[str, ...]:
    """Return all columns that are read, including those of the filter."""
    return tuple(dict.fromkeys([*rules.columns.names, *columns_of(condition)]))


def check_columns(schema: Any, rules: Rules, source: str, what: str) -> None:
    """Raise DataError unless a schema has the columns that are read; SpecError if the filter is not valid."""
    condition = parse_filter(rules.filter, f"{what}.filter")
    every = (*wanted_columns(rules, condition), *rules.slices)
    missing = next((name for name in every if name not in schema.names), None)
    if missing is not None:
        raise _lacking(source, missing, schema.names)
    check_filter(condition, schema)


def _lacking(source: str, name: str, there: Sequence[str]) -> DataError:
    near = get_close_matches(name, there, 1)
    guess = f" (did you mean {near[0]!r}?)" if near else ""
    return DataError(f"{source} has no column {name!r}{guess}; it has {shortened(', '.join(there), 200)}")


def readable_footer(file: ObjectFile, source: str) -> Footer:
    """Return the footer of a file; raises DataError if there is none."""
    with _parquet(source):
        return footer_at(file)


def _parquet(source: str) -> AbstractContextManager[None]:
    return unless_valid(f"{source} is not valid Parquet", "; write it again, or remove it")


def _filtered(
    tables: Callable[[Sequence[str]], Iterator[Any]], num_rows: int, names: Sequence[str], condition: Condition
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield the rows of a group that the filter keeps, numbered from its first, and their columns; in batches."""
    kept = np.arange(num_rows)
    if condition != ALL:
        kept = np.flatnonzero(np.concatenate([rows_kept(condition, part) for part in tables(columns_of(condition))]))
    start = 0
    for table in tables(names) if len(kept) else ():
        own = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + len(table))]
        if len(own):
            yield own, taken(table, own - start)
        start += len(table)


def _tables(
    file: ObjectFile, metadata: Any, group: int, piece: Piece, source: str, names: Sequence[str]
) -> Iterator[Any]:
    """Yield some columns of a row group in batches, with constants for those that the file lacks."""
    import pyarrow as pa

    constant, called = dict(piece.constants), dict(piece.names)
    with _parquet(source):
        there = metadata.schema.to_arrow_schema().names
        own = {name: each for name in names if (each := called.get(name, name)) is not None and each in there}
        none = pa.RecordBatch.from_arrays([pa.nulls(metadata.row_group(group).num_rows)], ["no column"])
        for batch in read_group(file, metadata, group, [*own.values()]) if own else [none]:
            batch.validate(full=True)  # lengths and texts are unchecked so far
            columns = {}
            for name in names:
                value, rows = constant.get(name), len(batch)
                lacked = pa.nulls(rows) if value is None else pa.repeat(value, rows)
                columns[name] = batch[own[name]] if name in own else lacked
            yield pa.table(columns)


def _describe(store: Store, entry: Entry, wanted: Sequence[str], every: Sequence[str], found: Found) -> _File:
    """Return what a footer states of ``every`` column; the size of a row group is that of the ``wanted`` ones."""
    source, constants = store.uri_of(entry.key), found.constants.get(entry.key, ())
    with store.open_entry(entry) as file, _parquet(source):
        metadata = footer_at(file).metadata
        schema = metadata.schema.to_arrow_schema()
        called = _names_in(schema, every, found, source)
        own = [called[name] for name in wanted if name in called]
        types = {name: value.type for name, value in constants}
        types |= {name: schema.field(each).type for name, each in called.items()}
        renamed = (name for name in every if called.get(name) != name and name in (*called, *schema.names))
        chunks = [list(chunks_of(metadata, own, group)) for group in range(metadata.num_row_groups)]
        num_bytes = [sum(chunk.total_compressed_size for chunk, _ in held) for held in chunks]
        return _File(
            entry,
            source,
            types,
            [*schema.names, *(name for name, _ in constants)],
            tuple((name, called.get(name)) for name in renamed),
            [(metadata.row_group(group).num_rows, num) for group, num in enumerate(num_bytes)],
        )


def _names_in(schema: Any, wanted: Sequence[str], found: Found, source: str) -> dict[str, str]:
    """Return the name in a file of each wanted column that it has, by number if the table numbers its columns.

    Raises DataError if the file has no numbers and the table does not map names to them.
    """
    if not found.field_ids:
        return {name: name for name in wanted if name in schema.names}
    numbered = {int(item.metadata[_FIELD_ID]): item.name for item in schema if _FIELD_ID in (item.metadata or {})}
    if not numbered and not found.imported:
        raise DataError(
            f"{source} has no field ids, and its table has no schema.name-mapping.default for the file's names; "
            "set that property, or rewrite the table's data files"
        )
    if not numbered:
        numbered = {found.imported[name]: name for name in schema.names if name in found.imported}
    ids = {name: found.field_ids[name] for name in wanted if name in found.field_ids}
    return {name: numbered[number] for name, number in ids.items() if number in numbered}


def _check_schema(files: Sequence[_File], found: Found, wanted: Sequence[str], condition: Condition) -> None:
    """Raise DataError unless all files have the wanted columns, with one type each."""
    import pyarrow as pa

    first: dict[str, tuple[Any, str]] = {}  # type of each column in the first file with it, and the file's key
    for file in files:
        for name in wanted:
            kind = file.types.get(name)
            if kind is None and name not in found.optional:
                every = dict.fromkeys([*(found.field_ids or file.every), *sorted(found.optional)])
                raise _lacking(file.source, name, [*every])
            if kind is None or pa.types.is_null(kind):
                continue
            known, key = first.setdefault(name, (kind, file.entry.key))
            if kind != known:
                raise DataError(
                    f"{file.source} has {name!r} as {kind}, and {key} as {known}; write the files with one schema"
                )
    if files:
        check_filter(condition, pa.schema({name: first[name][0] if name in first else pa.null() for name in wanted}))


def _is_constant(condition: Condition, constants: Constants) -> bool:
    return set(columns_of(condition)) <= {name for name, _ in constants}


def _may_keep(condition: Condition, constants: Constants) -> bool:
    """Return whether a file may have rows that the filter keeps, according to its constants."""
    return all(keeps(part, dict(constants)) for part in needed_of(condition) if _is_constant(part, constants))


def partitions_of(entries: Sequence[Entry]) -> dict[str, Constants]:
    """Return what the folders of each file say, by its key: numbers where all values of a column are, else text.

    A null has the type of its column.
    """
    import pyarrow as pa

    texts = {entry.key: _texts(entry.key) for entry in entries}
    pairs = [pair for found in texts.values() for pair in found.items()]
    words = {name for name, text in pairs if text is not None and not _is_whole(text)}
    whole = {name for name, text in pairs if text is not None} - words
    numbers = {pair: pa.scalar(pair[1] and int(pair[1]), pa.int64()) for pair in pairs if pair[0] in whole}
    return {
        key: tuple((name, numbers.get((name, text), pa.scalar(text, pa.string()))) for name, text in found.items())
        for key, found in texts.items()
        if found
    }


def _texts(key: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in key.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def _is_whole(text: str) -> bool:
    """Whether a text is a number that reads the same when it is written again: 7, but not 007."""
    return text.removeprefix("-").isdecimal() and len(text) < 19 and str(int(text)) == text
