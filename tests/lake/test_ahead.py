"""Work on threads: in order, within its bytes, and ended with whoever takes it."""

import threading
import time

import pytest

from opacc_ray.lake.ahead import ahead


def test_results_come_in_order() -> None:
    def work(number: int) -> int:
        time.sleep(0.01 * (number % 3))
        return number

    assert list(ahead(work, range(40), 8, lambda _: 1, 1000)) == list(range(40))


def test_what_waits_stays_within_the_budget() -> None:
    lock, held, most = threading.Lock(), 0, 0

    def work(size: int) -> int:
        nonlocal held, most
        with lock:
            held += size
            most = max(most, held)
        return size

    sizes = [30, 40, 30, 10, 90, 10, 250, 5, 60]
    for size in ahead(work, sizes, 8, lambda size: size, 100):
        held -= size
    assert held == 0
    assert 100 < most <= 250 + 100  # what was just taken, and one item larger than the budget


def test_an_error_comes_when_its_turn_does() -> None:
    def work(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        return number

    results = ahead(work, range(9), 4, lambda _: 1, 100)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)
