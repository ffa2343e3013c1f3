"""The interface of a store: objects named by keys, in a bucket's prefix or in a folder; and the store of a folder.

Keys are relative to the store, with '/' between their parts. An object is written whole or not at all. So a reader
never sees half of one, and a listing shows which work is done.

In a local folder, or one on a file system that all nodes share, an object is a regular file. A FIFO, a socket or a
device is never opened, since reading it may block for ever. A symbolic link is followed if a user named the file
(weights, a file of labels). In a listed folder it is followed only with ``follow_links``.
"""

import errno
import functools
import io
import logging
import os
import stat
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple, Protocol, TypeVar

from opacc_ray.errors import OpaccError, StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")

Range = tuple[int, int]
"""First byte, and the one after the last."""

NEAR = 64 << 10  # largest gap in bytes between two ranges that are fetched in one request
CLOSE = 8 << 10  # largest gap that costs less than a request, whatever else is fetched
READ_AHEAD = 64 << 10  # bytes that a read fetches at least, for the reads after it

TEMPORARY_PREFIX = ".opacc-tmp-"  # a local file being written; no listing shows it

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """One object of a listing."""

    key: str  # relative to the store
    size: int  # in bytes
    tag: str  # opaque; differs once the object has changed


Entries = list[Entry]


class Listing(NamedTuple):
    """Everything in a store."""

    entries: Entries
    oddities: list[tuple[str, str]]  # keys that are never opened, and their kinds: "symbolic link", "FIFO", ...
    newest: datetime | None = None  # when the newest of these objects was written; None: unknown


class ChangedError(OpaccError):
    """An object has changed since the pool was listed."""

    exit_code = 5


