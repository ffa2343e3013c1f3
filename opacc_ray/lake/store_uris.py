"""URIs of stores and of objects: open, join and split ``s3://bucket/prefix``, ``file:///path`` and paths.

Stores are small values that can be pickled, without the S3 client. Importing this module, or using local folders only,
does not import boto3.
"""

import os
from urllib.parse import unquote, urlsplit

from opacc_ray.errors import StorageError
from opacc_ray.lake.local_store import LocalStore
from opacc_ray.lake.s3_store import S3Store
from opacc_ray.lake.store import Entry, Store

__all__ = ["Entry", "Store", "absolute", "join", "open_store", "read_uri", "split"]


def open_store(uri: str, *, follow_links: bool = False) -> Store:
    """Return the store at ``uri``, without a request. A relative path is made absolute.

    With ``follow_links``, listings of local folders follow symbolic links. Raises StorageError if the URI has an
    unknown scheme, no bucket, or credentials.
    """
    if "\0" in uri:
        raise StorageError(f"{uri!r} contains a null character; correct the URI")
    uri = _without_file_scheme(uri)
    if not uri.startswith("s3://"):
        return LocalStore(os.path.abspath(os.path.expanduser(uri)), follow_links)
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise StorageError(f"{uri} has no bucket: write s3://bucket/prefix")
    return S3Store(bucket, f"{prefix.strip('/')}/".lstrip("/"))


def read_uri(uri: str) -> bytes:
    """Return the content of the object at ``uri``."""
    parent, name = split(uri)
    return open_store(parent).read(name)


def absolute(uri: str) -> str:
    """Return a URI that is valid in every process: a path becomes absolute."""
    store = open_store(uri)
    return store.uri or "/" if isinstance(store, LocalStore) else uri


def join(uri: str, *parts: str) -> str:
    """Return the URI of ``parts`` below ``uri``."""
    return "/".join([_without_file_scheme(uri).rstrip("/"), *(part.strip("/") for part in parts)])


def split(uri: str) -> tuple[str, str]:
    """Return the URI of the store of the object at ``uri``, and the object's key in it."""
    whole = open_store(uri).uri
    parent, _, name = whole.rpartition("/")
    if not name or parent == "s3:/":
        raise StorageError(f"{uri} is not the URI of an object: add its name")
    return parent or "/", name


def _without_file_scheme(uri: str) -> str:
    _refuse_credentials(uri)
    if "://" not in uri or uri.startswith("s3://"):
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise StorageError(f"{uri} cannot be opened: use s3://bucket/prefix, file:///path or a path")
    return unquote(parts.path)


def _refuse_credentials(uri: str) -> None:
    """Raise StorageError if an address contains credentials."""
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme == "file":
        return
    first = rest.partition("/")[0]
    if "@" in first or (":" in first and not first.startswith("arn:")):
        name = f"{scheme}://***" + ("@" + rest.rpartition("@")[2] if "@" in rest else "")
        raise StorageError(
            f"{name} contains credentials, which others can read in a spec; write s3://bucket/prefix, and "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
