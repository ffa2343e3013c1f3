"""Compare the accuracy of parts of a pool with that of the rest, and say how many such statements hold together.

A part D and the rest R of a pool share no example. With failure shares θ_D and θ_R, and their intervals [l, u] at any
level, the difference Δ = θ_D - θ_R, how much lower the accuracy of D is, has the lower end

    L = Δ̂ - √( (θ̂_D - l_D)² + (u_R - θ̂_R)² )

of G. Y. Zou and A. Donner ("Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008),
and the upper end alike. So Δ has an interval wherever the two shares have one, by whatever design. The *p-value* of
"the accuracy of D is not lower" is the tail at which L is 0. It is as valid as the intervals of the shares. For labels
of a simple random sample with outcomes of 0 and 1 it is R. A. Fisher's exact test: given all failures, those in D have
a hypergeometric distribution.

Several statements: Benjamini and Hochberg's q-values bound the expected share of false ones among those with q at most
the bound (JRSS B 57, 1995). They need tests that are independent or positively dependent (Y. Benjamini, D. Yekutieli,
Annals of Statistics 29, 2001). Parts that overlap are positively dependent. Parts that do not overlap are nearly
independent: each is a small share of the other's rest. The factor Σ 1/k of Benjamini and Yekutieli needs no assumption.
Holm's p-values (Scandinavian Journal of Statistics 6, 1979) bound the probability of any false statement.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.intervals import Interval, hypergeometric_at_most
from opacc_ray.estimators.metrics import FEWEST, WIDEST
from opacc_ray.estimators.totals import Share

Array = NDArray[np.float64]

TOO_FEW = "too few labels to tell"

_LEAST_TAIL = 1e-9
_HALVINGS = 16


class Contrast(NamedTuple):
    """The failure shares of a part and of the rest."""

    part: Share
    rest: Share

    @property
    def difference(self) -> float:
        """How much lower the accuracy of the part is."""
        return _inside(self.part) - _inside(self.rest)

    def interval(self, level: float) -> Interval:
        """Return both ends of the difference at a confidence level."""
        (low, high), (least, most) = self.part.interval(level), self.rest.interval(level)
        own, other = min(max(self.part.value, low), high), min(max(self.rest.value, least), most)
        below, above = np.hypot(own - low, most - other), np.hypot(high - own, other - least)
        return max(float(own - other - below), low - most), min(float(own - other + above), high - least)

    def p_value(self) -> float:
        """Return the p-value of "the accuracy of the part is not lower": 1 where the labels do not say that it is."""
        if not self.part.num or not self.rest.num or self.difference <= 0:
            return 1.0
        least, most = np.log(_LEAST_TAIL), np.log(0.5)
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            if self.interval(1 - 2 * float(np.exp(middle)))[0] > 0:
                most = middle
            else:
                least = middle
        return float(np.exp(most))


def _inside(share: Share) -> float:
    return min(max(share.value, 0.0), 1.0)


def fisher(failures: int, num: int, all_failures: int, all_labels: int) -> float:
    """Return Fisher's exact p-value: that of at least ``failures`` among the ``num`` labels of a part.

    ``all_failures`` and ``all_labels`` include those of the part. In a finite pool the test is conservative.
    """
    return min(hypergeometric_at_most(num - failures, num, all_labels - all_failures, all_labels), 1.0)


def q_values(p: Sequence[float], *, any_dependence: bool = False) -> list[float]:
    """Return Benjamini and Hochberg's q-values (m,); with ``any_dependence`` those of Benjamini and Yekutieli."""
    values, order = np.array(p, dtype=np.float64), np.argsort(p, kind="stable")
    rank = np.arange(1, len(values) + 1)
    factor = len(values) * (float((1 / rank).sum()) if any_dependence else 1.0)
    found = np.empty(len(values))
    found[order] = np.minimum.accumulate((factor * values[order] / rank)[::-1])[::-1]
    return np.minimum(found, 1.0).tolist()


def holm(p: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values, (m,)."""
    values, order = np.array(p, dtype=np.float64), np.argsort(p, kind="stable")
    found = np.empty(len(values))
    found[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    return np.minimum(found, 1.0).tolist()


def level_of_each(level: float, num: int) -> float:
    """Return the level (Bonferroni's) at which ``num`` intervals together hold with probability ``level``."""
    return 1 - (1 - level) / max(num, 1)


def too_few(found: Estimate) -> str | None:
    """Return TOO_FEW for an estimate from fewer than FEWEST labels, or wider than ± WIDEST; None for the others."""
    known = found.low == found.high
    return TOO_FEW if not known and (found.n < FEWEST or found.high - found.low > 2 * WIDEST) else None
