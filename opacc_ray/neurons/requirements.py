"""Neuron coverage: the requirements that an example meets, one bit each, and few examples that meet all of a pool.

Each neuron has one or more requirements; v is its output for the example, [low, high] the range of its outputs over
reference data (usually training data):

    nc:β     v, scaled with its layer to [0, 1], is greater than β                                    1 per neuron
    nc-raw:β v, not scaled, is greater than β, as DeepXplore's text has it                            1 per neuron
    kmnc:k   v lies in section 1, .., k of its range, cut in k parts of equal width                   k per neuron
    nbc      v < low, v > high                                                                        2 per neuron
    snac     v > high                                                                                 1 per neuron
    tknc:k   v is no less than the k-th highest of its layer                                          1 per neuron

NC: Pei, Cao, Yang, Jana, "DeepXplore", SOSP 2017, https://doi.org/10.1145/3132747.3132785. The others: Ma et al.,
"DeepGauge", ASE 2018, https://doi.org/10.1145/3238147.3238202.

Choices that the papers leave open. NC: a layer whose neurons all have the same value activates none. KMNC: a section
includes its upper end, and the first one `low`, as in :mod:`opacc_ray.neurons.sections`; a neuron that is constant over
the reference data has one section; a value out of range is in none. NBC, SNAC: the range includes its ends, because
otherwise every inactive ReLU would count. A value beyond an end by float32 rounding alone is at it, since two runs of a
model on one example differ in the last bits. TKNC: all ties count.

Legend: B examples, m neurons of a layer, q requirements per neuron, R requirements in all.

**HGS** chooses few examples that together meet every requirement that the pool meets.

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

Legend of HGS: n examples of a part, R requirements that at least one example meets, W = ceil(R / 64) words of a row.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.parts.loops import in_threads
from opacc_ray.parts.view import Kept, View, key_of
from opacc_ray.pool import Pool

FORMAT = "opacc-ranges/1"

_EXAMPLES = "nc:0.5, kmnc:10, nbc, snac or tknc:2"

_BITS = 1 << 22  # unpacked bits in memory, one byte each

ROUNDING = 64 * float(np.finfo(np.float32).eps)
"""How far runs of a model on one example may differ, as a share of the larger end of the neuron's range."""

Values = NDArray[np.float64]
Layers = Sequence[NDArray[np.float32]]


class Ranges(NamedTuple):
    """Smallest and largest output of every neuron over reference data, layer by layer."""

    low: tuple[NDArray[np.float32], ...]  # (m,) each
    high: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, layers: Layers) -> "Ranges":
        """Compute the ranges over at least one example, each layer (B, m); raises DataError if one is not finite."""
        for number, values in enumerate(layers):
            if not np.isfinite(values).all():
                raise DataError(f"layer {number} of the reference data contains NaN or infinity; remove such examples")
        return cls(tuple(values.min(axis=0) for values in layers), tuple(values.max(axis=0) for values in layers))

    @classmethod
    def merge(cls, parts: Sequence["Ranges"]) -> "Ranges":
        """Merge the ranges of parts, in any order."""
        low = (np.min(layer, axis=0) for layer in zip(*(part.low for part in parts), strict=True))
        high = (np.max(layer, axis=0) for layer in zip(*(part.high for part in parts), strict=True))
        return cls(tuple(low), tuple(high))

    def encode(self) -> bytes:
        """Encode as one .npz file; equal ranges give equal bytes."""
        sink = io.BytesIO()
        ends = {f"{name}_{i}": values for name in self._fields for i, values in enumerate(getattr(self, name))}
        np.savez(sink, format=np.array(FORMAT), num_layers=np.array(len(self.low)), **ends)
        return sink.getvalue()

    @classmethod
    def decode(cls, data: bytes, source: str) -> "Ranges":
        """Decode the bytes of :meth:`encode`; raises DataError if ``source`` contains something else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                if str(archive["format"]) != FORMAT:
                    raise ValueError(f"format {str(archive['format'])!r}, and this version reads {FORMAT!r}")
                numbers = range(int(archive["num_layers"]))
                return cls(*(tuple(archive[f"{name}_{i}"] for i in numbers) for name in cls._fields))
        except Exception as error:  # NumPy raises several kinds on damaged files
            raise DataError(
                f"{source} is not a file of neuron ranges ({error}); run the spec again to recreate it"
            ) from None


@dataclass(frozen=True)
class Criterion:
    """A coverage criterion, written as in ``nc:0.5``, ``kmnc:10``, ``nbc``, ``snac`` or ``tknc:2``."""

    name: str
    number: float | int | None = None  # β, k, or none

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """Parse a criterion; raises SpecError if the name is unknown or the number does not fit."""
        name, colon, number = text.partition(":")
        if name not in _RULES:
            near = get_close_matches(name.lower(), _RULES, 1)
            hint = f"did you mean {near[0] + colon + number!r}?" if near else f"give {_EXAMPLES}"
            raise SpecError(f"there is no coverage criterion {text!r}; {hint}")
        try:
            return cls(name, _number(_RULES[name].kind, number))
        except ValueError:
            raise SpecError(f"coverage criterion {text!r}: {_RULES[name].wanted}") from None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}:{self.number}"

    @property
    def needs_ranges(self) -> bool:
        """Whether the criterion needs ranges over reference data."""
        return _RULES[self.name].needs_ranges

    def requirements(self, widths: Sequence[int]) -> int:
        """Return R for the number of neurons of each layer."""
        return sum(widths) * _RULES[self.name].per_neuron(self.number)

    def bits(self, layers: Layers, ranges: Ranges | None = None) -> NDArray[np.uint8]:
        """Return the requirements that each example meets: layers (B, m) -> (B, ceil(R / 8)), as by ``numpy.packbits``.

        They are ordered by layer, then by neuron, then as listed for the criterion, and do not depend on the batch.
        Raises DataError if ranges are needed and missing, or are those of other layers.
        """
        widths, met = [values.shape[1] for values in layers], _RULES[self.name].met
        ends, num = self._ends(widths, ranges), self.requirements(widths)
        step = max(1, _BITS // num)
        packed = [np.empty((0, -(-num // 8)), dtype=np.uint8)]
        for start in range(0, len(layers[0]), step):
            blocks = [values[start : start + step].astype(np.float64) for values in layers]
            if self.needs_ranges:
                blocks = [_to_ends(block, *own) for block, own in zip(blocks, ends, strict=True)]
            pairs = zip(blocks, ends, strict=True)
            bits = [met(block, low, high, self.number).reshape(len(block), -1) for block, (low, high) in pairs]
            packed.append(np.packbits(np.concatenate(bits, axis=1), axis=1))  # (b, R) -> (b, ceil(R / 8))
        return np.concatenate(packed)

    def _ends(self, widths: Sequence[int], ranges: Ranges | None) -> list[tuple[Values, Values]]:
        """Return the ends of the neurons' ranges (m,), layer by layer; empty if the criterion needs none."""
        if not self.needs_ranges:
            return [(np.empty(0), np.empty(0)) for _ in widths]
        if ranges is None:
            raise DataError(f"coverage {self} needs reference data; add a reference to the spec")
        known = [len(low) for low in ranges.low]
        if known != list(widths):
            raise DataError(
                f"coverage {self}: the layers have {list(widths)} neurons, and the reference ranges have {known}; "
                "use the same layers for both"
            )
        return [(low.astype(np.float64), high.astype(np.float64)) for low, high in zip(*ranges, strict=True)]


