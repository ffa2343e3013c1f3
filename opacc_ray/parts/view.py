"""How a sampler reads a pool: one number per example as an array, and matrices through functions of the parts.

A pool is held in *parts* (shards), each a :class:`~opacc_ray.pool.Pool` of consecutive examples: one part in memory, or
many in the actors of a cluster. A :class:`View` gives a sampler

    view.column("confidence")              one number per example, (N,), as a NumPy array
    view.map(function, *arguments)         what a function returns for each part
    view.total(function, *arguments)       the sum of what a function returns for each part: counts, moments
    view.gather(function, *arguments)      a few numbers per example that a function makes of each part, (N, ...)
    view.take(function, index, ...)        some rows of a matrix

Columns are plain arrays on the driver; a matrix (hidden layer, outputs, coverage) never comes there. Floating numbers
are summed in one array on the driver, and only whole numbers over parts. So a selection does not depend on how the pool
is cut.

**Cache** of what the parts of a pool make of their matrices: expensive to make, small enough to hold, safe to lose.

    kept = Kept(view.parts, "codes", key, make, recipes)   # make(part, *recipes[part]), run where the part is
    kept.call([(part, function, arguments), ...])          # function(what that part keeps, *arguments)

What is kept is a pure function of its part and the recipe, and ``key`` identifies the recipe. The parts are first asked
by key alone. A part without the value, because it was restarted or never had it, is then sent the recipe and makes it;
the answer is the same. A part keeps one value per name.

**Subset** of a pool as a pool of its own: each part of the pool copies the wanted rows once, and keeps the last copy
that it was asked for.
"""

import hashlib
import operator
import shlex
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.loops import blocks
from opacc_ray.pool import CROSSING, FEATURES, SOFTMAX_ROUNDING, Pool, Slicing, joined

Result = TypeVar("Result")
Array = NDArray[np.float64]

_AT_ONCE = 1 << 20
"""Examples whose answers are held at once where all of them are not needed together, if the parts are that small."""

Call = tuple[int, Callable[..., Any], tuple[Any, ...]]
"""Number of a part, a function of it, and the function's other arguments."""


class Parts(Protocol):
    """Where the rows are held."""

    sizes: list[int]  # examples in each part
    fields: frozenset[str]  # names of the features that all of them have
    named: bool  # whether the pool has ids of its own, which distinguish it from others

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Run (part, function, arguments) triples: ``function(pool of the part, *arguments)``, in their order."""

    def total(self, calls: Sequence[Call]) -> Any:
        """Return the sum of the answers: numbers, or arrays of one shape, whose order of addition does not matter."""

    def column(self, name: str) -> NDArray[Any]:
        """Return one number per example of all parts, (N,), in an array that the caller may change."""

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        """Return the ids of ``index`` (k,), counted over all parts."""


class LocalParts:
    """Parts in this process."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self.pools = [pool.share() for pool in pools]  # so that what they keep ends with this object
        self.sizes = [pool.size for pool in self.pools]
        self.fields = frozenset.intersection(*(pool.fields for pool in self.pools))
        self.named = all(pool.named for pool in self.pools)

    def call(self, calls: Sequence[Call]) -> list[Any]:
        return list(answers(self.pools, calls))

    def total(self, calls: Sequence[Call]) -> Any:
        return add_up(answers(self.pools, calls))

    def column(self, name: str) -> NDArray[Any]:
        return np.concatenate([getattr(pool, name) for pool in self.pools])

    def identify(self, index: NDArray[np.int64]) -> list[str]:
        starts = starts_of(self.sizes)
        home = np.searchsorted(starts, index, side="right") - 1
        pairs = zip(home.tolist(), (index - starts[home]).tolist(), strict=True)
        return [self.pools[part].ids[row] for part, row in pairs]


