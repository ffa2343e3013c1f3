"""Work on threads ahead of whoever takes the results, in their order and within a number of bytes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TypeVar

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


@contextmanager
def next_ahead(
    items: Iterator[Item], while_waiting: Callable[[], AbstractContextManager[None]] = nullcontext
) -> Iterator[Iterator[Item]]:
    """Take items on a thread of their own: the first as the block begins, and then one ahead.

    Parameters
    ----------
    items : none of them is None
    while_waiting : entered while an item that is asked for is not there yet
    """
    with ThreadPoolExecutor(1, thread_name_prefix="opacc-ahead") as pool:
        first = pool.submit(next, items, None)

        def taken(coming: Future[Item | None]) -> Iterator[Item]:
            while True:
                if not coming.done():
                    with while_waiting():
                        wait([coming])
                item = coming.result()
                if item is None:
                    return
                coming = pool.submit(next, items, None)
                yield item

        yield taken(first)
