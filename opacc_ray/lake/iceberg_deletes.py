"""Rows of an Iceberg table that its delete files name: by place, in deletion vectors, or by the values of columns.

They are found when a pool is planned, so that workers read data files alone. Deletes by value read their columns of the
data files that are older than the deletes.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import Columns, Found, Limits, Piece, Rules
from opacc_ray.lake.formats import parquet
from opacc_ray.lake.parquet_io import pa, read_columns, to_numpy, unless_valid
from opacc_ray.lake.store import Entry, Store

_WHOLE = Limits(1 << 62, 1 << 62)


def deleted_rows(
    store: Store, found: Found, schema: Any, data: Sequence[Any], deletes: Sequence[Any], entries: Mapping[str, Entry]
) -> dict[str, bytes]:
    """Return the numbers of the deleted rows of each data file that has some, as int64 in their order, by key.

    Parameters
    ----------
    schema : of the snapshot, by pyiceberg
    data, deletes : entries of the snapshot's manifests
    entries : listed objects, by the paths in manifests
    """
    from pyiceberg.table.delete_file_index import DeleteFileIndex

    index, by_value = DeleteFileIndex(), []
    for delete in deletes:
        if delete.data_file.content.name == "EQUALITY_DELETES":
            by_value.append(delete)
        else:
            index.add_delete_file(delete, partition_key=delete.data_file.partition)

    @cache
    def placed(path: str) -> dict[str, NDArray[np.int64]]:
        return _placed(store, entries[path])

    @cache
    def values(path: str, names: tuple[str, ...]) -> Any:
        return _read(store, found._replace(entries=(entries[path],), constants={}), names)[1]

    rows: dict[str, bytes] = {}
    for own in data:
        file, number = own.data_file, own.sequence_number or 0
        parts = [
            placed(each.file_path).get(file.file_path, np.empty(0, np.int64))
            for each in index.for_data_file(number, file, partition_key=file.partition)
        ]
        for delete in by_value:
            if (delete.sequence_number or 0) > number and _same_partition(delete.data_file, file):
                names = _names(schema, delete.data_file, store)
                own_file = found._replace(entries=(entries[file.file_path],))
                parts.append(_equal(store, own_file, names, values(delete.data_file.file_path, names)))
        if deleted := np.unique(np.concatenate([np.empty(0, np.int64), *parts])).astype(np.int64).tobytes():
            rows[entries[file.file_path].key] = deleted
    return rows


def _placed(store: Store, entry: Entry) -> dict[str, NDArray[np.int64]]:
    """Return the rows that a file of deletes names, by the path of their data file."""
    source = store.uri_of(entry.key)
    with unless_valid(f"{source} is not a valid delete file", "; restore it"):
        if entry.key.endswith(".puffin"):
            from pyiceberg.io.pyarrow import deletion_vectors_from_puffin_file
            from pyiceberg.table.puffin import PuffinFile

            vectors = deletion_vectors_from_puffin_file(PuffinFile(store.read_entry(entry)))
            return {own.referenced_data_file: to_numpy(own.to_vector()).astype(np.int64) for own in vectors}
        table = read_columns(store, entry.key, ["file_path", "pos"], size=entry.size)
        paths = table["file_path"].combine_chunks().dictionary_encode()
        codes, places = to_numpy(paths.indices), to_numpy(table["pos"])
        return {path: places[codes == code] for code, path in enumerate(paths.dictionary.to_pylist())}


def _same_partition(delete: Any, file: Any) -> bool:
    """Return whether a delete by value applies to the partition of a file; one without a partition applies to all."""
    is_global = not len(delete.partition)
    return is_global or (delete.spec_id == file.spec_id and delete.partition == file.partition)


def _names(schema: Any, delete: Any, store: Store) -> tuple[str, ...]:
    names = tuple(schema.find_column_name(number) for number in delete.equality_ids)
    if None in names:
        raise DataError(
            f"the table {store.uri} deletes rows by a column that it has dropped; rewrite its data files, and choose "
            "the snapshot after that"
        )
    return names


def _read(store: Store, found: Found, names: Sequence[str]) -> tuple[NDArray[np.int64], Any]:
    """Return the numbers of all rows of one file, and some of its columns."""
    rules = Rules(columns=Columns(features=(("keys", tuple(names)),)))
    [pieces] = parquet.cut(store, found, rules, _WHOLE, "pool").shards
    batches = [batch for piece in pieces for batch in parquet.batches_of(store, cast(Piece, piece), names)]
    return np.concatenate([batch.rows for batch in batches]), pa.concat_tables([batch.columns for batch in batches])


def _equal(store: Store, found: Found, names: Sequence[str], values: Any) -> NDArray[np.int64]:
    """Return the rows of the one file found that have one of the values, by all of some columns; nulls are equal."""
    rows, own = _read(store, found, names)
    codes = _codes([own[name] for name in names], [values[name] for name in names])
    return rows[np.isin(codes[: len(rows)], codes[len(rows) :])]


def _codes(first: Iterable[Any], second: Iterable[Any]) -> NDArray[np.int64]:
    """Return one number for each row of two tables, equal where all columns are."""
    codes = None
    for own, other in zip(first, second, strict=True):
        parts = [chunk for column in (own, other) for chunk in column.chunks]
        parts = [getattr(chunk, "storage", chunk) for chunk in parts]
        encoded = pa.concat_arrays(parts).dictionary_encode(null_encoding="encode")
        found = to_numpy(encoded.indices).astype(np.int64)
        both = found if codes is None else codes * (len(encoded.dictionary) + 1) + found
        codes = np.unique(both, return_inverse=True)[1]
    assert codes is not None
    return codes
