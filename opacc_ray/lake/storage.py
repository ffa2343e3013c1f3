"""Bytes at `s3://bucket/prefix` and in local folders, behind one small interface. The only user of boto3.

A `Store` is a place: a bucket's prefix or a folder. What it holds are objects, named by keys relative to
that place, with '/' between their parts. An object is written whole or not at all, so a reader never sees
half of one, and listing a store tells which work is done.

Stores are small values that travel to other processes. The S3 client stays behind: each process makes one
per configuration, when it is first needed, from the standard AWS variables and profile. Importing this
module, or using local folders only, does not import boto3.
"""

import errno
import functools
import io
import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from opacc_ray.errors import StorageError

S3_ATTEMPTS = 8  # in all, unless AWS_MAX_ATTEMPTS or the profile says otherwise
S3_CONNECTIONS = 64  # at most, per process
AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn")  # any other endpoint is a custom one
MULTIPART_BYTES = 64 << 20  # larger objects travel in parts
TEMPORARY_PREFIX = ".opacc-tmp-"  # a local file being written; no listing shows it
CHECKSUMS = ("auto", "when_required", "when_supported")

Item = TypeVar("Item")
Result = TypeVar("Result")


class Entry(NamedTuple):
    """One object of a listing."""

    key: str  # relative to the store
    size: int  # in bytes
    tag: str  # differs when the object has changed; it has no other meaning


Entries = list[Entry]


class Store(ABC):
    """A place that holds objects. All methods raise `StorageError`, which names the object and the fix."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The place's name, without a trailing slash."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """Return the object's content."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Create or replace the object atomically: on failure, what was there before stays."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Tell whether the object is there. A bucket that is missing is an error."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""

    @abstractmethod
    def store(self, sub: str) -> "Store":
        """Return the place `sub` inside this one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Entries:
        """Return all objects whose key starts with `prefix`, at any depth, sorted by key.

        A prefix or folder that does not exist is empty; a bucket that does not exist is an error.
        """

    def read_many(self, keys: Iterable[str], threads: int = 16) -> Iterator[bytes]:
        """Yield the objects' contents in the order of `keys`, while `threads` read ahead.

        At most `2 * threads` objects are held in memory. An object that cannot be read raises when its
        turn comes.
        """
        return _ahead(self.read, keys, threads)

    def write_many(self, objects: Iterable[tuple[str, bytes]], threads: int = 16) -> None:
        """Write (key, content) pairs on `threads` threads; raises at the first that fails."""
        for _ in _ahead(lambda item: self.write(*item), objects, threads):
            pass

    def uri_of(self, key: str) -> str:
        """Return the object's URI."""
        return f"{self.uri}/{key}"


def _ahead(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """Yield `work(item)` in the order of the items, with up to `2 * threads` under way."""
    with ThreadPoolExecutor(threads, thread_name_prefix="opacc-storage") as pool:
        ahead: deque[Future[Result]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(work, item))
                if len(ahead) == 2 * threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def open_store(uri: str, *, checksums: str = "auto") -> Store:
    """Return the store at `uri`: `s3://bucket/prefix`, `file:///path` or a path. Nothing is contacted yet.

    Parameters
    ----------
    uri : a relative path is made absolute here, so that it means the same on every node.
    checksums : when S3 requests and answers carry the newer checksums: "when_supported", "when_required"
        (many servers need it), or "auto": "when_required" at a custom endpoint, else boto3's default.
    """
    if checksums not in CHECKSUMS:
        raise StorageError(f"checksums is {checksums!r}, but must be one of {', '.join(CHECKSUMS)}")
    uri = _without_file_scheme(uri)
    if not uri.startswith("s3://"):
        return LocalStore(os.path.abspath(os.path.expanduser(uri)))
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    if not bucket:
        raise StorageError(f"{uri} names no bucket: write s3://bucket/prefix")
    return S3Store(bucket, f"{prefix.strip('/')}/".lstrip("/"), checksums)


def read_uri(uri: str, *, checksums: str = "auto") -> bytes:
    """Return the content of the one object at `uri`."""
    parent, name = split(uri)
    return open_store(parent, checksums=checksums).read(name)


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
    if "://" not in uri or uri.startswith("s3://"):
        return uri
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise StorageError(f"{uri} cannot be opened: use s3://bucket/prefix, file:///path or a path")
    return unquote(parts.path)


def _check_key(key: str, uri: str) -> None:
    parts = key.split("/")
    if any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) or "\0" in part for part in parts):
        raise StorageError(f"{key!r} is no key below {uri}: it must be relative, without '//', '.' and '..' parts")


