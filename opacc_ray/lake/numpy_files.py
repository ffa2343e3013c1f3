"""NumPy files read with limits: nothing is allocated, or unpacked, before the header has been checked.

An .npy header of a hundred bytes can ask for gigabytes, and a megabyte of .npz can hold a thousand of them. So the
type must be one of numbers, booleans and text, the shape must fit the bytes that follow, and what a zip archive says of
its members is compared with the limits and with what comes out.
"""

import io
import zipfile
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened

MAX_BYTES = 8 << 30
"""What an array may take in memory, unless the caller says otherwise."""

MAX_EXPANSION = 200
"""How many times larger a member of an archive may be than its compressed form; deflate reaches 1,032 on zeros."""

_FREE_BYTES = 64 << 20  # up to here any expansion is harmless
_MAX_HEADER = 10_000
_MAX_ITEM = 1024  # bytes of one item: numbers take 16 at most, a text 4 a character


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def read_npy(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """The array of an .npy file; a view of ``content``, which is not copied.

    Raises
    ------
    DataError
        It is no such file, its header does not fit the bytes that follow, or the array is larger than ``max_bytes``.
    """
    header, start = _read_header(content, name, max_bytes)
    there = len(content) - start
    if header.num_bytes != there:
        raise DataError(
            f"{name} says that it holds {header.num_bytes} bytes of {header.dtype} in the shape {header.shape}, and "
            f"{there} bytes follow; write it again"
        )
    flat = np.frombuffer(content, header.dtype, offset=start)
    return flat.reshape(header.shape, order="F" if header.fortran else "C")


class Rows(NamedTuple):
    """Where the rows of an .npy file lie, if one follows the other."""

    shape: tuple[int, ...]  # of all of them
    dtype: np.dtype[Any]
    start: int  # byte of the first

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    def range(self, start: int, stop: int) -> tuple[int, int]:
        """First byte, and the one after the last, of the rows from ``start`` up to ``stop``."""
        return self.start + start * self.row_bytes, self.start + stop * self.row_bytes

    def decode(self, content: bytes) -> NDArray[Any]:
        """The rows that some bytes hold; a view of them."""
        return np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])


HEAD_BYTES = _MAX_HEADER + 16
"""Bytes at the beginning of an .npy file that hold its header, whatever its version."""


def locate_rows(head: bytes, size: int, name: str) -> Rows | None:
    """Where the rows of an .npy file of ``size`` bytes lie, by its first bytes; None if it must be read as a whole.

    Raises
    ------
    DataError
        It is no such file.
    """
    header, start = _read_header(head, name, size)
    if header.fortran or len(header.shape) < 2 or header.num_bytes != size - start or header.num_bytes == 0:
        return None
    return Rows(header.shape, header.dtype, start)


def read_npz(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz archive by their names.

    Raises
    ------
    DataError
        It is no such archive, one of its members is no array, or they take more than ``max_bytes`` together.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members, name, max_bytes)
            return {
                member.filename.removesuffix(".npy"): read_npy(
                    _unpack(archive, member, name), f"{name} ({member.filename})", max_bytes
                )
                for member in members
            }
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{name} does not read as an .npz archive ({error}); write it again") from None
    except Exception as error:  # zlib and lzma raise kinds of their own on damaged members
        if isinstance(error, DataError | MemoryError):
            raise
        raise DataError(f"{name} does not unpack ({type(error).__name__}: {error}); write it again") from None


def _check_members(members: list[zipfile.ZipInfo], name: str, max_bytes: int) -> None:
    if len({member.filename for member in members}) < len(members):
        raise DataError(f"{name} holds two arrays of one name; write it again")
    for member in members:
        limit = max(_FREE_BYTES, MAX_EXPANSION * member.compress_size)
        if member.file_size > limit:
            raise DataError(
                f"{name}: {member.filename} expands from {member.compress_size} to {member.file_size} bytes, more than "
                f"{MAX_EXPANSION} times; store it with np.savez, uncompressed"
            )
    total = sum(member.file_size for member in members)
    if total > max_bytes:
        raise DataError(f"{name} holds {total} bytes of arrays, and at most {max_bytes} are read; write smaller files")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> bytes:
    """The bytes of a member, no more of them than it has announced."""
    with archive.open(member) as stream:
        content = stream.read(member.file_size + 1)
    if len(content) != member.file_size:
        raise DataError(f"{name}: {member.filename} does not hold the {member.file_size} bytes that it announces")
    return content


def _read_header(content: bytes, name: str, max_bytes: int) -> tuple[_Header, int]:
    """What an .npy file says of its array, and where the array begins."""
    stream = io.BytesIO(content[:HEAD_BYTES])
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        header = _Header(*read(stream, max_header_size=_MAX_HEADER))
    except Exception as error:  # NumPy's parser raises many kinds on damaged headers
        reason = shortened(str(error), 200)
        raise DataError(f"{name} does not read as a NumPy file ({reason}); write it again") from None
    if header.dtype.kind not in "biufSU" or header.dtype.itemsize > _MAX_ITEM:
        raise DataError(
            f"{name} holds items of the type {str(header.dtype)[:60]}; give numbers, booleans or short text"
        )
    if any(length < 0 for length in header.shape) or (0 in header.shape and header.shape[0] > 0):
        raise DataError(f"{name} has the shape {header.shape}: its rows hold nothing; give one example per row")
    if header.num_bytes > max_bytes:
        raise DataError(
            f"{name} announces {header.num_bytes} bytes in the shape {header.shape}, and at most {max_bytes} are read; "
            "write smaller files"
        )
    return header, stream.tell()
