"""Ranks and places over parts: those of one array, however the pool is cut, with little of it on the driver."""

from itertools import pairwise

import numpy as np
import pytest

from opacc_ray.parts import order, ranks
from opacc_ray.parts.cache import Forgotten, part_recall, repeat_if_forgotten
from opacc_ray.parts.order import Line, part_lay
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.pool import Pool
from opacc_ray.samplers.neyman.signals import Raw

N = 900


def cut(values: np.ndarray, cuts: list[int]) -> View:
    return View(LocalParts([Pool(dsa=values[start:stop]) for start, stop in pairwise([0, *cuts, len(values)])]))


def values_of(kind: str) -> np.ndarray:
    """Values that are all different, many of them equal, or all."""
    rng = np.random.default_rng(1)
    return {"different": rng.normal(size=N), "ties": rng.integers(0, 9, N) / 4, "equal": np.full(N, 0.5)}[kind]


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the pool were large."""
    sizes = ((order, "GROUP", 40), (order, "PIVOTS", 30), (ranks, "PIECE", 25), (ranks, "SAMPLES", 90))
    for module, name, size in sizes:
        monkeypatch.setattr(module, name, size)


@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("kind", ["different", "ties", "equal"])
@pytest.mark.parametrize("cuts", [[], [1, 400, 401], [300, 600]])
class TestLargePools:
    def test_every_place_is_found(self, kind: str, cuts: list[int]) -> None:
        along, length = values_of(kind), np.random.default_rng(2).integers(1, 50, N)
        view = cut(along, cuts)
        arguments = [
            ("line", "key", along[start:stop], np.arange(stop - start), length[start:stop])
            for start, stop in pairwise(view.starts)
        ]
        view.map_each(part_lay, arguments)
        line, ordered = Line(view, "line", "key"), np.argsort(along, kind="stable")
        end = np.cumsum(length[ordered])
        assert line.total == end[-1]
        places = np.random.default_rng(3).integers(0, line.total, 500)
        at = np.searchsorted(end, places, side="right")
        found = line.find(places)
        assert found.index.tolist() == ordered[at].tolist()
        assert found.end.tolist() == end[at].tolist()
        assert (found.end - found.begin).tolist() == length[ordered][at].tolist()
        assert found.number.tolist() == at.tolist()
        counted = line.find_numbers(found.number[::-1])
        for name in ("index", "number", "begin", "end"):
            assert getattr(counted, name).tolist() == getattr(found, name)[::-1].tolist(), name

    def test_every_example_knows_how_many_are_below(self, kind: str, cuts: list[int]) -> None:
        values = values_of(kind)
        view = cut(values, cuts)
        ranks.keep_ends(view, "ends", "key", Raw("dsa"))
        ends = np.concatenate(view.map(part_recall, "ends", "key"))
        below = (values[:, None] > values).sum(axis=1)
        assert ends.tolist() == (below + (values[:, None] >= values).sum(axis=1)).tolist()
        assert ranks.count_ends(view, Raw("dsa"), values[:9]).tolist() == ends[:9].tolist()


def test_work_whose_parts_forget_is_done_again() -> None:
    view = cut(values_of("ties"), [300])
    view.once("number", 1, lambda: 1)
    tries = []

    def work() -> int:
        tries.append(view.once("number", 1, lambda: 2))
        if len(tries) == 1:
            view.map(part_recall, "number", "key")
        return 7

    assert repeat_if_forgotten([view], work) == 7
    assert tries == [1, 2]
    with pytest.raises(Forgotten, match="has lost its number"):
        repeat_if_forgotten([view], lambda: view.map(part_recall, "number", "key"))
