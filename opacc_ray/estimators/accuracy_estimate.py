"""Define the estimate that every estimator returns, how it is shown, and the checks of outcomes."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from numbers import Real
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError
from opacc_ray.estimators.intervals import Value, cut, outward
from opacc_ray.selection import Selection

Outcome = NDArray[np.float64]

_ROUNDING = 1e-9
"""A smaller move of a value is not reported."""

_LINE_WIDTH = 240
"""Pixels of the line from 0 to 1."""


@dataclass(frozen=True)
class Estimate:
    """Accuracy of a model on the whole pool, with its interval.

    ``value`` is between ``low`` and ``high``: an unbiased estimate outside of them is moved to the nearer end, and
    ``reason`` reports it. ``low`` .. ``high`` covers the accuracy with probability ``level`` where ``design_based`` is
    true; otherwise ``reason`` states the assumption of the interval.

    ``effective_size`` is the number of labels of a simple random sample that would be as precise. Only
    :func:`opacc_ray.estimate` sets it; it is None where it is unknown: too few failures were seen, or the interval is
    not design-based. Equality and :meth:`to_dict` ignore it.
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
    effective_size: float | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("value", "standard_error", "low", "high", "level"):  # NumPy numbers are not JSON types
            object.__setattr__(self, name, float(getattr(self, name)))

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes, without ``effective_size``."""
        content = asdict(self)
        del content["effective_size"]
        return content

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


class KnownOutcomes(NamedTuple):
    """What the labels prove: the outcomes of the labelled examples."""

    failures: float  # their sum over labelled examples, each counted once
    num: int  # distinct labelled examples
    pool_size: int
    binary: bool  # whether every outcome is 0 or 1

    def clip(self, found: Estimate) -> Estimate:
        """Cut an estimate to what the labels leave possible; with 0/1 outcomes its ends are multiples of 1/N."""
        least, most = (self.num - self.failures) / self.pool_size, (self.pool_size - self.failures) / self.pool_size
        if self.num == self.pool_size:
            return replace(found, value=most, standard_error=0.0, low=most, high=most)
        low, high = cut((found.low, found.high), least, most)
        return within_interval(replace(found, low=low, high=high), self.pool_size if self.binary else None)


def within_interval(found: Estimate, size: int | None = None) -> Estimate:
    """Move the value into the interval, and round the ends outward to multiples of 1/``size`` if that is given.

    An unbiased estimate may be outside of its interval, even below 0, where few labels fail or few succeed. ``reason``
    reports such a move.
    """
    low, high = (found.low, found.high) if size is None else outward((found.low, found.high), size)
    value, reason = min(max(found.value, low), high), found.reason
    if abs(value - found.value) > _ROUNDING:
        reason = joined_reasons((reason, f"the unbiased estimate, {found.value:.4f}, is outside the interval"))
    return replace(found, value=value, low=low, high=high, reason=reason)


def joined_reasons(reasons: Iterable[str | None]) -> str | None:
    """Join reasons in one text, each once; None if there is none."""
    return "; ".join(dict.fromkeys(filter(None, reasons))) or None


# -- checks -----------------------------------------------------------------------------------------------------


def checked_outcome(selection: Selection, outcome: Sequence[float] | Outcome) -> Outcome:
    """Return the outcomes as (n,) float64; raise LabelError unless they fit the selection, in its order."""
    try:
        values = np.asarray(outcome, dtype=np.float64)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: a tensor that has a gradient
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
            "give 1 for correct, 0 for a misprediction, or a score between them"
        )
    return values


def _check_order(selection: Selection, outcome: Any) -> None:
    """Raise LabelError if the index of a table's column names the selected examples in another order."""
    index = getattr(outcome, "index", None)
    names = None if index is None or callable(index) else list(index)  # lists have a method of that name
    for which, own in (("index", selection.index.tolist()), ("ids", list(selection.ids))):
        if names is not None and names != own and set(names) == set(own):
            first = next(place for place, (name, is_own) in enumerate(zip(names, own, strict=True)) if name != is_own)
            raise LabelError(
                f"the index of the outcomes has {names[first]!r} where the selection has {own[first]!r}: sort them, as "
                f"in outcome.loc[list(selection.{which})], or give outcome.to_numpy() if only their index is wrong"
            )


def check_level(level: Any) -> None:
    """Raise LabelError unless ``level`` is between 0 and 1, and remains so after rounding."""
    if not (isinstance(level, Real) and 0.5 < 0.5 + float(level) / 2 < 1):
        given = level if isinstance(level, Real) else repr(level)
        raise LabelError(f"level={given}: give a confidence level between 0 and 1, such as 0.95")


def is_binary(outcome: Outcome) -> bool:
    """Return whether every outcome is 0 or 1."""
    return bool(np.isin(outcome, (0.0, 1.0)).all())


# -- text and HTML ----------------------------------------------------------------------------------------------


class Shown(Value, Protocol):
    """What is shown of an estimate, or of its document."""

    @property
    def level(self) -> float: ...
    @property
    def interval(self) -> str: ...
    @property
    def n(self) -> int: ...
    @property
    def design_based(self) -> bool: ...
    @property
    def reason(self) -> str | None: ...


def as_text(estimate: Shown) -> str:
    """Return an estimate as one line of text."""
    kind = "" if estimate.design_based else ", not design-based"
    return (
        f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}] "
        f"({100 * estimate.level:g}% {estimate.interval} interval, {estimate.n} labels{kind})"
    )


def as_html(estimate: Shown) -> str:
    """Return an estimate as a fragment of HTML in the colours of the page; every text is escaped."""
    between = f"{100 * estimate.level:g}% interval {estimate.low:.4f} to {estimate.high:.4f}"
    note = f"; {escape(estimate.reason)}" if estimate.reason else ""
    return (
        f'<div><strong style="font-size:1.3em">{estimate.value:.4f}</strong>&ensp;{between}<br>'
        f"{_interval_line(estimate, between)}"
        f"<small>{escape(estimate.interval)} interval, {estimate.n} labels{note}</small></div>"
    )


def _interval_line(estimate: Shown, between: str) -> str:
    """Draw the interval on the line from 0 to 1; nothing if it is outside."""
    if not 0 <= estimate.low <= estimate.high <= 1:
        return ""
    low, high, value = (8 + _LINE_WIDTH * min(max(x, 0.0), 1.0) for x in (estimate.low, estimate.high, estimate.value))
    title = f"{estimate.value:.4f}, {between}"
    return (
        f'<svg role="img" width="{_LINE_WIDTH + 16}" height="18" stroke="currentColor"><title>{title}'
        f'</title><path d="M8 5V13M{_LINE_WIDTH + 8} 5V13M8 9H{_LINE_WIDTH + 8}" opacity=".35"/>'
        f'<path d="M{low:.1f} 9H{high:.1f}" stroke-width="4"/>'
        f'<circle cx="{value:.1f}" cy="9" r="5" fill="currentColor"/></svg><br>'
    )
