"""How a sampler sees a pool: the seam between the maths and where the rows live.

A pool is held in *parts* (shards), each a :class:`~opacc_ray.pool.Pool` of consecutive examples: one part
in memory, or many in the actors of a cluster. A :class:`View` sends a function to the parts and brings
small results back in the order of the pool, so that a sampler reduces histograms, fetches a few rows, or
asks for one number per example, and never holds all features. Because the parts depend on the pool alone and
results come back in their order, a selection is the same whoever computed it.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.pool import Pool

Result = TypeVar("Result")

Call = tuple[int, Callable[..., Any], tuple[Any, ...]]
"""Number of a part, a function of it, and the function's other arguments."""


class Parts(Protocol):
    """Where the rows live. ``call`` gives results in the order of the calls."""

    sizes: list[int]
    fields: frozenset[str]

    def call(self, calls: Sequence[Call]) -> list[Any]: ...


class LocalParts:
    """Parts in this process."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self.pools = [pool.share() for pool in pools]  # so that what they keep ends with this object
        self.sizes = [pool.size for pool in self.pools]
        self.fields = frozenset.intersection(*(pool.fields for pool in self.pools))

    def call(self, calls: Sequence[Call]) -> list[Any]:
        return [function(self.pools[part], *arguments) for part, function, arguments in calls]


class View:
    """A pool of ``size`` examples, seen through functions of its parts."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.starts = np.concatenate([[0], np.cumsum(parts.sizes)]).astype(np.int64)  # (parts + 1,)
        self.size = int(self.starts[-1])
        self.fields = parts.fields
        self._once: dict[tuple[str, Hashable], Any] = {}

    def once(self, name: str, key: Hashable, make: Callable[[], Result]) -> Result:
        """What ``make`` gave the first time for this name and key: a pure function of the view, kept with it."""
        if (name, key) not in self._once:
            self._once[name, key] = make()
        return self._once[name, key]

    def need(self, names: Sequence[str], method: str, instead: Mapping[str, str] | None = None) -> None:
        """Raise unless the pool has the named features; ``instead`` says how to go without some of them."""
        missing = [name for name in names if name not in self.fields]
        if missing:
            there = ", ".join(sorted(self.fields)) or "none"
            ways = [f"give Pool({missing[0]}=...)", f"add {missing[0]} to extract.features of the spec"]
            ways += [way for name, way in (instead or {}).items() if name == missing[0]]
            raise DataError(
                f"method {method!r} needs {' and '.join(missing)} of every example, and this pool has: {there}; "
                f"{', or '.join(ways)}"
            )

    def map(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """``function(part, *arguments)`` for each part, in the order of the pool."""
        return self.parts.call([(part, function, arguments) for part in range(len(self.parts.sizes))])

    def take(self, function: Callable[..., Any], index: NDArray[np.int64], *arguments: Any) -> NDArray[Any]:
        """Rows for ``index`` (k,): ``function(part, rows, *arguments)`` gives (len(rows), ...) per part."""
        home = np.searchsorted(self.starts, index, side="right") - 1  # (k,) part of each
        parts = np.unique(home)
        places = [np.flatnonzero(home == part) for part in parts]
        calls = [
            (int(part), function, (index[place] - self.starts[part], *arguments))
            for part, place in zip(parts, places, strict=True)
        ]
        answers = self.parts.call(calls)
        rows = np.empty((len(index), *answers[0].shape[1:]), dtype=answers[0].dtype)
        for place, answer in zip(places, answers, strict=True):
            rows[place] = answer
        return rows

    def column(self, name: str) -> NDArray[np.float64]:
        """One number per example, (N,); raises if one of them is not finite."""
        values = np.concatenate(self.map(part_column, name)).astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(f"{name} of example {self.identify(bad[:1])[0]!r} is {values[bad[0]]}")
        return values

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        """The ids of ``index`` (k,)."""
        return [str(name) for name in self.take(part_identify, np.asarray(index, dtype=np.int64))]


def view_of(pool: "Pool | View") -> View:
    """The view of a pool in memory; a view is returned as it is."""
    return pool if isinstance(pool, View) else View(LocalParts([pool]))


def part_column(part: Pool, name: str) -> NDArray[Any]:
    return np.asarray(getattr(part, name))


def part_identify(part: Pool, rows: NDArray[np.int64]) -> NDArray[Any]:
    ids = part.ids
    return np.array([ids[row] for row in rows], dtype=object)
