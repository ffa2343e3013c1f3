"""Tables of several Parquet files: the row groups of each shard, and their filtered rows.

A plan reads the footer of every file, and no row. All files must have the required columns, of one type. In a table
that numbers its columns, the number identifies a column, whatever its name in a file. Conditions on columns from
folders skip whole files. Rows are read by row group: first the columns of the filter, then the others if any row
remains.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.arrow_columns import numbers
from opacc_ray.lake.examples import Batch, Constants, Cut, Found, Limits, Piece, Rules, Shard, in_shards
from opacc_ray.lake.filters import Condition, check_filter, columns_of, keeps, needed_of, parse_filter, rows_kept
from opacc_ray.lake.object_file import ObjectFile
from opacc_ray.lake.parquet_io import Footer, footer_at, group_bytes, read_group
from opacc_ray.lake.store import Entry, Store, in_order

THREADS = 16
"""Footers that are read at a time."""

_FIELD_ID = b"PARQUET:field_id"


class _Described(NamedTuple):
    """The columns that are read, according to a footer."""

    types: dict[str, Any]  # of the wanted columns that the file has
    every: list[str]  # names of all columns
    names: tuple[tuple[str, str | None], ...]  # wanted columns with another name in the file: see Piece
    groups: list[tuple[int, int]]  # rows and bytes of each row group


def cut_table(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard.

    Raises
    ------
    DataError
        A file is not Parquet, lacks a column or has it with another type, or no row remains.
    SpecError
        The filter is not valid.
    """
    condition = parse_filter(rules.filter, f"{what}.filter") if rules.filter else None
    entries = [entry for entry in found.entries if _may_keep(condition, found.constants.get(entry.key, ()))]
    wanted = wanted_columns(rules, condition)
    described = list(in_order(lambda entry: _describe(store, entry, wanted, found), entries, THREADS))
    _check_schema(store, entries, described, found, wanted, condition)
    pieces, sizes = [], []
    for entry, (_, _, names, groups) in zip(entries, described, strict=True):
        constants = found.constants.get(entry.key, ())
        pieces += [Piece(entry, group, group + 1, constants, names) for group, size in enumerate(groups) if size[0]]
        sizes += [size for size in groups if size[0]]
    if not pieces:
        why = (
            f"{what}.filter {shortened(rules.filter, 80)!r} excludes all of its files"
            if rules.filter
            else "it has no row"
        )
        raise DataError(f"the {what} {store.uri} is empty: {why}; check {what}.uri and {what}.filter")
    known = condition is None or all(
        _is_constant(part, found.constants.get(entries[0].key, ())) for part in needed_of(condition)
    )
    return Cut(in_shards(pieces, sizes, limits), sum(rows for rows, _ in sizes) if known else None)


def read_batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules.

    Raises
    ------
    DataError
        A file is not valid Parquet.
    ChangedError
        It has changed since the plan.
    """
    condition = parse_filter(rules.filter) if rules.filter else None
    for piece in shard.pieces:
        source = store.uri_of(piece.entry.key)
        with store.open_entry(piece.entry) as file:
            footer = readable_footer(file, source)
            first = sum(footer.metadata.row_group(group).num_rows for group in range(piece.start))
            for group in range(piece.start, piece.stop):
                for rows, columns in _read(file, footer, group, rules.columns.names, condition, piece, source):
                    yield Batch(piece.entry, first + rows, columns)
                first += footer.metadata.row_group(group).num_rows


def wanted_columns(rules: Rules, condition: Condition | None) -> tuple[str, ...]:
    """Return all columns that are read, including those of the filter."""
    return tuple(dict.fromkeys([*rules.columns.names, *(columns_of(condition) if condition else ())]))


def check_columns(schema: Any, rules: Rules, source: str, what: str) -> None:
    """Raise DataError unless a schema has the columns that are read; SpecError if the filter is not valid."""
    condition = parse_filter(rules.filter, f"{what}.filter") if rules.filter else None
    missing = next((name for name in wanted_columns(rules, condition) if name not in schema.names), None)
    if missing is not None:
        raise DataError(f"{source} has no column {missing!r}; it has {shortened(', '.join(schema.names), 200)}")
    if condition is not None:
        check_filter(condition, schema)


def readable_footer(file: ObjectFile, source: str) -> Footer:
    """Return the footer of a file; raises DataError if there is none."""
    with _parquet(source):
        return footer_at(file)


@contextmanager
def _parquet(source: str) -> Iterator[None]:
    """Raise DataError, which names the file, for any error of Arrow."""
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except Exception as error:
        reason = shortened(str(error), 200)
        raise DataError(f"{source} is not valid Parquet ({reason}); write it again, or remove it") from None


def _read(
    file: ObjectFile,
    footer: Footer,
    group: int,
    names: Sequence[str],
    condition: Condition | None,
    piece: Piece,
    source: str,
) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Yield the rows of a group that the filter keeps, numbered from its first, and their columns; in batches."""
    rows = footer.metadata.row_group(group).num_rows
    kept = np.arange(rows)
    if condition is not None:
        masks = [
            rows_kept(condition, part) for part in _tables(file, footer, group, columns_of(condition), piece, source)
        ]
        kept = np.flatnonzero(np.concatenate(masks))
    if not len(kept):
        return
    start = 0
    for table in _tables(file, footer, group, names, piece, source):
        own = kept[np.searchsorted(kept, start) : np.searchsorted(kept, start + len(table))]
        if len(own):
            yield own, table if len(own) == len(table) else table.take(numbers(own - start))
        start += len(table)


