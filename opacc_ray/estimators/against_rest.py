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
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.intervals import Interval, hypergeometric_at_most
from opacc_ray.estimators.totals import Share

Array = NDArray[np.float64]


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


def q_values(p: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's q-values (m,)."""
    from scipy.stats import false_discovery_control

    return np.asarray(false_discovery_control(p)).tolist() if len(p) else []
