"""RHC-S: Rao-Hartley-Cochran sampling, unequal probabilities without replacement.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584; the design is that of Rao, Hartley and Cochran (1962).

The pool is split at random into n groups of equal size (or one apart). From group g one example is drawn with
probability p_i / Q_g, where p is proportional to the failure score (:mod:`opacc_ray.samplers.auxiliary`) and Q_g = Σ_{i
in g} p_i. The share of failures is estimated by Σ_g (f_g / N) · Q_g / p_g: unbiased, never more variable than SUPS,
and no example is drawn twice.

Corrected. Examples of score 0 could not be drawn: scores below ``floor`` times their mean are raised to it, as in SUPS.
The original cuts an estimate above 1 to 1, which biases it, also in later rounds. Here rounds are combined from
unclipped values, and only the reported value is moved to the end of its interval. A later round splits the examples not
labelled so far.

The split. Every example gets a random number of 53 bits, fewer if N needs more than 11, and consecutive ones in the
order of their numbers form a group. Of equal numbers the example listed first goes first, which decides one cut in
3,000 at N = 10⁸. The examples are laid end to end, each as long as p in whole units of about 2^-60. Q_g is the length
between the first example of a group and that of the next; the example at a uniformly random place in between is drawn.
p and Q are computed from these whole numbers, and so are exact. No estimate is biased by how the pool is split.

Legend: N pool, n budget and groups, p draw probability, Q probability of a group.
"""

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.draw_probability import RaoHartleyCochran
from opacc_ray.designs.inclusion_probability import line_lengths
from opacc_ray.parts.view import View
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.base import Draw, Task
from opacc_ray.samplers.sups import Parameters, draw_probabilities, needs

__all__ = ["Parameters", "draw", "needs"]

_LEAST_SHIFT = 11
"""Bits of 64 that a random number of 53 bits leaves."""


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Split into groups and draw one example of each."""
    parameters, labelled = task.parameters, task.previous.chosen
    free = task.free(view.size)
    score = auxiliary.read(view, parameters.auxiliary).score()
    probability = draw_probabilities(score, parameters.floor, labelled)[free]
    shuffled = _random_order(len(free), view.size, int(rng.integers(1 << 63)))
    length = line_lengths(probability, 1)[shuffled]
    end = np.cumsum(length)
    size = np.full(task.budget, len(free) // task.budget)
    size[: len(free) % task.budget] += 1
    begin = np.concatenate([[0], end])[np.cumsum(size) - size]  # (n,) of each group
    total = np.diff(begin, append=end[-1])  # (n,) Q
    drawn = np.searchsorted(end, begin + rng.integers(total), side="right")
    design = RaoHartleyCochran(length[drawn] / end[-1], total / end[-1], size, length.min() / end[-1])
    return Draw(free[shuffled[drawn]], design, {})


def _random_order(num: int, pool_size: int, seed: int) -> NDArray[np.int64]:
    """Return the places of ``num`` examples in random order."""
    shift = max(pool_size.bit_length(), _LEAST_SHIFT)
    number = np.random.PCG64(seed).random_raw(num)
    number >>= shift
    number <<= shift
    number |= np.arange(num, dtype=np.uint64)
    number.sort()  # number and place as one, which takes a third of the time of finding their order
    np.bitwise_and(number, (1 << shift) - 1, out=number)
    return number.view(np.int64)
