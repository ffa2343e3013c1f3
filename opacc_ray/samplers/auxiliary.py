"""Auxiliary variables: how strongly one believes that an example is mispredicted, before anyone labels it.

DeepEST and the unequal-probability designs all start here. A variable is *read* in its raw units, in which users know
it and give thresholds, and turned into a *belief*, at least 0 and larger for the examples more likely to fail:

    auxiliary     raw value v       belief P             active
    confidence    c                 1 - c                c < 0.7
    dsa           DSA               DSA / max DSA        DSA > mean + 2 · standard deviation
    lsa           LSA               LSA - min(LSA, 0)    LSA > mean + variance
    combined      c · (1 - d)       1 - c · (1 - d)      c · (1 - d) < 0.7          with d = DSA / max DSA

Legend: N pool, c confidence, DSA and LSA distance- and likelihood-based surprise.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.sums import exact_sum, mean_of
from opacc_ray.parts.view import View
from opacc_ray.pool import SOFTMAX_ROUNDING, Pool

NEEDS = {"confidence": ("confidence",), "dsa": ("dsa",), "lsa": ("lsa",), "combined": ("confidence", "dsa")}
"""The pool's features each auxiliary variable is made of."""

LOW_CONFIDENCE = 0.7
"""Below it, confidence (alone or combined with DSA) is active."""

Rows = slice | NDArray[np.int64]

_LEAST_FLOOR = 1e-100
"""Weights beyond its inverse have no squares."""


def check(auxiliary: str) -> None:
    """Raise SpecError unless there is such an auxiliary variable."""
    if auxiliary not in NEEDS:
        raise SpecError(f"auxiliary={auxiliary!r}: choose one of {', '.join(NEEDS)}")


def check_floor(floor: float) -> None:
    """Raise SpecError unless every example keeps a chance to be drawn."""
    if not _LEAST_FLOOR <= floor <= 1:
        raise SpecError(
            f"floor={floor}: give a number above 0, for examples that cannot be drawn would bias the estimate, "
            "and at most 1, the mean belief"
        )


class Variable(NamedTuple):
    """A variable over a pool: what turns a raw value into a belief, whichever part it is in."""

    auxiliary: str
    low: float  # of the raw values; of `combined`, which has a scale of its own, that does not matter
    high: float
    largest_dsa: float  # 0 where there is none

    def read(self, part: Pool, rows: Rows = slice(None)) -> NDArray[np.float64]:
        """Raw values of a part or some rows of it, (n,); they may be those of the part itself, so are not changed."""
        if self.auxiliary == "combined":
            surprise = _share(read_column(part, "dsa", rows), self.largest_dsa)
            return read_column(part, "confidence", rows) * (1 - surprise)
        return read_column(part, self.auxiliary, rows)

    def belief(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """P >= 0 of raw ``values``, both (n,)."""
        if self.auxiliary == "dsa":
            return _share(values, self.largest_dsa)
        if self.auxiliary == "lsa":
            return values - min(self.low, 0.0)
        return 1 - values

    def active(self, values: NDArray[np.float64], threshold: float) -> NDArray[np.bool_]:
        """Where raw ``values`` pass the threshold; both (n,)."""
        return values > threshold if self.auxiliary in ("dsa", "lsa") else values < threshold


def find(view: View, auxiliary: str) -> Variable:
    """The variable over the pool.

    Raises
    ------
    DataError
        A value is not finite, a confidence outside [0, 1] or a DSA below 0.
    """
    bounds = {name: _checked_bounds(view, name) for name in NEEDS[auxiliary]}
    low, high = bounds[NEEDS[auxiliary][0]]
    return Variable(auxiliary, low, high, bounds["dsa"][1] if "dsa" in bounds else 0.0)


def find_threshold(view: View, variable: Variable) -> float:
    """Where the variable is active, by the table above, in its raw units."""
    if variable.auxiliary not in ("dsa", "lsa"):
        return LOW_CONFIDENCE
    mean = mean_of(view.map(part_sum, variable), view.size)
    spread = mean_of(view.map(part_squares, variable, mean), view.size)
    return mean + (2 * math.sqrt(spread) if variable.auxiliary == "dsa" else spread)


def part_sum(part: Pool, variable: Variable) -> int:
    return exact_sum(variable.read(part))


def part_squares(part: Pool, variable: Variable, mean: float) -> int:
    return exact_sum((variable.read(part) - mean) ** 2)


def part_first_outside(part: Pool, name: str, low: float, high: float) -> int | None:
    values = getattr(part, name)
    bad = np.flatnonzero((values < low) | (values > high))
    return int(bad[0]) if len(bad) else None


def _checked_bounds(view: View, name: str) -> tuple[float, float]:
    low, high = view.bounds(name)
    lowest, highest = (0.0, 1.0) if name == "confidence" else (0.0 if name == "dsa" else -np.inf, np.inf)
    if low < lowest or high > highest + SOFTMAX_ROUNDING:
        found = zip(view.starts, view.map(part_first_outside, name, lowest, highest + SOFTMAX_ROUNDING), strict=False)
        index = np.array([next(start + row for start, row in found if row is not None)])
        where = "in [0, 1]" if name == "confidence" else "at least 0"
        value = np.float64(view.take(part_rows, index, name)[0])
        raise DataError(f"{name} of example {view.identify(index)[0]!r} is {value}; it must be {where}")
    return low, high


def part_rows(part: Pool, rows: NDArray[np.int64], name: str) -> NDArray[Any]:
    return np.asarray(getattr(part, name)[rows])


def read_column(part: Pool, name: str, rows: Rows = slice(None)) -> NDArray[np.float64]:
    """A column of some rows, (k,), a confidence at most 1: a float32 softmax may be more."""
    values: NDArray[np.float64] = getattr(part, name)[rows].astype(np.float64, copy=False)
    return np.minimum(values, 1.0) if name == "confidence" and values.max(initial=0.0) > 1 else values


def _share(surprise: NDArray[np.float64], largest: float) -> NDArray[np.float64]:
    """Surprise in [0, 1]; a pool without surprise stays at 0."""
    return surprise / largest if largest > 0 else surprise
