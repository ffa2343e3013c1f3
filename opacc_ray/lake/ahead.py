"""Work on threads ahead of whoever takes the results, in their order and within a number of bytes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ahead(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, cost: Callable[[Item], int], budget: int
) -> Iterator[Result]:
    """Yield ``work(item)`` in the order of the items.

    Parameters
    ----------
    work : called on ``threads`` threads; what it raises is raised when the item's turn comes
    items : taken one by one
    cost : bytes that an item's result holds until it is taken
    budget : bytes that results which wait may hold together; one item alone may exceed them
    """
    with ThreadPoolExecutor(threads, thread_name_prefix="opacc-ahead") as pool:
        waiting: deque[tuple[Future[Result], int]] = deque()
        held = 0
        try:
            for item in items:
                more = cost(item)
                while waiting and (held + more > budget or len(waiting) >= 2 * threads):
                    future, given = waiting.popleft()
                    held -= given
                    yield future.result()
                waiting.append((pool.submit(work, item), more))
                held += more
            while waiting:
                yield waiting.popleft()[0].result()
        finally:
            for future, _ in waiting:
                future.cancel()


class NextAhead(Generic[Item]):
    """Takes items, none of which is None, on a thread of its own: the first when it is made, and then one ahead.

    To be used in a ``with``, which ends the thread. The thread calls ``begin`` first.
    """

    def __init__(self, items: Iterator[Item], begin: Callable[[], object] | None = None) -> None:
        self._items = items
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="opacc-ahead", initializer=begin)
        self._coming = self._pool.submit(next, items, None)

    @property
    def is_there(self) -> bool:
        """Whether the next item, or the end, need not be waited for."""
        return self._coming.done()

    def take(self) -> Item | None:
        """Return the next item, None after the last; what taking it raised is raised here."""
        item = self._coming.result()
        if item is not None:
            self._coming = self._pool.submit(next, self._items, None)
        return item

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()
