"""What every estimator gives back, and what it may rely on of the outcomes."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.html import as_html, as_text
from opacc_ray.estimators.intervals import outward
from opacc_ray.selection import Selection

Outcome = NDArray[np.float64]

_ROUNDING = 1e-9
"""A value is not moved by less."""


@dataclass(frozen=True)
class Estimate:
    """Accuracy of a model on the whole pool.

    ``value`` lies between ``low`` and ``high``; an unbiased estimate outside of them is moved to the nearer one, and
    ``reason`` says so. ``low`` .. ``high`` covers the accuracy with probability ``level`` where ``design_based`` is
    true; otherwise ``reason`` says what the interval rests on.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    interval: str
    n: int
    design_based: bool
    reason: str | None = None

    def __post_init__(self) -> None:
        for name in ("value", "standard_error", "low", "high", "level"):  # NumPy's numbers, and what is compared with
            object.__setattr__(self, name, float(getattr(self, name)))  # them, are none of JSON

    def to_dict(self) -> dict[str, Any]:
        """JSON types, under the names of the attributes."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


def contain(found: Estimate, size: int | None = None) -> Estimate:
    """The estimate as it is stated: a value between its ends, and these at multiples of 1/``size``, if that is given.

    An unbiased estimate may lie outside of its interval, below 0 even, where few labels fail or few succeed.
    ``reason`` says so.
    """
    low, high = (found.low, found.high) if size is None else outward((found.low, found.high), size)
    value, reason = min(max(found.value, low), high), found.reason
    if abs(value - found.value) > _ROUNDING:
        reason = joined_reasons((reason, f"the unbiased estimate, {found.value:.4f}, lies outside the interval"))
    return replace(found, value=value, low=low, high=high, reason=reason)


def checked_outcome(selection: Selection, outcome: Sequence[float] | Outcome) -> Outcome:
    """The outcomes as (n,) float64; raises LabelError unless they fit the selection, in its order."""
    try:
        values = np.asarray(outcome, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # of a tensor that has a gradient
        raise LabelError(
            f"the outcomes are not all numbers ({error}): give 1 for correct, 0 for a misprediction, or a score"
        ) from None
    if values.shape != selection.index.shape:
        raise LabelError(
            f"outcome has shape {values.shape} and the selection {len(selection.index)} examples: "
            "give one outcome per example, in the order of selection.index"
        )
    _check_order(selection, outcome)
    bad = np.flatnonzero(~((values >= 0) & (values <= 1)))
    if len(bad):
        raise LabelError(
            f"outcome {values[bad[0]]} of example {selection.ids[bad[0]]!r} is not in [0, 1]: "
            "1 is correct, 0 a misprediction, between them a score"
        )
    return values


def joined_reasons(reasons: Iterable[str | None]) -> str | None:
    """Reasons in one text, each once; None if there is none."""
    return "; ".join(dict.fromkeys(filter(None, reasons))) or None


def _check_order(selection: Selection, outcome: Any) -> None:
    """Raise LabelError if the index of a column of a table names the examples of the selection in another order."""
    index = getattr(outcome, "index", None)
    names = None if index is None or callable(index) else list(index)  # a list has a method of that name
    for which, own in (("index", selection.index.tolist()), ("ids", list(selection.ids))):
        if names is not None and names != own and set(names) == set(own):
            first = next(place for place, (name, is_own) in enumerate(zip(names, own, strict=True)) if name != is_own)
            raise LabelError(
                f"the index of the outcomes has {names[first]!r} where the selection has {own[first]!r}: sort them, as "
                f"in outcome.loc[list(selection.{which})], or give outcome.to_numpy() if only their index is wrong"
            )


def check_level(level: Any) -> None:
    """Raise LabelError unless ``level`` is between 0 and 1, and not so near to either that rounding makes it that."""
    if not (isinstance(level, Real) and 0.5 < 0.5 + float(level) / 2 < 1):
        given = level if isinstance(level, Real) else repr(level)
        raise LabelError(f"level={given}: give a confidence level between 0 and 1, such as 0.95")


def is_binary(outcome: Outcome) -> bool:
    """Whether every outcome is 0 or 1."""
    return bool(np.isin(outcome, (0.0, 1.0)).all())
