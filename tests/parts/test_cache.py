"""What parts keep: made once, asked by key, sent again to those that forgot."""

from concurrent.futures import ThreadPoolExecutor
from time import sleep

import numpy as np

from opacc_ray.parts.cache import Kept, key_of, part_keep, part_recall, repeat_if_forgotten
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool


class _Counting(LocalParts):
    """Counts messages to parts."""

    calls = 0

    def call(self, calls):
        self.calls += len(calls)
        return super().call(calls)


def _pool(first: int, last: int) -> Pool:
    return Pool(confidence=np.arange(first, last, dtype=np.float64))


def _sum_above(part: Pool, least: float) -> float:
    made.append(part.size)
    return float(part.confidence[part.confidence >= least].sum())


def _plus(kept: float, more: float) -> float:
    return kept + more


made: list[int] = []


def _kept(parts: LocalParts, least: float) -> Kept:
    return Kept(parts, "sum", key_of(np.array(least)), _sum_above, [(least,)] * len(parts.sizes))


def test_a_value_is_made_once_per_part_and_key() -> None:
    made.clear()
    parts = _Counting([_pool(0, 3), _pool(3, 10)])
    assert _kept(parts, 2.0).map(_plus, [(1,), (2,)]) == [3.0, 44.0]
    assert (made, parts.calls) == ([3, 7], 4)  # asked by key, then sent the recipe
    assert _kept(parts, 2.0).map(_plus, [(0,), (0,)]) == [2.0, 42.0]
    assert (made, parts.calls) == ([3, 7], 6)
    assert _kept(parts, 5.0).map(_plus, [(0,), (0,)]) == [0.0, 35.0]
    assert made == [3, 7, 3, 7]


def test_only_a_part_that_forgot_is_sent_the_recipe() -> None:
    made.clear()
    parts = _Counting([_pool(0, 3), _pool(3, 10)])
    _kept(parts, 2.0).map(_plus, [(0,), (0,)])
    parts.pools[1].kept.clear()  # as an actor that was restarted
    parts.calls = 0
    assert _kept(parts, 2.0).map(_plus, [(1,), (1,)]) == [3.0, 43.0]
    assert (made, parts.calls) == ([3, 7, 7], 3)


def test_several_calls_of_a_part_that_forgot_make_its_value_once() -> None:
    made.clear()
    parts = LocalParts([_pool(0, 3)])
    assert _kept(parts, 0.0).call([(0, _plus, (1,)), (0, _plus, (2,))]) == [4.0, 5.0]
    assert made == [3]


def test_what_is_kept_ends_with_the_parts() -> None:
    pool = _pool(0, 10)
    view = view_of(pool)
    subset(view, np.array([1, 2]))
    assert subset(view, np.array([1, 2])).column("confidence").tolist() == [1.0, 2.0]
    assert pool.kept == {}
    assert view_of(pool).parts.pools[0].kept == {}


def test_a_view_does_once_what_is_pure() -> None:
    done: list[int] = []

    def make() -> int:
        done.append(1)
        return len(done)

    view, other = View(LocalParts([_pool(0, 3)])), View(LocalParts([_pool(0, 3)]))
    assert [view.once("n", 1, make), view.once("n", 1, make), view.once("n", 2, make)] == [1, 1, 2]
    assert other.once("n", 1, make) == 3


def test_threads_that_share_views_take_turns() -> None:
    """In whatever order they name the views; parts keep one value per name, so another thread's would replace it."""
    first, second = (View(LocalParts([_pool(0, 3)])) for _ in range(2))

    def work(number: int) -> int:
        views = [first, second] if number % 2 else [second, first]

        def keep_then_recall() -> int:
            for view in views:
                view.map(part_keep, "number", "own", number)
            sleep(0.001)  # for others to come between
            return sum(view.map(part_recall, "number", "own")[0] for view in views)

        return repeat_if_forgotten(views, keep_then_recall)

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(work, range(24))) == [2 * number for number in range(24)]
