"""Tables in CSV and JSON lines, as Arrow tables.

A column has one type for the whole file: whole numbers, floating-point numbers, times or text. Ids are text, so that
``007`` keeps its zeros. ``true`` and ``false`` are text. An empty cell is null. The delimiter of a CSV file is the most
frequent one of ``,``, ``;``, tab and ``|`` in its first line. With semicolons, ``0,97`` is a number.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.examples import Rules
from opacc_ray.lake.parquet_io import arrow_owned
from opacc_ray.lake.store import Entry, Store

CSV_SUFFIXES = (".csv", ".tsv")
SUFFIXES = (*CSV_SUFFIXES, ".jsonl")

DELIMITERS = ",;\t|"

MAX_BYTES = 2**31 - 1
"""Bytes of a file at most: Arrow reads it in one block, so that each column has one type."""

_ID_COLUMNS = ("id", "uri")


def is_text(key: str) -> bool:
    """Return whether a key is that of a CSV or JSON file."""
    return key.lower().endswith(SUFFIXES)


def read_table(store: Store, entry: Entry, rules: Rules) -> Any:
    """Return all columns of a CSV or JSON file as an Arrow table.

    Raises
    ------
    DataError
        The file is not UTF-8, its rows differ in length, two columns have one name, or it is too large.
    """
    source = store.uri_of(entry.key)
    most = min(rules.max_bytes, MAX_BYTES)
    if entry.size > most:
        raise DataError(f"{source} has {entry.size} bytes, and at most {most} are read; convert it to Parquet")
    text_columns = [name for key in _ID_COLUMNS if (name := getattr(rules.columns, key)) is not None]
    return parse_table(store.read_entry(entry), source, text_columns)


def parse_table(content: bytes, source: str, text_columns: Sequence[str]) -> Any:
    """Return the content of a CSV or JSON file as an Arrow table; ``text_columns`` are read as text.

    ``source`` ends in the file's suffix, and names it in errors. Raises as :func:`read_table`.
    """
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{source} is not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8") from None
    is_csv = source.lower().endswith(CSV_SUFFIXES)
    kind = "CSV" if is_csv else "JSON lines"
    if not content.strip(b"\xef\xbb\xbf\r\n\t "):
        raise DataError(f"{source} is empty; give a {kind} file with a row for each example")
    try:
        table = _parse_csv(content, text_columns) if is_csv else _parse_json(content, text_columns)
    except (OpaccError, MemoryError):
        raise
    except Exception as error:  # Arrow raises many kinds
        reason = shortened(" ".join(str(error).split()), 200)
        raise DataError(f"{source} is not valid {kind} ({reason}); correct it, or write the file again") from None
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise DataError(f"{source} has two columns {twice[0]!r}; rename one")
    return table


def _parse_csv(content: bytes, text_columns: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    first, _, rest = content.removeprefix(b"\xef\xbb\xbf").partition(b"\n")
    delimiter = max(DELIMITERS, key=first.decode().count)
    sample = rest[: 1 << 16]
    has_decimal_comma = delimiter == ";" and re.search(rb"\d,\d", sample) and not re.search(rb"\d\.\d", sample)
    return csv.read_csv(
        pa.BufferReader(arrow_owned(content)),
        csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
        csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        csv.ConvertOptions(
            column_types=dict.fromkeys(text_columns, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=["", "null", "NULL", "NaN", "nan"],
            true_values=[],
            false_values=[],
            decimal_point="," if has_decimal_comma else ".",
        ),
    )


def _parse_json(content: bytes, text_columns: Sequence[str]) -> Any:
    import pyarrow as pa
    from pyarrow import json

    table = json.read_json(
        pa.BufferReader(arrow_owned(content.removeprefix(b"\xef\xbb\xbf"))),
        json.ReadOptions(use_threads=False, block_size=len(content) + 1),
    )
    for name in text_columns:
        if name in table.column_names and not pa.types.is_integer(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    return table
