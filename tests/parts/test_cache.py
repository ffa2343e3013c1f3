"""What parts keep: made once, asked by key, sent again to those that lost it."""

import numpy as np

from opacc_ray.parts.view import Kept, LocalParts, View, key_of, subset, view_of
from opacc_ray.pool import Pool


class _Counting(LocalParts):
    """Counts messages to parts."""

    calls = 0

    def call(self, calls):
        self.calls += len(calls)
        return super().call(calls)


def _pool(first: int, last: int) -> Pool:
    return Pool(lsa=np.arange(first, last, dtype=np.float64))


def _sum_above(part: Pool, least: float) -> float:
    made.append(part.size)
    return float(part.lsa[part.lsa >= least].sum())


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


def test_only_a_part_without_the_value_is_sent_the_recipe() -> None:
    made.clear()
    parts = _Counting([_pool(0, 3), _pool(3, 10)])
    _kept(parts, 2.0).map(_plus, [(0,), (0,)])
    parts.pools[1].kept.clear()  # as an actor that was restarted
    parts.calls = 0
    assert _kept(parts, 2.0).map(_plus, [(1,), (1,)]) == [3.0, 43.0]
    assert (made, parts.calls) == ([3, 7, 7], 3)


def test_what_is_kept_ends_with_the_parts() -> None:
    pool = _pool(0, 10)
    view = view_of(pool)
    subset(view, np.array([1, 2]))
    assert subset(view, np.array([1, 2])).column("lsa").tolist() == [1.0, 2.0]
    assert pool.kept == {}
    assert view_of(pool).parts.pools[0].kept == {}


def test_a_view_makes_a_pure_value_once() -> None:
    done: list[int] = []

    def make() -> int:
        done.append(1)
        return len(done)

    view, other = View(LocalParts([_pool(0, 3)])), View(LocalParts([_pool(0, 3)]))
    assert [view.once("n", 1, make), view.once("n", 1, make), view.once("n", 2, make)] == [1, 1, 2]
    assert other.once("n", 1, make) == 3
