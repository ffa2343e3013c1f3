"""How many labels an interval of ±W takes, before there is any: from the model's own word, with an honest range.

    neyman      least n with z·√V(n) <= W,  V(n) = N⁻² Σ σ²(1/π - 1),  σ² = p(1 - p),  π as neyman would draw n at once
    srs         1/(W²/(z²·θ(1 - θ)) + 1/N)     at θ = mean p, the share of failures that is foreseen
    worthless   (1 + price) · srs              if p says nothing of where failures are
    at worst    srs at θ = ½, times 1 + price  whatever is true

p is what the failure model says before any label: the model's confidence, tempered, and the history. If it is right,
`neyman` takes about as many labels as stated. The model may be far worse than it says, and then only the last number is
sure.

Legend: N pool, n labels, W half-width, z normal quantile of the level, θ share of failures.
"""

import math
from typing import NamedTuple

from opacc_ray.errors import LabelError
from opacc_ray.estimators.intervals import normal_quantile
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.parts.cache import repeat_if_forgotten
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Task
from opacc_ray.samplers.chances import Chances, Unlabelled, part_free


class LabelForecast(NamedTuple):
    """Numbers of labels, each at most N."""

    foreseen_accuracy: float  # by the model's own word, tempered
    neyman: int  # if that is right
    worthless: int  # if it says nothing of where failures are
    at_worst: int
    srs: int  # of a simple random sample, at the accuracy foreseen


def forecast_labels(
    view: View,
    half_width: float,
    level: float = 0.95,
    parameters: neyman.Parameters | None = None,
    history: History = NO_HISTORY,
) -> LabelForecast:
    """What an interval of ± ``half_width`` takes.

    Raises
    ------
    LabelError
        If ``half_width`` is not between 0 and 1.
    """
    if not 0 < half_width < 1:
        raise LabelError(f"half_width={half_width}: give a number between 0 and 1, such as 0.02")
    own = neyman.Parameters() if parameters is None else parameters
    return repeat_if_forgotten([view], lambda: _forecast(view, half_width, level, own, history))


def _forecast(view: View, half_width: float, level: float, own: neyman.Parameters, history: History) -> LabelForecast:
    unlabelled, chances, _ = neyman.allocate(view, Task(1, own, NO_PREVIOUS, history=history))
    variance = (half_width / normal_quantile(level)) ** 2
    share = unlabelled.expected / view.size
    by_srs, price = _labels_of_srs(variance, share, view.size), 1 + own.price
    worst = price * _labels_of_srs(variance, 0.5, view.size)
    return LabelForecast(
        1 - share,
        _least(unlabelled, chances, variance),
        min(math.ceil(price * by_srs), view.size),
        min(math.ceil(worst), view.size),
        math.ceil(by_srs),
    )


def _labels_of_srs(variance: float, share: float, size: int) -> float:
    return 1 / (variance / (share * (1 - share)) + 1 / size)


def _least(unlabelled: Unlabelled, draw: Chances, variance: float) -> int:
    """Least n whose V is ``variance`` at most, by halving; ``draw`` is what π is proportional to."""
    low, high, total = 1, unlabelled.num, unlabelled.total(draw)
    while low < high:
        middle = (low + high) // 2
        chances = unlabelled.capped(draw, middle, total)
        errors = unlabelled.view.map(part_variance, unlabelled.key, chances)
        low, high = (low, middle) if as_float(sum(errors)) / unlabelled.num**2 <= variance else (middle + 1, high)
    return low


def part_variance(part: Pool, key: str, chances: Chances) -> int:
    """The exact sum of σ²(1/π - 1)."""
    foreseen = part_free(part, key).foreseen
    return exact_sum(foreseen.p * (1 - foreseen.p) * (1 / chances.of(foreseen) - 1))
