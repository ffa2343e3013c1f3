"""Subsets of a pool read as pools of their own, wherever the parts are."""

import pickle

import numpy as np
import pytest

from opacc_ray.parts.view import LocalParts, View, subset, view_of
from opacc_ray.pool import Pool

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