def _tables(
    file: ObjectFile, footer: Footer, group: int, names: Sequence[str], piece: Piece, source: str
) -> Iterator[Any]:
    """Yield some columns of a row group in batches, with constants for those that the file lacks."""
    import pyarrow as pa

    constant, called = dict(piece.constants), dict(piece.names)
    with _parquet(source):
        there = footer.metadata.schema.to_arrow_schema().names
        mapped = ((name, called.get(name, name)) for name in names)
        own = {name: each for name, each in mapped if each is not None and each in there}
        if not own:
            rows = footer.metadata.row_group(group).num_rows
            yield pa.table({name: _repeated(constant.get(name), rows) for name in names})
        for batch in read_group(file, footer.metadata, group, [*own.values()]) if own else ():
            batch.validate(full=True)  # lengths and texts are unchecked so far
            yield pa.table(
                {name: batch[own[name]] if name in own else _repeated(constant.get(name), len(batch)) for name in names}
            )


def _repeated(value: Any, length: int) -> Any:
    import pyarrow as pa

    return pa.nulls(length) if value is None else pa.repeat(value, length)


def _describe(store: Store, entry: Entry, wanted: Sequence[str], found: Found) -> _Described:
    with store.open_entry(entry) as file, _parquet(store.uri_of(entry.key)):
        metadata = footer_at(file).metadata
        schema = metadata.schema.to_arrow_schema()
        called = _names_in(schema, wanted, found, store.uri_of(entry.key))
        groups = range(metadata.num_row_groups)
        own = [*called.values()]
        return _Described(
            {name: schema.field(each).type for name, each in called.items()},
            schema.names,
            tuple(
                (name, called.get(name))
                for name in wanted
                if called.get(name) != name and name in (*called, *schema.names)
            ),
            [(metadata.row_group(group).num_rows, group_bytes(metadata, group, own)) for group in groups],
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


def _check_schema(
    store: Store,
    entries: Sequence[Entry],
    described: Sequence[_Described],
    found: Found,
    wanted: Sequence[str],
    condition: Condition | None,
) -> None:
    """Raise DataError unless all files have the wanted columns, with one type each."""
    import pyarrow as pa

    types: dict[str, Any] = {}
    first: dict[str, Entry] = {}
    for entry, file in zip(entries, described, strict=True):
        constant = {name: value.type for name, value in found.constants.get(entry.key, ())}
        for name in wanted:
            kind = file.types.get(name, constant.get(name))
            if kind is None and name in found.optional:
                continue
            if kind is None:
                there = shortened(", ".join(found.field_ids or [*file.every, *constant]), 200)
                raise DataError(f"{store.uri_of(entry.key)} has no column {name!r}; it has {there}")
            if pa.types.is_null(kind):
                continue
            if types.setdefault(name, kind) != kind:
                raise DataError(
                    f"{store.uri_of(entry.key)} has {name!r} as {kind}, and {first[name].key} as {types[name]}; "
                    "write the files with one schema"
                )
            first.setdefault(name, entry)
    if condition is not None and entries:
        check_filter(condition, pa.schema({name: types.get(name, pa.null()) for name in wanted}))


def _is_constant(condition: Condition, constants: Constants) -> bool:
    """Return whether all columns of a condition are constants of the file."""
    return set(columns_of(condition)) <= {name for name, _ in constants}


def _may_keep(condition: Condition | None, constants: Constants) -> bool:
    """Return whether a file may have rows that the filter keeps, according to its constants."""
    if condition is None:
        return True
    constant: Mapping[str, Any] = dict(constants)
    return all(keeps(part, constant) for part in needed_of(condition) if _is_constant(part, constants))
