"""Pools of stored features: what a model computed for each example, one example per row.

The pool is a folder of files, or one file: Parquet (``.parquet``), CSV (``.csv``, ``.tsv``) or JSON lines (``.jsonl``,
``.ndjson``), the last two also with gzip or Zstandard (``.csv.gz``, ``.jsonl.zst``). A folder without any of these may
have JSON lines in ``.json``, as Spark and DuckDB write them. Next to Parquet files, others are ignored. Ids and filters
are those of the format ``parquet``. A CSV or JSON file is read whole and is one shard.

A column of a CSV or JSON file has one type for the whole file: whole numbers, floating-point numbers, times or text.
Ids are text, so that ``007`` keeps its zeros. ``true`` and ``false`` are text. An empty cell is null. The delimiter of
a CSV file is the most frequent one of ``,``, ``;``, tab and ``|`` in its first line. With semicolons, a column of
numbers such as ``0,97`` has decimal commas.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Batch, Cut, Found, Ignored, Limits, Rules, Shard
from opacc_ray.lake.filters import check_columns, kept_rows
from opacc_ray.lake.formats import FEATURE_COLUMNS, Traits, parquet
from opacc_ray.lake.formats.parquet import readable
from opacc_ray.lake.parquet_io import arrow_owned, metadata_of, pa, read_columns, schema_of, unless_valid
from opacc_ray.lake.pools import TABLES_HIDE, find_files, partitions_of
from opacc_ray.lake.s3_store import Access
from opacc_ray.lake.store import Entry, Store
from opacc_ray.lake.store_uris import open_store, split

PACKED = {".gz": "gzip", ".zst": "zstd"}
CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.zst", ".tsv", ".tsv.gz", ".tsv.zst")
JSON_SUFFIXES = (".jsonl", ".jsonl.gz", ".jsonl.zst", ".ndjson", ".ndjson.gz", ".ndjson.zst")
TEXT_SUFFIXES = (*CSV_SUFFIXES, *JSON_SUFFIXES)
LAST_SUFFIXES = (".json", ".json.gz", ".json.zst")  # also of specs and of notes about a data set

TRAITS = Traits(
    ("id", "uri", "judges", "answer", *FEATURE_COLUMNS),
    ("output", "prediction", "answer"),
    files=(*parquet.SUFFIXES, *TEXT_SUFFIXES, *LAST_SUFFIXES),
)

MAX_BYTES = 2**31 - 1
"""Bytes of a CSV or JSON file at most: Arrow reads it in one block, so that each column has one type."""

LEADING_ZERO = re.compile(rb'[\n,;\t|"]-?0\d')
"""Where a column may have codes such as 007, which are texts: as a number it would be one with 7."""

SEPARATOR_LINE = re.compile(rb'"?sep=([,;\t|])"?\r?\n', re.IGNORECASE)
"""First line by which a file tells Excel what separates its cells."""

DECIMAL_COMMA = r"^[+-]?(\d+,?\d*|,\d+)([eE][+-]?\d+)?$"


def place_of_file(uri: str, access: Access | None) -> str | None:
    """Return the URI of the folder of a single file; None for a folder, which Spark may call ``out.parquet``."""
    place, key = split(uri)
    return place if _is_text(uri) or open_store(place, access=access).entry(key) else None


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the one file of the pool, or all of the first kind that is there: Parquet, CSV and JSON lines, .json."""
    if rules.file is None:
        suffixes = (*parquet.SUFFIXES, *TEXT_SUFFIXES, *LAST_SUFFIXES)
        found = find_files(store, suffixes, what, hidden=TABLES_HIDE, only=rules.only)
        kinds: dict[str, list[Entry]] = {"": [], "CSV or JSON lines": [], ".json": []}
        for own in found.entries:
            is_last = own.key.lower().endswith(LAST_SUFFIXES)
            kinds[".json" if is_last else "CSV or JSON lines" if _is_text(own.key) else ""].append(own)
        first, *others = [kind for kind in kinds if kinds[kind]]
        ignored = [Ignored(kind, len(kinds[kind]), tuple(own.key for own in kinds[kind][:3])) for kind in others]
        found = found._replace(entries=tuple(kinds[first]), ignored=(*ignored, *found.ignored))
        return found if first else found._replace(constants=partitions_of(found.entries))
    entry = store.entry(split(rules.file)[1])
    if entry is None:
        raise DataError(f"there is no file {rules.file}; check {what}.uri")
    return Found((entry,))


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return the row groups of each shard; a CSV or JSON file is one shard, and the first one is checked."""
    entry, *others = found.entries
    if not _is_text(entry.key):
        return parquet.cut(store, found, rules, limits, what)
    table = _read_text(store, entry, rules)
    check_columns(table.schema, rules, store.uri_of(entry.key), what)
    if not len(table):
        raise DataError(f"{store.uri_of(entry.key)} has no row; check {what}.uri")
    return Cut([(own,) for own in found.entries], None if rules.filter or others else len(table))


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, in their order, with the columns of the rules."""
    if shard.pieces:
        yield from parquet.batches(store, shard, rules)
        return
    for entry in shard.entries:
        yield from kept_rows(entry, _read_text(store, entry, rules), rules, store.uri_of(entry.key))


