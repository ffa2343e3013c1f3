"""DeepEST: adaptive sampling that looks for failures and still estimates accuracy without bias.

Guerriero, Pietrantuono, Russo, "Operation is the hardest teacher: estimating DNN accuracy looking for mispredictions",
ICSE 2021, section III, Algorithm 1, https://doi.org/10.1109/ICSE43902.2021.00042.

The first example is drawn at random; each further one with probability r by weight, else at random, always without
replacement. With W_i = Σ_{j drawn} w_ji, draw k takes example i with probability

    q_k,i = r · W_i / Σ_{h not drawn} W_h + (1 - r) / (N - n_k)         1 / (N - n_k) where Σ W = 0           (Eq. 5)

and the estimator is one minus the mean of z_1 = f_1 and z_k = (1/N) · (Σ_{j drawn} f_j + f_i / q_k,i)    (Eq. 6 and 7)

on the failures f = 1 - outcome: unbiased, for any weights. For regression the outcome is a score.

Two readings of the weights, with P_i the belief that i fails and *active* as in :mod:`opacc_ray.samplers.auxiliary`:

    released   w_ij = P_j if j is active     the authors' code: reproduces their Table II (benchmarks/deepest_table2.py)
    paper      w_ij = P_j if i is active     the text of section III: far from Table II, less variance

Either way W is the number of drawn examples that have weights at all, times one fixed vector, and that number cancels:
draws by weight follow the vector, once the first of those examples is drawn. (So no step needs more than the vector,
and an N x N matrix less than ever.) Nor does any step look at an outcome: the whole sample is drawn first, labelled
whenever, and each example carries its q. See `_race` for how the draws are made. It is handed out in the order of the
draws, on which the estimate rests: the first k are a sample of this design, too, and likely failures come earlier.

Deviations. The paper's variance is left open and the code's takes z_1 as the mean; here it is that of the z_k. For LSA
the paper activates above mean + variance, yet the thresholds behind its Table II for the MNIST subjects are lower: give
``threshold`` to repeat them. In a later round the sample starts afresh, among the examples not labelled so far.

The tails are heavy: a failure that was unlikely to be drawn counts for up to 1/(1 - r) examples at random. So the 95 %
interval is wider than that of SRS for the same budget where failures are rare (see estimators/weighted.py), and DeepEST
pays where failing examples are themselves worth having.

Legend: N pool, n budget, n_k examples drawn before draw k, r weight probability, P belief, q draw probability.
"""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.step_by_step import StepByStep
from opacc_ray.designs.uniform import draw_uniform
from opacc_ray.errors import SpecError
from opacc_ray.parts.sums import as_float, exact_sum
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.auxiliary import Rows
from opacc_ray.samplers.base import Draw, MethodParameters, Task, parameter

RULES = ("released", "paper")

_BLOCK = 1 << 16  # arrivals that the driver passes over at a time


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """The weights, and how often draws go by them."""

    auxiliary: str = parameter("confidence", "what says how likely a failure is: confidence, dsa, lsa or combined")
    threshold: float | None = parameter(None, "where the variable is active, in its raw units; null: its default")
    weight_probability: float = parameter(0.8, "r: share of draws that go by weight, below 1")
    rule: str = parameter("released", "whose activity makes a weight: released (as the authors' code) or paper")

    def __post_init__(self) -> None:
        auxiliary.check(self.auxiliary)
        number = isinstance(self.threshold, float | int) and not isinstance(self.threshold, bool)
        if self.threshold is not None and not (number and math.isfinite(self.threshold)):
            raise SpecError(f"threshold={self.threshold!r}: give a number in the units of {self.auxiliary}, or None")
        if not 0 <= self.weight_probability < 1:
            raise SpecError(
                f"weight_probability={self.weight_probability}: give a number from 0 to below 1, "
                "for examples that are never drawn at random would bias the estimate"
            )
        if self.rule not in RULES:
            raise SpecError(f"rule={self.rule!r}: choose one of {', '.join(RULES)}")


