"""Pools of the Hugging Face library on disk: Arrow files of ``save_to_disk``, or the Parquet files of the Hub.

Columns, ids and filters are those of the format ``parquet``. An Arrow file has no index, so it is one shard, read from
its beginning. A prefix with Arrow and Parquet files is refused: they may be one dataset in two formats. Files of the
library's cache (``cache-*.arrow``) are ignored.

Splits are those of the library: the folder of a ``DatasetDict`` (``train/data-00000-of-00002.arrow``), the name before
a file's number (``data/train-00000-of-00002.parquet``), or a word such as ``test`` in the name of a file or folder. If
there are several, ``pool.split`` chooses one, or more: ``train+test``. A README.md with ``configs``, as the Hub's
datasets have, decides the files of each split. Several configurations are several datasets: the URI chooses one.
"""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import yaml

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Batch, Cut, Found, Limits, Rules, Shard
from opacc_ray.lake.filters import check_columns, kept_rows
from opacc_ray.lake.formats import parquet
from opacc_ray.lake.parquet_io import pa, unless_valid
from opacc_ray.lake.pools import TABLES_HIDE, find_files, pattern_of_keys
from opacc_ray.lake.store import Entry, Store

TRAITS = parquet.TRAITS._replace(keys=("split",), files=(".arrow", *parquet.SUFFIXES))

CHUNK_BYTES = 8 << 20  # bytes of one request

README = "README.md"

_NUMBERED = re.compile(r"(?:.*-)?([^-]+)-\d+-of-\d+(?:-[0-9a-f]+)?")
"""Name of a numbered file, without its suffix, and the split in it."""

_WORD = re.compile(r"(?<![a-z])(train|training|validation|valid|dev|val|test|testing|eval|evaluation)(?![a-z])", re.I)

_END = b"\xff\xff\xff\xff\0\0\0\0"  # last bytes of a complete stream: the header of an empty message


def find(store: Store, rules: Rules, what: str) -> Found:
    """Return the Arrow or the Parquet files below the prefix."""
    found = find_files(store, (".arrow", *parquet.SUFFIXES), what, hidden=TABLES_HIDE, only=rules.only)
    entries = tuple(entry for entry in found.entries if not entry.key.rpartition("/")[2].startswith("cache-"))
    kinds = {entry.key.lower().endswith(".arrow") for entry in entries}
    if len(kinds) > 1:
        raise DataError(f"the {what} {store.uri} has Arrow and Parquet files; give the folder of one format")
    if not entries:
        raise DataError(f"the {what} {store.uri} has cached files only; save the dataset with save_to_disk")
    stated = _stated_splits(store, entries, what)
    return found._replace(entries=_of_split(store, entries, rules.split, what, stated))


def _stated_splits(store: Store, entries: tuple[Entry, ...], what: str) -> dict[str, str | None]:
    """Return the split of each key that the README.md of a dataset states; none without it.

    Raises DataError if the files are of several configurations.
    """
    text = (store.read_if_there(README) or b"").decode(errors="replace")
    front = text.split("---", 2)[1] if text.startswith("---") and text.count("---") > 1 else ""
    try:
        configs = (yaml.safe_load(front) or {}).get("configs") or []
        files = [(item["config_name"], *own) for item in configs for own in _data_files(item.get("data_files"))]
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return {}
    splits, names = {}, dict[str, str]()
    for name, split, pattern in files:
        matches = pattern_of_keys(pattern).fullmatch
        for entry in entries:
            if matches(entry.key):
                splits[entry.key], names[name] = split, entry.key
    if len(names) > 1:
        raise DataError(
            f"the {what} {store.uri} has several configurations: {', '.join(sorted(names))}; give the files of one as "
            f"{what}.uri, such as {store.uri}/{names[min(names)].rpartition('/')[0]}/*"
        )
    return splits


def _data_files(given: Any) -> Iterator[tuple[str | None, str]]:
    """Yield the splits and patterns of a configuration's ``data_files``, in the forms that the Hub knows."""
    for item in [given] if isinstance(given, str | dict) else given or ():
        split, paths = (item["split"], item["path"]) if isinstance(item, dict) else ("train", item)
        for path in [paths] if isinstance(paths, str) else paths:
            yield str(split), str(path)


def _of_split(
    store: Store, entries: tuple[Entry, ...], wanted: str | None, what: str, stated: Mapping[str, str | None]
) -> tuple[Entry, ...]:
    """Return the files of a split, or all files if there is only one split.

    Raises DataError if there are several splits and none is chosen, or none of that name.
    """
    splits = {entry: stated[entry.key] if entry.key in stated else _split_of(entry.key) for entry in entries}
    there = sorted({split for split in splits.values() if split is not None})
    listed = ", ".join(there) or "none"
    if wanted is None:
        if len(set(splits.values())) > 1:
            unnamed = " and files without a split" if None in splits.values() else ""
            raise DataError(
                f"the {what} {store.uri} has several splits: {listed}{unnamed}; choose one, such as "
                f"{what}.split: {there[-1]}"
            )
        return entries
    names = wanted.split("+")
    lacking = next((name for name in names if name not in there), None)
    if lacking is not None:
        raise DataError(
            f"the {what} {store.uri} has no split {lacking!r}; its splits are {listed}; correct {what}.split"
        )
    return tuple(entry for entry in entries if splits[entry] in names)


def _split_of(key: str) -> str | None:
    """Return the split of a file, by its key; None if there is none in it."""
    *folders, name = key.split("/")
    stem = name.rpartition(".")[0]
    numbered = _NUMBERED.fullmatch(stem)
    if numbered and numbered[1] != "data":
        return numbered[1]
    if numbered and folders:
        return folders[-1]
    words = (match[1].lower() for part in (stem, *reversed(folders)) for match in _WORD.finditer(part))
    return next(words, None)


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return a shard for each Arrow file, by the listing; or the row groups of each shard."""
    if not found.entries[0].key.lower().endswith(".arrow"):
        return parquet.cut(store, found, rules, limits, what)
    first = found.entries[0]
    with _opened(store, first) as reader:
        check_columns(reader.schema, rules, store.uri_of(first.key), what)
    return Cut([(entry,) for entry in found.entries])


def batches(store: Store, shard: Shard, rules: Rules) -> Iterator[Batch]:
    """Yield the rows of a shard that the filter keeps, with the columns of the rules.

    Raises DataError if a file is damaged or cut short.
    """
    if shard.pieces:
        yield from parquet.batches(store, shard, rules)
        return
    [entry] = shard.entries
    start, source = 0, store.uri_of(entry.key)
    with _opened(store, entry) as reader, _readable(source):
        for batch in reader:
            batch.validate(full=True)  # Arrow trusts the offsets in a stream
            yield from kept_rows(entry, batch, rules, source, start)
            start += len(batch)
        if not store.read_range(entry.key, entry.size - len(_END), entry.size, entry).endswith(_END):
            raise ValueError("it has no end")  # Arrow accepts one that ends between two batches


def _opened(store: Store, entry: Entry) -> Any:
    with _readable(store.uri_of(entry.key)):
        return pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(store.open_entry(entry), CHUNK_BYTES), mode="r"))


def _readable(source: str) -> AbstractContextManager[None]:
    """Raise any error of Arrow as DataError, which names the file."""
    return unless_valid(f"{source} is not a valid Arrow stream", "; write it again, or remove it")
