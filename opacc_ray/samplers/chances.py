"""Inclusion probabilities of a whole pool, set where its examples are.

    size_i = φ + (1 - φ) · σ_i / mean σ          σ_i = √(p_i (1 - p_i)); of several models √(Σ_m σ_mi² / mean(σ_m)²)
    π_i    = min(1, c · size_i)                  with c such that Σπ = n

φ and c are numbers that the whole pool decides, found by exact sums over its parts; each part makes π of its own p.
Probabilities may be made of probabilities: those with which a pool is thinned, of those to be drawn.

Legend: N_r examples not labelled yet, n of a part, p predicted failure, σ standard deviation of the outcome, φ uniform
share, π inclusion probability.
"""

import secrets
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

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

_BLOCK = 1 << 13

_CLEAR = 1e-9
"""Relative distance from a bound beyond which a rounded sum tells the side."""


class Capped(NamedTuple):
    """Probabilities proportional to sizes, those that would be 1 or more being sure."""

    scale: float
    sure_scale: float  # a size is sure if it is 1 at this scale

    def of(self, size: Array) -> Array:
        return np.where(self.sure_scale * size >= SURE, 1.0, self.scale * size)


class Foreseen(NamedTuple):
    """p of some examples, in the order of the pool or of those that were asked for."""

    p: Array  # (n,) of the model that the view shows
    others: Array  # (m, n) of further models

    def take(self, places: NDArray[np.int64]) -> "Foreseen":
        return Foreseen(self.p[places], self.others[:, places])


class Doubts(NamedTuple):
    """What the pool decides of σ."""

    means: tuple[float, ...]  # mean σ of each model
    joint: float  # mean of what several make together; 1 of one

    def of(self, foreseen: Foreseen) -> Array:
        """σ (n,) over its mean."""
        own = [doubt_of(p) for p in (foreseen.p, *foreseen.others)]
        for doubt, mean in zip(own, self.means, strict=True):
            doubt /= mean
        return own[0] if len(own) == 1 else np.sqrt(np.mean(np.square(own), axis=0)) / self.joint


class Chances(NamedTuple):
    """How p becomes π."""

    doubts: Doubts
    share: float  # φ
    steps: tuple[Capped, ...] = ()

    def of(self, foreseen: Foreseen) -> Array:
        """π (n,), or, before the first step, what it is proportional to."""
        value = self.doubts.of(foreseen)
        value *= 1 - self.share
        value += self.share
        for step in self.steps:
            value = step.of(value)
        return value


