"""Examples from rows of tables: ids, places, images and arrays, by the columns that the spec names."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, StorageError
from opacc_ray.lake.columns import id_texts
from opacc_ray.lake.decode import ImageError, decode_image
from opacc_ray.lake.examples import BadItem, Batch, Example, Items, Rules, fault_of_id
from opacc_ray.lake.parquet_io import is_list, numbers, numbers_of, to_numpy
from opacc_ray.lake.store import Store, check_key
from opacc_ray.lake.store_uris import open_store, split

THREADS = 16  # objects named by a column of URIs that are read at a time


def examples_of(store: Store, batch: Batch, rules: Rules) -> Items:
    """Yield the rows of a batch as examples, each decoded when its turn comes."""
    names = ids_of(batch, rules.columns.id)
    places = uris_of(store, batch, rules.columns.uri)
    own = rules.columns.id is not None
    for name, place, value in zip(names, places, _values(store, batch, rules), strict=True):
        if isinstance(name, BadItem):
            yield name
        elif isinstance(value, str):
            yield BadItem(name, value)
        else:
            yield Example(name, place, value, own)


def ids_of(batch: Batch, column: str | Sequence[str] | None) -> list[str | BadItem]:
    """Return the id of each row; a null, empty or too long id is a bad item, named by the row's place.

    Several columns make one id, ``door-3/2026-01-31``; a slash or a percent sign in one of them is written as in URLs.
    """
    places = [f"{batch.entry.key}#{row}" for row in batch.rows.tolist()]
    if not column:
        return [*places]
    names = [column] if isinstance(column, str) else column
    rows = zip(*(_id_texts(batch.columns[name], name) for name in names), strict=True)
    return [_id_of(place, names, row) for place, row in zip(places, rows, strict=True)]


def _id_of(place: str, names: Sequence[str], parts: Sequence[str | None]) -> str | BadItem:
    given = [part for part in parts if part is not None]
    if len(given) < len(parts):
        return BadItem(place, f"its {names[parts.index(None)]} is null")
    several = len(given) > 1
    found = "/".join(part.replace("%", "%25").replace("/", "%2F") for part in given) if several else given[0]
    fault = fault_of_id(found)
    return BadItem(place, fault) if fault else found


def _id_texts(column: Any, name: str) -> list[str | None]:
    found = id_texts(column)
    if found is None:
        raise DataError(
            f"pool.columns.id: {name!r} is {column.type}; choose a column of text, whole numbers, decimals, dates, "
            "times, bytes or UUIDs"
        )
    return list(found.to_pylist())


def uris_of(store: Store, batch: Batch, column: str | None) -> list[str]:
    """Return the URI of each row: the value of a column, or the file and the row's number."""
    own = [f"{store.uri_of(batch.entry.key)}#row={row}" for row in batch.rows.tolist()]
    if column is None:
        return own
    found = batch.columns[column].to_pylist()
    if not all(value is None or isinstance(value, str) for value in found):
        raise DataError(f"pool.columns.uri: {column!r} is {batch.columns[column].type}; choose a column of text")
    whole = (text if not text or "://" in text or text.startswith("/") else store.uri_of(text) for text in found)
    return [uri or place for uri, place in zip(whole, own, strict=True)]


def _values(store: Store, batch: Batch, rules: Rules) -> Iterator[NDArray[Any] | str]:
    """Yield the array of each row, or why there is none."""
    columns = rules.columns
    if columns.image is not None:
        return (_image(value, columns.image, rules) for value in batch.columns[columns.image])
    if columns.array:
        return _arrays(batch.columns, columns.array)
    assert columns.uri is not None  # the spec has one of them
    contents = store.each(partial(_read_named, store), batch.columns[columns.uri].to_pylist(), THREADS)
    return (content if isinstance(content, str) else decoded(content, rules) for content in contents)


def _image(cell: Any, name: str, rules: Rules) -> NDArray[Any] | str:
    value = cell.as_py()
    if isinstance(value, dict):
        value = value.get("bytes")
    if value is None:
        return f"its {name} is null"
    if not isinstance(value, bytes):
        return f"its {name} is {cell.type}, not the bytes of an image file"
    return decoded(value, rules)


def decoded(content: bytes, rules: Rules) -> NDArray[Any] | str:
    """Return the pixels of an image file, or why there are none."""
    if len(content) > rules.max_bytes:
        return f"{len(content)} bytes, and pool.max_bytes is {rules.max_bytes}"
    try:
        return decode_image(content, alpha=rules.alpha, max_pixels=rules.max_pixels)
    except ImageError as error:
        return str(error)


def _arrays(table: Any, names: Sequence[str]) -> Iterator[NDArray[Any] | str]:
    """Yield the numbers of each row: those of one column, or one number from each of several."""
    columns = [table[name].combine_chunks() for name in names]
    several = next((f"{n!r} is {c.type}" for n, c in zip(names, columns, strict=True) if is_list(c.type)), None)
    if len(names) > 1 and several:
        raise DataError(
            f"pool.columns.array: each of several columns must hold one number per row, and {several}; give one column"
        )
    absent = [to_numpy(column.is_null()) for column in columns]
    null = np.logical_or.reduce(absent)
    sound = numbers(~null)
    found = [_rows(column.filter(sound), name) for column, name in zip(columns, names, strict=True)]
    values = iter(found[0] if len(found) == 1 else np.stack(found, axis=1))
    for row in range(len(null)):
        lacks = next((name for name, own in zip(names, absent, strict=True) if own[row]), None)
        yield next(values) if lacks is None else f"its {lacks} is null"


def _rows(column: Any, name: str) -> Any:
    """Return the rows of a column without nulls, as one array or, if they differ in length, one by one."""
    whole = numbers_of(column, name)
    if whole is not None:
        return whole
    single = (numbers_of(column.slice(row, 1), name) for row in range(len(column)))
    return (f"its {name} holds lists of different lengths" if row is None else row[0] for row in single)


def _read_named(store: Store, text: str | None) -> bytes | str:
    """Return the content of the object that a column names by URI, or why there is none.

    Tables are data from others, so they must not lead to arbitrary files. A URI is s3://, or a key below the pool's
    prefix, or a path that begins with that prefix. Raises StorageError if the object cannot be read.
    """
    if not text:
        return "its uri is null"
    try:
        place, key = locate(store, text)
    except OpaccError as error:
        return str(error)
    try:
        return place.read(key)
    except StorageError:
        if not place.exists(key):
            return f"there is no object {place.uri_of(key)}"
        raise


def locate(store: Store, text: str) -> tuple[Store, str]:
    """Return the store and the key of an object that a column names by URI; raises DataError for any other place."""
    key = text.removeprefix(f"{store.uri}/")
    if key.startswith("s3://"):
        parent, name = split(key)
        return open_store(parent), name
    if "://" in key or key.startswith("/"):
        raise DataError(f"its uri {text!r} is neither at s3:// nor below {store.uri}")
    check_key(key, store.uri)
    if store.is_linked(key):
        raise DataError(f"its uri {text!r} is a symbolic link; give the file itself, or set pool.follow_links: true")
    return store, key
