"""Columns that folders named ``column=value`` hold, as Hive, Spark and DuckDB write them."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from typing import Any
from urllib.parse import unquote

from opacc_ray.lake.examples import Constants
from opacc_ray.lake.parquet_io import pa
from opacc_ray.lake.store import Entry

NULL = "__HIVE_DEFAULT_PARTITION__"


def partitions_of(entries: Sequence[Entry]) -> dict[str, Constants]:
    """Return what the folders of each file say, by its key.

    A column has whole numbers or dates where all its values are, else text. A null has the type of its column.
    """

    texts = {entry.key: _texts(entry.key) for entry in entries}
    values: dict[str, set[str | None]] = {}
    for found in texts.values():
        for name, text in found.items():
            values.setdefault(name, set()).add(text)
    scalars = {name: _scalars(own) for name, own in values.items()}
    return {
        key: tuple((name, scalars[name][text]) for name, text in found.items()) for key, found in texts.items() if found
    }


def _scalars(texts: set[str | None]) -> dict[str | None, Any]:
    """Return the texts of a column as Arrow scalars; a column of nulls is one of text."""
    given = {text for text in texts if text is not None}
    if given and all(map(_is_whole, given)):
        return {text: pa.scalar(text and int(text), pa.int64()) for text in texts}
    if given and all(map(_is_date, given)):
        return {text: pa.scalar(text and date.fromisoformat(text), pa.date32()) for text in texts}
    return {text: pa.scalar(text, pa.string()) for text in texts}


def _texts(key: str) -> dict[str, str | None]:
    parts = (part.partition("=") for part in key.split("/")[:-1] if "=" in part)
    return {unquote(name): None if value == NULL else unquote(value) for name, _, value in parts}


def _is_whole(text: str) -> bool:
    """Whether a text is a number that reads the same when it is written again: 7, but not 007."""
    return text.removeprefix("-").isdecimal() and len(text) < 19 and str(int(text)) == text


def _is_date(text: str) -> bool:
    with suppress(ValueError):
        return date.fromisoformat(text).isoformat() == text
    return False
