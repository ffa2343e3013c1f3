"""RHC-S: Rao-Hartley-Cochran sampling, unequal probabilities without replacement.

Guerriero, Pietrantuono, Russo, "DeepSample: DNN sampling-based testing for operational accuracy assessment", ICSE 2024,
https://doi.org/10.1145/3597503.3639584; the design is that of Rao, Hartley and Cochran (1962).

The pool is split at random into n groups of equal size (or one apart), and from group g one example is drawn with
probability p_i / Q_g, p proportional to the belief that it fails (:mod:`opacc_ray.samplers.auxiliary`) and Q_g = Σ_{i
in g} p_i. The share of failures is estimated by Σ_g (f_g / N) · Q_g / p_g: unbiased, never more variable than SUPS,
and no example comes twice.

Corrected. Examples of belief 0 could not be drawn: beliefs below ``floor`` times their mean are lifted to it, as in
SUPS. The original cuts an estimate above 1 to 1, which biases it, also in later rounds: here rounds are combined from
values as they are, and only the value that is stated is moved to the end of its interval. A later round splits the
examples not labelled so far.

The split. Every example gets a random number, and consecutive ones in the order of their numbers are a group. The j-th
example that is not labelled gets the j-th number of one stream, in which a part goes straight to its own; so the groups
are the same however the pool is cut. The parts hold them, laid end to end, each as long as p in whole units of about
2^-60: Q_g is what lies between the first example of a group and that of the next, and the example is drawn that lies at
a place in between, all places being alike. p and Q are stated from these whole numbers, and so are exact. A random
number has 53 bits, or 64 without those of N if that is fewer; of equal ones the example listed first goes first, which
decides one cut in 3,000 at N = 10⁸. No estimate is biased by how the pool is split.

Legend: N pool, n budget and groups, p draw probability, Q probability of a group.
"""

import secrets

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.rao_hartley_cochran import RaoHartleyCochran
from opacc_ray.designs.unequal import lengths
from opacc_ray.parts.cache import part_keep
from opacc_ray.parts.order import Line, Ordered
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Draw, Task
from opacc_ray.samplers.proportional import Lifted, find_lifted
from opacc_ray.samplers.sups import Parameters, needs

__all__ = ["Parameters", "draw", "needs"]

_LINE = "line"  # what the parts keep under this name

_LEAST_SHIFT = 11
"""Bits of 64 beside the 53 of a float64."""


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Split into groups and draw one example of each."""
    assert task.budget is not None
    parameters, labelled = task.parameters, task.previous.chosen
    lifted = find_lifted(view, parameters.auxiliary, parameters.floor, labelled)
    line, least = _shuffle(view, lifted, labelled, int(rng.integers(1 << 63)))
    size = np.full(task.budget, (view.size - len(labelled)) // task.budget)
    size[: (view.size - len(labelled)) % task.budget] += 1
    begin = line.find_numbers(np.cumsum(size) - size).begin
    total = np.diff(begin, append=line.total)  # (n,) Q
    found = line.find(begin + rng.integers(total))
    probability = (found.end - found.begin) / line.total
    return Draw(found.index, RaoHartleyCochran(probability, total / line.total, size, least / line.total), {})


def _shuffle(view: View, lifted: Lifted, labelled: NDArray[np.int64], seed: int) -> tuple[Line, int]:
    """A line of the examples that are not ``labelled`` (k,), in random order, and the least length on it."""
    key, shift, taken = secrets.token_hex(8), max(view.size.bit_length(), _LEAST_SHIFT), view.rows_of(labelled)
    before = (start - np.searchsorted(labelled, start) for start in view.starts.tolist())
    arguments = [(key, lifted, own, seed, int(num), shift) for own, num in zip(taken, before, strict=False)]
    least = min(view.map_each(part_shuffle, arguments))
    return Line(view, _LINE, key), least


def part_shuffle(
    part: Pool, key: str, lifted: Lifted, taken: NDArray[np.int64], seed: int, before: int, shift: int
) -> int:
    """Lay a part's examples without the rows ``taken``, after ``before`` others, and return the least length."""
    probability = lifted.of(part, taken)
    free = np.delete(np.arange(part.size), taken) if len(taken) else None  # None: all
    length = lengths(probability if free is None else probability[free], 1)
    stream = np.random.PCG64(seed)
    stream.advance(before)
    number, place = stream.random_raw(len(length)), np.arange(len(length), dtype=np.uint64)
    number >>= shift
    number <<= shift
    number |= place
    number.sort()  # number and place as one, which takes a third of the time of finding their order
    np.bitwise_and(number, (1 << shift) - 1, out=place)
    number >>= shift
    row = (place if free is None else free[place]).astype(np.uint32)
    end = np.take(length, place.view(np.int64))
    part_keep(part, _LINE, key, Ordered(number.astype(np.float64), row, np.cumsum(end, out=end)))
    return int(length.min(initial=np.iinfo(np.int64).max))
