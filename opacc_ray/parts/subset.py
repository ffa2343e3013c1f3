"""Some examples of a pool as a pool of their own.

    view_of_part = subset(view, index)

The rows stay where they live: each part of the pool cuts its own copy of the wanted ones, once, and holds it as long as
it is asked for. A part that was restarted has only forgotten which rows they are, says so, and is told again.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.cache import key_of
from opacc_ray.parts.view import Parts, View
from opacc_ray.pool import COLUMNS, LAYERS, Pool

Call = tuple[int, Callable[..., Any], tuple[Any, ...]]


class _Answer(Enum):
    FORGOTTEN = "the part holds no subset with this key"


_HELD: WeakKeyDictionary[Pool, tuple[str, Pool]] = WeakKeyDictionary()
"""One subset per part: the last one that was asked for."""


def subset(view: View, index: NDArray[np.int64]) -> View:
    """The examples ``index`` (k,), sorted and distinct, of ``view``.

    Raises
    ------
    DataError
        If there is none.
    """
    if not len(index):
        raise DataError("a subset of the pool holds no example; take fewer subsets, or a larger pool")
    return View(_Subset(view, index))


class _Subset:
    """The parts that hold at least one wanted example, without the others."""

    def __init__(self, view: View, index: NDArray[np.int64]) -> None:
        bounds = np.searchsorted(index, view.starts)
        self._parts: Parts = view.parts
        self._home = np.flatnonzero(np.diff(bounds))  # parts of the pool that hold some
        self._rows = [index[bounds[part] : bounds[part + 1]] - view.starts[part] for part in self._home]
        self._index = index
        self._key = key_of(index)
        self.sizes = [len(rows) for rows in self._rows]
        self.fields = view.fields

    def call(self, calls: Sequence[Call]) -> list[Any]:
        answers = self._parts.call([(int(self._home[part]), _ask, (self._key, *rest)) for part, *rest in calls])
        lost = [place for place, answer in enumerate(answers) if answer is _Answer.FORGOTTEN]
        if lost:
            told = [calls[place] for place in lost]
            again = [(int(self._home[part]), _tell, (self._rows[part], self._key, *rest)) for part, *rest in told]
            for place, answer in zip(lost, self._parts.call(again), strict=True):
                answers[place] = answer
        return answers

    def column(self, name: str) -> NDArray[Any]:
        return self._parts.column(name)[self._index]

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        return self._parts.identify(self._index[index])


def _ask(part: Pool, key: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    held, own = _HELD.get(part, (None, part))
    return function(own, *arguments) if held == key else _Answer.FORGOTTEN


def _tell(
    part: Pool, rows: NDArray[np.int64], key: str, function: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    if _HELD.get(part, (None, part))[0] != key:
        _HELD[part] = key, _cut(part, rows)
    return _ask(part, key, function, arguments)


def _cut(part: Pool, rows: NDArray[np.int64]) -> Pool:
    arrays = {name: getattr(part, name) for name in (*LAYERS, *COLUMNS, "coverage")}
    there = {name: array[rows] for name, array in arrays.items() if array is not None}
    return Pool(ids=None if there else [str(row) for row in rows], **there)  # ids stay with the parts
