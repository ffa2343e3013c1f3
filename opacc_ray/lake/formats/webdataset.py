"""Pools of tar files in the layout of WebDataset: members with one key are one example.

The key of a member is its path up to the first dot of its name, and the rest is its extension. So ``0001.jpg`` and
``0001.cls`` belong to the example ``0001``. Its input is the member with the extension in ``pool.columns.image`` or
``columns.array`` (``jpg``, or ``npy``); by default the first image or ``.npy`` file. An id is the tar file's key, a
slash and the example's key: ``train-000.tar/0001``. The members of a key must be adjacent, each with an extension of
its own: a tar file that is not sorted by name would give halves of examples, and is refused.

A tar file has no index, so it is one shard, read from its beginning, some megabytes at a time. Others may unpack what
is read. It may be compressed with gzip (``.tar.gz``, ``.tgz``).
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.examples import BadItem, Cut, Decoded, Example, Found, Items, Limits, Rules, Shard, decoded, item_of
from opacc_ray.lake.formats import Traits, images
from opacc_ray.lake.formats.npy import read_npy
from opacc_ray.lake.store import Entry, ObjectFile, Store

SUFFIXES = (".tar", ".tar.gz", ".tgz")

TRAITS = Traits(columns=("image", "array"), files=SUFFIXES)

CHUNK_BYTES = 8 << 20  # bytes of one request


_FAULTS = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error)


class UnsortedError(DataError):
    """The members of a tar file do not make whole examples."""


class _Member(NamedTuple):
    name: str
    key: str
    extension: str
    content: bytes | None  # None: it is not needed, or too large
    size: int


class Packed(NamedTuple):
    """The members of one example."""

    tar: str  # key of the tar file
    uri: str
    members: list[_Member]

    @property
    def size(self) -> int:
        """Bytes of their contents."""
        return sum(len(member.content or b"") for member in self.members)


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return one file for each shard."""
    return Cut([(entry,) for entry in found.entries])


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the examples of a tar file in their order. A truncated or invalid file is a bad item by its key.

    Raises UnsortedError if a member is there twice, or the members of a key are not adjacent.
    """
    return (unpack(found, rules) for found in packed(store, shard, rules))


def packed(store: Store, shard: Shard, rules: Rules) -> Iterator[Packed | BadItem]:
    """Yield what :func:`unpack` makes examples of; raises as :func:`read`."""
    for entry in shard.entries:
        count = 0
        try:
            uri = store.uri_of(entry.key)
            members = _sorted(_members(store.open_entry(entry), rules, entry.key), uri)
            for _, group in groupby(members, key=lambda member: member.key):
                yield Packed(entry.key, uri, list(group))
                count += 1
        except UnsortedError:
            raise
        except (*_FAULTS, DataError) as error:
            reason = shortened(str(error), 200)
            yield BadItem(entry.key, f"the tar file is cut short after {count} examples ({reason}); write it again")


def keys(store: Store, entry: Entry) -> Iterator[str]:
    """Yield the keys of a tar file by the headers of its members, up to where it is damaged; raises as :func:`read`."""
    file: Any = store.open_entry(entry)
    with suppress(*_FAULTS):
        plain = file if entry.key.lower().endswith(".tar") else gzip.GzipFile(fileobj=file)
        with tarfile.open(fileobj=plain, mode="r:") as tar:
            members = (_Member(info.name, *_parts(info.name), None, info.size) for info in tar if info.isfile())
            for key, own in groupby(_sorted(members, store.uri_of(entry.key)), key=lambda member: member.key):
                _ = list(own)  # which compares them
                yield key


def _sorted(members: Iterable[_Member], tar: str) -> Iterator[_Member]:
    """Yield members; raises UnsortedError for one that is there twice, or is not next to the others of its key."""
    extensions: dict[str, tuple[str, ...]] = {}  # of each key
    last = ""
    for member in members:
        others = extensions.get(member.key, ())
        if member.extension in others:
            raise UnsortedError(f"{tar} holds {member.name!r} twice; write it again, with each member once")
        if others and member.key != last:
            raise UnsortedError(
                f"{tar} is not sorted: {member.name!r} comes after members of {last!r}, and the others of its key "
                "before; sort the members by name, as tar --sort=name does"
            )
        extensions[member.key], last = (*others, member.extension), member.key
        yield member


def _parts(name: str) -> tuple[str, str]:
    """Return the key of a member and its extension in lower case."""
    folder, _, file = name.rpartition("/")
    stem, _, extension = file.partition(".")
    return f"{folder}/{stem}" if folder else stem, extension.lower()


class _Counted:
    """A stream that counts the bytes that are read."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self._stream, self.count = stream, 0

    def read(self, size: int) -> bytes:
        found = self._stream.read(size)
        self.count += len(found)
        return found


def _members(file: ObjectFile, rules: Rules, key: str) -> Iterator[_Member]:
    """Yield the regular files of a tar, with the contents of those that may be the input."""
    wanted = _extensions(rules)
    plain: IO[bytes] = io.BufferedReader(file, CHUNK_BYTES)
    counted: Any = _Counted(plain if key.lower().endswith(".tar") else gzip.GzipFile(fileobj=plain))
    with tarfile.open(fileobj=counted, mode="r|", bufsize=CHUNK_BYTES) as tar:
        for info in tar:
            if not info.isfile():
                continue
            if info.issparse():  # a hole of any size takes a few bytes
                raise tarfile.ReadError(f"{info.name} is sparse")
            own, extension = _parts(info.name)
            content = None
            if extension in wanted and info.size <= rules.max_bytes:
                stream = tar.extractfile(info)
                content = stream.read() if stream else None
                if content is not None and len(content) != info.size:
                    raise tarfile.ReadError(f"{info.name} ends after {len(content)} of {info.size} bytes")
            yield _Member(info.name, own, extension, content, info.size)
        end = tar.offset
        while counted.read(CHUNK_BYTES):  # to the checksum of gzip
            pass
    if counted.count < end + tarfile.BLOCKSIZE:  # a complete tar ends with blocks of zeros
        raise tarfile.ReadError("it has no end")


def _extensions(rules: Rules) -> tuple[str, ...]:
    columns = rules.columns
    if columns.image is not None:
        return tuple(columns.image.lower().split(";"))
    return columns.array or (*(suffix[1:] for suffix in images.SUFFIXES), "npy")


def unpack(packed: Packed | BadItem, rules: Rules) -> Example | BadItem:
    """Return the example of some members, decoded."""
    if isinstance(packed, BadItem):
        return packed
    (tar, uri, members), wanted = packed, _extensions(rules)
    name = f"{tar}/{members[0].key}"
    found = next((member for member in members if member.extension in wanted), None)
    if found is None:
        there = ", ".join(member.extension or "no extension" for member in members)
        lacking = f"it has no member {' or '.join(wanted)}, only {there}"
        return BadItem(name, f"{lacking}; if that comes later, sort the tar file by name")
    if found.content is None:
        return BadItem(name, f"{found.name} has {found.size} bytes, and at most {rules.max_bytes} are read")
    if found.extension == "npy" or found.extension in rules.columns.array:
        try:
            value: Decoded = read_npy(found.content, found.name, rules.max_bytes)
        except DataError as error:
            value = str(error)
    else:
        value = decoded(found.content, rules)
    return item_of(name, f"{uri}#{quote(found.name)}", value, own_id=True)
