"""Partitions by folders, as Hive names them: ``country=NL/day=3/part-0.parquet``."""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from opacc_ray.lake.examples import Constants
from opacc_ray.lake.store import Entry

NULL = "__HIVE_DEFAULT_PARTITION__"


def partitions_of(entries: Sequence[Entry]) -> dict[str, Constants]:
    """Return what the folders of each file say, by its key: numbers where all values of a column are, else text.

    A null has the type of its column.
    """
    texts = {entry.key: _texts(entry.key) for entry in entries}
    values: dict[str, set[str]] = {}
    for found in texts.values():
        for name, text in found.items():
            if text is not None:
                values.setdefault(name, set()).add(text)
    whole = {name for name, found in values.items() if all(_is_whole(text) for text in found)}
    return {key: _typed(found, whole) for key, found in texts.items() if found}


def _texts(key: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in key.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def _is_whole(text: str) -> bool:
    """Whether a text is a number that reads the same when it is written again: 7, but not 007."""
    return text.removeprefix("-").isdecimal() and len(text) < 19 and str(int(text)) == text


def _typed(texts: Mapping[str, str | None], whole: set[str]) -> Constants:
    import pyarrow as pa

    return tuple(
        (
            name,
            pa.scalar(None if text is None else int(text), pa.int64())
            if name in whole
            else pa.scalar(text, pa.string()),
        )
        for name, text in texts.items()
    )
