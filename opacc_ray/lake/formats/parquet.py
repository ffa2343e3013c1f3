"""Pools of Parquet files: one example per row.

``pool.columns`` names the example: ``image``, a column of image files (bytes, or a struct with ``bytes``, as Hugging
Face writes them); ``array``, a column of lists of numbers, nested to any depth, or several columns of one number each;
or ``uri`` alone, a column of image files at s3:// or below the pool's prefix. ``id`` is a column of unique ids. Without
it, an id is the file's key and the row's number in it, ``part-0.parquet#7``, regardless of the filter. A shard is some
row groups of one or more files. Folders named ``column=value`` are columns, as Hive writes them.
"""

from collections.abc import Sequence
from urllib.parse import unquote

from opacc_ray.lake.examples import Constants, Found, Rules
from opacc_ray.lake.formats import ROW_COLUMNS, Traits
from opacc_ray.lake.listing import find_files
from opacc_ray.lake.parquet_tables import cut_table, read_batches
from opacc_ray.lake.store import Entry, Store

TRAITS = Traits(columns=ROW_COLUMNS, needs=("image", "array", "uri"), keys=("filter",))

SUFFIXES = (".parquet", ".parq")

NULL = "__HIVE_DEFAULT_PARTITION__"


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return all Parquet files below the prefix, with the values of their folders."""
    found = find_files(store, SUFFIXES, what, hidden=False)
    return found._replace(constants=partitions_of(found.entries))


cut, batches = cut_table, read_batches


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
