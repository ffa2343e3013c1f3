"""What the fields of a design may hold, and how they come back from JSON types.

A dataclass declares its fields by the types below; those *per example* have one number for each of the n labels, in
their order. ``bool`` and ``str`` stand for themselves, and ``| None`` says that a field may be missing.
"""

import math
from dataclasses import Field
from typing import Annotated, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError

_ROUNDING = 1e-9
"""A sum of shares may exceed 1 by it."""


class Range(NamedTuple):
    """Numbers from ``low`` to ``high``, without ``low`` itself if it is ``open``."""

    low: float
    high: float = math.inf
    open: bool = False

    def holds(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        above = numbers > self.low if self.open else numbers >= self.low
        return np.asarray(above & (numbers <= self.high + _ROUNDING) & np.isfinite(numbers))

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a finite number of at least {self.low:g}"
        return f"a number in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"


class Saved(NamedTuple):
    """How a field is read."""

    kind: type  # of each number
    range: Range
    shape: str  # "per example", "array" or "number"


_POSITIVE_SHARE, _SHARE, _FROM_ZERO, _FROM_ONE = Range(0, 1, open=True), Range(0, 1), Range(0), Range(1)

Probabilities = Annotated[NDArray[np.float64], Saved(np.float64, _POSITIVE_SHARE, "per example")]
"""Per example, of something that has happened: above 0."""
Shares = Annotated[NDArray[np.float64], Saved(np.float64, _SHARE, "per example")]
Numbers = Annotated[NDArray[np.int64], Saved(np.int64, _FROM_ZERO, "per example")]
Counts = Annotated[NDArray[np.int64], Saved(np.int64, _FROM_ONE, "per example")]
"""Per example, at least 1."""
Sizes = Annotated[NDArray[np.int64], Saved(np.int64, _FROM_ONE, "array")]
Places = Annotated[NDArray[np.int64], Saved(np.int64, _FROM_ZERO, "array")]
Number = Annotated[int, Saved(int, _FROM_ZERO, "number")]
Count = Annotated[int, Saved(int, _FROM_ONE, "number")]
Amount = Annotated[float, Saved(float, _FROM_ZERO, "number")]
Probability = Annotated[float, Saved(float, _POSITIVE_SHARE, "number")]


def is_per_example(kind: Any) -> bool:
    """Whether a field of this type has one number per example."""
    saved = _saved(kind)
    return isinstance(saved, Saved) and saved.shape == "per example"


def read(item: "Field[Any]", content: dict[str, Any], source: str) -> Any:
    """The field's value from ``content``; raises DataError, with ``source``, if it cannot be that."""
    saved, given = _saved(item.type), content.get(item.name)
    if given is None:
        if type(None) in get_args(item.type):
            return None
        raise DataError(f"{source}: its design {content.get('type')!r} has no {item.name}; restore the file")
    if isinstance(saved, Saved):
        return _numbers(given, saved, f"{source}: {item.name} of its design")
    if not isinstance(given, saved):
        raise DataError(f"{source}: {item.name} of its design is {given!r}, and must be of type {saved.__name__}")
    return given


def _saved(kind: Any) -> Any:
    """How a field of this type is read; the type itself if it stands for itself."""
    extras = (extra for part in (kind, *get_args(kind)) for extra in getattr(part, "__metadata__", ()))
    return next((extra for extra in extras if isinstance(extra, Saved)), kind)


def _numbers(given: Any, saved: Saved, name: str) -> Any:
    """Numbers of the right kind, all of them in range."""
    try:
        numbers = np.asarray(given)
    except ValueError:  # lists that differ in length
        numbers = np.asarray(None)
    whole, alone = saved.kind in (int, np.int64), saved.shape == "number"
    if numbers.ndim != (0 if alone else 1) or (numbers.size and numbers.dtype.kind not in ("iu" if whole else "iuf")):
        wanted = f"{'whole ' if whole else ''}number"
        raise DataError(f"{name} is {given!r:.60}, and must be {f'one {wanted}' if alone else f'a list of {wanted}s'}")
    wrong = np.flatnonzero(~saved.range.holds(numbers))
    if len(wrong):
        place = f" at place {wrong[0]}" if numbers.ndim else ""
        raise DataError(f"{name} is {numbers.flat[wrong[0]]!s}{place}, and must be {saved.range}")
    return numbers.astype(saved.kind) if numbers.ndim else saved.kind(given)
