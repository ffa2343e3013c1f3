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

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.view import View

NEEDS = {"confidence": ("confidence",), "dsa": ("dsa",), "lsa": ("lsa",), "combined": ("confidence", "dsa")}
"""The pool's features each auxiliary variable is made of."""

LOW_CONFIDENCE = 0.7
"""Below it, confidence (alone or combined with DSA) is active."""


def check(auxiliary: str) -> None:
    """Raise SpecError unless there is such an auxiliary variable."""
    if auxiliary not in NEEDS:
        raise SpecError(f"auxiliary={auxiliary!r}: choose one of {', '.join(NEEDS)}")


def check_floor(floor: float) -> None:
    """Raise SpecError unless every example keeps a chance to be drawn."""
    if not 0 < floor <= 1:
        raise SpecError(
            f"floor={floor}: give a number above 0, for examples that cannot be drawn would bias the estimate, "
            "and at most 1, the mean belief"
        )


def read(view: View, auxiliary: str) -> NDArray[np.float64]:
    """The variable in raw units, (N,).

    Raises
    ------
    DataError
        A value is not finite, a confidence outside [0, 1] or a DSA below 0.
    """
    if auxiliary == "combined":
        return _read(view, "confidence") * (1 - _share_of_largest(_read(view, "dsa")))
    return _read(view, auxiliary)


def belief(values: NDArray[np.float64], auxiliary: str) -> NDArray[np.float64]:
    """P >= 0 of raw ``values``, both (N,)."""
    if auxiliary == "dsa":
        return _share_of_largest(values)
    if auxiliary == "lsa":
        return values - min(float(values.min()), 0.0)
    return 1 - values


def active(values: NDArray[np.float64], auxiliary: str, threshold: float | None = None) -> NDArray[np.bool_]:
    """Where raw ``values`` pass the threshold, by default the one of the table above; both (N,)."""
    if auxiliary == "dsa":
        return values > (values.mean() + 2 * values.std() if threshold is None else threshold)
    if auxiliary == "lsa":
        return values > (values.mean() + values.var() if threshold is None else threshold)
    return values < (LOW_CONFIDENCE if threshold is None else threshold)


def draw_probabilities(beliefs: NDArray[np.float64], floor: float, taken: NDArray[np.int64]) -> NDArray[np.float64]:
    """Probabilities proportional to belief, (N,): 0 for the ``taken``, positive for all others, 1 in sum.

    Beliefs below ``floor`` times their mean are lifted to it. Without that, an example of belief 0 could never be
    drawn, its failure never be seen, and the estimate would be biased; and a failure in which one hardly believes
    would, in the rare sample that meets it, count as thousands.
    """
    lifted = beliefs.copy()
    lifted[taken] = 0
    mean = lifted.sum() / (len(lifted) - len(taken))
    np.maximum(lifted, floor * mean if mean > 0 else 1.0, out=lifted)
    lifted[taken] = 0
    return lifted / lifted.sum()


def _read(view: View, name: str) -> NDArray[np.float64]:
    values = view.column(name)
    lowest, highest = (0.0, 1.0) if name == "confidence" else (0.0 if name == "dsa" else -np.inf, np.inf)
    rounding = 1e-6  # of a float32 softmax
    if values.min() < lowest or values.max() > highest + rounding:
        bad = np.flatnonzero((values < lowest) | (values > highest + rounding))[:1]
        where = "in [0, 1]" if name == "confidence" else "at least 0"
        raise DataError(f"{name} of example {view.identify(bad)[0]!r} is {values[bad[0]]}; it must be {where}")
    return np.minimum(values, highest, out=values) if name == "confidence" else values


def _share_of_largest(surprise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Surprise in [0, 1]; a pool without surprise stays at 0."""
    largest = float(surprise.max())
    return surprise / largest if largest > 0 else surprise
