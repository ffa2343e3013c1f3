"""Watch the failures of a model from window to window, with one false-alarm rate for its whole life.

The reference period has the share of failures m₀, and window t the share m_t. Nothing is wrong while m_t <= m₀ + d in
every window, with the tolerance d. If m₀ were known, a gambler could bet the stake s on failures in window t. With an
unbiased value g_k >= 0 of m_t for each label, he multiplies his capital by

    E_t(s) = Π_k [1 + s·(g_k / c - 1)],    E[g_k] = m_t <= c,    c = m₀ + d

While nothing is wrong its mean is at most 1. A drop may begin in any window, so the capital is spread over the windows
in which bets begin:

    S_t(s) = (S_{t-1}(s) + w_t)·E_t(s),    w_t = r_{t-1} - r_t,    r_t = (15/(t + 15))^0.9
    M_t(c) = mean_s S_t(s) + r_t

M is a supermartingale that begins with 1, because the w add up to 1. In a simple random sample g_k need not be the
failure f_k itself. If p is predicted of every example of the window, without its labels,

    g_k = f_k - λ·(p_k - mean p)

has the same mean and varies less: a control variate. λ comes from the labels of the reference, and is at most so large
that g >= -2c. m₀ is not known, so what the labels of the
reference say against each m₀ counts as well: an e-value R(m₀), of bets in both directions. The evidence is

    e_t = min over m₀ of R(m₀)·M_t(m₀ + d)

which is at most R·M at the true m₀. So it ever reaches 1/α with probability at most α (J. Ville, 1939): a life without
a drop has a false alarm with probability at most α, however many windows it has. How many labels a window gets may
depend on all that was seen before. The minimum is over intervals of m₀, with the lowest R and M of each.

A sum over beginnings is the e-detector of J. Shin, A. Ramdas and A. Rinaldo (2024), here with weights that bound the
probability of a false alarm, not the expected time until one.

A period that was not drawn label by label has no such bets. A p value from the interval of its design gives the e-value
(1 - p + p·ln p)/(p·ln² p), whose mean is at most 1 (V. Vovk, R. Wang, Annals of Statistics 49, 2021). It is as exact as
that interval.

Legend: f = 1 - outcome, m its mean, d tolerance, c limit, s stake, α false alarms of a life.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

Array = NDArray[np.float64]
IntervalAt = Callable[[float], tuple[float, float]]
"""The interval of the accuracy at a confidence level."""

STAKES: Array = np.geomspace(0.03, 0.2, 4)
"""s of each gambler, as a share of the most that he can bet."""

FIRST, FALL = 15.0, 0.9
"""Of the capital that is not yet bet after t windows: (FIRST / (t + FIRST)) ** FALL."""

LOWEST = -2.0
"""g of a control variate, as a share of c, at least."""

GRID, SPREAD, TAIL = 32, 6.0, 8
"""Intervals of m₀ around that of the reference, how many of its standard errors they reach, and intervals above."""

WON = 1.2
"""Times that the capital must have grown before a window gets more labels."""

_LEVELS: Array = np.logspace(math.log10(0.99), -9, 60)
"""p values that are tried."""


class Reference(NamedTuple):
    """What the labels of the reference say of m₀, by intervals of it that cover [0, 1]."""

    upper: Array  # (..., intervals) the upper end of each
    evidence: Array  # (..., intervals) log R, the lowest in each


class Watch(NamedTuple):
    """What a life of windows has shown so far."""

    reference: Reference
    tolerance: float
    capital: Array  # (..., intervals, stakes) S_t(s)
    windows: int  # t

    @property
    def limits(self) -> Array:
        """c of each interval of m₀, (..., intervals)."""
        return np.clip(self.reference.upper + self.tolerance, 1e-9, 1.0)

    @property
    def evidence(self) -> Array:
        """e_t, (...); an alarm from 1/α on."""
        held = np.log(self.capital.mean(axis=-1) + _kept(self.windows))
        return np.asarray(np.exp(np.minimum(self.reference.evidence + held, 700.0)).min(axis=-1))

    def after(self, bets: Array) -> "Watch":
        """Return the watch after a window with log E_t(s), (..., intervals, stakes) or one for all intervals."""
        grown = np.log(self.capital + _kept(self.windows) - _kept(self.windows + 1)) + bets
        return self._replace(capital=np.exp(np.minimum(grown, 700.0)), windows=self.windows + 1)


def _kept(windows: int) -> float:
    return float((FIRST / (windows + FIRST)) ** FALL)


def begin(reference: Reference, tolerance: float) -> Watch:
    """Return the watch of a new life, or of many."""
    return Watch(reference, tolerance, np.zeros((*reference.upper.shape, len(STAKES))), 0)


def counted_reference(failures: ArrayLike, labels: int) -> Reference:
    """Return what ``failures`` (...) among the labels of a simple random sample say of m₀."""
    some = np.asarray(failures, dtype=np.float64)[..., None]
    lower, upper = _intervals((some + 0.5) / (labels + 1), labels)
    up = _mixed(bets_on_counts(some, labels, np.maximum(upper, 1e-12)))
    down = _mixed(bets_on_counts(labels - some, labels, np.maximum(1 - lower, 1e-12)))
    return Reference(upper, np.logaddexp(up, down) - math.log(2))


def interval_reference(interval_at: IntervalAt, accuracy: float, standard_error: float) -> Reference:
    """Return what an estimate of the accuracy, with its intervals at every level, says of m₀."""
    share = np.array([1 - accuracy])
    lower, upper = _intervals(share, max(float(share[0] * accuracy) / max(standard_error**2, 1e-12), 1.0))
    ends = [interval_at(1 - p) for p in _LEVELS.tolist()]
    low, high = np.array([1 - own[1] for own in ends]), np.array([1 - own[0] for own in ends])

    def p_at(m: Array) -> Array:
        outside = (m[:, None] < low) | (m[:, None] > high)
        return np.where(outside, _LEVELS, 1.0).min(axis=1)

    p = np.where((lower <= share) & (share <= upper), 1.0, np.maximum(p_at(lower), p_at(upper)))
    return Reference(upper, np.array([_calibrated(value) for value in p.tolist()]))


def _intervals(share: Array, labels: float) -> tuple[Array, Array]:
    """Return lower and upper ends (..., GRID + TAIL + 1) of intervals of m₀ that cover [0, 1]."""
    error = np.sqrt(share * (1 - share) / labels)
    inner = np.clip(share + SPREAD * error * np.linspace(-1, 1, GRID + 1), 0, 1)
    last = inner[..., -1:]
    ends = np.concatenate([inner, last + (1 - last) * np.arange(1, TAIL + 1) / TAIL], axis=-1)
    return np.concatenate([np.zeros_like(share), ends[..., :-1]], axis=-1), ends


def _mixed(bets: Array) -> Array:
    """Return the log of the mean capital of all gamblers, (...)."""
    return np.asarray(np.logaddexp.reduce(bets, axis=-1) - math.log(len(STAKES)))


def _calibrated(p: float) -> float:
    """Return the log of the e-value of a p value."""
    if p >= 1:
        return math.log(0.5)
    return math.log((1 - p + p * math.log(p)) / (p * math.log(p) ** 2))


# -- windows ----------------------------------------------------------------------------------------------------


def adjusted(failure: Array, predicted: Array, mean: ArrayLike, most: float, strength: float, limits: Array) -> Array:
    """Return g (..., intervals, n) of the labels of a simple random sample, for the limits (..., intervals).

    Parameters
    ----------
    failure, predicted : (..., n) f and p of the labelled examples
    mean : (...) of p over the window
    most : no p of the window is larger
    strength : λ, from earlier labels alone
    """
    middle = np.asarray(mean, dtype=np.float64)[..., None]
    strength_at = np.minimum(strength, -LOWEST * limits / np.maximum(most - middle, 1e-12))  # (..., intervals)
    return np.asarray(failure[..., None, :] - strength_at[..., None] * (predicted - middle)[..., None, :])


def bets_on_draws(values: Array, limits: Array) -> Array:
    """Return log E(s), (..., intervals, stakes), of unbiased values (n,) or (..., intervals, n) of m.

    They are from draws with known probabilities, and at least ``LOWEST`` times the limits (..., intervals).

    The draws are with replacement, f_k / (N q_k); or simple random without, f_k, whose negative association makes the
    mean of E no larger (K. Joag-Dev, F. Proschan, Annals of Statistics 11, 1983).
    """
    odds = values / limits[..., None]  # (..., intervals, n)
    return np.asarray(np.log1p(STAKES[:, None] * (odds[..., None, :] - 1)).sum(axis=-1))


def bets_on_counts(failures: ArrayLike, labels: ArrayLike, limits: ArrayLike) -> Array:
    """Return log E(s), (..., stakes), of ``failures`` among ``labels`` drawn with replacement, at the limits (...)."""
    some, num, c = (np.asarray(values, dtype=np.float64)[..., None] for values in (failures, labels, limits))
    return np.asarray(some * np.log1p(STAKES * (1 / c - 1)) + (num - some) * np.log1p(-STAKES))


def bets_on_interval(interval_at: IntervalAt, limits: Array) -> Array:
    """Return log E, (intervals, stakes), of a window by the interval of its design: the same for every stake."""
    high = np.array([interval_at(1 - p)[1] for p in _LEVELS.tolist()])  # of the accuracy; its error is p/2
    p = np.where(high < 1 - limits[:, None], _LEVELS / 2, 1.0).min(axis=1)
    bets = np.array([_calibrated(value) if value < 0.5 else math.log(0.5) for value in p.tolist()])
    return np.repeat(bets[:, None], len(STAKES), axis=1)


# -- without labels ---------------------------------------------------------------------------------------------


def without_labels(confidence: Array, labelled: Array, outcome: Array, weight: Array) -> float:
    """Return the accuracy of a window if its confidences mean what they meant in the reference.

    It is the mean calibrated confidence, as NannyML's CBPE, here calibrated by monotone regression, and as wrong as the
    assumption.

    Parameters
    ----------
    confidence : (N_t,) of all examples of the window
    labelled, outcome, weight : (n,) confidences, outcomes and weights of the labelled examples of the reference
    """
    order = np.argsort(labelled, kind="stable")
    level = isotonic_regression(outcome[order].astype(np.float64), weights=weight[order]).x
    return float(np.interp(confidence, labelled[order], level).mean())


# -- planning ---------------------------------------------------------------------------------------------------


def labels_to_draw(watch: Watch, least: int, most: int) -> NDArray[np.int64]:
    """Return how many labels the next window gets, (...): ``most`` while bets on a drop have won :data:`WON` times."""
    held = watch.capital.mean(axis=-1) / max(1 - _kept(watch.windows), 1e-12)
    middle = held[..., min(GRID // 2 + 1, held.shape[-1] - 1)]  # at about the most likely m₀
    return np.asarray(np.where(middle > WON, most, least), dtype=np.int64)


def windows_to_alarm(watch: Watch, share: float, labels: int, rate: float, most: int = 520) -> int | None:
    """Return after how many windows of ``labels`` a drop to the ``share`` of failures is expected to be noticed.

    None: not in ``most`` windows. The labels count as a simple random sample.
    """
    bets = bets_on_counts(labels * share, labels, watch.limits)
    for number in range(1, most + 1):
        watch = watch.after(bets)
        if watch.evidence >= 1 / rate:
            return number
    return None
