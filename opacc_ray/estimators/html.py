"""An estimate as a notebook shows it, and as it prints: value, interval, and what it rests on."""

from html import escape
from typing import Protocol

from opacc_ray.estimators.intervals import Value

WIDTH = 240
"""Pixels of the line from 0 to 1."""


class Stated(Value, Protocol):
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


def as_text(stated: Stated) -> str:
    """Return one line."""
    kind = "" if stated.design_based else ", not design-based"
    return (
        f"{stated.value:.4f} [{stated.low:.4f}, {stated.high:.4f}] "
        f"({100 * stated.level:g}% {stated.interval} interval, {stated.n} labels{kind})"
    )


def as_html(stated: Stated) -> str:
    """Return a fragment of HTML in the colours of the page around it; every text is escaped."""
    between = f"{100 * stated.level:g}% interval {stated.low:.4f} to {stated.high:.4f}"
    note = f"; {escape(stated.reason)}" if stated.reason else ""
    return (
        f'<div><strong style="font-size:1.3em">{stated.value:.4f}</strong>&ensp;{between}<br>{_line(stated, between)}'
        f"<small>{escape(stated.interval)} interval, {stated.n} labels{note}</small></div>"
    )


def _line(stated: Stated, between: str) -> str:
    """The interval on the line from 0 to 1; nothing for what lies outside of it."""
    if not 0 <= stated.low <= stated.high <= 1:
        return ""
    low, high, value = (8 + WIDTH * min(max(x, 0.0), 1.0) for x in (stated.low, stated.high, stated.value))
    return (
        f'<svg role="img" width="{WIDTH + 16}" height="18" stroke="currentColor"><title>{stated.value:.4f}, {between}'
        f'</title><path d="M8 5V13M{WIDTH + 8} 5V13M8 9H{WIDTH + 8}" opacity=".35"/>'
        f'<path d="M{low:.1f} 9H{high:.1f}" stroke-width="4"/>'
        f'<circle cx="{value:.1f}" cy="9" r="5" fill="currentColor"/></svg><br>'
    )
