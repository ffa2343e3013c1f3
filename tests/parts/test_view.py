"""What parts keep, made once and sent again to those that lost it; and subsets that read as pools of their own."""

import pickle

import numpy as np
import pytest

from opacc_ray.parts.view import Kept, LocalParts, View, key_of, subset, view_of
from opacc_ray.pool import Pool


class _Counting(LocalParts):
    """Counts messages to parts."""

    calls = 0

    def call(self, calls):
        self.calls += len(calls)
        return super().call(calls)


def _numbers(first: int, last: int) -> Pool:
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
    parts = _Counting([_numbers(0, 3), _numbers(3, 10)])
    assert _kept(parts, 2.0).map(_plus, [(1,), (2,)]) == [3.0, 44.0]
    assert (made, parts.calls) == ([3, 7], 4)  # asked by key, then sent the recipe
    assert _kept(parts, 2.0).map(_plus, [(0,), (0,)]) == [2.0, 42.0]
    assert (made, parts.calls) == ([3, 7], 6)
    assert _kept(parts, 5.0).map(_plus, [(0,), (0,)]) == [0.0, 35.0]
    assert made == [3, 7, 3, 7]


def test_only_a_part_without_the_value_is_sent_the_recipe() -> None:
    made.clear()
    parts = _Counting([_numbers(0, 3), _numbers(3, 10)])
    _kept(parts, 2.0).map(_plus, [(0,), (0,)])
    parts.pools[1].kept.clear()  # as an actor that was restarted
    parts.calls = 0
    assert _kept(parts, 2.0).map(_plus, [(1,), (1,)]) == [3.0, 43.0]
    assert (made, parts.calls) == ([3, 7, 7], 3)


def test_what_is_kept_ends_with_the_parts() -> None:
    pool = _numbers(0, 10)
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

    view, other = View(LocalParts([_numbers(0, 3)])), View(LocalParts([_numbers(0, 3)]))
    assert [view.once("n", 1, make), view.once("n", 1, make), view.once("n", 2, make)] == [1, 1, 2]
    assert other.once("n", 1, make) == 3


N = 400


@pytest.fixture(scope="module")
def pool() -> Pool:
    return _pool(0, N)


def _pool(first: int, last: int) -> Pool:
    rng = np.random.default_rng(0)
    output = rng.normal(size=(N, 4))
    features = {
        "hidden": np.maximum(rng.normal(size=(N, 6)), 0),
        "output": output,
        "prediction": output.argmax(axis=1),
        "confidence": rng.uniform(0.3, 1, N),
        "coverage": rng.random((N, 30)) < 0.2,
    }
    cut = {name: values[first:last] for name, values in features.items()}
    return Pool(ids=[f"scan/{i}" for i in range(first, last)], **cut)


class _Elsewhere(LocalParts):
    """Parts that are reached by messages, and forget everything between two of them."""

    def call(self, calls):
        answers = [
            LocalParts([self.pools[part]]).call([(0, *rest)])[0] for part, *rest in pickle.loads(pickle.dumps(calls))
        ]
        return pickle.loads(pickle.dumps(answers))


def _hidden(part: Pool, rows):
    return part.hidden[rows]


class TestSubset:
    def test_reads_as_a_pool_of_its_own(self, pool: Pool) -> None:
        index = np.array([3, 4, 160, 399])
        cut = [_pool(0, 5), _pool(5, 150), _pool(150, N)]
        for view in (view_of(pool), View(LocalParts(cut)), View(_Elsewhere(cut))):
            part = subset(view, index)
            assert part.size == 4
            assert part.identify(np.arange(4)) == [pool.ids[i] for i in index]
            assert part.column("confidence") == pytest.approx(pool.confidence[index])
            rows = part.take(_hidden, np.array([2, 0]))
            assert rows == pytest.approx(pool.hidden[[160, 3]])
            assert part.fields == view.fields

    def test_two_of_them_do_not_mix(self, pool: Pool) -> None:
        view = view_of(pool)
        one, two = subset(view, np.arange(10)), subset(view, np.arange(10, 30))
        for _ in range(2):
            assert one.column("confidence") == pytest.approx(pool.confidence[:10])
            assert two.column("confidence") == pytest.approx(pool.confidence[10:30])