class Free(NamedTuple):
    """The examples of a part that are not labelled yet."""

    size: int  # of the part
    labelled: NDArray[np.int64]  # (k,) the other rows, rising
    foreseen: Foreseen

    @property
    def row(self) -> NDArray[np.uint32]:
        """Return the rows, (n,)."""
        return self.of(np.arange(self.size, dtype=np.uint32))

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """What ``values`` of all examples of the part are of these."""
        return np.delete(values, self.labelled) if len(self.labelled) else values

    def place(self, row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of some rows among these."""
        return row - np.searchsorted(self.labelled, row)


class Unlabelled(NamedTuple):
    """The examples of a pool that are not labelled yet, which its parts keep with p."""

    view: View
    key: str
    num: int  # N_r
    expected: float  # Σp of the model that the view shows
    doubts: Doubts

    def at(self, index: NDArray[np.int64]) -> Foreseen:
        """p of the examples ``index`` (k,)."""
        rows = self.view.take(part_foreseen, index, self.key)  # (k, 1 + m)
        return Foreseen(rows[:, 0].copy(), rows[:, 1:].T)

    def total(self, chances: Chances) -> int:
        """The exact sum of π, or of what it is proportional to."""
        found: int = self.view.total(part_total, self.key, chances)
        return found

    def capped(self, chances: Chances, num: int, total: int) -> Chances:
        """Add a step: ``num`` <= N_r are to be drawn in proportion to what was, whose sum is ``total``."""
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

        def is_cheap(share: float, cost: float) -> bool:
            if abs(cost - 1 - price) < _CLEAR * (1 + price):
                cost = mean_of(self.view.map(part_exact_cost, self.key, Chances(self.doubts, share)), self.num)
            return cost <= 1 + price

        def are_cheap(shares: Sequence[float]) -> list[bool]:
            costs = self.view.total(part_costs, self.key, self.doubts, shares) / self.num
            return list(map(is_cheap, shares, costs))

        return least_share(are_cheap, floor)


def find_unlabelled(forecasts: Sequence[Forecast], labelled: NDArray[np.int64]) -> Unlabelled:
    """Let the parts keep p of the examples that are not ``labelled`` (k,), sorted.

    What further models foresee comes from their own views, through the driver, a part at a time.
    """
    signals, key = forecasts[0].signals, secrets.token_hex(8)
    view, rows = signals.view, signals.view.rows_of(labelled)
    view.map_each(part_expect, [(key, signals.key, forecasts[0].mixture, own) for own in rows])
    for forecast in forecasts[1:]:
        for part, (start, stop) in enumerate(pairwise(view.starts)):
            p = forecast.at(np.arange(start, stop))
            view.parts.call([(part, part_add, (key, np.delete(p, rows[part])))])
    num = view.size - len(labelled)
    totals = [sum(own) for own in zip(*view.map(part_totals, key), strict=True)]  # Σp, Σσ of each model
    doubts = Doubts(tuple(mean_of([own], num) for own in totals[1:]), 1.0)
    if len(forecasts) > 1:
        doubts = doubts._replace(joint=mean_of(view.map(part_joint, key, doubts), num))
    return Unlabelled(view, key, num, as_float(totals[0]), doubts)


def least_share(are_cheap: Callable[[Sequence[float]], Sequence[bool]], floor: float) -> float:
    """The least share, not below ``floor``, that is cheap, by halving to 1e-4, two halvings at a time."""
    if are_cheap([floor])[0]:
        return floor
    low, high = floor, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        asked = [(low + middle) / 2, middle, (middle + high) / 2]
        cheap = are_cheap(asked)
        low, high, then = (low, middle, 0) if cheap[1] else (middle, high, 2)
        if high - low > 1e-4:
            low, high = (low, asked[then]) if cheap[then] else (asked[then], high)
    return high


def doubt_of(p: Array) -> Array:
    """σ (n,)."""
    found: Array = 1 - p
    found *= p
    return np.sqrt(found, out=found)


def part_free(part: Pool, key: str) -> Free:
    """What the part keeps of its unlabelled examples."""
    own: Free = part_recall(part, _KEPT, key)
    return own


def part_expect(part: Pool, key: str, signals: str, mixture: Mixture, labelled: NDArray[np.int64]) -> None:
    """Keep p of a part's examples without the ``labelled`` rows."""
    own = Free(part.size, labelled, Foreseen(np.empty(0), np.empty((0, part.size - len(labelled)))))
    p = own.of(mixture.failure(part_signals(part, signals)))
    part_keep(part, _KEPT, key, own._replace(foreseen=own.foreseen._replace(p=p)))


def part_add(part: Pool, key: str, p: Array) -> None:
    """Keep what a further model foresees of the same examples."""
    own = part_free(part, key)
    foreseen = own.foreseen._replace(others=np.vstack([own.foreseen.others, p]))
    part_keep(part, _KEPT, key, own._replace(foreseen=foreseen))


def part_totals(part: Pool, key: str) -> list[int]:
    """Exact sums: of p of the first model, and of σ of each."""
    p, others = part_free(part, key).foreseen
    return [exact_sum(p), *(exact_sum(doubt_of(own)) for own in (p, *others))]


def part_joint(part: Pool, key: str, doubts: Doubts) -> int:
    return exact_sum(doubts.of(part_free(part, key).foreseen))


def part_foreseen(part: Pool, rows: NDArray[np.int64], key: str) -> Array:
    """p of each model (k, 1 + m) of rows that are not labelled."""
    own = part_free(part, key)
    found = own.foreseen.take(own.place(rows))
    return np.column_stack([found.p, found.others.T])


def part_total(part: Pool, key: str, chances: Chances) -> int:
    return exact_sum(chances.of(part_free(part, key).foreseen))


def part_sure(part: Pool, key: str, chances: Chances, scale: float) -> tuple[int, int]:
    """How many examples are sure at a scale, and the exact sum of their sizes."""
    size = chances.of(part_free(part, key).foreseen)
    sure = size[scale * size >= SURE]
    return len(sure), exact_sum(sure)


def part_costs(part: Pool, key: str, doubts: Doubts, shares: Sequence[float]) -> Array:
    """Σ 1/size for each of some shares (s,), rounded, block by block."""
    doubt, costs = doubts.of(part_free(part, key).foreseen), np.zeros(len(shares))
    for start in range(0, len(doubt), _BLOCK):
        for place, share in enumerate(shares):
            size = doubt[start : start + _BLOCK] * (1 - share)
            size += share
            costs[place] += np.reciprocal(size, out=size).sum()
    return costs


def part_exact_cost(part: Pool, key: str, chances: Chances) -> int:
    return exact_sum(1 / chances.of(part_free(part, key).foreseen))
