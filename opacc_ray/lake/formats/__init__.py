"""Formats of pools: one module each, and the keys of a spec that each one supports.

A format is a module of this package and a line of :data:`FORMATS`. Its module defines ``TRAITS``, ``SUFFIXES`` of its
files or ``find``, ``cut``, and ``read`` or ``batches``; the other functions are optional:

``find(store, rules, what)`` : return the pool's files in their order, as ``Found``; errors call the pool ``what``; the
    default finds all files with the suffixes below the prefix
``cut(store, found, rules, limits, what)`` : return the files of each shard, or pieces of files, by the listing and the
    files' metadata alone, as ``Cut``
``read(store, shard, rules)`` : yield the examples of a shard one by one, in the order of its files, with a bad item in
    the place of an unusable one; for tables, the default decodes the rows of ``batches``
``batches(store, shard, rules)`` : yield the rows of a table's shard that the filter keeps, in their order, with the
    columns of the rules
``newest(store, rules, what)`` : return the version that a table has now
``read_chosen(store, shard, rules, ids)`` : yield the examples with these ids, if that is cheaper than the whole shard
``planned_ids(shard)`` : return the ids of a shard, if the listing alone determines them
``place_of_file(uri)`` : return the URI of the pool's folder if ``uri``, whose end is one of ``TRAITS.files``, names a
    file in it, else None
"""

import importlib
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from opacc_ray.pool import COLUMNS, LAYERS

FORMATS = (
    "images",
    "npy",
    "parquet",
    "webdataset",
    "huggingface",
    "delta",
    "iceberg",
    "lance",
    "features",
)
"""Name of each format, and of its module in this package, which has _ for -. It is imported when a pool of it is."""

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[FORMATS]

FEATURE_COLUMNS = (*LAYERS, *COLUMNS)  # columns of a pool that hold what a model computed
ROW_COLUMNS = ("id", "uri", "image", "array", "prior")  # columns of a table whose rows are examples for a model

OPTIONAL_KEYS = ("filter", "split", "version", "timestamp", "catalog", "table")
"""Keys of a pool that only some formats support."""


class Traits(NamedTuple):
    """What a spec may set for a format."""

    columns: tuple[str, ...] = ()  # keys of pool.columns that it supports
    needs: tuple[str, ...] = ()  # of these, at least one is required
    keys: tuple[str, ...] = ()  # the optional keys of a pool that it supports
    has_names: bool = False  # whether a version may be the name of a branch or tag
    files: tuple[str, ...] = ()  # ends of URIs that may name one file, in lower case


def find_format(name: str) -> Any:
    """Return the module of a format, with the functions listed above."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def formats_with(key: str) -> list[str]:
    """Return the formats that support an optional key of a pool."""
    return [name for name in FORMATS if key in find_format(name).TRAITS.keys]


def place_of(name: str, uri: str) -> tuple[str, str | None]:
    """Return the URI of a pool's folder, and that of the file in it which ``uri`` names, if it names one."""
    format = find_format(name)
    may_be_file = uri.lower().endswith(format.TRAITS.files)
    place = format.place_of_file(uri) if may_be_file else None
    return (uri, None) if place is None else (place, uri)
