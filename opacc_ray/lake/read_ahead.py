"""Work on threads ahead of the caller: results in the order of the items, within limits of number and bytes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    cost: Callable[[Item], int] = lambda _: 0,
    budget: int = 0,
) -> Iterator[Result]:
    """Yield ``work(item)`` in the order of the items, with up to ``2 * threads`` of them submitted.

    Parameters
    ----------
    work : called on ``threads`` threads; its exception is raised when the item's turn comes
    items : taken one by one
    cost : bytes that an item's result holds until it is taken
    budget : bytes that waiting results may hold together; one item alone may exceed them
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