class Memory(Protocol):
    """What is kept of a pool from one process to the next."""

    def recall(self, name: str, starts: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
        """Yield what is kept under a name, (n, d) numbers, part by part; fewer parts if some of it is lost."""

    def keep(self, name: str, size: int, blocks: Iterator[NDArray[Any]]) -> None:
        """Keep int64 or float64 numbers of ``size`` examples, (n, d) from each block."""


class View:
    """A pool of ``size`` examples, read through its parts.

    Attributes
    ----------
    size : N
    fields : names of the features that there are
    named : whether the pool has ids of its own
    starts : (parts + 1,) index of the first example of each part, and N
    memory : what is kept of the pool from one process to the next, if anything is
    """

    def __init__(self, parts: Parts, memory: Memory | None = None) -> None:
        self.parts, self.memory = parts, memory
        self.starts = starts_of(parts.sizes)
        self.size = int(self.starts[-1])
        self.fields, self.named = parts.fields, parts.named
        self._once: dict[tuple[str, Hashable], Any] = {}

    def once(self, name: str, key: Hashable, make: Callable[[], Result]) -> Result:
        """Return what ``make`` returned the first time for this name and key: a pure function of the pool."""
        if (name, key) not in self._once:
            self._once[name, key] = make()
        return self._once[name, key]

    def need(self, names: Sequence[str], method: str, instead: Mapping[str, str] | None = None) -> None:
        """Raise DataError unless the pool has the named features; ``instead`` names ways to do without some of them."""
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
        """Return ``function(part, *arguments)`` for each part, in the order of the pool."""
        return self.parts.call([(part, function, arguments) for part in range(len(self.parts.sizes))])

    def total(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return the sum of ``function(part, *arguments)`` over the parts, in any order."""
        return self.parts.total([(part, function, arguments) for part in range(len(self.parts.sizes))])

    def gather(self, function: Callable[..., Any], *arguments: Any) -> NDArray[Any]:
        """Return ``function(part, *arguments)``, (n, ...) of each part, for the whole pool: (N, ...)."""
        return np.concatenate(self.map(function, *arguments))

    def stream(self, function: Callable[..., Any], *arguments: Any) -> Iterator[tuple[slice, Any]]:
        """Yield ``function(part, *arguments)`` of each part, and where its examples are in the pool.

        They come in no order, and few at a time are held. Those that are made at once are far apart: in many actors.
        """
        rounds = -(-self.size // _AT_ONCE)
        for first in range(rounds):
            own = range(first, len(self.parts.sizes), rounds)
            found = self.parts.call([(part, function, arguments) for part in own])
            for part in own:
                yield slice(*self.starts[part : part + 2].tolist()), found.pop(0)

    def take(self, function: Callable[..., Any], index: NDArray[np.int64], *arguments: Any) -> NDArray[Any]:
        """Return rows for ``index`` (k,), of which ``function(part, rows, *arguments)`` returns those of a part."""
        located = locate(self.starts, index)
        found = np.concatenate(self.parts.call([(part, function, (rows, *arguments)) for part, rows, _ in located]))
        rows = np.empty_like(found)
        rows[np.concatenate([places for *_, places in located])] = found
        return rows

    def column(self, name: str) -> NDArray[np.float64]:
        """Return one number per example, (N,), that the caller may change; raises DataError if one is not finite."""
        return self.stored_column(name).astype(np.float64, copy=False)

    def stored_column(self, name: str) -> NDArray[Any]:
        """Return a column as :meth:`column` does, of the type that it is stored in."""
        values = self.parts.column(name)
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise DataError(f"{name} of example {self.identify(bad[:1])[0]!r} is {values[bad[0]]}")
        return values

    def column_in_range(self, name: str) -> NDArray[np.float64]:
        """Return a column as :meth:`column` does, a confidence at most 1.

        Raises DataError if a confidence is outside [0, 1] or a DSA is below 0.
        """
        values = self.column(name)
        low, high = {"confidence": (0.0, 1.0 + SOFTMAX_ROUNDING), "dsa": (0.0, np.inf)}.get(name, (-np.inf, np.inf))
        bad = np.flatnonzero((values < low) | (values > high))[:1]
        if len(bad):
            wanted = "in [0, 1]" if name == "confidence" else "at least 0"
            raise DataError(f"{name} of example {self.identify(bad)[0]!r} is {values[bad[0]]}; it must be {wanted}")
        return np.minimum(values, 1.0, out=values) if name == "confidence" else values

    def slicing(self, name: str) -> Slicing:
        """Return a slicing of the pool, or the crossing of several, as ``camera*region``.

        Raises SpecError if the pool has no slices of a name.
        """
        first, *others = (joined(self.map(_slicing_of, own.strip())) for own in name.split(CROSSING))
        return reduce(Slicing.cross, others, first)

    def judges(self, others: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Return the scores (N,) of each judge of the pool, NaN where it has not judged, and those of ``others``.

        Raises DataError if one of the others has another number of scores.
        """
        for name, own in others.items():
            if len(own) != self.size:
                raise DataError(
                    f"history: judge {name!r} has {len(own)} scores, and the pool {self.size} examples; give one each"
                )
        parts = self.once("judges", None, lambda: self.map(_judges_of))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} | dict(others)

    def identify(self, index: ArrayLike) -> list[str]:
        """Return the ids of ``index`` (k,)."""
        return self.parts.identify(np.asarray(index, dtype=np.int64))


def _judges_of(part: Pool) -> dict[str, NDArray[np.float64]]:
    return part.judges


def _slicing_of(part: Pool, name: str) -> Slicing:
    if name not in part.slices:
        column = name.partition("=")[0]
        if column in part.slices:
            raise SpecError(f"{name!r} is one slice, and an estimate states all of {column}: give {column}")
        there = f"it has {', '.join(part.slices)}" if part.slices else "it has none"
        all_of_them = shlex.quote(",".join([*part.slices, name]))
        there += f"; run a CSV again with --slices {all_of_them}, add `slices: [{name}]` under `pool` in a spec and "
        there += "run it again, or give Pool(slices=…): labels are kept"
        raise SpecError(f"the pool has no slices {name!r}; {there}")
    return part.slices[name]


Pools = Pool | View | Iterable[Pool | View]
"""The pool of one model, or the pools of several models."""


def answers(pools: Sequence[Pool], calls: Sequence[Call]) -> Iterator[Any]:
    """Yield the answers of the calls, made one by one where the parts are."""
    return (function(pools[part], *arguments) for part, function, arguments in calls)


def add_up(numbers: Iterable[Any]) -> Any:
    """Return the sum of numbers; only one is held at a time if they are made one by one."""
    return reduce(operator.add, numbers)


def starts_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the index of the first example of each part, and last the number of all examples: (parts + 1,)."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


class Located(NamedTuple):
    """Some of the wanted examples, in the part that holds them."""

    part: int
    rows: NDArray[np.int64]  # (r,) in the part
    places: NDArray[np.int64]  # (r,) among the wanted ones


def locate(starts: NDArray[np.int64], index: NDArray[np.int64]) -> list[Located]:
    """Return where the examples ``index`` (k,) are, part by part."""
    home = np.searchsorted(starts, index, side="right") - 1  # (k,) part of each
    found = [(int(part), np.flatnonzero(home == part)) for part in np.unique(home)]
    return [Located(part, index[places] - starts[part], places) for part, places in found]


def view_of(pool: "Pool | View") -> View:
    """Return the view of a pool in memory; a view is returned unchanged, and anything else raises SpecError."""
    if not isinstance(pool, Pool | View):
        raise SpecError(f"what is given as a pool is of type {type(pool).__name__}; give opacc.Pool(confidence=...)")
    return pool if isinstance(pool, View) else View(LocalParts([pool]))


def listed(pool: Pools) -> list[Pool | View]:
    """Return a list of the given pools; :func:`views_of` refuses what is not a pool."""
    return list(pool) if isinstance(pool, Sequence | Iterator) else [pool]  # type: ignore[list-item]


def views_of(pools: Pools) -> list[View]:
    """Return the view of each pool; raises SpecError if there is none, one is not a pool, or their sizes differ."""
    views = [view_of(own) for own in listed(pools)]
    if not views:
        raise SpecError("no pool is given; give one, or one for each model")
    for number, view in enumerate(views[1:], start=2):
        if view.size != views[0].size:
            raise SpecError(
                f"pool {number} has {view.size} examples and the first has {views[0].size}; give pools of the same "
                "examples in the same order"
            )
    return views


# -- numbers in fewer bytes -------------------------------------------------------------------------------------


CODED_FROM, _CODES = 1 << 21, (1 << 16) - 1
"""Examples from which numbers are held as steps of their range, and the number of steps."""


@dataclass(frozen=True, eq=False)
class Compact:
    """Numbers (n,) that are held in fewer bytes than float64, and are computed where they are read."""

    held: tuple[NDArray[Any], ...]  # of (n,)
    values: Callable[..., Array]  # of some rows of these

    def __getitem__(self, rows: Any) -> Array:
        return self.values(*(own[rows] for own in self.held))

    def __len__(self) -> int:
        return len(self.held[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or np.float64, copy=False)

    def mean(self) -> float:
        """Return the mean of all."""
        return float(self[:].mean())


def is_coded(size: int) -> bool:
    """Return whether numbers of that many examples are held as steps of their range."""
    return size >= CODED_FROM


def compacted(values: Array | Compact) -> Array | Compact:
    """Return ``values`` (N,) as they are held: coded if there are many."""
    if not is_coded(len(values)):
        return values
    ends = [(own.min(), own.max()) for own in (values[rows] for rows in blocks(len(values)))]
    low = float(min(ends)[0])
    step = max(float(max(high for _, high in ends)) - low, 1e-300) / _CODES
    codes = np.empty(len(values), np.uint16)
    for rows in blocks(len(values)):
        own = values[rows] - low
        own /= step
        codes[rows] = np.rint(own, out=own)
    return Compact((codes,), partial(_decoded, low, step))


def _decoded(low: float, step: float, codes: NDArray[np.uint16]) -> Array:
    found: Array = np.multiply(codes, step, dtype=np.float64)
    found += low
    return found


class _Answer(Enum):
    MISSING = "the part keeps no value under this name and key"


class Kept(NamedTuple):
    """One value per part, made at the first call."""

    parts: Parts  # that keep the values
    name: str  # of the value
    key: str  # of the recipe
    make: Callable[..., Any]  # from a part and its recipe to its value
    recipes: Sequence[tuple[Any, ...]]  # arguments of ``make``, one tuple for each part

    def call(self, calls: Sequence[Call]) -> list[Any]:
        """Return ``function(kept, *arguments)`` for each (part, function, arguments), in their order."""
        asked: list[Call] = [(part, part_use, (self.name, self.key, *rest)) for part, *rest in calls]
        answers = self.parts.call(asked)
        missing = [place for place, answer in enumerate(answers) if answer is _Answer.MISSING]
        if missing:
            again = (asked[place] for place in missing)
            made = [(part, use, (*rest, self.make, self.recipes[part])) for part, use, rest in again]
            for place, answer in zip(missing, self.parts.call(made), strict=True):
                answers[place] = answer
        return answers

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return ``function(kept, *arguments[part])`` for every part, in the order of the pool."""
        return self.call([(part, function, own) for part, own in enumerate(arguments)])


def key_of(*items: NDArray[Any] | str | int) -> str:
    """Return a digest of the content of arrays, strings and numbers."""
    digest = hashlib.blake2b(digest_size=16)
    for item in items:
        array = np.asarray(item)
        digest.update(f"{array.dtype} {array.shape} ".encode() + array.tobytes())
    return digest.hexdigest()


def part_use(
    part: Pool,
    name: str,
    key: str,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    make: Callable[..., Any] | None = None,
    recipe: tuple[Any, ...] = (),
) -> Any:
    """Return ``function(kept, *arguments)``; where the value is missing, ``make`` it, or say so without ``make``."""
    known, value = part.kept.get(name, (None, None))
    if known != key:
        if make is None:
            return _Answer.MISSING
        value = make(part, *recipe)
        part.kept[name] = key, value
    return function(value, *arguments)


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
    slices = {name: Slicing(own.names, own.codes[rows]) for name, own in part.slices.items()}
    judges = {name: values[rows] for name, values in part.judges.items()}
    ids = None if there else [str(row) for row in rows]  # those of the pool stay with the parts
    return Pool(ids, slices=slices, judges=judges, **there)
