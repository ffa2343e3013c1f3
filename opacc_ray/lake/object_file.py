"""An object of a store as a file: a read fetches only the bytes that it needs."""

import io
from collections.abc import Callable, Iterable

Range = tuple[int, int]
"""First byte, and the one after the last."""

NEAR = 64 << 10  # largest gap in bytes between two ranges that are fetched in one request
READ_AHEAD = 64 << 10  # bytes that a read fetches at least, for the reads after it


class ObjectFile(io.RawIOBase):
    """A seekable file of ``size`` bytes, which ``fetch(start, stop)`` returns range by range.

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
    """Return sorted ranges that cover ``ranges``, merged across gaps of up to ``NEAR`` bytes."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1] + NEAR:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        elif start < stop:
            found.append((start, stop))
    return found