def read_file(uri: str, text_columns: Sequence[str] = (), feature_columns: Sequence[str] = ()) -> Any:
    """Return the columns of a single file that hold one value per row, as an Arrow table; raises DataError.

    In CSV and JSON, ``text_columns`` are read as text. In CSV, ``feature_columns`` hold numbers or texts, never times.
    """
    place, key = split(uri)
    store = open_store(place)
    entry = store.entry(key)
    if entry is None:
        raise DataError(f"there is no file {uri}; check the path")
    if _is_text(key):
        return _parse(_unpacked(store, entry, MAX_BYTES), uri, text_columns, feature_columns)
    with store.open_entry(entry) as file, readable(uri):
        schema = schema_of(metadata_of(store, entry, file))
    names = [field.name for field in schema if not field.type.num_fields]
    return read_columns(store, key, names, size=entry.size)


def _is_text(key: str) -> bool:
    return key.lower().endswith((*TEXT_SUFFIXES, *LAST_SUFFIXES))


def _read_text(store: Store, entry: Entry, rules: Rules) -> Any:
    """Return all columns of a CSV or JSON file as an Arrow table; raises DataError as :func:`_parse`."""
    text_columns = [name for name in (*rules.columns.ids, rules.columns.uri) if name is not None]
    feature_columns = [name for _, columns in rules.columns.features for name in columns]
    content = _unpacked(store, entry, min(rules.max_bytes, MAX_BYTES))
    return _parse(content, store.uri_of(entry.key), text_columns, feature_columns)


def _unpacked(store: Store, entry: Entry, most: int) -> bytes:
    """Return the content of a CSV or JSON file, without its compression; raises DataError if it has too many bytes."""
    source, size = store.uri_of(entry.key), entry.size
    packed = next((name for end, name in PACKED.items() if entry.key.lower().endswith(end)), None)
    if size <= most:
        content = store.read_entry(entry)
        if packed is None:
            return content
        with unless_valid(f"{source} is not valid {packed}", "; write the file again"):
            content = pa.CompressedInputStream(pa.BufferReader(content), packed).read(most + 1)
        size = len(content)
    if size > most:
        raise DataError(f"{source} has more than {most} bytes; convert it to Parquet")
    return content


def _parse(content: bytes, source: str, text_columns: Sequence[str], feature_columns: Sequence[str]) -> Any:
    """Return the content of a CSV or JSON file, whose URI is ``source``, as an Arrow table.

    Raises DataError if the file is not UTF-8, its rows differ in length, or two columns have one name.
    """
    try:
        content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f"{source} is not UTF-8 ({error.reason} at byte {error.start})"
        raise DataError(f"{place}: save it as UTF-8 (in Excel: CSV UTF-8)") from None
    is_csv = source.lower().endswith(CSV_SUFFIXES)
    kind = "CSV" if is_csv else "JSON lines"
    content = content.removeprefix(b"\xef\xbb\xbf")
    if not content.strip():
        raise DataError(f"{source} is empty; give a {kind} file with a row for each example")
    with unless_valid(f"{source} is not valid {kind}", "; correct it, or write the file again"):
        table = _parse_csv(content, text_columns, feature_columns) if is_csv else _parse_json(content, text_columns)
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise DataError(f"{source} has two columns {twice[0]!r}; rename one")
    return table


def _parse_csv(content: bytes, text_columns: Sequence[str], feature_columns: Sequence[str]) -> Any:
    import pyarrow.compute as pc
    from pyarrow import csv

    hint = SEPARATOR_LINE.match(content)
    if hint:
        content = content[hint.end() :]
    delimiter = hint[1].decode() if hint else max(",;\t|", key=content.partition(b"\n")[0].decode().count)

    def read(texts: Sequence[str]) -> Any:
        return csv.read_csv(
            pa.BufferReader(arrow_owned(content)),
            csv.ReadOptions(use_threads=False, block_size=len(content) + 1),
            csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            csv.ConvertOptions(
                column_types=dict.fromkeys(texts, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=["", "null", "NULL", "NaN", "nan"],
                true_values=[],
                false_values=[],
            ),
        )

    table = read(text_columns)
    texts = [field.name for field in table.schema if field.name in feature_columns and pa.types.is_temporal(field.type)]
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    if integers and LEADING_ZERO.search(content):
        written = read([*text_columns, *integers])
        texts += [name for name in integers if pc.any(pc.match_substring_regex(written[name], "^-?0[0-9]")).as_py()]
    if texts:
        text_columns = [*text_columns, *texts]
        table = read(text_columns)
    for place, field in enumerate(table.schema if delimiter == ";" else ()):
        column = table.column(place)
        is_text = pa.types.is_string(field.type) and field.name not in text_columns
        if is_text and pc.all(pc.match_substring_regex(column, DECIMAL_COMMA)).as_py():
            numbers = pc.replace_substring(column, ",", ".").cast(pa.float64())
            table = table.set_column(place, field.name, numbers)
    return table


def _parse_json(content: bytes, text_columns: Sequence[str]) -> Any:
    from pyarrow import json

    options = json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    table = json.read_json(pa.BufferReader(arrow_owned(content)), options)
    for name in text_columns:
        if name in table.column_names and not pa.types.is_integer(table.schema.field(name).type):
            table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    return table
