"""Pools of stored features: what a model computed for each example, one example per row.

The pool is a folder of Parquet files, or one file: Parquet (``.parquet``), CSV (``.csv``, ``.tsv``) or JSON lines
(``.jsonl``). Ids and filters are those of the format ``parquet``. A CSV or JSON file is read whole and is one shard.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from opacc_ray.errors import DataError
from opacc_ray.lake import text_tables
from opacc_ray.lake.arrow_columns import numbers
from opacc_ray.lake.examples import Batch, Cut, Found, Items, Limits, Rules, Shard
from opacc_ray.lake.filters import parse_filter, rows_kept
from opacc_ray.lake.formats import FEATURE_COLUMNS, Traits, parquet
from opacc_ray.lake.parquet_io import read_columns
from opacc_ray.lake.parquet_tables import check_columns, readable_footer
from opacc_ray.lake.row_examples import examples_of
from opacc_ray.lake.store import Store
from opacc_ray.lake.store_uris import open_store, split

TRAITS = Traits(
    ("id", "uri", "prior", *FEATURE_COLUMNS),
    ("output", "prediction"),
    ("filter",),
    (*parquet.SUFFIXES, *text_tables.SUFFIXES),
)


def place_of_file(uri: str) -> str | None:
    """Return the URI of the folder of a single file; None for a folder, which Spark may call ``out.parquet``."""
    place, key = split(uri)
    return place if text_tables.is_text(uri) or open_store(place).entry(key) else None


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the one file of the pool, or all Parquet files below the prefix."""
    if rules.file is None:
        return parquet.find(store, rules, what)
    entry = store.entry(split(rules.file)[1])
    if entry is None:
        raise DataError(f"there is no file {rules.file}; check {what}.uri")
    return Found((entry,))


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard; a CSV or JSON file is one shard."""
    entry = found.entries[0]
    if not text_tables.is_text(entry.key):
        return parquet.cut(store, found, rules, limits, what)
    table = text_tables.read_table(store, entry, rules)
    check_columns(table.schema, rules, store.uri_of(entry.key), what)
    if not len(table):
        raise DataError(f"{store.uri_of(entry.key)} has no row; check {what}.uri")
    return Cut([(entry,)], None if rules.filter else len(table))


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules."""
    if shard.pieces:
        yield from parquet.batches(store, shard, rules)
        return
    for entry in shard.entries:
        table = text_tables.read_table(store, entry, rules)
        rows = np.flatnonzero(rows_kept(parse_filter(rules.filter), table)) if rules.filter else np.arange(len(table))
        if len(rows):
            columns = table.select(rules.columns.names)
            yield Batch(entry, rows, columns if len(rows) == len(table) else columns.take(numbers(rows)))


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the examples of a shard's rows, whose images are the files of the column ``uri``."""
    for batch in batches(store, shard, rules):
        yield from examples_of(store, batch, rules)


def read_file(uri: str, text_columns: Sequence[str] = ()) -> Any:
    """Return the columns of a single file that hold one value per row, as an Arrow table; raises DataError.

    In CSV and JSON, ``text_columns`` are read as text.
    """
    place, key = split(uri)
    store = open_store(place)
    entry = store.entry(key)
    if entry is None:
        raise DataError(f"there is no file {uri}; check the path")
    if text_tables.is_text(key):
        return text_tables.parse_table(store.read_entry(entry), uri, text_columns)
    with store.open_entry(entry) as file:
        schema = readable_footer(file, uri).metadata.schema.to_arrow_schema()
    names = [field.name for field in schema if not field.type.num_fields]
    return read_columns(store, key, names, size=entry.size)
