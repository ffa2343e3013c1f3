"""Numbers as people read them: percentages, intervals, counts and durations. JSON keeps fractions."""

import math
from typing import NamedTuple

from opacc_ray.errors import counted
from opacc_ray.estimators.intervals import Value, clipped
from opacc_ray.estimators.metrics import AVERAGES
from opacc_ray.estimators.scores import SCORES


class Stated(NamedTuple):
    """A value and its interval as texts."""

    value: str  # 68.2 %
    interval: str  # 65.1 to 71.1


def stated(estimate: Value, measure: str = "accuracy") -> Stated:
    """Format a value, cut to its interval, with as many digits as the width of the interval allows."""
    digits = digits_for(estimate.low, estimate.high)
    return Stated(number(clipped(estimate), measure, digits), ends(estimate.low, estimate.high, measure, digits))


def change(estimate: Value, measure: str = "accuracy") -> Stated:
    """Format a difference with signs: percentage points of a share, a plain number of a mean score."""
    digits = digits_for(estimate.low, estimate.high)
    value, low, high = (difference(part, measure, digits) for part in (clipped(estimate), estimate.low, estimate.high))
    return Stated(f"{value} points" if is_share(measure) else value, f"{low} to {high}")


def percent(value: float, digits: int = 1) -> str:
    """Format a fraction: 0.843 -> 84.3 %; 1 and 0 without decimals."""
    text = f"{100 * value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if value in (0, 1) else text} %"


def level_text(level: float) -> str:
    """Format a confidence level: 0.95 -> 95 %."""
    return f"{100 * level:.6g} %"


def digits_for(low: float, high: float) -> int:
    """Return the decimals of a percentage that show two figures of the width of its interval."""
    width = 100 * (high - low)
    return 1 if width >= 1 or width <= 0 else min(4, 1 - math.floor(math.log10(width)))


def number(value: float, measure: str, digits: int = 1) -> str:
    """Format a share as a percentage, a mean score as a number."""
    return percent(value, digits) if is_share(measure) else f"{value:.{digits + 2}f}"


def ends(low: float, high: float, measure: str = "accuracy", digits: int = 1) -> str:
    """Format the ends of an interval: 65.1 to 71.1, in percent for a share."""
    return " to ".join(number(end, measure, digits).removesuffix(" %") for end in (low, high))


def difference(value: float, measure: str, digits: int = 1) -> str:
    """Format a difference with its sign, in percentage points for a share; one that rounds to 0 has no sign."""
    text = f"{100 * value:+.{digits}f}" if is_share(measure) else f"{value:+.{digits + 2}f}"
    return text if float(text) else text[1:]


def is_share(measure: str) -> bool:
    """Return whether a measure is read as a percentage: a share of examples, or a mean of shares such as F1."""
    return not measure.startswith(("mean", "mcc", "brier", "auc"))


def noun(measure: str) -> str:
    """Return what a result is called: a metric by its name, and the score of a regression is no accuracy."""
    if measure == "accuracy" or "@" in measure or measure in (*AVERAGES, *SCORES):
        return measure
    return "score"


def thousands(value: float) -> str:
    """Format a count: 6000 -> 6,000."""
    return f"{value:,.0f}"


def duration(days: float) -> str:
    """Format a number of days."""
    if days < 1:
        hours = int(24 * days)
        return "less than an hour" if hours < 1 else counted(hours, "hour")
    return counted(int(days), "day")


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}"
