"""Work on threads: in order, within its bytes, and ended with whoever takes it."""

import queue
import threading
from collections.abc import Iterator

import pytest
from waiting import LONG

from opacc_ray.lake.store import in_order
from opacc_ray.parts.loops import NextAhead


def test_what_waits_stays_within_the_budget() -> None:
    lock, held, most = threading.Lock(), 0, 0

    def work(size: int) -> int:
        nonlocal held, most
        with lock:
            held += size
            most = max(most, held)
        return size

    sizes = [30, 40, 30, 10, 90, 10, 250, 5, 60]
    for size in in_order(work, sizes, 8, lambda size: size, 100):
        held -= size
    assert held == 0
    assert 100 < most <= 250 + 100  # what was just taken, and one item larger than the budget


def test_the_first_item_is_taken_before_anyone_asks_and_then_one_ahead() -> None:
    asked: queue.Queue[int] = queue.Queue()

    def items() -> Iterator[int]:
        for number in range(1, 5):
            asked.put(number)
            yield number

    with NextAhead(items()) as found:
        assert asked.get(timeout=LONG) == 1
        assert found.take() == 1
        assert asked.get(timeout=LONG) == 2
        assert asked.empty()
        assert [found.take() for _ in range(5)] == [2, 3, 4, None, None]


def test_an_error_on_the_thread_ahead_comes_after_what_was_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("two")

    with NextAhead(items()) as found:
        assert found.take() == 1
        with pytest.raises(ValueError, match="two"):
            found.take()


def test_who_takes_items_learns_whether_one_is_there() -> None:
    ready = threading.Event()

    def items() -> Iterator[int]:
        ready.wait(LONG)
        yield 1

    with NextAhead(items()) as found:
        assert not found.is_there
        ready.set()
        assert found.take() == 1
