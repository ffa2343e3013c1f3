"""An iterator that works one item ahead of its caller."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


class NextAhead(Generic[Item]):
    """An iterator whose next item is taken on a thread of its own, one ahead of the caller; no item is None.

    Use it in a ``with``, which ends the thread. The thread calls ``begin`` first.
    """

    def __init__(self, items: Iterator[Item], begin: Callable[[], object] | None = None) -> None:
        self._items = items
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="opacc-ahead", initializer=begin)
        self._coming = self._pool.submit(next, items, None)

    @property
    def is_there(self) -> bool:
        """Whether :meth:`take` returns without waiting."""
        return self._coming.done()

    def take(self) -> Item | None:
        """Return the next item, or None after the last; raises what taking the item raised."""
        item = self._coming.result()
        if item is not None:
            self._coming = self._pool.submit(next, self._items, None)
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
