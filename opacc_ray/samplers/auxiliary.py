"""Auxiliary variables: how likely each example is to be mispredicted, before anyone labels it.

DeepEST and the unequal-probability designs start from one. A variable has *raw values*, in the units in which users
know it and give thresholds, and a *score* of failure, at least 0 and larger for the examples more likely to fail:

    auxiliary     raw value v       score P              active
    confidence    c                 1 - c                c < 0.7
    dsa           DSA               DSA / max DSA        DSA > mean + 2 · standard deviation
    lsa           LSA               LSA - min(LSA, 0)    LSA > mean + variance
    combined      c · (1 - d)       1 - c · (1 - d)      c · (1 - d) < 0.7          with d = DSA / max DSA

Legend: N pool, c confidence, DSA and LSA distance- and likelihood-based surprise.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View

NEEDS = {"confidence": ("confidence",), "dsa": ("dsa",), "lsa": ("lsa",), "combined": ("confidence", "dsa")}
"""The features that each auxiliary variable is made of."""

LOW_CONFIDENCE = 0.7
"""Below it, confidence (alone or combined with DSA) is active."""

_LEAST_FLOOR = 1e-100
"""Weights beyond its inverse have no squares."""


def check(auxiliary: str) -> None:
    """Raise SpecError unless there is such an auxiliary variable."""
    if auxiliary not in NEEDS:
        raise SpecError(f"auxiliary={auxiliary!r}: choose one of {', '.join(NEEDS)}")


def check_floor(floor: float) -> None:
    """Raise SpecError unless every example can be drawn."""
    if not _LEAST_FLOOR <= floor <= 1:
        raise SpecError(
            f"floor={floor}: give a number above 0, because examples that cannot be drawn would bias the estimate, "
            "and at most 1, the mean score"
        )


class Variable(NamedTuple):
    """An auxiliary variable of a whole pool."""

    name: str
    values: NDArray[np.float64]  # (N,) raw

    def score(self) -> NDArray[np.float64]:
        """Return P >= 0 of every example, (N,), in the memory of the raw values, which are gone."""
        if self.name == "dsa":
            return _share_of_largest(self.values)
        if self.name == "lsa":
            return np.subtract(self.values, min(float(self.values.min()), 0.0), out=self.values)
        return np.subtract(1, self.values, out=self.values)

    def active(self, threshold: float | None = None) -> NDArray[np.bool_]:
        """Return which raw values pass the threshold, by default that of the table above: (N,)."""
        if self.name not in ("dsa", "lsa"):
            return self.values < (LOW_CONFIDENCE if threshold is None else threshold)
        if threshold is None:
            spread = 2 * self.values.std() if self.name == "dsa" else self.values.var()
            threshold = float(self.values.mean() + spread)
        return self.values > threshold


def read(view: View, name: str) -> Variable:
    """Return the auxiliary variable ``name`` of a pool; raises DataError as :meth:`View.column_in_range`."""
    values = view.column_in_range(NEEDS[name][0])
    if name == "combined":
        values *= 1 - _share_of_largest(view.column_in_range("dsa"))
    return Variable(name, values)


def _share_of_largest(surprise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return surprise in [0, 1], in the same memory; a pool without surprise stays at 0."""
    largest = surprise.max()
    return np.divide(surprise, largest, out=surprise) if largest > 0 else surprise