class Weights(NamedTuple):
    """What makes the weights of a part: W up to a factor, 0 for the examples labelled before."""

    variable: auxiliary.Variable
    threshold: float
    rule: str

    def of(self, part: Pool, rows: Rows = slice(None)) -> NDArray[np.float64]:
        """W (n,) of a part's examples, or of some rows."""
        values = self.variable.read(part, rows)
        weight = self.variable.belief(values)
        return weight if self.rule == "paper" else weight * self.variable.active(values, self.threshold)

    def runners(self, part: Pool, labelled: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The rows of a part that have a weight and are not labelled, and their W."""
        values = self.variable.read(part)
        able = np.ones(len(values), dtype=bool)
        if self.rule == "released":
            able = self.variable.active(values, self.threshold)
        able[labelled] = False
        rows = np.flatnonzero(able)
        weight = self.variable.belief(values[rows])
        there = weight > 0
        return rows[there], weight[there]

    def trigger(self, part: Pool, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which examples have weights: once one of them is drawn, W is not 0."""
        if self.rule == "released":
            return np.ones(len(rows), dtype=bool)
        return self.variable.active(self.variable.read(part, rows), self.threshold)


class Plan(NamedTuple):
    """What all draws follow from."""

    view: View
    weights: Weights
    labelled: list[NDArray[np.int64]]  # rows of each part that cannot be drawn
    free: int  # examples that can be drawn
    runners: list[int]  # of each part: examples with a weight
    total: int  # ΣW, exactly

    def weight_of(self, index: NDArray[np.int64]) -> NDArray[np.float64]:
        """W of examples (k,) that are not labelled."""
        return self.view.take(part_weight, index, self.weights)


def needs(parameters: Parameters) -> tuple[str, ...]:
    return auxiliary.NEEDS[parameters.auxiliary]


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole sample (Algorithm 1)."""
    return draw_planned(plan(view, task), task, rng)


def plan(view: View, task: Task) -> Plan:
    """Find the weights, which stay with the parts, and what they sum to."""
    parameters, labelled = task.parameters, task.previous.chosen
    variable, threshold = auxiliary.find(view, parameters.auxiliary), parameters.threshold
    if threshold is None:
        threshold = auxiliary.find_threshold(view, variable)
    weights, rows = Weights(variable, threshold, parameters.rule), view.rows_of(labelled)
    counted = view.map_each(part_count, [(weights, own) for own in rows])
    runners, totals = [num for num, _ in counted], [total for _, total in counted]
    return Plan(view, weights, rows, view.size - len(labelled), runners, sum(totals))


def draw_planned(plan: Plan, task: Task, rng: np.random.Generator) -> Draw:
    """One of the samples that a plan may lead to."""
    assert task.budget is not None
    r = task.parameters.weight_probability
    at_random = draw_uniform(rng, plan.view.size, task.previous.chosen, task.budget)
    by_weight = _race(rng, plan, task.budget)
    able = np.unique(np.concatenate([at_random, by_weight]))
    trigger = dict(zip(able.tolist(), plan.view.take(part_trigger, able, plan.weights).tolist(), strict=True))
    chosen, weighted = _interleave(at_random, by_weight, rng.random(task.budget) < r, trigger)
    probability, least = _draw_probabilities(plan, chosen, weighted, r)
    return Draw(chosen, StepByStep(probability, np.arange(len(chosen)), plan.free, least), {})


def _race(rng: np.random.Generator, plan: Plan, num: int) -> NDArray[np.int64]:
    """The first ``num`` to arrive when example i needs an exponential time of rate weight_i; without weight, never.

    The exponential law forgets: whoever has arrived or been taken off the course, the next of the others to arrive is
    each with probability proportional to its weight. So the order of arrival answers all draws by weight of a sample,
    at O(N) for all of them together and without sums that cancel.

    Each part runs its own share of the race, with the generator as it is when its turn comes.
    """
    arguments = []
    for own, rows in zip(plan.runners, plan.labelled, strict=True):
        arguments.append((plan.weights, rows, copy.deepcopy(rng), num))
        for start in range(0, own, _BLOCK):
            rng.standard_exponential(min(_BLOCK, own - start))
    arrived = plan.view.map_each(part_race, arguments)
    index = np.concatenate([start + rows for start, (rows, _) in zip(plan.view.starts, arrived, strict=False)])
    order = np.argsort(np.concatenate([arrival for _, arrival in arrived]), kind="stable")
    return index[order[:num]]


def part_count(part: Pool, weights: Weights, labelled: NDArray[np.int64]) -> tuple[int, int]:
    """How many examples have a weight, and the exact sum of these."""
    _, weight = weights.runners(part, labelled)
    return len(weight), exact_sum(weight)


def part_race(
    part: Pool, weights: Weights, labelled: NDArray[np.int64], rng: np.random.Generator, num: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows of the first ``num`` of a part, and when they arrive."""
    runners, weight = weights.runners(part, labelled)
    arrival = copy.deepcopy(rng).standard_exponential(len(runners))
    arrival /= weight
    if num < len(runners):
        first = np.sort(np.argpartition(arrival, num - 1)[:num])
        runners, arrival = runners[first], arrival[first]
    return runners, arrival


def part_weight(part: Pool, rows: NDArray[np.int64], weights: Weights) -> NDArray[np.float64]:
    return weights.of(part, rows)


def part_trigger(part: Pool, rows: NDArray[np.int64], weights: Weights) -> NDArray[np.bool_]:
    return weights.trigger(part, rows)


def _interleave(
    at_random: NDArray[np.int64], by_weight: NDArray[np.int64], coin: NDArray[np.bool_], trigger: Mapping[int, bool]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Draw by draw the next example of either order that is not taken.

    Returns the examples (n,), and whether weights were there at each draw (n,).
    """
    taken: dict[int, None] = {}  # an ordered set
    there, started = np.zeros(len(coin), dtype=bool), False
    weighted, plain = iter(by_weight.tolist()), iter(at_random.tolist())
    for k, heads in enumerate(coin):
        there[k] = started
        example = next((i for i in weighted if i not in taken), None) if started and heads else None
        if example is None:  # Σ W = 0, too, once all that have weight are drawn
            example = next(i for i in plain if i not in taken)
        taken[example] = None
        started = started or trigger[example]
    return np.fromiter(taken, dtype=np.int64), there


def _draw_probabilities(
    plan: Plan, chosen: NDArray[np.int64], weighted: NDArray[np.bool_], r: float
) -> tuple[NDArray[np.float64], float]:
    """q of each draw (n,) by Eq. 5, and the least q of any example at any draw."""
    own = plan.weight_of(chosen)
    rest = as_float(plan.total - exact_sum(own))
    total = rest + np.cumsum(own[::-1])[::-1]  # (n,) Σ W before each draw, summed from the end: nothing cancels
    weighted = weighted & (total > 0)
    at_random = 1 / (plan.free - np.arange(len(chosen)))
    by_weight = own / np.where(weighted, total, 1.0)
    probability = np.where(weighted, r * by_weight + (1 - r) * at_random, at_random)
    return probability, float(np.where(weighted, (1 - r) * at_random, at_random).min())
