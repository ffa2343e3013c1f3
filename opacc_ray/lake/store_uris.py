"""Bytes at `s3://bucket/prefix` and in local folders, behind one small interface: see `Store`.

Stores are small values that travel to other processes. The S3 client stays behind. Importing this module, or using
local folders only, does not import boto3.
"""

import os
from urllib.parse import unquote, urlsplit

from opacc_ray.errors import StorageError
from opacc_ray.lake.local_store import LocalStore
from opacc_ray.lake.redaction import refuse_credentials
from opacc_ray.lake.s3_store import S3Store
from opacc_ray.lake.store import Entry, Store

__all__ = ["Entry", "Store", "absolute", "join", "open_store", "read_uri", "split"]

CHECKSUMS = ("auto", "when_required", "when_supported")


def open_store(uri: str, *, checksums: str = "auto", follow_links: bool = False) -> Store:
    """Return the store at `uri`: `s3://bucket/prefix`, `file:///path` or a path. Nothing is contacted yet.

    Parameters
    ----------
    uri : a relative path is made absolute here, so that it means the same on every node.
    checksums : when S3 requests and answers carry the newer checksums: "when_supported", "when_required"
        (many servers need it), or "auto": "when_required" at a custom endpoint, else boto3's default.
    follow_links : list what symbolic links in a local folder lead to, too

    Raises
    ------
    StorageError
        The URI is of no known kind, names no bucket, or holds credentials.
    """
    if checksums not in CHECKSUMS:
        raise StorageError(f"checksums is {checksums!r}, but must be one of {', '.join(CHECKSUMS)}")
    if "\0" in uri:
        raise StorageError(f"{uri!r} holds a character of code 0, which no path has; correct the URI")
    uri = _without_file_scheme(uri)
    if not uri.startswith("s3://"):
        return LocalStore(os.path.abspath(os.path.expanduser(uri)), follow_links)
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise StorageError(f"{uri} names no bucket: write s3://bucket/prefix")
    return S3Store(bucket, f"{prefix.strip('/')}/".lstrip("/"), checksums)


def read_uri(uri: str) -> bytes:
    """Return the content of the one object at `uri`."""
    parent, name = split(uri)
    return open_store(parent).read(name)


def absolute(uri: str) -> str:
    """Return a URI that means the same in every process: a path is made absolute, all else stays as it is."""
    store = open_store(uri)
    return store.uri or "/" if isinstance(store, LocalStore) else uri


def join(uri: str, *parts: str) -> str:
    """Return the URI of what lies at `parts` below `uri`."""
    return "/".join([_without_file_scheme(uri).rstrip("/"), *(part.strip("/") for part in parts)])


def split(uri: str) -> tuple[str, str]:
    """Return the URI of the place that holds the object at `uri`, and its key there."""
    whole = open_store(uri).uri
    parent, _, name = whole.rpartition("/")
    if not name or parent == "s3:/":
        raise StorageError(f"{uri} names no object: add its name to it")
    return parent or "/", name


def _without_file_scheme(uri: str) -> str:
    refuse_credentials(uri)
    if "://" not in uri or uri.startswith("s3://"):
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise StorageError(f"{uri} cannot be opened: use s3://bucket/prefix, file:///path or a path")
    return unquote(parts.path)
