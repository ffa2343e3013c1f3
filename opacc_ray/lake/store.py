"""The interface of a store: objects named by keys, in a bucket's prefix or in a folder.

Keys are relative to the store, with '/' between their parts. An object is written whole or not at all. So a reader
never sees half of one, and a listing shows which work is done.
"""

import functools
import io
import logging
import os
import threading
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from opacc_ray.errors import OpaccError, SpecError, StorageError

Item = TypeVar("Item")
Result = TypeVar("Result")
Call = TypeVar("Call", bound=Callable[..., Any])

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
) -> Iterator[Result]:
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


# -- outages ---------------------------------------------------------------------------------------------------

PATIENCE = "OPACC_STORAGE_PATIENCE"
"""Environment variable: most seconds that a request waits for storage; 0: none."""

DEFAULT, PAUSE, MOST_PAUSE = 180.0, 1.0, 10.0
"""Seconds: of patience, before the first further try, and at most before each."""

_answered: set[str] = set()
_lock, _down = threading.Lock(), dict[str, float]()


def expect_answers() -> None:
    """Wait for every outage, even if this process has had no answer yet."""
    _answered.add("")


def patience() -> float:
    """Return the most seconds that a request waits; raises SpecError if the environment has no such number."""
    text = os.environ.get(PATIENCE, "")
    try:
        seconds = float(text or DEFAULT)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 86400:
        raise SpecError(f"{PATIENCE} is {text!r}; set it to seconds, such as 180")
    return seconds


def patient(call: Call) -> Call:
    """Make a method of a store wait, within a budget of time, for a server that does not answer.

    A first request fails at once where the address itself is wrong, as a name that does not exist. Workers of a cluster
    wait for that one as well, since their driver has had answers. What waits for storage is no failed attempt of a
    shard. ``store.is_outage`` decides by the cause of an error, and by whether ``store.place`` answered before.
    """

    @functools.wraps(call)
    def waiting(store: Any, *arguments: Any, **options: Any) -> Any:
        begun, pause = time.monotonic(), PAUSE
        while True:
            try:
                result = call(store, *arguments, **options)
            except StorageError as error:
                left = begun + patience() - time.monotonic()
                if left <= 0 or not store.is_outage(error.__cause__, not _answered.isdisjoint(("", store.place))):
                    raise
                _begin(store.place, str(error), left)
                time.sleep(min(pause, left))
                pause = min(2 * pause, MOST_PAUSE)
            else:
                _end(store.place)
                return result

    return waiting  # type: ignore[return-value]


def _begin(place: str, why: str, left: float) -> None:
    with _lock:
        if place not in _down:
            _down[place] = time.monotonic()
            log.warning("%s; waiting up to %.0f s for it", why, left)


def _end(place: str) -> None:
    _answered.add(place)
    if _down:
        with _lock:
            since = _down.pop(place, None)
        if since is not None:
            log.info("%s answers again, after %.0f s", place, time.monotonic() - since)


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
