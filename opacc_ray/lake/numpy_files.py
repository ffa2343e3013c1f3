"""NumPy files, read within limits: headers are checked before anything is allocated or unpacked.

A short .npy header can ask for gigabytes, and so can a small .npz archive. So the type must be numbers, booleans or
text, and the shape must match the bytes after the header. The sizes that a zip archive announces are compared with the
limits, and with the unpacked bytes.
"""

import io
import zipfile
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.arrow_columns import unless_valid

MAX_BYTES = 8 << 30
"""Default of the largest array in bytes."""

MAX_EXPANSION = 200
"""Largest ratio of the sizes of an archive's member, unpacked to compressed; deflate reaches 1,032 on zeros."""

_FREE_BYTES = 64 << 20  # any ratio is harmless up to here
_MAX_HEADER = 10_000
_MAX_ITEM = 1024  # bytes of one item: numbers have at most 16, text has 4 per character


HEAD_BYTES = _MAX_HEADER + 16
"""Bytes at the beginning of an .npy file that contain its header in any version."""


class Layout(NamedTuple):
    """The layout of an .npy file, according to its header."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    start: int  # first byte of the array

    @property
    def num_bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    def range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first byte, and the one after the last, of the rows from ``start`` up to ``stop``."""
        return self.start + start * self.row_bytes, self.start + stop * self.row_bytes

    def decode(self, content: bytes) -> NDArray[Any]:
        """Return the rows in some bytes, as a view."""
        return np.frombuffer(content, self.dtype).reshape(-1, *self.shape[1:])


def read_npy(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> NDArray[Any]:
    """Return the array of an .npy file, as a view of ``content``.

    Raises DataError if the file is not valid, or the array is larger than ``max_bytes``.
    """
    found = _read_header(content, name, max_bytes)
    there = len(content) - found.start
    if found.num_bytes != there:
        raise DataError(
            f"{name} announces {found.num_bytes} bytes of {found.dtype} in the shape {found.shape}, and has "
            f"{there}; write it again"
        )
    flat = np.frombuffer(content, found.dtype, offset=found.start)
    return flat.reshape(found.shape, order="F" if found.is_fortran else "C")


def locate_rows(head: bytes, size: int, name: str) -> Layout | None:
    """Return the layout of an .npy file of ``size`` bytes, by its first bytes; None if it must be read as a whole.

    Raises DataError if the file is not valid.
    """
    found = _read_header(head, name, size)
    has_rows = len(found.shape) > 1 and not found.is_fortran and found.num_bytes > 0
    return found if has_rows and found.start + found.num_bytes == size else None


def read_npz(content: bytes, name: str, max_bytes: int = MAX_BYTES) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz archive by their names.

    Raises DataError if the archive or a member is not valid, or the arrays have more than ``max_bytes`` together.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            _check_members(members, name, max_bytes)
            found = {}
            for member in members:
                unpacked = _unpack(archive, member, name)
                found[member.filename.removesuffix(".npy")] = read_npy(
                    unpacked, f"{name} ({member.filename})", max_bytes
                )
            return found
    except (DataError, MemoryError):
        raise
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise DataError(f"{name} is not a valid .npz archive ({error}); write it again") from None
    except Exception as error:  # zlib and lzma raise their own errors for damaged members
        raise DataError(f"{name} cannot be unpacked ({type(error).__name__}: {error}); write it again") from None


def _check_members(members: list[zipfile.ZipInfo], name: str, max_bytes: int) -> None:
    if len({member.filename for member in members}) < len(members):
        raise DataError(f"{name} has two arrays of one name; write it again")
    for member in members:
        limit = max(_FREE_BYTES, MAX_EXPANSION * member.compress_size)
        if member.file_size > limit:
            raise DataError(
                f"{name}: {member.filename} expands from {member.compress_size} to {member.file_size} bytes, more than "
                f"{MAX_EXPANSION} times; store it with np.savez, uncompressed"
            )
    total = sum(member.file_size for member in members)
    if total > max_bytes:
        raise DataError(f"{name} has {total} bytes of arrays, and at most {max_bytes} are read; write smaller files")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> bytes:
    """Return the bytes of a member; raises DataError if their number is not the announced one."""
    with archive.open(member) as stream:
        content = stream.read(member.file_size + 1)
    if len(content) != member.file_size:
        raise DataError(f"{name}: {member.filename} does not have the {member.file_size} bytes that it announces")
    return content


def _read_header(content: bytes, name: str, max_bytes: int) -> Layout:
    stream = io.BytesIO(content[:HEAD_BYTES])
    with unless_valid(f"{name} is not a valid NumPy file", "; write it again"):
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        found = Layout(*read(stream, max_header_size=_MAX_HEADER), stream.tell())
    if found.dtype.kind not in "biufSU" or found.dtype.itemsize > _MAX_ITEM:
        raise DataError(f"{name} has items of the type {str(found.dtype)[:60]}; store numbers, booleans or short text")
    if any(length < 0 for length in found.shape) or (0 in found.shape and found.shape[0] > 0):
        raise DataError(f"{name} has the shape {found.shape}: its rows are empty; store one example per row")
    if found.num_bytes > max_bytes:
        raise DataError(
            f"{name} announces {found.num_bytes} bytes in the shape {found.shape}, and at most {max_bytes} are read; "
            "write smaller files"
        )
    return found
