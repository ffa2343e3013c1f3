"""An object as a file that reads only the bytes it is asked for."""

import io
from collections.abc import Callable, Iterable

Range = tuple[int, int]
"""First byte, and the one after the last."""

NEAR = 64 << 10
"""Bytes between two ranges below which one request for both costs less than two."""

READ_AHEAD = 64 << 10
"""Bytes that a read brings at least, for the reads that follow it."""


class ObjectFile(io.RawIOBase):
    """A file to read, at any place, whose bytes are fetched range by range.

    What is needed may be announced: :meth:`load` fetches it in few requests, and reads inside it cost none.

    Parameters
    ----------
    fetch : gives the bytes from a place up to another
    size : of the whole object, in bytes
    """

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        self._fetch = fetch
        self.size = size
        self._place = 0
        self._loaded: list[tuple[int, bytes]] = []  # announced pieces, each with its first byte
        self._ahead: tuple[int, bytes] = (0, b"")  # the last piece that was not announced

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset}, which lies before the object's first byte")
        self._place = base + offset
        return self._place

    def load(self, ranges: Iterable[Range]) -> None:
        """Fetch ranges that will be read: one request for each run of ranges that lie near one another."""
        missing = [(start, stop) for start, stop in ranges if self.held(start, stop) is None]
        self._loaded += [(start, self._fetch(start, stop)) for start, stop in merged(missing)]

    def hold(self, start: int, piece: bytes) -> None:
        """Take the bytes from a place on, which were fetched before."""
        self._loaded.append((start, piece))

    def forget(self) -> None:
        """Let go of what was fetched."""
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
        """Return the bytes from a place up to another if they have been fetched together, else None."""
        for first, piece in (*self._loaded, self._ahead):
            if first <= start and stop <= first + len(piece):
                return piece[start - first : stop - first]
        return None

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        found = self.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Return the fewest ranges that hold all of ``ranges``, in order, and no gap of more than ``NEAR`` bytes."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1] + NEAR:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        elif start < stop:
            found.append((start, stop))
    return found