@dataclass(frozen=True)
class LocalStore(Store):
    """A local folder, or one on a file system that all nodes share. It need not exist yet."""

    root: str  # absolute

    @property
    def uri(self) -> str:
        return self.root.rstrip("/")

    def read(self, key: str) -> bytes:
        with self._explained("read", key):
            return self._path(key).read_bytes()

    def write(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = path.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        with self._explained("write", key):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        with self._explained("look for", key):
            return self._path(key).is_file()

    def delete(self, key: str) -> None:
        with self._explained("delete", key):
            self._path(key).unlink(missing_ok=True)

    def store(self, sub: str) -> "LocalStore":
        return LocalStore(str(self._path(sub.rstrip("/"))))

    def list(self, prefix: str = "") -> Entries:
        parent = prefix.rpartition("/")[0]
        top = self._path(parent) if parent else self.root
        entries = []
        with self._explained("list", prefix):
            for folder, _, names in os.walk(top, onerror=_raise_unless_missing, followlinks=True):
                inside = folder.removeprefix(self.root).lstrip("/")
                for name in names:
                    key = f"{inside}/{name}".lstrip("/")
                    if key.startswith(prefix) and not name.startswith(TEMPORARY_PREFIX):
                        status = os.stat(os.path.join(folder, name))
                        entries.append(Entry(key, status.st_size, f"{status.st_mtime_ns}-{status.st_size}"))
        return sorted(entries)

    def _path(self, key: str) -> Path:
        _check_key(key, self.uri)
        return Path(self.root, key)

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # A listing meets many files, so it names the one; a write would name its temporary file.
            place = (action == "list" and error.filename) or self.uri_of(key).rstrip("/")
            reason = _LOCAL_REASONS.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"cannot {action} {place}: {reason}") from error


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


_LOCAL_REASONS = {
    errno.EACCES: "permission is denied; check the owner and mode",
    errno.ENOSPC: "the disk is full; free some space or choose another place",
}


