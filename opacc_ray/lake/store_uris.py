"""URIs of stores and of objects: open, join and split them.

``s3://bucket/prefix``, ``gs://bucket/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``,
``file:///path`` and paths name stores. ``catalog://NAME/TABLE`` names a table by its catalog alone.

Stores are small values that can be pickled, without the S3 client. Importing this module, or using local folders only,
does not import boto3.
"""

import os
import re
from dataclasses import replace
from typing import Any
from urllib.parse import unquote, urlsplit

from opacc_ray.errors import StorageError
from opacc_ray.lake.s3_store import Access, S3Store
from opacc_ray.lake.store import Entry, LocalStore, Store, VendedTable
from opacc_ray.registry import Registry

STORES = Registry("stores")
"""Scheme -> function that opens a store of an extension, from scheme, bucket, prefix and kind of access."""

CATALOG = "catalog://"
"""Scheme of the URI of a table that only its catalog places."""

_SCHEMES = "s3://bucket/prefix, gs://bucket/prefix, abfss://container@account.dfs.core.windows.net/prefix"

__all__ = ["Entry", "Store", "absolute", "is_scheme_of_stores", "join", "open_store", "read_uri", "split"]


def open_store(uri: str, *, follow_links: bool = False, access: Access | None = None) -> Store:
    """Return the store at ``uri``, without a request. A relative path is made absolute.

    With ``follow_links``, listings of local folders follow symbolic links. With ``access``, a bucket is read without
    credentials, or its reader pays. Raises StorageError if the URI has an unknown scheme, no bucket, or credentials; or
    if its kind of storage has no such access.
    """
    if "\0" in uri:
        raise StorageError(f"{uri!r} contains a null character; correct the URI")
    uri = _without_file_scheme(uri)
    scheme = uri.partition("://")[0] if "://" in uri else "file"
    if scheme == "file":
        if access is not None:
            raise StorageError(f"{uri} has no access {access!r}; remove pool.access")
        return LocalStore(os.path.abspath(os.path.expanduser(uri)), follow_links)
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    prefix = f"{prefix.strip('/')}/".lstrip("/")
    if not bucket:
        raise StorageError(f"{uri} has no bucket: write {scheme}://bucket/prefix")
    if scheme == "s3":
        return S3Store(bucket, prefix, access)
    store: Store = STORES[scheme](scheme, bucket, prefix, access)
    return store


def is_scheme_of_stores(scheme: str) -> bool:
    """Return whether URIs of this scheme name stores: files, S3, or what an extension opens."""
    return scheme in ("file", "s3") or scheme in STORES


def open_table(format: str, catalog: str, name: str, uri: str | None = None) -> Store:
    """Return the store of a table that a catalog names, with the credentials that it vends; or that of its ``uri``.

    Raises DataError, SpecError or StorageError as :meth:`opacc_ray.lake.store.VendedTable.access`.
    """
    table: VendedTable = Registry("catalogs")[format](catalog, name)
    found = table.access()
    store = open_store(uri or re.sub(r"^(s3a|s3n)://", "s3://", found.location))
    if not found.options or isinstance(store, LocalStore):
        return store
    bucket: Any = store
    vended: Store = replace(bucket, table=table)
    return vended


def read_uri(uri: str) -> bytes:
    """Return the content of the object at ``uri``."""
    parent, name = split(uri)
    return open_store(parent).read(name)


def absolute(uri: str) -> str:
    """Return a URI that is valid in every process: a path becomes absolute."""
    if uri.startswith(CATALOG):
        return uri
    store = open_store(uri)
    return store.uri or "/" if isinstance(store, LocalStore) else uri


def join(uri: str, *parts: str) -> str:
    """Return the URI of ``parts`` below ``uri``."""
    return "/".join([_without_file_scheme(uri).rstrip("/"), *(part.strip("/") for part in parts)])


def split(uri: str) -> tuple[str, str]:
    """Return the URI of the store of the object at ``uri``, and the object's key in it."""
    whole = open_store(uri).uri
    parent, _, name = whole.rpartition("/")
    if not name or parent.endswith(":/"):  # of a bucket, without a key
        raise StorageError(f"{uri} is not the URI of an object: add its name")
    return parent or "/", name


def write_object(uri: str, data: bytes) -> str:
    """Write one object; return its URI."""
    folder, name = split(uri)
    store = open_store(folder)
    store.write(name, data)
    return store.uri_of(name)


def _without_file_scheme(uri: str) -> str:
    _refuse_credentials(uri)
    scheme, mark, _ = uri.partition("://")
    if not mark or (scheme != "file" and is_scheme_of_stores(scheme)):
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise StorageError(f"{uri} cannot be opened: use {_SCHEMES}, file:///path or a path")
    return unquote(parts.path)


def _refuse_credentials(uri: str) -> None:
    """Raise StorageError if an address contains credentials."""
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme == "file":
        return
    first = rest.partition("/")[0]
    if scheme == "abfss":  # container@account is no password
        first = first.replace("@", "", 1)
    is_port = re.fullmatch(r"[^:@]+:\d{1,5}", first) is not None
    if "@" in first or (":" in first and not is_port and not first.startswith("arn:")):
        name = f"{scheme}://***" + ("@" + rest.rpartition("@")[2] if "@" in rest else "")
        raise StorageError(
            f"{name} contains credentials, which others can read in a spec; write s3://bucket/prefix, and "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