class _Rule(NamedTuple):
    """The definition of a criterion."""

    met: Callable[[Values, Values, Values, Any], NDArray[np.bool_]]  # values (b, m), low, high, number -> (b, m, q)
    per_neuron: Callable[[Any], int]  # q, given the number
    needs_ranges: bool
    kind: type[float] | type[int] | None  # of the number: β, k, or none
    wanted: str  # the fix for a wrong number


def _to_ends(values: Values, low: Values, high: Values) -> Values:
    """Return values (b, m) with those that are beyond an end by rounding alone at this end."""
    slack = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    near = (values >= low - slack) & (values <= high + slack)
    return np.where(near, np.clip(values, low, high), values)


def _activated(values: Values, _: Values, __: Values, threshold: float) -> NDArray[np.bool_]:
    low = values.min(axis=1, keepdims=True)
    width = values.max(axis=1, keepdims=True) - low
    scaled = np.divide(values - low, width, out=np.zeros_like(values), where=width > 0)
    return np.asarray(scaled > threshold)[:, :, None]


def _above(values: Values, _: Values, __: Values, threshold: float) -> NDArray[np.bool_]:
    return np.asarray(values > threshold)[:, :, None]


def _in_section(values: Values, low: Values, high: Values, num: int) -> NDArray[np.bool_]:
    width = np.where(high > low, high - low, np.inf)
    section = np.maximum(np.ceil((values - low) / width * num), 1)  # (b, m)
    section[(values < low) | (values > high)] = 0
    return np.asarray(section[:, :, None] == np.arange(1, num + 1))


def _out_of_range(values: Values, low: Values, high: Values, _: None) -> NDArray[np.bool_]:
    return np.stack([values < low, values > high], axis=2)


def _above_range(values: Values, _: Values, high: Values, __: None) -> NDArray[np.bool_]:
    return np.asarray(values > high)[:, :, None]


def _in_top(values: Values, _: Values, __: Values, num: int) -> NDArray[np.bool_]:
    place = max(values.shape[1] - num, 0)
    least = np.partition(values, place)[:, place]  # (b,) the k-th highest
    return np.asarray(values >= least[:, None])[:, :, None]


def _number(kind: type[float] | type[int] | None, text: str) -> float | int | None:
    """Return a share below 1, a whole number above 0, or none; raises ValueError if ``text`` is anything else."""
    value = kind(text) if kind else None
    fits = not text if value is None else 0 <= value < 1 if kind is float else value >= 1
    if not fits:
        raise ValueError
    return value


_RULES = {
    "nc": _Rule(_activated, lambda _: 1, False, float, "give the threshold, from 0 to below 1, as in nc:0.5"),
    "nc-raw": _Rule(_above, lambda _: 1, False, float, "give the threshold, from 0 to below 1, as in nc-raw:0.5"),
    "kmnc": _Rule(_in_section, lambda k: k, True, int, "give the number of sections, as in kmnc:10"),
    "nbc": _Rule(_out_of_range, lambda _: 2, True, None, "it takes no number; write nbc"),
    "snac": _Rule(_above_range, lambda _: 1, True, None, "it takes no number; write snac"),
    "tknc": _Rule(_in_top, lambda _: 1, False, int, "give the number of top neurons, as in tknc:2"),
}


# -- set cover ---------------------------------------------------------------------------------------------------------

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
