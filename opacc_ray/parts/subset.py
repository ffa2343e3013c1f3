"""Subset of a pool as a pool of its own.

The rows stay where they are: each part of the pool copies the wanted ones once, and keeps the last copy that it was
asked for (:mod:`opacc_ray.parts.cache`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.cache import Kept, key_of
from opacc_ray.parts.view import Call, View, add_up
from opacc_ray.pool import FEATURES, Pool


def subset(view: View, index: NDArray[np.int64]) -> View:
    """Return the view of the examples ``index`` (k,), sorted and distinct; raises DataError if there is none."""
    if not len(index):
        raise DataError("a subset of the pool holds no example; take fewer subsets, or a larger pool")
    return View(_Subset(view, index))


class _Subset:
    """The parts that hold at least one wanted example, without the others."""

    def __init__(self, view: View, index: NDArray[np.int64]) -> None:
        pieces = np.split(index, np.searchsorted(index, view.starts[1:-1]))
        rows = [own - start for own, start in zip(pieces, view.starts, strict=False)]
        self._parts, self._index = view.parts, index
        self._kept = Kept(view.parts, "subset", key_of(index), part_cut, [(own,) for own in rows])
        self._home = [part for part, own in enumerate(rows) if len(own)]  # parts of the pool that hold some
        self.sizes = [len(rows[part]) for part in self._home]
        self.fields, self.named = view.fields, view.named

    def call(self, calls: Sequence[Call]) -> list[Any]:
        return self._kept.call([(self._home[part], function, arguments) for part, function, arguments in calls])

    def total(self, calls: Sequence[Call]) -> Any:
        return add_up(self.call(calls))

    def column(self, name: str) -> NDArray[Any]:
        return self._parts.column(name)[self._index]

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        return self._parts.identify(self._index[index])


def part_cut(part: Pool, rows: NDArray[np.int64]) -> Pool:
    """Return some rows of a part as a pool."""
    there = {name: getattr(part, name)[rows] for name in FEATURES if getattr(part, name) is not None}
    judges = {name: values[rows] for name, values in part.judges.items()}
    return Pool(ids=None if there else [str(row) for row in rows], judges=judges, **there)  # ids stay with the parts