@dataclass(frozen=True)
class S3Store(Store):
    """A prefix of a bucket on AWS or on any server that speaks S3. An empty prefix is the whole bucket."""

    bucket: str
    prefix: str  # empty, or ends in '/'
    checksums: str

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def read(self, key: str) -> bytes:
        with self._client("read", key) as s3:
            return _get_object(s3, self.bucket, self.prefix + key)

    def write(self, key: str, data: bytes) -> None:
        _check_key(key, self.uri)
        with self._client("write", key) as s3:
            if len(data) < MULTIPART_BYTES:
                s3.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data)
            else:
                s3.upload_fileobj(io.BytesIO(data), self.bucket, self.prefix + key)

    def exists(self, key: str) -> bool:
        # Unlike HEAD, listing tells a missing bucket from a missing object. A key is its own first match.
        full_key = self.prefix + key
        with self._client("look for", key) as s3:
            page = s3.list_objects_v2(Bucket=self.bucket, Prefix=full_key, MaxKeys=1)
        return any(found["Key"] == full_key for found in page.get("Contents", []))

    def delete(self, key: str) -> None:
        with self._client("delete", key) as s3:
            s3.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def store(self, sub: str) -> "S3Store":
        _check_key(sub.rstrip("/"), self.uri)
        return S3Store(self.bucket, f"{self.prefix}{sub.rstrip('/')}/", self.checksums)

    def list(self, prefix: str = "") -> Entries:
        """Do as every store. Keys that end in '/' are left out: consoles make them to show a folder."""
        entries = {}  # by key, as a server may show an object twice while it is being replaced
        with self._client("list", prefix) as s3:
            pages = s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
                for found in page.get("Contents", []):
                    if not found["Key"].endswith("/"):
                        key = found["Key"].removeprefix(self.prefix)
                        tag = str(found.get("ETag") or found["LastModified"])
                        entries[key] = Entry(key, found["Size"], tag.strip('"'))
        return sorted(entries.values())

    @contextmanager
    def _client(self, action: str, key: str) -> Iterator[Any]:
        """Yield the S3 client, and put its errors into words."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield _s3_client(self.checksums)
        except (BotoCoreError, ClientError, ValueError) as error:
            reason = _s3_reason(error, self.checksums)
            raise StorageError(f"cannot {action} {self.uri_of(key).rstrip('/')}: {reason}") from error


_client_lock = threading.Lock()


def _s3_client(checksums: str) -> Any:
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    with _client_lock:
        return _new_s3_client(os.getpid(), checksums, settings)


@functools.lru_cache(maxsize=8)
def _new_s3_client(process: int, checksums: str, settings: tuple[tuple[str, str], ...]) -> Any:
    """Return boto3's client for this environment and profile, with what long parallel jobs need on top.

    The arguments are the cache's key: a client must not cross a fork, nor outlive its configuration.
    """
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    plain = session.client("s3", region_name=region).meta
    custom = not (urlsplit(plain.endpoint_url).hostname or "").endswith(AWS_DOMAINS)
    when = checksums if checksums != "auto" else "when_required" if custom else None
    config = Config(
        retries={"total_max_attempts": S3_ATTEMPTS, **(plain.config.retries or {})},
        max_pool_connections=S3_CONNECTIONS,
        connect_timeout=10,  # seconds
        read_timeout=60,
        tcp_keepalive=True,
        s3={"addressing_style": "path"} if custom else None,
        request_checksum_calculation=when,
        response_checksum_validation=when,
    )
    return session.client("s3", region_name=region, config=config)


def _get_object(s3: Any, bucket: str, key: str) -> bytes:
    """Return the object's content; ask again if the answer breaks off, which boto3 does not do."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    attempts_left = s3.meta.config.retries["total_max_attempts"]
    while True:
        attempts_left -= 1
        body = s3.get_object(Bucket=bucket, Key=key)["Body"]
        try:
            return bytes(body.read())
        except (HTTPClientError, IncompleteReadError):
            if not attempts_left:
                raise
            time.sleep(0.5)


def _s3_reason(error: Exception, checksums: str) -> str:
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    if isinstance(error, (ConnectionError, HTTPClientError)):
        meta = _s3_client(checksums).meta
        address = urlsplit(meta.endpoint_url)
        endpoint = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        attempts = meta.config.retries["total_max_attempts"]
        return f"no answer from {endpoint} in {attempts} attempts ({code}); check AWS_ENDPOINT_URL and the network"
    return _S3_REASONS.get(code, " ".join(str(error).split()))


_S3_REASONS = {
    code: reason
    for codes, reason in [
        ("NoSuchBucket", "the bucket does not exist; create it or correct the URI"),
        ("NoSuchKey 404", "there is no such object"),
        ("AccessDenied 403", "access is denied; the credentials lack s3:ListBucket, s3:GetObject or s3:PutObject"),
        ("SignatureDoesNotMatch", "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
        ("InvalidAccessKeyId", "the server does not know the access key; check AWS_ACCESS_KEY_ID"),
        ("ExpiredToken TokenRefreshRequired", "the credentials have expired; renew them"),
        ("NoCredentialsError", "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
        ("PermanentRedirect AuthorizationHeaderMalformed", "the bucket is elsewhere; set AWS_REGION to its region"),
        ("SlowDown", "the server asks to slow down, after retries too; use fewer actors"),
    ]
    for code in codes.split()
}
