"""What every place of objects can do, wherever its bytes lie.

A `Store` is a place: a bucket's prefix or a folder. What it holds are objects, named by keys relative to
that place, with '/' between their parts. An object is written whole or not at all, so a reader never sees
half of one, and listing a store tells which work is done.
"""

import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

from opacc_ray.errors import OpaccError, StorageError
from opacc_ray.lake.agreement import agree
from opacc_ray.lake.object_file import ObjectFile

TEMPORARY_PREFIX = ".opacc-tmp-"  # a local file being written; no listing shows it

Item = TypeVar("Item")
Result = TypeVar("Result")


class Entry(NamedTuple):
    """One object of a listing."""

    key: str  # relative to the store
    size: int  # in bytes
    tag: str  # differs when the object has changed; it has no other meaning


Entries = list[Entry]


class Oddity(NamedTuple):
    """What lies in a folder and is no object: nothing opens it."""

    key: str
    kind: str  # "symbolic link", "FIFO", "socket", "device", ...


class Listing(NamedTuple):
    """All that lies at a place."""

    entries: Entries
    oddities: list[Oddity]


class ChangedError(OpaccError):
    """An object is not what it was when the pool was listed."""

    exit_code = 5


class Store(ABC):
    """A place that holds objects. All methods raise `StorageError`, which names the object and the fix."""

    @property
    @abstractmethod
    def uri(self) -> str:
        """The place's name, without a trailing slash."""

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
        """Tell whether only a symbolic link leads to the object, in a place that does not list what those lead to."""
        return False

    @abstractmethod
    def read_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the object's bytes from ``start`` up to ``stop``; an object that ends before ``stop`` is an error."""

    @abstractmethod
    def size(self, key: str) -> int:
        """Return the object's size in bytes."""

    @abstractmethod
    def write(self, key: str, data: bytes) -> None:
        """Create or replace the object atomically: on failure, what was there before stays."""

    def create(self, key: str, data: bytes) -> bytes:
        """Create the object unless it is there, and return what it holds: ``data``, or what was there first.

        Of any number of writers, at any time, one creates it, and all others are given its content.
        """
        created = self._create(key, data)
        if created is None:
            return agree(self, key, data)
        return data if created else self.read(key)

    @abstractmethod
    def _create(self, key: str, data: bytes) -> bool | None:
        """Tell whether the object was created; None if this place has no operation that creates an object once."""

    def try_writing(self) -> None:
        """Write an object and remove it; raises StorageError if that cannot be done. Nothing stays."""
        key = f"opacc-check-{uuid.uuid4().hex}"
        self.write(key, b"")
        self.delete(key)

    @abstractmethod
    def entry(self, key: str) -> Entry | None:
        """Return what a listing says of the object; None if it is not there."""

    @abstractmethod
    def written(self, key: str) -> datetime:
        """Return when the object was written, in UTC, by the clock of this place."""

    @abstractmethod
    def exists(self, key: str) -> bool:
        """Tell whether the object is there. A bucket that is missing is an error."""

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; a missing one is fine."""

    def prune(self) -> None:
        """Remove what a place without objects leaves behind: on a disk, empty folders."""
        return

    @abstractmethod
    def store(self, sub: str) -> "Store":
        """Return the place `sub` inside this one."""

    @abstractmethod
    def list(self, prefix: str = "") -> Entries:
        """Return all objects whose key starts with `prefix`, at any depth, sorted by key.

        A prefix or folder that does not exist is empty; a bucket that does not exist is an error.
        """

    def survey(self) -> Listing:
        """Return all objects, and what is none; raises StorageError if there is no such place."""
        return Listing(self.list(), [])

    @abstractmethod
    def read_entry(self, entry: Entry) -> bytes:
        """Return the content of an object that was listed.

        Raises
        ------
        ChangedError
            It is another object now.
        StorageError
            It cannot be read, or came damaged again and again.
        """

    @abstractmethod
    def read_entry_range(self, entry: Entry, start: int, stop: int) -> bytes:
        """Return bytes of an object that was listed; raises as :meth:`read_entry`, and if it ends before ``stop``."""

    def open_entry(self, entry: Entry) -> ObjectFile:
        """Return a listed object as a file, as :meth:`open` does; a read raises if it is another object now."""
        return ObjectFile(partial(self.read_entry_range, entry), entry.size)

    def open(self, key: str, size: int | None = None) -> ObjectFile:
        """Return the object as a file that reads only the bytes it is asked for.

        ``size`` saves a question to the server where a listing or an index has it.
        """
        return ObjectFile(partial(self.read_range, key), self.size(key) if size is None else size)

    def link(self, key: str, seconds: int) -> str:
        """Return a link by which anyone reads the object for that long; only places in S3 have them."""
        raise StorageError(f"{self.uri_of(key)} has no link that a browser opens; send copies or thumbnails instead")

    def read_many(self, keys: Iterable[str], threads: int = 16) -> Iterator[bytes]:
        """Yield the objects' contents in the order of `keys`, while `threads` read ahead.

        At most `2 * threads` objects are held in memory. An object that cannot be read raises when its
        turn comes.
        """
        return in_order(self.read, keys, threads)

    def write_many(self, objects: Iterable[tuple[str, bytes]], threads: int = 16) -> None:
        """Write (key, content) pairs on `threads` threads; raises at the first that fails."""
        for _ in in_order(lambda item: self.write(*item), objects, threads):
            pass

    def uri_of(self, key: str) -> str:
        """Return the object's URI."""
        return f"{self.uri}/{key}"


def write_files(store: Store, files: Mapping[str, bytes]) -> list[str]:
    """Write contents by their keys, one after the other; returns their URIs."""
    for key, data in files.items():
        store.write(key, data)
    return [store.uri_of(key) for key in files]


def in_order(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
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


def check_key(key: str, uri: str) -> None:
    parts = key.split("/")
    if any(part in ("", ".", "..") or part.startswith(TEMPORARY_PREFIX) or "\0" in part for part in parts):
        raise StorageError(f"{key!r} is no key below {uri}: it must be relative, without '//', '.' and '..' parts")


def whole_range(found: bytes, start: int, stop: int, uri: str) -> bytes:
    """Return what a server gave for a range; raises StorageError if that is not all of it."""
    if len(found) != stop - start:
        raise StorageError(
            f"cannot read {uri}: bytes {start} to {stop} were asked for and {len(found)} came; "
            "the object has changed or is cut short, so restore it or start again"
        )
    return found


def changed(uri: str, what: str) -> ChangedError:
    """The error of an object that is not the one that was listed; ``what`` says how that shows."""
    return ChangedError(
        f"{uri} has changed since the pool was listed ({what}); run the same spec again once the pool is at rest: "
        "it is listed anew, as a run of its own"
    )
