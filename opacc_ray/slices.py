"""Slices: parts of the pool that columns, tags or folders name, such as a camera, a region or an age group."""

import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError, shown

HAS_TAG = ("no", "yes")
"""Slices of a tag: the examples without it, and those that have it."""

NOT_GIVEN = "(none)"
"""Slice of the examples without a value."""

MOST = 1000
"""Most slices that a column may have: more are names of examples, or numbers that should be cut."""

_BLOCK = 1 << 18  # examples that are crossed at a time: NumPy makes 8 bytes of each index

CROSSING = "*"
"""Stands between the names of two slicings that are crossed."""

BY_PREDICTION, BY_TRUTH = "prediction", "truth"
"""Parts that are no slices: the examples predicted as each class, and those of each true class."""

FOLDER = "folder"
"""Names the slices by the folder of each example."""


class SliceRule(NamedTuple):
    """How slices are made of one column of a pool."""

    name: str
    column: str  # FOLDER: the folder of each example, from its place below the pool
    cuts: tuple[float, ...] | None = None  # of numbers
    levels: int | None = None  # of a folder: the first ones that count; None: all
    tag: str | None = None  # of a column with several per row
    is_cluster: bool = False  # its values may be many, and are no slices to state numbers for

    @property
    def content(self) -> dict[str, Any]:
        """Return the fields that are set, and those that every rule has had."""
        return {name: own for name, own in self._asdict().items() if own or name not in ("tag", "is_cluster")}


class Slicing(NamedTuple):
    """A partition of N examples in S named slices."""

    names: tuple[str, ...]  # (S,)
    codes: NDArray[np.int32]  # (N,) 0 .. S - 1

    @classmethod
    def of(cls, name: str, values: ArrayLike, cuts: Sequence[float] | None = None, most: float = MOST) -> Self:
        """Make slices of the values (N,) of a column: one for each value, or for each interval between ``cuts``.

        Raises DataError for more than ``most`` different values, for values that are no column.
        """
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"slices {name!r} have the shape {array.shape}; give one value per example: (N,)")
        if cuts is not None:
            return cls._cut(name, array, [float(cut) for cut in cuts])
        texts = np.array([_text(value) for value in array.tolist()], dtype=object)
        found, codes = np.unique(texts.astype(str), return_inverse=True)
        if len(found) > most:
            refuse_many(name, found.tolist())
        names = _ordered(found.tolist())
        place = {own: number for number, own in enumerate(names)}
        return cls(names, np.array([place[own] for own in found.tolist()], dtype=np.int32)[codes])

    @classmethod
    def _cut(cls, name: str, array: NDArray[Any], cuts: list[float]) -> Self:
        if not cuts or sorted(set(cuts)) != cuts:
            raise SpecError(f"slices {name!r} are cut at {shown(cuts)}; give one or more numbers, rising")
        try:
            numbers = array.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"slices {name!r} are cut, and their values are not all numbers ({error})") from None
        ends = [f"{cut:g}" for cut in cuts]
        between = [f"{low} to {high}" for low, high in pairwise(ends)]
        names = [f"< {ends[0]}", *between, f">= {ends[-1]}"]
        codes = np.searchsorted(np.array(cuts), numbers, side="right")
        missing = np.isnan(numbers)
        if missing.any():
            names.append(NOT_GIVEN)
            codes[missing] = len(names) - 1
        return cls(tuple(names), codes.astype(np.int32))

    def cross(self, other: "Slicing") -> "Slicing":
        """Return a slice for each pair of slices that occurs."""
        most = len(self.names) * len(other.names)
        if most <= len(self.codes):
            seen, codes = _pairs(self.codes, other.codes, len(other.names), most)
        else:
            pair = self.codes.astype(np.int64) * len(other.names) + other.codes
            seen, codes = np.unique(pair, return_inverse=True)
        rows = [divmod(one, len(other.names)) for one in seen.tolist()]
        return Slicing(tuple(f"{self.names[a]}, {other.names[b]}" for a, b in rows), codes.astype(np.int32, copy=False))

    def packed(self) -> "Slicing":
        """Return the same slices with codes of the smallest type, for keeping; :func:`joined` unpacks them."""
        return self._replace(codes=self.codes.astype(np.min_scalar_type(len(self.names))))


def joined(parts: Iterable[Slicing]) -> Slicing:
    """Join the slices of consecutive parts of a pool: those of the same name are one, however the pool is cut."""
    parts = list(parts)
    every = set().union(*(part.names for part in parts))
    most = max((part.names for part in parts), key=len)
    names = most if len(most) == len(every) else _ordered(every)
    number = {name: place for place, name in enumerate(names)}
    codes = np.empty(sum(len(part.codes) for part in parts), dtype=np.int32)
    start = 0
    for part in parts:
        stop = start + len(part.codes)
        codes[start:stop] = np.array([number[name] for name in part.names], dtype=np.int32)[part.codes]
        start = stop
    return Slicing(names, codes)


def _pairs(
    first: NDArray[Any], second: NDArray[Any], width: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the numbers ``first * width + second`` that occur, of ``most``, and the place of each pair, (N,)."""
    pair, seen = np.empty(len(first), dtype=np.int32), np.zeros(most, dtype=np.bool_)
    blocks = [slice(start, start + _BLOCK) for start in range(0, len(first), _BLOCK)]
    for own in blocks:
        pair[own] = first[own].astype(np.int32) * np.int32(width) + second[own]
        seen[pair[own]] = True
    place = np.cumsum(seen, dtype=np.int32) - 1
    for own in blocks:
        pair[own] = place[pair[own]]
    return np.flatnonzero(seen), pair


def refuse_many(name: str, values: Sequence[str]) -> None:
    """Raise DataError for more than MOST different values."""
    if len(values) > MOST:
        way = f"cut numbers, as in {{{name}: [18, 30, 50]}}, or give a column with at most {MOST}"
        if re.match(r"\d{4}-\d\d", values[0]):
            way = f"times have no cuts, so name a column with the day or week, such as 2026-W40, with at most {MOST}"
        raise DataError(f"slices {name!r} have {len(values)} different values, such as {shown(values[0])}: {way}")


def _ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Return names in an order that no cut of a pool changes: numbers by value, text, and NOT_GIVEN."""
    return tuple(sorted(set(names), key=rank))


def rank(name: str) -> tuple[int, float, list[tuple[str, int]], str]:
    """Return the key that orders names of slices: numbers by value, text by the numbers in it (W9, W10), NOT_GIVEN."""
    if name == NOT_GIVEN:
        return 2, 0, [], name
    with suppress(ValueError):
        if math.isfinite(number := float(name)):
            return 0, number, [], name
    return 1, 0, [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]*)", name)], name


def _text(value: Any) -> str:
    """Return the name of a value: NOT_GIVEN for None and NaN."""
    if value is None or value != value:
        return NOT_GIVEN
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or NOT_GIVEN
