"""The log of a run: everything that happened to it, in numbered entries that are never changed.

    log/00000001.json    what happened, with digests of the entry before and of the files that it speaks of

The state of a run is what its log says: what is not in the log did not happen. A file is written before the entry that
names it, so an interrupted command leaves a file that nothing reads. An entry is created once. Of two commands that
write the same number one creates it; the other reads the log as it is then, and decides again. So no command draws,
closes or imports on the strength of a state that has passed.

After an entry that the run is removed nothing is logged. Entries are deleted in their order, so a command that read
them before finds that its predecessor is gone.

An entry whose number is missing, or whose predecessor differs from the one that it knew, is reported by each process
when it first reads the log; it goes on from what it has read. A log that ends earlier than it did is not noticed by
itself, only by a digest of its end that somebody keeps elsewhere.
"""

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import Field

from opacc_ray.documents import Document, SealedDocument, format_field
from opacc_ray.errors import DataError
from opacc_ray.lake.store_uris import Store

AnyDocument = TypeVar("AnyDocument", bound=Document)

FOLDER = "log/"


class Commit(SealedDocument):
    """One entry of the log of a run, in ``log/NUMBER.json``."""

    remedy: ClassVar[str] = "restore it from a backup"

    format: Literal["opacc-commit/1"] = format_field("opacc-commit/1")
    run: str = Field(description="digest of the run")
    number: int = Field(ge=1, description="number of the entry")
    previous: str | None = Field(description="SHA-256 of the file of the entry before; null: the first entry")
    at: str = Field(description="time in ISO 8601, UTC; later than that of the entry before, whatever clocks show")
    round: int | None = Field(default=None, ge=1, description="round that it is about; null: none")
    files: dict[str, str] = Field(
        default={}, description="SHA-256 of each file that it speaks of, by its key; at least the first 16 digits"
    )
    content: list[dict[str, Any]] = Field(description="what happened: documents with a `format`")

    def documents(self, kind: type[AnyDocument]) -> Iterator[AnyDocument]:
        """Yield the documents of a kind."""
        wanted = _format_of(kind)
        for content in self.content:
            if content.get("format") == wanted:
                yield kind.from_dict(content, f"entry {self.number} of the log")


class Removal(Document):
    """The last entry of a run: its files are deleted."""

    format: Literal["opacc-removal/1"] = format_field("opacc-removal/1")

    def words(self) -> str:
        return "removed"


@cache
def _format_of(kind: type[Document]) -> str:
    """Return the format of a kind of document, which a log of thousands of entries is searched for."""
    return str(kind.model_fields["format"].default)


class Happening(NamedTuple):
    """What a command does to a run, as an entry of the log will say."""

    content: Sequence[Document | Mapping[str, Any]]
    round: int | None = None
    files: Mapping[str, str] = {}
    at: str | None = None  # no earlier than now; None: the time of writing


class CommitLog:
    """The log of one run in storage; entries that were read are kept.

    Parameters
    ----------
    store : the prefix of the run
    run : digest of the run
    """

    def __init__(self, store: Store, run: str) -> None:
        self._store, self._run = store, run
        self._read: list[Commit] = []
        self._last: str | None = None  # digest of the last entry's file
        self._lock = threading.RLock()

    def read(self) -> tuple[Commit, ...]:
        """Return all entries; raises DataError if one is lost, damaged or of another run."""
        with self._lock:
            self._refresh()
            return tuple(self._read)

    def _refresh(self) -> None:
        if self._read and not self._store.exists(_key(len(self._read) + 1)):
            return  # entries are numbered without gaps
        keys = [entry.key for entry in self._store.list(FOLDER)]
        new = [_key(number) for number in range(len(self._read) + 1, len(keys) + 1)]
        lost = sorted({*map(_key, range(1, len(keys) + 1))} - set(keys))
        if lost:
            raise DataError(f"{self._store.uri_of(lost[0])} is lost; restore it from a backup")
        for key, data in zip(new, self._store.read_many(new), strict=True):
            self._take(data, self._checked(key, data))

    def append(self, decide: Callable[[tuple[Commit, ...]], Happening | None]) -> Commit | None:
        """Write what ``decide`` returns for the log as it is; None if it returns None.

        It is called again if another command wrote first. What it raises ends the attempt, and nothing is written.
        Raises DataError if the run is being removed.
        """
        with self._lock:
            if not self._read:
                self._refresh()
            while (happening := decide(tuple(self._read))) is not None:
                if any(True for commit in self._read[-1:] for _ in commit.documents(Removal)):
                    raise DataError(self._removed)
                data, number = self._next(happening), len(self._read) + 1
                if self._store.create(_key(number), data) == data:
                    self._refuse_orphan(number)
                    self._take(data, Commit.from_bytes(data, "the log"))
                    return self._read[-1]
                self._refresh()
            return None

    @property
    def _removed(self) -> str:
        return f"{self._store.uri} was removed by `opacc runs remove` meanwhile, so nothing was done"

    def _refuse_orphan(self, number: int) -> None:
        """Raise DataError, and delete an entry that was just created, if those before it are gone."""
        if number > 1 and not self._store.exists(_key(number - 1)):
            self._store.delete(_key(number))
            raise DataError(self._removed)

    def _next(self, happening: Happening) -> bytes:
        last = [datetime.fromisoformat(commit.at) + timedelta(microseconds=1) for commit in self._read[-1:]]
        time = datetime.now(UTC) if happening.at is None else datetime.fromisoformat(happening.at)
        return Commit(
            run=self._run,
            number=len(self._read) + 1,
            previous=self._last,
            at=max([time, *last]).isoformat(timespec="microseconds"),
            round=happening.round,
            files=dict(happening.files),
            content=[entry.to_dict() if isinstance(entry, Document) else dict(entry) for entry in happening.content],
        ).to_bytes()

    def _checked(self, key: str, data: bytes) -> Commit:
        commit, uri = Commit.from_bytes(data, self._store.uri_of(key)), self._store.uri_of(key)
        if commit.run != self._run:
            raise DataError(f"{uri} belongs to another run than spec.json; restore both from one backup")
        if (commit.number, commit.previous) != (len(self._read) + 1, self._last):
            raise DataError(f"{uri} does not follow the entry before it: one was changed; restore {FOLDER} as a whole")
        return commit

    def _take(self, data: bytes, commit: Commit) -> None:
        self._read.append(commit)
        self._last = digest_of(data)


def _key(number: int) -> str:
    return f"{FOLDER}{number:08d}.json"


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of the content of a file."""
    return hashlib.sha256(data).hexdigest()


def name_of_labels(name: str, data: bytes) -> str:
    """Return the name for a stored file of labels: the digest of its content, and its suffix."""
    suffix = PurePath(name).suffix.lower()
    safe = suffix if re.fullmatch(r"\.[a-z0-9]{1,8}", suffix) else ""
    return f"{digest_of(data)[:16]}{safe}"
