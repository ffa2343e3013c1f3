"""Pools of ARFF files, the text tables of Weka: a row is an example, and has what a model computed for it.

A file is read whole and is one shard. Numeric attributes are numbers, all others text; ``?`` is null.

    @relation answers
    @attribute id string
    @attribute prediction {cat, dog}
    @attribute confidence numeric
    @data
    a1,cat,0.93
"""

import re
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import csv

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Batch, Cut, Found, Limits, Rules, Shard
from opacc_ray.lake.filters import check_columns, kept_rows
from opacc_ray.lake.formats import FEATURE_COLUMNS, Traits
from opacc_ray.lake.store import Store

SUFFIXES = (".arff",)

TRAITS = Traits(("id", *FEATURE_COLUMNS), ("output", "prediction"), files=SUFFIXES)

ATTRIBUTE = re.compile(r"(?im)^@attribute\s+(\S+)\s+(\S.*)$")
DATA = re.compile(rb"(?im)^@data\s*$")
NUMERIC = ("numeric", "real", "integer")


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return one file for each shard; the columns of the first one are checked."""
    first = found.entries[0]
    source = store.uri_of(first.key)
    check_columns(parse(store.read_entry(first), source).schema, rules, source, what)
    return Cut([(entry,) for entry in found.entries])


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of each file, that the filter keeps, with the columns of the rules."""
    for entry in shard.entries:
        source = store.uri_of(entry.key)
        yield from kept_rows(entry, parse(store.read_entry(entry), source), rules, source)


def parse(content: bytes, source: str, *, as_text: bool = False) -> pa.Table:
    """Return the rows of an ARFF file, also numbers as text if asked; raises DataError if it is not valid."""
    try:
        head, rows = DATA.split(content, maxsplit=1)
        kinds = {
            name: pa.float64() if kind.strip().lower() in NUMERIC and not as_text else pa.string()
            for name, kind in ATTRIBUTE.findall(head.decode())
        }
        return csv.read_csv(
            pa.BufferReader(rows.lstrip()),
            csv.ReadOptions(column_names=list(kinds)),
            convert_options=csv.ConvertOptions(column_types=kinds, null_values=["?"], strings_can_be_null=True),
        )
    except ValueError as error:  # also those of Arrow and of UTF-8
        raise DataError(f"{source} is not valid ARFF ({error}); write it again") from None
