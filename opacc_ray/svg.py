"""Small static SVG: elements whose texts are escaped, and round ticks. Colours and weights are classes of the page.

Every number is rounded to a tenth of a pixel, so that the same figure has the same bytes on every machine.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

WIDE, NARROW = 768.0, 340.0
"""Pixels across a figure for a wide page, and for a narrow one."""


class Scale(NamedTuple):
    """Maps [low, high] to pixels from ``start`` to ``stop``; a vertical one has ``start`` below ``stop``."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)


def ticks(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round numbers, or two, that enclose [low, high] with equal steps of 1, 2, 2.5 or 5 · 10^k."""
    span = max(high - low, 1e-9 * (1 + abs(high)))
    power = 10.0 ** math.floor(math.log10(span / most))
    for step in (factor * power for factor in (1, 2, 2.5, 5, 10, 20)):
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first + 1 <= max(most, 2):
            return [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]
    return [low, high]


def decimals(values: Sequence[float]) -> int:
    """Decimals that tell the values apart and say them exactly, 6 at most."""
    return next((d for d in range(6) if all(abs(round(v, d) - v) < 1e-9 for v in values)), 6)


def both_widths(draw: Callable[[float], Markup], wide: float = WIDE) -> Markup:
    """A figure for a wide page and one for a narrow page, of which one is shown."""
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(draw(wide), draw(NARROW))


def name_at(name: str, width: float) -> str:
    """A name that the figure for the other width of a page does not have."""
    return f"{name}-{'n' if width == NARROW else 'w'}"


def figure(name: str, title: str, description: str, size: tuple[float, float], parts: Sequence[Markup]) -> Markup:
    """The whole SVG.

    Parameters
    ----------
    name : unique on the page
    title, description : what it is, and what it shows, for those who do not see it
    size : width and height in pixels
    """
    width, height = size
    return Markup(
        '<svg role="img" viewBox="0 0 {w} {h}" width="{w}" height="{h}" aria-labelledby="{n}-title {n}-desc">'
        '<title id="{n}-title">{t}</title><desc id="{n}-desc">{d}</desc>{body}</svg>'
    ).format(w=_px(width), h=_px(height), n=name, t=title, d=description, body=Markup("").join(parts))


def alone(drawn: str) -> str:
    """Return a figure as the content of a file of its own."""
    return f"{drawn}\n".replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)  # Markup would escape it


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> Markup:
    """One line of text; ``anchor`` is start, middle or end."""
    return Markup('<text x="{}" y="{}" class="{}" text-anchor="{}">{}</text>').format(
        _px(x), _px(y), kind, anchor, content
    )


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    """A straight line."""
    return Markup('<line x1="{}" y1="{}" x2="{}" y2="{}" class="{}"/>').format(_px(x1), _px(y1), _px(x2), _px(y2), kind)


def dot(x: float, y: float, radius: float, kind: str) -> Markup:
    """A circle."""
    return Markup('<circle cx="{}" cy="{}" r="{}" class="{}"/>').format(_px(x), _px(y), _px(radius), kind)


def path(points: Sequence[tuple[float, float]], kind: str, *, closed: bool = False) -> Markup:
    """A line through points, or the area inside of it."""
    steps = " L".join(f"{_px(x)} {_px(y)}" for x, y in points)
    return Markup('<path d="M{}{}" class="{}"/>').format(steps, "Z" if closed else "", kind)


def diamond(x: float, y: float, radius: float, kind: str) -> Markup:
    """A square on its corner."""
    return path([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], kind, closed=True)


def whisker(low: tuple[float, float], high: tuple[float, float], kind: str, cap: float = 4) -> Markup:
    """An interval with caps at its ends, horizontal or vertical."""
    (x1, y1), (x2, y2) = low, high
    across, up = (0.0, cap) if y1 == y2 else (cap, 0.0)
    ends = [line(x - across, y - up, x + across, y + up, kind) for x, y in (low, high)]
    return Markup("").join([line(x1, y1, x2, y2, kind), *ends])


def shortened_to(content: str, characters: int) -> str:
    """The text, or its beginning and an ellipsis."""
    return content if len(content) <= characters else f"{content[: characters - 1]}…"


def _px(value: float) -> str:
    """Text of a coordinate, to a tenth of a pixel, without -0."""
    return f"{round(value, 1) + 0.0:.1f}".removesuffix(".0")
