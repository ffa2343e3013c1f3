"""HGS: few examples that together meet every coverage requirement the pool meets.

Harrold, Gupta, Soffa, "A Methodology for Controlling the Size of a Test Suite", ACM TOSEM 2(3), 1993,
https://doi.org/10.1145/152388.152391.

The cardinality of a requirement is the number of examples that meet it. Requirements are processed by cardinality, the
rarest first: while one of the current cardinality is unmet, the example is chosen that meets most of those. Ties are
broken by looking ahead: by the unmet requirements of the next cardinality that occurs, and so on.

Deviations. The paper leaves open the choice when a tie outlasts the last cardinality: here the lowest index.
Requirements of cardinality 1 are treated like all others, which chooses the same examples. Requirements that no example
meets are dropped. `lookahead` limits the number of cardinalities that break ties; the code released with DeepReduce
uses 3 and draws the remaining ties at random, which chooses more examples.

A part keeps its examples as rows of bits, the rarest requirement first, so that looking ahead is a comparison of two
rows from left to right. For each choice the parts receive the unmet requirements and return their best example; the
best of those is chosen by the same rule. So the choice does not depend on the parts.

Legend: n examples of a part, R requirements that at least one example meets, W = ceil(R / 64) words of a row.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.parts.loops import in_threads
from opacc_ray.parts.view import Kept, View, key_of
from opacc_ray.pool import Pool

Words = NDArray[np.uint64]


class Requirements(NamedTuple):
    """The requirements that at least one example meets, the rarest first."""

    source: NDArray[np.int64]  # (R,) place in the pool's coverage
    group: NDArray[np.int64]  # (R,) 0 for those of the least cardinality, 1 for the next, ...
    key: str  # identifies this order


NO_REQUIREMENTS = Requirements(np.array([], dtype=np.int64), np.array([], dtype=np.int64), "")


def rank_requirements(view: View) -> Requirements:
    """Order the requirements that at least one example meets by cardinality."""
    cardinality = view.total(part_cardinality)  # (requirements rounded up to whole bytes,)
    source = np.argsort(cardinality)
    source = source[np.searchsorted(cardinality[source], 1) :]
    group = np.unique(cardinality[source], return_inverse=True)[1].astype(np.int64)
    return Requirements(source, group, key_of(source))


def all_of(requirements: Requirements) -> Words:
    """Return every requirement, (W,)."""
    return _span(requirements, 0, len(requirements.source))


def met_by(view: View, requirements: Requirements, index: NDArray[np.int64]) -> Words:
    """Return the requirements that the examples ``index`` (k,) meet together: (W,)."""
    if not len(index) or not len(requirements.source):
        return np.zeros_like(all_of(requirements))
    rows: Words = view.take(part_rows, index, requirements.source)
    return np.bitwise_or.reduce(rows)


def choose(view: View, requirements: Requirements, unmet: Words, lookahead: int | None = None) -> tuple[int, Words]:
    """Return the next example and the requirements that it meets (W,), while some are ``unmet`` (W,)."""
    wanted = _wanted(requirements, unmet, lookahead)
    num, recipe = len(view.parts.sizes), (requirements.source, requirements.group)
    kept = Kept(view.parts, "coverage", requirements.key, part_as_rows, [recipe] * num)
    answers = kept.map(_Rows.best, [wanted] * num)
    parts = [part for part, answer in enumerate(answers) if answer is not None]
    finalists = np.stack([answers[part][1] for part in parts])  # (parts, W)
    winner = _Rows(finalists, requirements.group).best(*wanted)
    assert winner is not None  # at least one example meets each
    part = parts[winner[0]]
    return int(view.starts[part]) + answers[part][0], winner[1]


class _Rows:
    """The examples of a part as rows of requirements, the rarest first."""

    def __init__(self, words: Words, group: NDArray[np.int64]) -> None:
        self._words = words  # (n, W)
        self._group = group  # (R,)
        self._counted = np.zeros(words.shape[1], dtype=np.uint64), np.zeros(len(words), dtype=np.int64)

    def best(self, now: Words, ahead: Words) -> tuple[int, Words] | None:
        """Return the row that meets most of ``now``, then of ``ahead`` (W,), the first of ties, and its words (W,).

        None if no row meets any of ``now``.
        """
        from opacc_ray.neurons.kernels import best_row

        counts = self._count(now)  # (n,)
        most = counts.max()
        if not most:
            return None
        row = best_row(self._words, np.flatnonzero(counts == most), np.flatnonzero(ahead), ahead, self._group)
        return int(row), self._words[row]

    def _count(self, now: Words) -> NDArray[np.int64]:
        """Count how many of ``now`` (W,) each row meets: (n,). Requirements met since the last call are subtracted."""
        from opacc_ray.neurons.kernels import count_within

        before, counts = self._counted
        if (now & ~before).any():
            counts = count_within(self._words, np.flatnonzero(now), now)
        else:
            gone = before & ~now
            counts = counts - count_within(self._words, np.flatnonzero(gone), gone)
        self._counted = now, counts  # replaced at once, so that two threads may ask
        return counts


def _wanted(requirements: Requirements, unmet: Words, lookahead: int | None) -> tuple[Words, Words]:
    """Return the unmet requirements of the current cardinality, and of those looked ahead to: (W,) each."""
    group, word = requirements.group, int(np.argmax(unmet != 0))
    bits = int(unmet[word])
    current = group[64 * word + (bits & -bits).bit_length() - 1]  # of the first that is unmet
    last = group[-1] if lookahead is None else current + lookahead
    start, middle, stop = np.searchsorted(group, [current, current + 1, last + 1])
    return unmet & _span(requirements, start, middle), unmet & _span(requirements, middle, stop)


def _span(requirements: Requirements, start: int, stop: int) -> Words:
    """Return the requirements from ``start`` to before ``stop``, (W,)."""
    bits = np.zeros(-(-len(requirements.source) // 64) * 64, dtype=np.uint8)
    bits[start:stop] = 1
    return np.packbits(bits, bitorder="little").view(np.dtype(np.uint64).newbyteorder("<")).astype(np.uint64)


def num_met(view: View) -> int:
    """Return how many requirements at least one example of the pool meets."""
    met = np.bitwise_or.reduce(view.map(part_met))
    return int(np.bitwise_count(met).sum())


def part_met(part: Pool) -> NDArray[np.uint8]:
    """Return the requirements that at least one example of a part meets, as packed bits."""
    return np.bitwise_or.reduce(_packed(part))


def part_cardinality(part: Pool) -> NDArray[np.int64]:
    """Count the examples of a part that meet each requirement, padded to whole bytes: (8 B,)."""
    from opacc_ray.neurons.kernels import count_places

    packed = _packed(part)

    def over(start: int, stop: int) -> NDArray[np.int64]:
        counts = np.zeros((8, packed.shape[1]), dtype=np.int64)
        count_places(packed[start:stop], counts)
        return counts.T.ravel()

    return np.sum(in_threads(over, len(packed), 8 * packed.shape[1]), axis=0)


def part_as_rows(part: Pool, source: NDArray[np.int64], group: NDArray[np.int64]) -> _Rows:
    return _Rows(_reorder(_packed(part), source), group)


def part_rows(part: Pool, rows: NDArray[np.int64], source: NDArray[np.int64]) -> Words:
    return _reorder(_packed(part, rows), source)


def _reorder(packed: NDArray[np.uint8], source: NDArray[np.int64]) -> Words:
    from opacc_ray.neurons.kernels import reorder

    words = np.empty((len(packed), -(-len(source) // 64)), dtype=np.uint64)
    in_threads(lambda start, stop: reorder(packed[start:stop], source, words[start:stop]), len(packed), len(source))
    return words


def _packed(part: Pool, rows: Sequence[int] | NDArray[np.int64] | slice = slice(None)) -> NDArray[np.uint8]:
    """Return the coverage of some rows of a part, eight requirements per byte."""
    coverage: Any = part.coverage
    chosen = coverage[rows]
    return np.ascontiguousarray(np.packbits(chosen, axis=1) if chosen.dtype == np.bool_ else chosen)
