"""DeepEST: adaptive sampling that searches for failures and still estimates accuracy without bias.

Guerriero, Pietrantuono, Russo, "Operation is the hardest teacher: estimating DNN accuracy looking for mispredictions",
ICSE 2021, section III, Algorithm 1, https://doi.org/10.1109/ICSE43902.2021.00042.

The first example is drawn at random. Each further one is drawn by weight with probability r, else at random, always
without replacement. With W_i = Σ_{j drawn} w_ji, draw k takes example i with probability

    q_k,i = r · W_i / Σ_{h not drawn} W_h + (1 - r) / (N - n_k)         1 / (N - n_k) where Σ W = 0           (Eq. 5)

and the estimator is one minus the mean of z_1 = f_1 and z_k = (1/N) · (Σ_{j drawn} f_j + f_i / q_k,i)    (Eq. 6 and 7)

on the failures f = 1 - outcome: unbiased, for any weights. For regression the outcome is a score.

There are two readings of the weights, with P_i the score of failure of example i and *active* as in
:mod:`~opacc_ray.samplers.auxiliary`:

    released   w_ij = P_j if j is active     the authors' code: reproduces their Table II (opacc study --as deepest)
    paper      w_ij = P_j if i is active     the text of section III: far from Table II, less variance

In both, W is the number of drawn examples that have weights at all, times one fixed vector, and that number cancels:
draws by weight follow the vector, once the first of those examples is drawn. So no step needs an N x N matrix. No step
uses an outcome either: the whole sample is drawn first and labelled later, and each example has its own q. See `_race`
for how the draws are made. The sample is returned in the order of the draws, on which the estimate depends: the first k
are also a sample of this design, and likely failures come earlier.

Deviations. The paper does not define the variance, and the code's takes z_1 as the mean; here it is that of the z_k.
For LSA the paper activates above mean + variance, but the thresholds behind its Table II for the MNIST subjects are
lower: the presets ``lsa_cn5`` and ``lsa_ln5``. In a later round the sample starts afresh, among unlabelled examples.

The tails are heavy: a failure that was unlikely to be drawn counts for up to 1/(1 - r) examples at random. So the 95 %
interval is wider than that of SRS for the same budget where failures are rare (see estimation/intervals.py). DeepEST is
the right choice where failing examples are themselves useful.

Legend: N pool, n budget, n_k examples drawn before draw k, r weight probability, P score, q draw probability.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.draw_probability import StepByStep
from opacc_ray.designs.simple_random import draw_uniform
from opacc_ray.errors import SpecError
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Presets, Task, parameter

RULES = ("released", "paper")

needs = auxiliary.needs


@dataclass(frozen=True)
class Parameters(auxiliary.Scored):
    """The weights, and the share of draws that use them."""

    threshold: float | None = parameter(None, "where the variable is active, in its raw units; null: its default")
    weight_probability: float = parameter(0.8, "r: share of draws by weight, below 1")
    rule: str = parameter("released", "whose activity makes a weight: released (as the authors' code) or paper")

    presets: ClassVar[Presets] = {
        "paper": {"rule": "paper"},
        "released": {"rule": "released"},
        "lsa_cn5": {"auxiliary": "lsa", "threshold": 30243.43},  # Table II, CN5 on MNIST
        "lsa_ln5": {"auxiliary": "lsa", "threshold": 1034.12},  # Table II, LN5 on MNIST
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.threshold, float | int) and not isinstance(self.threshold, bool)
        if self.threshold is not None and not (number and math.isfinite(self.threshold)):
            raise SpecError(f"threshold={self.threshold!r}: give a number in the units of {self.auxiliary}, or None")
        if not 0 <= self.weight_probability < 1:
            raise SpecError(
                f"weight_probability={self.weight_probability}: give a number from 0 to below 1, "
                "because examples that are never drawn at random would bias the estimate"
            )
        if self.rule not in RULES:
            raise SpecError(f"rule={self.rule!r}: choose one of {', '.join(RULES)}")


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole sample (Algorithm 1)."""
    parameters, labelled = task.parameters, task.previous.chosen
    variable, r = auxiliary.read(view, parameters.auxiliary), parameters.weight_probability
    trigger = variable.active(parameters.threshold)
    weight = variable.score()
    if parameters.rule == "released":
        weight *= trigger
        trigger[:] = True
    weight[labelled] = 0  # (N,) W up to a factor
    at_random = draw_uniform(rng, view.size, labelled, task.budget)
    by_weight = _race(rng, weight, task.budget)
    chosen, weighted = _interleave(at_random, by_weight, rng.random(task.budget) < r, trigger)
    num_free = view.size - len(labelled)
    probability, least = _draw_probabilities(weight, num_free, chosen, weighted, r)
    return Draw(chosen, StepByStep(probability, np.arange(len(chosen)), num_free, least), {})


def _race(rng: np.random.Generator, weight: NDArray[np.float64], num: int) -> NDArray[np.int64]:
    """Return the first ``num`` to arrive when example i needs an exponential time of rate weight_i.

    Examples without weight never arrive. The exponential law is memoryless: whichever examples have arrived or were
    removed, the next of the others to arrive is each with probability proportional to its weight. So the order of
    arrival answers all draws by weight of a sample, at O(N) for all of them together and without sums that cancel.
    """
    runners = np.flatnonzero(weight > 0)
    arrival = rng.standard_exponential(len(runners))
    arrival /= weight[runners]
    if num < len(runners):
        first = np.sort(np.argpartition(arrival, num - 1)[:num])
        runners, arrival = runners[first], arrival[first]
    return runners[np.argsort(arrival, kind="stable")]


def _interleave(
    at_random: NDArray[np.int64], by_weight: NDArray[np.int64], coin: NDArray[np.bool_], trigger: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Take, draw by draw, the next example of either order that is not taken; W is not 0 once a ``trigger`` is.

    Returns the examples (n,), and whether weights were there at each draw (n,).
    """
    taken: dict[int, None] = {}  # an ordered set
    there, started = np.zeros(len(coin), dtype=bool), False
    weighted, plain = iter(by_weight.tolist()), iter(at_random.tolist())
    for k, heads in enumerate(coin):
        there[k] = started
        example = next((i for i in weighted if i not in taken), None) if started and heads else None
        if example is None:  # Σ W is 0 as well once all that have weight are drawn
            example = next(i for i in plain if i not in taken)
        taken[example] = None
        started = started or bool(trigger[example])
    return np.fromiter(taken, dtype=np.int64), there


def _draw_probabilities(
    weight: NDArray[np.float64], num_free: int, chosen: NDArray[np.int64], weighted: NDArray[np.bool_], r: float
) -> tuple[NDArray[np.float64], float]:
    """Return q of each draw (n,) by Eq. 5, and the least q of any example at any draw; ``weight`` is overwritten."""
    own = weight[chosen]
    weight[chosen] = 0
    total = weight.sum() + np.cumsum(own[::-1])[::-1]  # (n,) Σ W before each draw, summed from the end: nothing cancels
    weighted = weighted & (total > 0)
    at_random = 1 / (num_free - np.arange(len(chosen)))
    by_weight = own / np.where(weighted, total, 1.0)
    probability = np.where(weighted, r * by_weight + (1 - r) * at_random, at_random)
    return probability, float(np.where(weighted, (1 - r) * at_random, at_random).min())
