"""Pools of tar files in the layout of WebDataset: members with one key are one example.

The key of a member is its path up to the first dot of its name, and the rest is its extension. So ``0001.jpg`` and
``0001.cls`` belong to the example ``0001``. Its input is the member with the extension in ``pool.columns.image`` or
``columns.array`` (``jpg``, or ``npy``); by default the first image or ``.npy`` file. An id is the tar file's key, a
slash and the example's key: ``train-000.tar/0001``. If an extension comes again under one key, a new example of that
key begins, so that a run reports the id that appears twice.

A tar file has no index, so it is one shard, read from its beginning, some megabytes at a time. It may be compressed
with gzip (``.tar.gz``, ``.tgz``).
"""

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, NamedTuple
from urllib.parse import quote

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.decode import ImageError, decode_image
from opacc_ray.lake.examples import BadItem, Cut, Example, Found, Items, Limits, Rules, Shard
from opacc_ray.lake.formats import Traits, images
from opacc_ray.lake.formats.npy import read_npy
from opacc_ray.lake.store import ObjectFile, Store

SUFFIXES = (".tar", ".tar.gz", ".tgz")

TRAITS = Traits(columns=("image", "array"), files=SUFFIXES)

CHUNK_BYTES = 8 << 20  # bytes of one request


class _Member(NamedTuple):
    name: str
    key: str
    extension: str
    content: bytes | None  # None: it is not needed, or larger than pool.max_bytes
    size: int


def cut(store: Store, found: Found, rules: Rules, limits: Limits, what: str) -> Cut:
    """Return one file for each shard."""
    return Cut([(entry,) for entry in found.entries])


def read(store: Store, shard: Shard, rules: Rules) -> Items:
    """Yield the examples of a tar file in their order. A truncated or invalid file is a bad item by its key."""
    for entry in shard.entries:
        count = 0
        try:
            for members in _grouped(_members(store.open_entry(entry), rules, entry.key)):
                yield _example(entry.key, store.uri_of(entry.key), members, rules)
                count += 1
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, DataError) as error:
            reason = shortened(str(error), 200)
            yield BadItem(entry.key, f"the tar file is cut short after {count} examples ({reason}); write it again")


def _grouped(members: Iterator[_Member]) -> Iterator[list[_Member]]:
    """Yield the members of each example: consecutive ones of one key, each with an extension of its own."""
    group: list[_Member] = []
    for member in members:
        if group and (member.key != group[0].key or member.extension in [own.extension for own in group]):
            yield group
            group = []
        group.append(member)
    if group:
        yield group


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
            folder, _, name = info.name.rpartition("/")
            stem, _, extension = name.partition(".")
            key = f"{folder}/{stem}" if folder else stem
            content = None
            if extension.lower() in wanted and info.size <= rules.max_bytes:
                stream = tar.extractfile(info)
                content = stream.read() if stream else None
                if content is not None and len(content) != info.size:
                    raise tarfile.ReadError(f"{info.name} ends after {len(content)} of {info.size} bytes")
            yield _Member(info.name, key, extension.lower(), content, info.size)
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


def _example(tar: str, uri: str, members: list[_Member], rules: Rules) -> Example | BadItem:
    wanted = _extensions(rules)
    name = f"{tar}/{members[0].key}"
    found = next((member for member in members if member.extension in wanted), None)
    if found is None:
        there = ", ".join(member.extension or "no extension" for member in members)
        return BadItem(name, f"it has no member {' or '.join(wanted)}, only {there}")
    if found.content is None:
        return BadItem(name, f"{found.name} has {found.size} bytes, and pool.max_bytes is {rules.max_bytes}")
    try:
        if found.extension == "npy" or found.extension in rules.columns.array:
            array = read_npy(found.content, found.name, rules.max_bytes)
        else:
            array = decode_image(found.content, alpha=rules.alpha, max_pixels=rules.max_pixels)
    except (ImageError, DataError) as error:
        return BadItem(name, str(error))
    return Example(name, f"{uri}#{quote(found.name)}", array, own_id=True)