class ObjectFile(io.RawIOBase):
    """An object as a seekable file of ``size`` bytes, which ``fetch(start, stop)`` returns range by range.

    :meth:`load` fetches ranges in few requests; reads inside them need no request.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self.size = size
        self._place = 0
        self._loaded: list[tuple[int, bytes]] = []  # pieces from load and hold, each with its first byte
        self._ahead: tuple[int, bytes] = (0, b"")  # the piece of the last read

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, which is before the first byte")
        self._place = base + offset
        return self._place

    def load(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges ahead of their reads, nearby ranges in one request."""
        missing = [(start, stop) for start, stop in ranges if self.held(start, stop) is None]
        self._loaded += [(start, self._fetch(start, stop)) for start, stop in merged(missing)]

    def hold(self, start: int, piece: bytes) -> None:
        """Keep bytes that were fetched elsewhere, from ``start`` on."""
        self._loaded.append((start, piece))

    def forget(self) -> None:
        """Release all fetched bytes."""
        self._loaded.clear()
        self._ahead = (0, b"")

    def read(self, size: int | None = -1) -> bytes:
        stop = self.size if size is None or size < 0 else min(self._place + size, self.size)
        start, self._place = self._place, max(self._place, stop)
        if start >= stop:
            return b""
        held = self.held(start, stop)
        if held is not None:
            return held
        self._ahead = start, self._fetch(start, min(max(stop, start + READ_AHEAD), self.size))
        return self._ahead[1][: stop - start]

    def held(self, start: int, stop: int) -> bytes | None:
        """Return the bytes from ``start`` up to ``stop`` if one fetched piece has them, else None."""
        for first, piece in (*self._loaded, self._ahead):
            if first <= start and stop <= first + len(piece):
                return piece[start - first : stop - first]
        return None

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return sorted ranges that cover ``ranges``, merged across gaps.

    Gaps have up to ``NEAR`` bytes, and together, but for those up to ``CLOSE``, a quarter of the bytes of the ranges.
    """
    found: list[Range] = []
    given = sorted(ranges)
    left = sum(stop - start for start, stop in given) // 4
    for start, stop in given:
        gap = start - found[-1][1] if found else NEAR + 1
        if gap <= CLOSE or gap <= min(NEAR, left):
            left -= gap if gap > CLOSE else 0
            found[-1] = found[-1][0], max(found[-1][1], stop)
        elif start < stop:
            found.append((start, stop))
    return found


class Store(ABC):
    """A place that holds objects. Every method may raise `StorageError`, which names the object and the fix."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The URI of the store, without a trailing slash."""

    @abstractmethod
    def read(self, key: str) -> bytes:
        """Return the object's content."""

    def read_if_there(self, key: str) -> bytes | None:
        """Return the object's content; None if there is no such object."""
        try:
            return self.read(key)
        except StorageError:
            if self.exists(key):
                raise
            return None

    def is_linked(self, key: str) -> bool:
        """Return whether the key is a symbolic link in a store that does not follow those."""
        return False

    @abstractmethod
    def read_range(self, key: str, start: int, stop: int, listed: Entry | None = None) -> bytes:
        """Return the bytes from ``start`` up to ``stop``; raises if the object ends earlier.

        Raises :class:`ChangedError` if it has changed since it was ``listed``.
        """

    def size(self, key: str) -> int:
        """Return the object's size in bytes."""
        found = self.entry(key)
        if found is None:
            raise StorageError(f"cannot read {self.uri_of(key)}: there is no such object; check the URI")
        return found.size

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Create or replace the object atomically; a failed write leaves the old object."""

    def create(self, key: str, data: bytes) -> bytes:
        """Create the object unless it exists, and return its content: ``data``, or what another writer created.

        Of any number of concurrent writers, one creates the object and the others get its content. A store without
        an atomic operation for that is for one writer at a time; a warning says so once.
        """
        created = self._create(key, data)
        if created is None:
            created = not self.exists(key)
            if created:
                self.write(key, data)
        return data if created else self.read(key)

    @abstractmethod
    def _create(self, key: str, data: bytes) -> bool | None:
        """Return whether the object was created; None if this store has no atomic operation for that."""

    def try_writing(self) -> None:
        """Check write access: write an object and remove it."""
        key = f"opacc-check-{uuid.uuid4().hex}"
        self.write(key, b"")
        self.delete(key)

    @abstractmethod
    def entry(self, key: str) -> Entry | None:
        """Return the object's entry in a listing; None if it does not exist. A missing bucket is an error."""

    def exists(self, key: str) -> bool:
        """Return whether the object exists; a missing bucket is an error."""
        return self.entry(key) is not None

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object, if it exists."""

    def prune(self) -> None:
        """Remove empty folders; other stores have none."""
        return

    @abstractmethod
    def store(self, sub: str) -> "Store":
        """Return the store at ``sub`` below this one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Entries:
        """Return all objects whose key starts with ``prefix``, at any depth, sorted by key.

        A missing prefix or folder is empty; a missing bucket is an error.
        """

    @abstractmethod
    def survey(self) -> Listing:
        """Return all objects, and everything else in the store; a missing folder is an error."""

    def read_entry(self, entry: Entry) -> bytes:
        """Return the content of a listed object; raises :class:`ChangedError` if it has changed since."""
        return self.read_range(entry.key, 0, entry.size, entry)

    def open_entry(self, entry: Entry) -> ObjectFile:
        """Open a listed object as a file; a read raises :class:`ChangedError` if the object has changed."""
        return ObjectFile(partial(self.read_range, entry.key, listed=entry), entry.size)

    def open(self, key: str, size: int | None = None) -> ObjectFile:
        """Open the object as a file that fetches only the bytes that are read.

        ``size`` saves a request where a listing or an index has it.
        """
        return ObjectFile(partial(self.read_range, key), self.size(key) if size is None else size)

    def link(self, key: str, seconds: int) -> str:
        """Return a link by which anyone can read the object for that long; only S3 has them."""
        raise StorageError(f"{self.uri_of(key)} has no link that a browser opens; send copies or thumbnails instead")

    def read_many(self, keys: Iterable[str], threads: int = 16) -> Iterator[bytes]:
        """Yield the objects' contents in the order of ``keys``, while ``threads`` read ahead.

        At most ``2 * threads`` objects are held in memory. An unreadable object raises when its turn comes.
        """
        return in_order(self.read, keys, threads)

    def write_many(self, objects: Iterable[tuple[str, bytes]], threads: int = 16) -> None:
        """Write (key, content) pairs on ``threads`` threads; raises at the first failure."""
        for _ in in_order(lambda item: self.write(*item), objects, threads):
            pass

    def uri_of(self, key: str) -> str:
        """Return the object's URI."""
        return f"{self.uri}/{key}"

    def check_key(self, key: str) -> None:
        """Raise StorageError unless a key is relative and has no empty, '.' or '..' part."""
        parts = key.split("/")
        if any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) or "\0" in part for part in parts):
            raise StorageError(
                f"{key!r} is not a key below {self.uri}: it must be relative, without '//', '.' and '..' parts"
            )

    def whole_range(self, key: str, content: bytes, start: int, stop: int) -> bytes:
        """Return the bytes of a range; raises StorageError if some are missing."""
        if len(content) != stop - start:
            raise StorageError(
                f"cannot read {self.uri_of(key)}: {len(content)} bytes arrived for the range {start} to {stop}; "
                "the object has changed or is cut short, so restore it or start again"
            )
        return content

    def changed(self, key: str, what: str) -> ChangedError:
        """Return the error for an object that has changed; ``what`` names the evidence."""
        return ChangedError(
            f"{self.uri_of(key)} has changed since the pool was listed ({what}); run the same spec again once nothing "
            "writes to the pool: that lists it again, as a new run"
        )


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int = 16,
    cost: Callable[[Item], int] = lambda _: 0,
    budget: int = 0,
) -> Generator[Result, None, None]:
    """Yield ``work(item)`` in the order of the items, with up to ``2 * threads`` of them submitted.

    An exception is raised when the item's turn comes. ``cost`` is the bytes that an item's result holds until it is
    taken, and ``budget`` those that waiting results may hold together; one item alone may exceed them.
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="opacc-ahead") as pool:
        waiting: deque[tuple[Future[Result], int]] = deque()
        held = 0
        try:
            for item in items:
                more = cost(item)
                while waiting and (held + more > budget or len(waiting) >= 2 * threads):
                    future, freed = waiting.popleft()
                    held -= freed
                    yield future.result()
                waiting.append((pool.submit(work, item), more))
                held += more
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()


def write_files(store: Store, files: Mapping[str, bytes]) -> list[str]:
    """Write contents by their keys, one after the other, and return their URIs."""
    for key, data in files.items():
        store.write(key, data)
    return [store.uri_of(key) for key in files]


@functools.cache
def warn_of_one_writer(why: str) -> None:
    """Warn, once per process, that a store cannot create an object once among concurrent writers."""
    log.warning("%s: let one command at a time draw rounds of a run", why)


# -- a local folder ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalStore(Store):
    """A folder, local or on a shared file system. It need not exist yet."""

    root: str  # absolute
    follow_links: bool = False  # whether listings follow symbolic links

    @property
    def uri(self) -> str:
        return self.root.rstrip("/")

    def read(self, key: str) -> bytes:
        with self._opened(key) as file:
            return file.read()

    def is_linked(self, key: str) -> bool:
        own = os.path.join(os.path.realpath(self.root), key)
        return not self.follow_links and os.path.realpath(self._path(key)) != own

    def read_range(self, key: str, start: int, stop: int, listed: Entry | None = None) -> bytes:
        with self._opened(key, os.O_NOFOLLOW if listed and not self.follow_links else 0) as file:
            file.seek(start)
            before = os.fstat(file.fileno())
            content = file.read(stop - start)
            tags = {_tag(before), _tag(os.fstat(file.fileno()))}
        if listed and (tags != {listed.tag} or len(content) != stop - start):
            raise self.changed(key, "its modification time or its size differs")
        return self.whole_range(key, content, start, stop)

    def write(self, key: str, data: bytes) -> None:
        with self._written(key, data) as temporary:
            os.replace(temporary, self._path(key))

    def _create(self, key: str, data: bytes) -> bool | None:
        with self._written(key, data) as temporary:
            try:
                os.link(temporary, self._path(key))
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    warn_of_one_writer("this file system has no hard links")
                    return None
                raise
        return True

    @contextmanager
    def _written(self, key: str, data: bytes) -> Iterator[str]:
        """Yield a temporary file with ``data`` in the object's folder, and remove it afterwards."""
        folder = os.path.dirname(self._path(key))
        temporary = f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        with self._explained("write", key):
            os.makedirs(folder, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield temporary
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def try_writing(self) -> None:
        """Check write access to the folder, or to its nearest parent that exists."""
        there = next(path for path in (Path(self.root), *Path(self.root).parents) if os.path.lexists(path))
        Store.try_writing(LocalStore(str(there)))

    def entry(self, key: str) -> Entry | None:
        with self._explained("look for", key):
            try:
                status = os.stat(self._path(key))
            except OSError as error:
                if error.errno in _ABSENT:
                    return None
                raise
        return Entry(key, status.st_size, _tag(status)) if stat.S_ISREG(status.st_mode) else None

    def delete(self, key: str) -> None:
        with self._explained("delete", key), suppress(FileNotFoundError):
            os.unlink(self._path(key))

    def prune(self) -> None:
        for folder, _, _ in os.walk(self.root, topdown=False):
            with suppress(OSError):  # it holds something
                os.rmdir(folder)

    def store(self, sub: str) -> "LocalStore":
        return LocalStore(self._path(sub.rstrip("/")), self.follow_links)

    def list(self, prefix: str = "") -> Entries:
        parent = prefix.rpartition("/")[0]
        with self._explained("list", prefix):
            found = _below(self._path(parent) if parent else self.root, parent, self.follow_links)
        return [entry for entry in found.entries if entry.key.startswith(prefix)]

    def survey(self) -> Listing:
        if not os.path.isdir(self.root):
            what = "it is a file, and a folder is needed" if os.path.exists(self.root) else "there is no such folder"
            raise StorageError(f"cannot list {self.uri}: {what}; check the path")
        with self._explained("list", ""):
            return _below(self.root, "", self.follow_links)

    def _path(self, key: str) -> str:
        self.check_key(key)
        return f"{self.uri}/{key}"

    @contextmanager
    def _opened(self, key: str, more: int = 0) -> Iterator[IO[bytes]]:
        """Open a regular file; anything else is an error, since opening a FIFO would wait for a writer."""
        with (
            self._explained("read", key),
            open(self._path(key), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | more)) as file,
        ):
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise StorageError(f"cannot read {self.uri_of(key)}: it is a {_kind(mode)}, not a regular file")
            yield file

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # A listing names the file at fault; a write must not name its temporary file.
            place = (action == "list" and error.filename) or self.uri_of(key).rstrip("/")
            reason = _LOCAL_REASONS.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"cannot {action} {place}: {reason}") from error


