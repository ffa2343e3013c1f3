"""Roots of functions of one variable, to the last bit those of SciPy, whose package for them takes 0.3 s to import.

A statement needs one to four roots, and imports nothing else that takes so long.
"""

import math
from collections.abc import Callable

RELATIVE = 4 * 2.0**-52
"""Least tolerance, as a share of the root."""

_STEPS = 100

_Point = tuple[float, float]
"""x and f(x)."""


def root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A root between two ends at which the signs differ, as ``scipy.optimize.brentq`` finds it.

    R. P. Brent, "Algorithms for Minimization Without Derivatives" (1973), chapter 4: the step to the root of a curve
    through the last points, if it is short beside the steps before, else half of what is left.
    """
    before, now = (low, function(low)), (high, function(high))
    if 0 in (before[1], now[1]):
        return low if before[1] == 0 else high
    beyond, step, last = before, high - low, high - low  # the root lies between ``now`` and ``beyond``
    for _ in range(_STEPS):
        if before[1] != 0 and (before[1] > 0) != (now[1] > 0):
            beyond, step, last = before, now[0] - before[0], now[0] - before[0]
        if abs(beyond[1]) < abs(now[1]):
            before, now, beyond = now, beyond, now
        least, half = (tolerance + RELATIVE * abs(now[0])) / 2, (beyond[0] - now[0]) / 2
        if now[1] == 0 or abs(half) < least:
            return now[0]
        tried = _step(before, now, beyond) if abs(last) > least and abs(now[1]) < abs(before[1]) else math.inf
        is_short = 2 * abs(tried) < min(abs(last), 3 * abs(half) - least)
        last, step = (step, tried) if is_short else (half, half)
        x = now[0] + (step if abs(step) > least else math.copysign(least, half))
        before, now = now, (x, function(x))
    raise ArithmeticError(f"no root was found between {low} and {high} in {_STEPS} steps")


def _step(before: _Point, now: _Point, beyond: _Point) -> float:
    """From ``now`` to the root of a line through the last two points, or of a curve through three."""
    if before == beyond:
        return -now[1] * (now[0] - before[0]) / (now[1] - before[1])
    to_before = (before[1] - now[1]) / (before[0] - now[0])
    to_beyond = (beyond[1] - now[1]) / (beyond[0] - now[0])
    rise = to_beyond * to_before * (beyond[1] - before[1])
    return -now[1] * (beyond[1] * to_beyond - before[1] * to_before) / rise if rise else math.inf


def bisected(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """A root between two ends at which the signs differ, as ``scipy.optimize.bisect`` finds it; f may be infinite."""
    at_low = function(low)
    if at_low == 0:
        return low
    if function(high) == 0:
        return high
    width, middle = high - low, low
    for _ in range(_STEPS):
        width /= 2
        middle = low + width
        value = function(middle)
        if (value > 0) == (at_low > 0):
            low = middle
        if value == 0 or abs(width) < tolerance + RELATIVE * abs(middle):
            break
    return middle
