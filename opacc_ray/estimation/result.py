"""The estimate that every estimator returns, and how it is shown."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from html import escape
from typing import Any

from opacc_ray.estimation.intervals import outward

_LEAST_MOVE = 1e-9
"""A smaller move of a value into its interval is not reported."""

_LINE_WIDTH = 240
"""Pixels of the line from 0 to 1."""


@dataclass(frozen=True)
class IfPredicted:
    """The interval of a metric if the confidence is right about the examples that no label reached, up to a factor.

    ``factor`` is how many times as many examples of the class may hide among them as the confidence says before the
    metric is below ``low``, and ``labels`` the number of labels there, drawn at random, that would settle it without
    that assumption.
    """

    value: float
    low: float
    high: float
    factor: float
    labels: int


@dataclass(frozen=True)
class Estimate:
    """Accuracy of a model on the whole pool, with its interval.

    ``value`` is between ``low`` and ``high``: an unbiased estimate outside of them is moved to the nearer end, and
    ``reason`` reports it. ``low`` .. ``high`` covers the accuracy with probability ``level`` where ``design_based`` is
    true; otherwise ``reason`` states the assumption of the interval. ``method`` names its formula.

    ``effective_size`` is the number of labels of a simple random sample that would be as precise. Only
    :func:`opacc_ray.estimate` sets it; it is None where it is unknown: too few failures were seen, or the interval is
    not design-based. ``if_predicted`` is a second statement on metrics of a rare class. Equality and :meth:`to_dict`
    ignore both.
    """

    value: float
    standard_error: float
    low: float
    high: float
    level: float
    method: str
    n: int
    design_based: bool
    reason: str | None = None
    effective_size: float | None = field(default=None, compare=False)
    if_predicted: IfPredicted | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in ("value", "standard_error", "low", "high", "level"):  # NumPy numbers are not JSON types
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def interval(self) -> tuple[float, float]:
        """Return (low, high)."""
        return self.low, self.high

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes, without the two that equality ignores."""
        content = asdict(self)
        del content["effective_size"], content["if_predicted"]
        return content

    def _repr_html_(self) -> str:
        return as_html(self)

    def __str__(self) -> str:
        return as_text(self)


def within_interval(found: Estimate, size: int | None = None) -> Estimate:
    """Move the value into the interval, and round the ends outward to multiples of 1/``size`` if that is given.

    An unbiased estimate may be outside of its interval, even below 0, where few labels fail or few succeed. ``reason``
    reports such a move.
    """
    low, high = (found.low, found.high) if size is None else outward((found.low, found.high), size)
    value, reason = min(max(found.value, low), high), found.reason
    if abs(value - found.value) > _LEAST_MOVE:
        reason = joined_reasons((reason, f"the unbiased estimate, {found.value:.4f}, is outside the interval"))
    return replace(found, value=value, low=low, high=high, reason=reason)


def joined_reasons(reasons: Iterable[str | None]) -> str | None:
    """Join reasons in one text, each once; None if there is none."""
    return "; ".join(dict.fromkeys(filter(None, reasons))) or None


def as_text(estimate: Any) -> str:
    """Return an estimate, or its document, as one line of text, with its reason."""
    kind = "" if estimate.design_based else ", not design-based"
    reason = f": {estimate.reason}" if estimate.reason else ""
    return (
        f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}] "
        f"({100 * estimate.level:g}% {estimate.method} interval, {estimate.n} labels{kind}){reason}"
    )


def as_html(estimate: Any) -> str:
    """Return an estimate, or its document, as HTML in the colours of the page; every text is escaped."""
    between = f"{100 * estimate.level:g}% interval {estimate.low:.4f} to {estimate.high:.4f}"
    note = f"; {escape(estimate.reason)}" if estimate.reason else ""
    return (
        f'<div><strong style="font-size:1.3em">{estimate.value:.4f}</strong>&ensp;{between}<br>'
        f"{_interval_line(estimate, between)}"
        f"<small>{escape(estimate.method)} interval, {estimate.n} labels{note}</small></div>"
    )


def _interval_line(estimate: Any, between: str) -> str:
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
