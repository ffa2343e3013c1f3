"""Formats of pools: one module each, and the keys of a spec that each one supports.

A format is a module of this package, which defines ``TRAITS``, ``SUFFIXES`` of its
files or ``find``, ``cut``, and ``read`` or ``batches``; the other functions are optional:

``find(store, rules, what)`` : return the pool's files in their order, as ``Found``; errors call the pool ``what``; the
    default finds all files with the suffixes below the prefix
``cut(store, found, rules, limits, what)`` : return the files of each shard, or pieces of files, by the listing and the
    files' metadata alone, as ``Cut``
``read(store, shard, rules)`` : yield the examples of a shard one by one, in the order of its files, with a bad item in
    the place of an unusable one; for tables, the default decodes the rows of ``batches``
``batches(store, shard, rules)`` : yield the rows of a table's shard that the filter keeps, in their order, with the
    columns of the rules
``packed(store, shard, rules)``, ``unpack(packed, rules)`` : yield the examples of a shard as bytes, and decode one, in
    another process: for files of many examples that can only be read from their beginning
``newest(store, rules, what)`` : return the version that a table has now
``place_of_file(uri, access)`` : return the URI of the pool's folder if ``uri``, whose end is one of ``TRAITS.files``,
    names a file that the format reads in its own way, else None; without it, the file is the only one of a pool
"""

import pkgutil
from glob import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from opacc_ray.errors import SpecError
from opacc_ray.lake.s3_store import Access
from opacc_ray.lake.store_uris import CATALOG, open_store, split
from opacc_ray.pool import COLUMNS, LAYERS
from opacc_ray.registry import Registry

REGISTRY = Registry("formats", {own.name: f"{__name__}.{own.name}" for own in pkgutil.iter_modules(__path__)})
"""Formats by name, which are imported when a pool of theirs is: modules of this package, then those of extensions."""

FORMATS = tuple(sorted(REGISTRY))

if TYPE_CHECKING:
    FormatName = str
else:
    FormatName = Literal[FORMATS]

FEATURE_COLUMNS = (*LAYERS, *COLUMNS)  # columns of a pool that hold what a model computed
ROW_COLUMNS = ("id", "uri", "image", "array", "judges")  # of a table whose rows are examples for a model
TABLE_COLUMNS = (*ROW_COLUMNS, "answer", *FEATURE_COLUMNS)  # of a table whose rows may be either

TABLE_KEYS = ("split", "version", "timestamp", "catalog", "table")  # of a pool; each for some formats alone

WORKBOOKS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")


class Traits(NamedTuple):
    """What a spec may set for a format."""

    columns: tuple[str, ...] = ()  # keys of pool.columns that it supports
    needs: tuple[str, ...] = ()  # of these, at least one is required
    keys: tuple[str, ...] = ()  # further keys of a pool that it supports, of ``TABLE_KEYS``
    files: tuple[str, ...] = ()  # ends of URIs that may name one file, in lower case
    patterns: bool = True  # whether a URI may be a pattern of files
    keys_are_ids: bool = False  # whether each file is one example, whose id is the file's key


def find_format(name: str) -> Any:
    """Return the module of a format, with the functions listed above."""
    return REGISTRY[name]


def has_rows(name: str) -> bool:
    """Return whether a format holds rows with columns."""
    return hasattr(find_format(name), "batches")


def refuse_workbook(uri: str) -> None:
    """Raise SpecError if a URI ends like that of a workbook, which no format reads."""
    if uri.lower().endswith(WORKBOOKS):
        raise SpecError(f"{uri} is a workbook, which is not read: save its sheet as CSV (in Excel: CSV UTF-8)")


class Place(NamedTuple):
    """Where a pool is: a folder, and what of it."""

    folder: str  # URI
    file: str | None = None  # URI of the one file that a format reads in its own way
    only: str | None = None  # pattern of the keys that belong to the pool; None: all


def place_of(name: str, uri: str, access: Access | None = None) -> Place:
    """Return the place of a pool: of a folder, a table, a file, or a pattern such as ``s3://lake/2026-*/*.parquet``.

    Raises SpecError for a workbook, and for a pattern if the format reads a table's log.
    """
    refuse_workbook(uri)
    format = find_format(name)
    if "*" in uri:
        if not format.TRAITS.patterns:
            raise SpecError(f"pool.uri {uri} is a pattern, and format {name} reads one table; give the table's folder")
        folders = uri[: uri.index("*")].rpartition("/")[0]
        return Place(folders, None, uri[len(folders) + 1 :])
    if not uri.lower().endswith(format.TRAITS.files) or uri.startswith(CATALOG):
        return Place(uri)
    if hasattr(format, "place_of_file"):
        folder = format.place_of_file(uri, access)
        return Place(uri) if folder is None else Place(folder, uri)
    folder, key = split(uri)
    is_file = open_store(folder, access=access).entry(key) is not None  # Spark may call a folder out.parquet
    return Place(folder, None, escape(key)) if is_file else Place(uri)
