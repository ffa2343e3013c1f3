"""Inclusion probabilities of a whole pool, set where its examples are.

    size_i = φ + (1 - φ) · σ_i / mean σ          σ_i = √(p_i (1 - p_i))
    π_i    = min(1, c · size_i)                  with c such that Σπ = n

φ and c are numbers that the whole pool decides, found by exact sums over its parts; each part makes π of its own p.
Probabilities may be made of probabilities: those with which a pool is thinned, of those to be drawn.

Legend: N_r examples not labelled yet, n of a part, p predicted failure, σ standard deviation of the outcome, φ uniform
share, π inclusion probability.
"""

import secrets
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.unequal import SURE
from opacc_ray.failure.model import Forecast, Mixture
from opacc_ray.failure.signals import part_signals
from opacc_ray.parts.cache import part_keep, part_recall
from opacc_ray.parts.sums import as_float, exact_sum, mean_of
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

Array = NDArray[np.float64]

_KEPT = "expected"

_CLEAR = 1e-9
"""Relative distance from a bound beyond which a rounded sum tells the side."""


class Capped(NamedTuple):
    """Probabilities proportional to sizes, those that would be 1 or more being sure."""

    scale: float
    sure_scale: float  # a size is sure if it is 1 at this scale

    def of(self, size: Array) -> Array:
        return np.where(self.sure_scale * size >= SURE, 1.0, self.scale * size)


class Chances(NamedTuple):
    """How p becomes π."""

    mean_doubt: float  # mean σ
    share: float  # φ
    steps: tuple[Capped, ...] = ()

    def of(self, p: Array) -> Array:
        """π (n,), or, before the first step, what it is proportional to."""
        value = self.share + (1 - self.share) * (doubt_of(p) / self.mean_doubt)
        for step in self.steps:
            value = step.of(value)
        return value


class Free(NamedTuple):
    """The examples of a part that are not labelled yet."""

    row: NDArray[np.int64]  # (n,)
    p: Array  # (n,)


class Unlabelled(NamedTuple):
    """The examples of a pool that are not labelled yet, which its parts keep with p."""

    view: View
    key: str
    num: int  # N_r
    expected: float  # Σp
    doubt: float  # mean σ

    def total(self, chances: Chances) -> int:
        """The exact sum of π, or of what it is proportional to."""
        return sum(self.view.map(part_total, self.key, chances))

    def capped(self, chances: Chances, num: int, total: int) -> Chances:
        """With one more step: ``num`` <= N_r to be drawn in proportion to what was, whose sum is ``total``."""
        sure_scale, num_sure, of_sure = 0.0, 0, 0
        while True:
            left, rest = num - num_sure, as_float(total - of_sure)
            scale = left / rest if left else 0.0
            found = self.view.map(part_sure, self.key, chances, max(scale, sure_scale))
            more = sum(number for number, _ in found)
            if more == num_sure:
                return chances._replace(steps=(*chances.steps, Capped(scale, sure_scale)))
            sure_scale, num_sure, of_sure = max(scale, sure_scale), more, sum(size for _, size in found)

    def uniform_share(self, price: float, floor: float) -> float:
        """φ: the least share, not below ``floor``, at which a worthless p costs no more than ``price``."""

        def is_cheap(share: float) -> bool:
            chances = Chances(self.doubt, share)
            cost = sum(self.view.map(part_cost, self.key, chances)) / self.num
            if abs(cost - 1 - price) < _CLEAR * (1 + price):
                cost = mean_of(self.view.map(part_exact_cost, self.key, chances), self.num)
            return cost <= 1 + price

        return least_share(is_cheap, floor)


def find_unlabelled(forecast: Forecast, labelled: NDArray[np.int64]) -> Unlabelled:
    """Let the parts keep p of the examples that are not ``labelled`` (k,), sorted."""
    signals, key = forecast.signals, secrets.token_hex(8)
    view = signals.view
    arguments = [(key, signals.key, forecast.mixture, rows) for rows in view.rows_of(labelled)]
    sums = view.map_each(part_expect, arguments)
    num = view.size - len(labelled)
    expected, doubt = (sum(own) for own in zip(*sums, strict=True))
    return Unlabelled(view, key, num, as_float(expected), mean_of([doubt], num) if num else 1.0)


def least_share(is_cheap: Callable[[float], bool], floor: float) -> float:
    """The least share, not below ``floor``, that is cheap, by halving to 1e-4."""
    if is_cheap(floor):
        return floor
    low, high = floor, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_cheap(middle) else (middle, high)
    return high


def doubt_of(p: Array) -> Array:
    """σ (n,)."""
    return np.sqrt(p * (1 - p))


def part_free(part: Pool, key: str) -> Free:
    """What the part keeps of its unlabelled examples."""
    own: Free = part_recall(part, _KEPT, key)
    return own


def part_expect(part: Pool, key: str, signals: str, mixture: Mixture, labelled: NDArray[np.int64]) -> tuple[int, int]:
    """Keep p of a part's examples without the ``labelled`` rows; returns the exact sums of p and σ."""
    p, row = mixture.failure(part_signals(part, signals)), np.arange(part.size)
    if len(labelled):
        p, row = np.delete(p, labelled), np.delete(row, labelled)
    part_keep(part, _KEPT, key, Free(row, p))
    return exact_sum(p), exact_sum(doubt_of(p))


def part_total(part: Pool, key: str, chances: Chances) -> int:
    return exact_sum(chances.of(part_free(part, key).p))


def part_sure(part: Pool, key: str, chances: Chances, scale: float) -> tuple[int, int]:
    """How many examples are sure at a scale, and the exact sum of their sizes."""
    size = chances.of(part_free(part, key).p)
    sure = size[scale * size >= SURE]
    return len(sure), exact_sum(sure)


def part_cost(part: Pool, key: str, chances: Chances) -> float:
    return float((1 / chances.of(part_free(part, key).p)).sum())


def part_exact_cost(part: Pool, key: str, chances: Chances) -> int:
    return exact_sum(1 / chances.of(part_free(part, key).p))
