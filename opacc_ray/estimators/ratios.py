"""Ratios of totals: detection, segmentation, transcripts, and clusters such as the frames of a video.

Every example has counts, known once it is labelled: hits and misses of an image at an IoU, pixels of intersection and
of union, edits and words of a document, right and all frames of a video. A number is the ratio of two totals over the
pool,

    R = Σ a / Σ b        recall  tp/(tp + fn)    F1  2tp/(2tp + fp + fn)    IoU  intersection/union    WER  edits/words

estimated by R̂ = â/b̂, with the variance of the mean of (a - R̂·b)/b̂ by the design (C.-E. Särndal, B. Swensson, J.
Wretman, "Model Assisted Survey Sampling", 1992, 5.6). The example is the unit that is drawn, so what is alike within
it, such as the frames of a video, is allowed for. R̂ has a bias of order 1/n.

The interval is that of a domain (:mod:`opacc_ray.estimators.totals`): Wilson's at the size of the simple random sample
with the same variance, with half an event of the size Σs² added, where s = w·b/b̂ is the share that a label stands for;
at the lower end mid-P. It is taken for a and for b - a, and the wider one is stated.

A ratio that may exceed 1, because a > b for some example, is measured in multiples of the largest a/b. Its interval
also includes E. C. Fieller's ("Some problems in interval estimation", JRSS B 16, 1954), the R with |â - R·b̂| <= t·√v(a
- R·b), because its denominator may be uncertain.

A ratio may be subtracted from 1, so that more is better: 1 - edits/words. Over a slice D, a and b are 0 outside of it.

Legend: a and b the counts of an example above and below the line, n labels.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, shown
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons, within_interval
from opacc_ray.estimators.intervals import (
    Interval,
    normal_quantile,
    student_quantile,
    student_widening,
    wider,
)
from opacc_ray.estimators.rounds import LinearEstimator
from opacc_ray.estimators.totals import DomainShare

Array = NDArray[np.float64]

INTERVAL = "ratio of totals"
"""Name of the interval."""

_UNCERTAIN = 0.15
_FEW = "little is counted below the line, and the ratio may exceed 1, so its interval may be too narrow"
"""Relative standard error of b from which on a ratio that may exceed 1 says so; 30 images covered in 76 % then."""

_NOTHING = "nothing is counted below the line"

_TERM = re.compile(r"(?:(\d+(?:\.\d+)?)\s*\*?\s*)?([A-Za-z_]\w*)$")
_FROM_ONE = re.compile(r"1\s*-\s*(?=\S)")

Terms = tuple[tuple[float, str], ...]


class Ratio(NamedTuple):
    """Two sums of counts, such as ``2 tp / (2 tp + fp + fn)``, or 1 minus their ratio."""

    top: Terms
    bottom: Terms
    from_one: bool = False

    @classmethod
    def parse(cls, text: str) -> "Ratio":
        """Read a ratio; raises SpecError for anything else."""
        start = _FROM_ONE.match(text.strip())
        sides = text.strip()[start.end() if start else 0 :].split("/")
        if len(sides) != 2:
            raise SpecError(f"ratio {shown(text)}: give two sums of names, such as 'tp / (tp + fn)'")
        top, bottom = (_terms(side.strip(), text) for side in sides)
        return cls(top, bottom, start is not None)

    def __str__(self) -> str:
        return f"{'1 - ' * self.from_one}{_text(self.top)} / {_text(self.bottom)}"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the counts, each once."""
        return tuple(dict.fromkeys(name for _, name in (*self.top, *self.bottom)))

    def sides(self, counts: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a and b from all counts by name: of one example, of many, (n,) each, or of totals."""
        top, bottom = (sum(k * counts[name] for k, name in side) for side in (self.top, self.bottom))
        return top, bottom

    def of_totals(self, totals: Mapping[str, float]) -> float:
        """Return the ratio of totals by name; 0 over 0 is 0."""
        top, bottom = self.sides(totals)
        own = top / bottom if bottom else 0.0
        return 1 - own if self.from_one else own

    def of_example(self, counts: Mapping[str, float]) -> float:
        """Return the ratio of one example within [0, 1]; where nothing is counted nothing is wrong: 1."""
        top, bottom = self.sides(counts)
        if top == bottom == 0:
            return 1.0
        own = min(top / bottom, 1.0) if bottom else 1.0
        return 1 - own if self.from_one else own

    def estimate(self, design: LinearEstimator, counts: Mapping[str, Array], num: int, level: float) -> Estimate:
        """Estimate it from the counts of all labels, (n,) each, of ``num`` examples.

        Where nothing is counted below the line it is unknown, from 0 to 1.
        """
        top, bottom = self.sides(counts)
        if float(design.mean(bottom)) <= 0:
            return replace(self.known(0.5, num, level), low=0.0, high=1.0, standard_error=0.5, reason=_NOTHING)
        found = replace(_estimate(design, top, bottom, level), n=num)
        if not self.from_one:
            return found
        return replace(found, value=1 - found.value, low=1 - found.high, high=1 - found.low)

    def known(self, value: float, num: int, level: float) -> Estimate:
        """Return a value without error."""
        return Estimate(value, 0.0, value, value, level, INTERVAL, num, True)

    def of_random_sample(
        self, design: LinearEstimator, counts: Mapping[str, Array], share: float, level: float
    ) -> Estimate:
        """Return it as a simple random sample with as many labels, a ``share`` of the pool, is expected to state it."""
        influence = self._influence(design, counts)
        error = math.sqrt(max(float(design.mean(influence**2)), 0.0) * max(1 - share, 0.0) / len(influence))
        value, half = self.estimate(design, counts, len(influence), level).value, normal_quantile(level) * error
        return Estimate(value, error, value - half, value + half, level, INTERVAL, len(influence), True)

    def events(self, design: LinearEstimator, counts: Mapping[str, Array]) -> float:
        """Return the number of labels that its interval rests on, each by what it adds to the variance."""
        shares = (design.weights * self._influence(design, counts)) ** 2
        return float(shares.sum() ** 2 / max(float(shares @ shares), 1e-300))

    def effect(self, design: LinearEstimator, counts: Mapping[str, Array]) -> Callable[[Mapping[str, Any]], Any]:
        """Return (a - R̂·b)/b̂ as a function of counts by name, of one example or of many."""
        top, bottom = (float(design.mean(side)) for side in self.sides(counts))
        whole = max(bottom, 1e-300)

        def own(given: Mapping[str, Any]) -> Any:
            a, b = self.sides(given)
            return (a - top / whole * b) / whole

        return own

    def _influence(self, design: LinearEstimator, counts: Mapping[str, Array]) -> Array:
        """Return (a - R̂·b)/b̂ of each label, (n,): the ratio has the error of the mean of these."""
        found: Array = self.effect(design, counts)(counts)
        return found


def _terms(side: str, ratio: str) -> Terms:
    inner = side[1:-1] if side.startswith("(") and side.endswith(")") else side
    terms = [_TERM.match(term.strip()) for term in inner.split("+")]
    if not all(terms):
        raise SpecError(f"ratio {shown(ratio)}: {shown(side)} is no sum of names, such as 'tp + fn' or '2 tp'")
    return tuple((float(term[1] or 1), term[2]) for term in terms if term)


def _text(terms: Terms) -> str:
    text = " + ".join(name if k == 1 else f"{k:g} {name}" for k, name in terms)
    return text if len(terms) == 1 else f"({text})"


def _estimate(design: LinearEstimator, top: Array, bottom: Array, level: float) -> Estimate:
    """Return Σa/Σb from the counts of each label, (n,) each."""
    whole = float(design.mean(bottom))
    value = float(design.mean(top)) / whole
    variance = float(design.variance((top - value * bottom) / whole))
    most = max(1.0, float(np.max(top / np.maximum(bottom, 1e-300), where=bottom > 0, initial=0.0)))
    low, high = _interval(design, top / most, bottom, variance / most**2, level)
    low, high, reason = low * most, high * most, design.reason
    if most > 1:
        low, high = wider((low, high), _fieller(design, top, bottom, level))
        if float(design.variance(bottom)) > (_UNCERTAIN * whole) ** 2:
            reason = joined_reasons([reason, _FEW])
    return within_interval(
        Estimate(
            value=value,
            standard_error=math.sqrt(variance),
            low=low,
            high=high,
            level=level,
            interval=INTERVAL,
            n=len(top),
            design_based=reason is None,
            reason=reason,
        )
    )


def _interval(design: LinearEstimator, top: Array, bottom: Array, variance: float, level: float) -> Interval:
    """Return the interval of a ratio of at most 1, the wider one of those for what is counted and for what is not."""
    whole = float(design.mean(bottom))
    weights = np.maximum(design.weights, 0)
    share = weights * bottom / whole
    left = min(design.largest_weight / max(float(weights.max()), 1e-300), 1.0)  # 0 once the whole pool is labelled
    unit = max(left * float(share @ share) / max(float(share.sum()), 1e-300), 1e-300)
    wide = variance * student_widening(design.degrees or max(len(top) - 1, 1), level) ** 2

    def ends(part: Array) -> Interval:
        own = float(design.mean(part)) / whole
        events, variance = float(np.sum(part > 0)), wide + unit**2 / 2
        return DomainShare(own, variance, math.inf, 1 / unit, events, unit / 2, *[0.0] * 4).interval(level)

    low, high = ends(top)
    few, many = ends(bottom - top)
    return wider((low, high), (1 - many, 1 - few))


def _fieller(design: LinearEstimator, top: Array, bottom: Array, level: float) -> Interval:
    """Return Fieller's interval; that of a normal ratio where the denominator might be 0."""
    square = student_quantile(design.degrees or max(len(top) - 1, 1), level) ** 2
    a, b = float(design.mean(top)), float(design.mean(bottom))
    own, other, both = (float(design.variance(x)) for x in (top, bottom, top + bottom))
    second, first, rest = (
        b**2 - square * other,
        a * b - square * (both - own - other) / 2,
        a**2 - square * own,
    )
    if second <= 0:
        half = math.sqrt(square * float(design.variance((top - a / b * bottom) / b)))
        return max(a / b - half, 0.0), a / b + half
    half = math.sqrt(max(first**2 - second * rest, 0.0))
    return max((first - half) / second, 0.0), (first + half) / second


def count_of(row: Mapping[str, Any], name: str, id: str) -> float:
    """Return a count of an example; raises LabelError unless it is a finite number of at least 0."""
    if name not in row:
        raise LabelError(f"{shown(id)} has no count {shown(name)}; it has {', '.join(map(str, row))}")
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = math.nan
    if not 0 <= value < math.inf:
        raise LabelError(f"{shown(id)} has {name}={shown(row[name])}; give a number of at least 0")
    return value