def _below(top: str, key: str, follow_links: bool) -> Listing:
    """Return everything below the folder ``top`` with this key, at any depth; a missing folder is empty."""
    found, newest = Listing([], []), 0.0
    folders: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(top, key, frozenset())]
    while folders:
        folder, inside, above = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError):
            above |= {_place(os.stat(folder))}  # device and inode of a folder and its parents
            for item in os.scandir(folder):
                own = f"{inside}/{item.name}".lstrip("/")
                kind = "temporary" if item.name.startswith(TEMPORARY_PREFIX) else _kind_of(item, follow_links, above)
                if kind == "file":
                    status = item.stat()
                    found.entries.append(Entry(own, status.st_size, _tag(status)))
                    newest = max(newest, status.st_mtime)
                elif kind == "folder":
                    folders.append((item.path, own, above))
                elif kind not in ("temporary", "gone"):
                    found.oddities.append((own, kind))
    found.entries.sort()
    found.oddities.sort()
    return found._replace(newest=datetime.fromtimestamp(newest, UTC) if found.entries else None)


def _kind_of(item: os.DirEntry[str], follow_links: bool, above: frozenset[tuple[int, int]]) -> str:
    """Return "file", "folder", "gone" if it was removed meanwhile, or what else an item of a folder is."""
    if item.is_symlink() and not follow_links:
        return "symbolic link"
    try:
        status = item.stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return "dangling symbolic link" if item.is_symlink() else "gone"
    if stat.S_ISDIR(status.st_mode) and _place(status) in above:
        return "symbolic link to one of its parent folders"
    return _kind(status.st_mode)


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _tag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "file of an unknown kind")


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # errors of paths that lead to no file

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
"""Errors of file systems without hard links."""

_LOCAL_REASONS = {
    errno.ENOENT: "there is no such file; check the path",
    errno.EACCES: "permission is denied; check the owner and mode",
    errno.ELOOP: "it is a symbolic link; name the file itself, or set pool.follow_links: true",
    errno.ENOSPC: "the disk is full; free some space or choose another place",
}


# -- tables whose catalog says where they are and gives access -----------------------------------------------

S3_OPTIONS = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
"""pyiceberg's names of what ``s3_store.connection`` returns."""


class TableAccess(NamedTuple):
    """Where a table is, and how its files are read."""

    location: str  # URI
    options: Mapping[str, str] = {}  # by pyiceberg's names; empty: by the credentials of the environment
    expires: datetime | None = None


class VendedTable(Protocol):
    """A table in a catalog; it is a small value that can be pickled and hashed."""

    def access(self) -> TableAccess:
        """Return where the table is, with new credentials; raises DataError, SpecError or StorageError."""

    def __hash__(self) -> int:
        """A client is kept for each table."""
