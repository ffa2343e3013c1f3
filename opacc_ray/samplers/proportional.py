"""Independent draws by probabilities that the parts of a pool make of beliefs in failure.

A probability is proportional to the belief, and beliefs below ``floor`` times their mean are lifted to it. Without
that, an example of belief 0 could never be drawn, its failure never be seen, and the estimate would be biased; and a
failure in which one hardly believes would, in the rare sample that meets it, count as thousands.

Probabilities and draws are those of all parts in one array, to the last bit: sums are NumPy's, and cumulative sums go
on from one part to the next.

Legend: N pool, n draws.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.cache import key_of
from opacc_ray.parts.sums import sum_as_one
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary
from opacc_ray.samplers.auxiliary import Variable

Array = NDArray[np.int64]
Numbers = NDArray[np.float64]


class Lifted(NamedTuple):
    """Probabilities in proportion to beliefs, of which small ones are lifted: positive, and 1 in sum."""

    variable: Variable
    least: float  # belief to which smaller ones are lifted
    total: float

    def of(self, part: Pool, taken: Array) -> Numbers:
        """(n,) of a part's examples, 0 for the rows ``taken``."""
        lifted = part_lifted(part, self.variable, self.least, taken)
        lifted /= self.total
        return lifted


def find_lifted(view: View, name: str, floor: float, taken: Array) -> Lifted:
    """Probabilities in the auxiliary variable ``name`` for a pool without ``taken`` (k,), found once per view.

    Raises as :func:`opacc_ray.samplers.auxiliary.find`.
    """
    return view.once("lifted", (name, floor, key_of(taken)), lambda: _find(view, name, floor, taken))


def _find(view: View, name: str, floor: float, taken: Array) -> Lifted:
    variable, rows = auxiliary.find(view, name), view.rows_of(taken)

    def total(least: float) -> float:
        return sum_as_one(view, part_lifted, [(variable, least, own) for own in rows], view.parts.sizes)

    mean = total(0.0) / (view.size - len(taken))
    least = floor * mean if mean > 0 else 1.0
    return Lifted(variable, least, total(least))


def part_lifted(part: Pool, variable: Variable, least: float, taken: Array) -> Numbers:
    """Beliefs of at least ``least``, and 0 for the rows ``taken``, (n,)."""
    values = variable.read(part)
    belief = variable.belief(values)
    lifted = np.maximum(belief, least, out=None if belief is values else belief)
    lifted[taken] = 0
    return lifted


def part_probability(part: Pool, lifted: Lifted, taken: Array) -> Numbers:
    """p of a part's examples, (n,), 0 for the rows ``taken``."""
    return lifted.of(part, taken)


class Drawn(NamedTuple):
    """Examples in the order of the draws."""

    chosen: Array  # (n,)
    probability: Numbers  # (n,)
    least: float  # positive probability of any example


class Share(NamedTuple):
    """What a part has of the line on which all probabilities lie end to end."""

    end: float
    least: float  # positive probability, or infinity
    last: int  # row with a probability, or -1


def draw_in_parts(
    rng: np.random.Generator,
    view: View,
    probability: Callable[..., Numbers],
    arguments: Sequence[tuple[Any, ...]],
    num: int,
) -> Drawn:
    """``num`` independent draws by ``probability(part, *own)`` (n,) of all parts."""
    shares, begins = list[Share](), [0.0]
    for part, own in enumerate(arguments):  # one after the other: each goes on where the one before it ends
        shares += view.parts.call([(part, part_share, (probability, own, begins[-1]))])
        begins.append(shares[-1].end)
    final = max(part for part, share in enumerate(shares) if share.last >= 0)
    place = rng.random(num) * begins[-1]
    home = np.minimum(np.searchsorted(begins[1:], place, side="right"), final)  # should rounding lead past the end
    homes = [(int(part), np.flatnonzero(home == part)) for part in np.unique(home)]
    found = view.parts.call(
        [(part, part_find, (probability, arguments[part], begins[part], place[mine])) for part, mine in homes]
    )
    index, own_probability = np.empty(num, dtype=np.int64), np.empty(num)
    for (part, mine), (rows, values) in zip(homes, found, strict=True):
        index[mine], own_probability[mine] = view.starts[part] + rows, values
    return Drawn(index, own_probability, min(share.least for share in shares))


def part_share(part: Pool, probability: Callable[..., Numbers], own: tuple[Any, ...], begin: float) -> Share:
    values = probability(part, *own)
    there = np.flatnonzero(values)
    end = float(_cumulative(values, begin)[-1])
    return Share(end, float(values[there].min(initial=np.inf)), int(there[-1]) if len(there) else -1)


def part_find(
    part: Pool, probability: Callable[..., Numbers], own: tuple[Any, ...], begin: float, place: Numbers
) -> tuple[Array, Numbers]:
    """Rows at some places (k,), and their probabilities."""
    values = probability(part, *own)
    rows = np.minimum(np.searchsorted(_cumulative(values, begin), place, side="right"), np.flatnonzero(values)[-1])
    return rows.astype(np.int64), values[rows]


def _cumulative(values: Numbers, begin: float) -> Numbers:
    return np.cumsum(np.concatenate([[begin], values]))[1:]
