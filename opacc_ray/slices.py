"""Slices: parts of the pool that columns, tags or folders name, such as a camera, a region or an age group."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError, shown

NOT_GIVEN = "(none)"
"""Slice of the examples without a value."""

MOST = 1000
"""Most slices that a column may have: more are names of examples, or numbers that should be cut."""

CROSSING = "*"
"""Stands between the names of two slicings that are crossed."""

FOLDER = "folder"
"""Names the slices by the folder of each example."""


class SliceRule(NamedTuple):
    """How slices are made of one column of a pool."""

    name: str
    column: str  # FOLDER: the folder of each example, from its place below the pool
    cuts: tuple[float, ...] | None = None  # of numbers
    levels: int | None = None  # of a folder: the first ones that count; None: all


class Slicing(NamedTuple):
    """A partition of N examples in S named slices."""

    names: tuple[str, ...]  # (S,)
    codes: NDArray[np.int32]  # (N,) 0 .. S - 1

    @classmethod
    def of(cls, name: str, values: ArrayLike, cuts: Sequence[float] | None = None) -> Self:
        """Make slices of the values (N,) of a column: one for each value, or for each interval between ``cuts``.

        Raises DataError for more than MOST different values, for values that are no column.
        """
        array = np.asarray(values)
        if array.ndim != 1:
            raise DataError(f"slices {name!r} have the shape {array.shape}; give one value per example: (N,)")
        if cuts is not None:
            return cls._cut(name, array, [float(cut) for cut in cuts])
        texts = np.array([_text(value) for value in array.tolist()], dtype=object)
        names, codes = np.unique(texts.astype(str), return_inverse=True)
        if array.dtype.kind in "iu":
            order = np.argsort(names.astype(np.int64), kind="stable")
            names, codes = names[order], np.argsort(order)[codes]
        if len(names) > MOST:
            raise DataError(
                f"slices {name!r} have {len(names)} different values, such as {shown(names[0].item())}: cut numbers, "
                f"as in {{{name}: [18, 30, 50]}}, or give a column with at most {MOST}"
            )
        return cls(tuple(names.tolist()), codes.astype(np.int32))

    @classmethod
    def _cut(cls, name: str, array: NDArray[Any], cuts: list[float]) -> Self:
        if not cuts or sorted(set(cuts)) != cuts:
            raise SpecError(f"slices {name!r} are cut at {cuts}; give one or more numbers, rising")
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
        pair = self.codes.astype(np.int64) * len(other.names) + other.codes
        seen, codes = np.unique(pair, return_inverse=True)
        rows = [divmod(one, len(other.names)) for one in seen.tolist()]
        return Slicing(tuple(f"{self.names[a]}, {other.names[b]}" for a, b in rows), codes.astype(np.int32))


def joined(parts: Iterable[Slicing]) -> Slicing:
    """Join the slices of consecutive parts of a pool: those of the same name are one."""
    parts, number = list(parts), dict[str, int]()
    for part in parts:
        for name in part.names:
            number.setdefault(name, len(number))
    codes = [np.array([number[name] for name in part.names], dtype=np.int32)[part.codes] for part in parts]
    return Slicing(tuple(number), np.concatenate(codes))


def _text(value: Any) -> str:
    """Return the name of a value: NOT_GIVEN for None and NaN."""
    if value is None or value != value:
        return NOT_GIVEN
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip() or NOT_GIVEN
