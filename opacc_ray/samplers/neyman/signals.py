"""Signals: what is known of every example before it is labelled, as a few numbers on comparable scales.

    confidence   logit(1 - c), c kept within [1e-3, 1 - 1e-5]; a heap of examples with one confidence of 1, which half
                 precision or clipped scores make, is only HEAP_STEP below the next one
    heap         1 - s in such a heap of the share s, -s elsewhere
    rank         rank of 1 - c, 0 for the most doubtful and -3.5 for the least (standard deviation 1)
    surprise     ranks of DSA and of LSA likewise, 0 for the most surprising
    prediction   the predicted class; for a predicted value, its rank and the square of it
    direction    the first few principal directions of the hidden layer, standard deviation 1
    judge        ranks of 1 - a judge's score among the judged examples, mean 0; elsewhere its forecast by least squares
                 from the signals above
    judged       1 - s where a judge that has judged the share s of the pool has judged, -s elsewhere
    history      logit of p by a history's labels (:func:`opacc_ray.samplers.neyman.failure_model.read_signals`)
    stated       logit(1 - c) as it is, c kept within 1e-9: only where a rare class is served

Ranks, because surprise has no natural unit and long tails, and because softmax saturates: of two examples that get
0.9999 and 0.9998 one may fail ten times as often, which the logit hardly shows and the rank does. They end at 0, so
that the coefficient of a rank is how fast failures thin out below the most suspicious example, and not how often that
one fails.

Directions are projections on principal axes: whole numbers that depend on the pool alone. Where features are stored,
they are stored next to them, and later rounds read them instead of the layer.

**Principal axes** of a hidden layer follow from exact sums over the parts that hold it. Sums of floating numbers depend
on how they are split, and a selection must not. So everything that crosses parts is whole: each neuron's values are
coded as steps of 1/4095 of its range over the pool, and the axes as multiples of 2^-20. Sums and products of such
numbers are exact in float64 up to 2^53, in any order: for pools of up to 5·10^8 examples and layers of up to 2^21
neurons.

Legend: N pool, n examples, k those of a history, d signals, directions or axes, C classes, m neurons, u codes 0 ..
4095.
"""

from collections.abc import Container, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.neurons.sections import part_bounds
from opacc_ray.parts.loops import blocks, key_bits, sort_keys
from opacc_ray.parts.view import Compact, View, compacted, view_of
from opacc_ray.pool import Pool

Array = NDArray[np.float64]

_BLOCK_VALUES = 1 << 16
_STEPS = 4095
_GRAIN = 2.0**20


class Axes(NamedTuple):
    """Codes of a layer's values, u = (v - low) / width · 4095, and the axes as whole numbers of them."""

    low: Array  # (m,)
    width: Array  # (m,) infinite for a constant neuron, whose codes are 0
    whole: Array  # (m, d)


def axes_of(view: View, num: int) -> Axes:
    """Return the first ``num`` axes of a pool, found once per view; those without variance are left out.

    Neurons count in proportion to their range. Raises DataError if a value is not finite.
    """
    return view.once("axes", num, lambda: _find_axes(view, num))


def _find_axes(view: View, num: int) -> Axes:
    bounds = view.map(part_bounds, "hidden")
    low = np.min([low for low, _ in bounds], axis=0).astype(np.float64)
    high = np.max([high for _, high in bounds], axis=0).astype(np.float64)
    _check_finite(low, high)
    unit = high - low  # back to the neurons' own units
    width = np.where(unit > 0, unit, np.inf)
    moments = view.total(part_moments, low, width) / view.size
    mean, product = moments[0], moments[1:]  # (m,) and (m, m) of the codes
    variance, axes = np.linalg.eigh((product - np.outer(mean, mean)) * np.outer(unit, unit))
    first = np.argsort(-variance)[:num]
    first = first[variance[first] > 1e-9 * max(float(variance.max()), 1e-300)]
    return Axes(low, width, _as_whole(axes[:, first] * unit[:, None]))


def _check_finite(low: NDArray[np.floating], high: NDArray[np.floating]) -> None:
    finite = np.isfinite(low) & np.isfinite(high)
    if not finite.all():
        neuron = int(np.flatnonzero(~finite)[0])
        raise DataError(f"neuron {neuron} of hidden is NaN or infinite for some example; exclude it or fix the model")


def _as_whole(axes: Array) -> Array:
    """Return ``axes`` (m, d) as whole numbers up to 2^20, each turned so that its largest entry is positive."""
    if not axes.size:
        return axes
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)  # (1, d)
    return np.rint(axes / largest * _GRAIN)


def part_moments(part: Pool, low: Array, width: Array) -> Array:
    """Return the sums (m,) and products (m, m) of a part's codes, one above the other."""
    found = np.zeros((1 + len(low), len(low)))
    for codes in _blocks(part, low, width):
        found[0] += codes.sum(axis=0)
        found[1:] += codes.T @ codes
    return found


def part_project(part: Pool, axes: Axes) -> Array:
    """Return the projections of a part's rows, whole numbers (n, d)."""
    return np.concatenate([codes @ axes.whole for codes in _blocks(part, axes.low, axes.width)])


def _blocks(part: Pool, low: Array, width: Array) -> Iterator[Array]:
    """Yield the codes of a part, block by block: (b, m) each."""
    assert part.hidden is not None
    rows = max(1, _BLOCK_VALUES // part.hidden.shape[1])
    for start in range(0, len(part.hidden), rows):
        codes: Array = part.hidden[start : start + rows] - low
        codes *= _STEPS / width
        yield np.rint(codes, out=codes)


LEAST_DOUBT, MOST_DOUBT = 1e-5, 1 - 1e-3
HEAP, HEAP_SHARE, HEAP_STEP = "heap", 0.05, 2.0
"""Least share of the pool that makes a heap, and its log odds below those of the next confidence: infinite ones state
nothing, and no label could bend them."""

_SHARE_WITHOUT_CONFIDENCE = 0.1
HALF_RANGE = float(np.sqrt(3.0))
"""Half the range of ranks with standard deviation 1."""

STATED, LEAST_STATED = "stated", 1e-9

JUDGE, JUDGED, HISTORY = "judge", "judged", "history"
NO_JUDGES: Mapping[str, NDArray[np.float64]] = {}

_LEAST_CLAIM = 0.01
"""Least share of failures, and of right answers, that judges are believed before any label."""

_FORMS = {
    "confidence": (("confidence", "doubt"), ("rank", "falling")),
    "dsa": (("surprise", "rising"),),
    "lsa": (("surprise", "rising"),),
    "prediction": (("prediction", "middle"), ("prediction", "square")),
}
"""The kinds of signal that are made of a column, and how."""

_LOW = 1 << 16


class Signals(NamedTuple):
    """The signals of some examples, or of a whole pool."""

    kinds: tuple[str, ...]  # (d,) the names above
    values: tuple[Array | Compact, ...]  # d of (n,)
    classes: NDArray[np.integer] | None  # (n,) predicted class, from 0 to C - 1; -1 is none of the pool's
    names: Array | None  # (C,) classes as they are predicted; None if there are none, or values are predicted
    expected_logit: float  # of the share of failures that the model's confidence states
    size: int  # n

    @property
    def num_classes(self) -> int:
        """Return C."""
        return 0 if self.names is None else len(self.names)

    @property
    def present(self) -> frozenset[str]:
        """Return the kinds that there are."""
        return frozenset(self.kinds) | (frozenset() if self.names is None else {"prediction"})

    def take(self, index: NDArray[np.int64]) -> "Signals":
        """Return the signals of the examples ``index`` (k,)."""
        classes = None if self.classes is None else self.classes[index].astype(np.int64)
        return self._replace(values=tuple(own[index] for own in self.values), classes=classes, size=len(index))

    def without(self, kinds: Container[str]) -> "Signals":
        """Return these signals without those of some kinds."""
        kept = [place for place, kind in enumerate(self.kinds) if kind not in kinds]
        return self._replace(
            kinds=tuple(self.kinds[place] for place in kept), values=tuple(self.values[place] for place in kept)
        )

    def add(self, kind: str, values: Array) -> "Signals":
        """Return these signals with one more."""
        return self._replace(kinds=(*self.kinds, kind), values=(*self.values, values))


def pool_signals(view: View, num_directions: int) -> Signals:
    """Return the signals that the features of a pool give, made once per view; raises DataError if one cannot be."""
    return view.once("pool signals", num_directions, lambda: _make(view, num_directions))


def _make(view: View, num_directions: int) -> Signals:
    from scipy.special import logit

    names, classes = _classes(view)
    kinds, values, share = list[str](), list[Array | Compact](), _SHARE_WITHOUT_CONFIDENCE
    hidden = "hidden" in view.fields and num_directions  # first, for they take most memory while they are made
    directions = find_projection(view, num_directions).packed if hidden else ()
    for field in _columns(view, names):
        column = view.column_in_range(field)
        ends, heap = _ends_of(column), heap_of(column) if field == "confidence" else None
        for kind, form in _FORMS[field]:
            kinds.append(kind)
            if form in ("falling", "rising"):
                values.append(Compact((ends,), partial(_rank, form, view.size)))
            else:
                values.append(compacted(_signal(form, column, ends, view.size, heap)))
        if field == "confidence":
            share = float(_doubt(column, heap).mean())
            if heap is not None:
                kinds.append(HEAP)
                values.append(compacted(heap.inside(column)))
        del column, ends  # as long as the pool
    kinds += ["direction"] * len(directions)
    return Signals(tuple(kinds), (*values, *directions), classes, names, float(logit(share)), view.size)


def with_stated(view: View, signals: Signals) -> Signals:
    """Return the signals with the stated confidence: where there is one, experts use no other."""
    from scipy.special import logit

    return signals.add(STATED, logit(np.clip(1 - view.column("confidence"), LEAST_STATED, 1 - LEAST_STATED)))


def with_judges(signals: Signals, judges: Mapping[str, Array]) -> Signals:
    """Return the signals of a pool with those of its judges: name -> (N,) scores, NaN where one has not judged.

    Where there is no confidence, they say how often the model fails on average.
    """
    from scipy.special import logit

    if not judges:
        return signals
    known, doubt = np.column_stack([np.ones(signals.size), *signals.values]), list[float]()
    for score in judges.values():
        there = ~np.isnan(score)
        signal = np.zeros(signals.size)
        signal[there] = spread_ranks(1 - score[there])
        doubt.append(float(1 - score[there].mean()))
        if not there.all():
            slope = np.linalg.lstsq(known[there], signal[there], rcond=None)[0]
            signal[~there] = known[~there] @ slope
            signals = signals.add(JUDGED, there - there.mean())
        signals = signals.add(JUDGE, signal)
    if "confidence" not in signals.kinds:
        share = min(max(sum(doubt) / len(doubt), _LEAST_CLAIM), 1 - _LEAST_CLAIM)
        signals = signals._replace(expected_logit=float(logit(share)))
    return signals


def signals_of_others(
    view: View, own: Signals, num_directions: int, other: Pool, judges: Mapping[str, Array] = NO_JUDGES
) -> Signals:
    """Return the signals of other examples (k,), on the scales of the pool, whose signals are ``own``.

    A rank is the place that the value would have in the pool, and that of a judge among ``judges``, those of the pool.
    A signal that ``other`` lacks is the pool's mean of it; a class that the pool does not have is -1. Raises DataError
    if a number of ``other`` cannot be, or its layer differs.
    """
    try:
        found = [*_others(view, own, num_directions, other), *_others_judged(judges, other)]
    except DataError as error:
        raise DataError(f"history: of the labelled examples, {error}") from None
    found += [None] * (len(own.values) - len(found))  # that of the history itself, which is the last
    pairs = zip(found, own.values, strict=True)
    values = tuple(np.full(other.size, pool.mean()) if its is None else its for its, pool in pairs)
    if own.names is None:
        return own._replace(values=values, size=other.size)
    predicted = np.full(other.size, np.nan) if other.prediction is None else other.prediction
    place = np.minimum(np.searchsorted(own.names, predicted), len(own.names) - 1)
    classes = np.where(own.names[place] == predicted, place, -1)
    return own._replace(values=values, classes=classes, size=other.size)


def _others(view: View, own: Signals, num_directions: int, other: Pool) -> Iterator[Array | None]:
    """Yield each signal of other examples, (k,), or None where they lack it."""
    for field in _columns(view, own.names):
        if getattr(other, field) is None:
            yield from [None] * (len(_FORMS[field]) + (field == "confidence" and HEAP in own.kinds))
            continue
        column, ordered = view_of(other).column_in_range(field), np.sort(view.column_in_range(field))
        ends = np.searchsorted(ordered, column, side="left") + np.searchsorted(ordered, column, side="right")
        heap = heap_of(ordered) if field == "confidence" else None
        for _, form in _FORMS[field]:
            yield _signal(form, column, ends, view.size, heap)
        if heap is not None:
            yield heap.inside(column)
    num = own.kinds.count("direction")
    if num:
        yield from [None] * num if other.hidden is None else project_others(view, num_directions, other).T


def _others_judged(judges: Mapping[str, Array], other: Pool) -> Iterator[Array | None]:
    """Yield the signals of each judge of the pool, for other examples (k,), or None where it has not judged them."""
    for name, score in judges.items():
        there, own = ~np.isnan(score), other.judges.get(name)
        if not there.all():
            yield None if own is None else ~np.isnan(own) - there.mean()
        if own is None:
            yield None
            continue
        ordered = np.sort(1 - score[there])
        ends = np.searchsorted(ordered, 1 - own, side="left") + np.searchsorted(ordered, 1 - own, side="right")
        yield np.where(np.isnan(own), 0.0, (ends / len(ordered) - 1) * HALF_RANGE)


def _columns(view: View, names: Array | None) -> list[str]:
    """Return the columns that signals are made of; a predicted class, one of ``names``, is no number."""
    return [field for field in _FORMS if field in view.fields and not (field == "prediction" and names is not None)]


def _signal(form: str, values: Array, ends: NDArray[np.integer], size: int, heap: "Heap | None" = None) -> Array:
    """Return a signal of ``values`` (n,) whose ends among ``size`` are ``ends`` (n,)."""
    if form == "doubt":
        doubt = _doubt(values, heap)
        doubt /= 1 - doubt
        return np.asarray(np.log(doubt, out=doubt))
    rank = _rank(form, size, ends)
    return rank**2 - 1 if form == "square" else rank


def _rank(form: str, size: int, ends: NDArray[np.integer]) -> Array:
    rank: Array = ((2 * size - ends if form == "falling" else ends) / size - 1) * HALF_RANGE
    if form in ("falling", "rising"):
        rank -= HALF_RANGE
    return rank


class Heap(NamedTuple):
    """Examples of a pool with one confidence of 1."""

    top: float  # their confidence
    share: float  # of the pool
    doubt: float  # 1 - c that they are taken for

    def inside(self, confidence: Array) -> Array:
        """Return the signal of confidences (n,), 0 on average over the pool."""
        return np.asarray((confidence >= self.top) - self.share, dtype=np.float64)


def heap_of(confidence: Array) -> Heap | None:
    """Return the heap of a pool's confidences (N,); None if there is none, nothing else, or others as certain."""
    top = float(confidence.max())
    if top < 1 - LEAST_DOUBT:
        return None
    inside = confidence == top
    share = float(inside.mean())
    if not HEAP_SHARE <= share < 1:
        return None
    following = max(1 - float(np.max(confidence, where=~inside, initial=0.0)), LEAST_DOUBT)
    odds = following / max(1 - following, LEAST_DOUBT) * np.exp(-HEAP_STEP)
    doubt = odds / (1 + odds)
    return Heap(top, share, doubt) if doubt > LEAST_DOUBT else None


def _doubt(confidence: Array, heap: Heap | None) -> Array:
    doubt = 1 - confidence
    return np.clip(doubt, LEAST_DOUBT if heap is None else heap.doubt, MOST_DOUBT, out=doubt)


def _classes(view: View) -> tuple[Array | None, NDArray[np.integer] | None]:
    """Return the classes that are predicted, (C,), and each example's, (N,); None where values are predicted."""
    if "prediction" not in view.fields:
        return None, None
    prediction = view.stored_column("prediction")
    parts = [prediction[rows] for rows in blocks(view.size)]
    if prediction.dtype.kind == "f" and any((own != np.rint(own)).any() for own in parts):
        return None, None
    low = float(prediction.min())
    if float(prediction.max()) - low >= _LOW:
        names: Array = np.unique(np.concatenate([np.unique(own) for own in parts])).astype(np.float64)
        kind = np.min_scalar_type(len(names))
        return names, np.concatenate([np.searchsorted(names, own).astype(kind) for own in parts])
    codes, there = np.concatenate([(own - low).astype(np.uint16) for own in parts]), np.zeros(_LOW, bool)
    there[codes] = True
    names = np.asarray(np.flatnonzero(there) + low, dtype=np.float64)
    return names, (np.cumsum(there) - 1).astype(np.min_scalar_type(len(names)))[codes]


def spread_ranks(values: Array) -> Array:
    """Return the ranks of ``values`` (N,) with mean 0 and standard deviation 1; equal values share theirs."""
    return (_ends_of(values) / len(values) - 1) * HALF_RANGE


def _ends_of(values: Array) -> NDArray[np.unsignedinteger]:
    """Return twice the middle rank of each value, (N,): how many are lower, plus how many are lower or the same."""
    kind = np.min_scalar_type(2 * len(values))
    order, is_first = _runs(values)
    first = np.flatnonzero(is_first).astype(kind)
    num = np.diff(first, append=np.array([len(values)], kind))
    first *= 2
    first += num
    ends = np.empty(len(values), kind)
    ends[order] = np.repeat(first, num)
    return ends


def _runs(values: Array) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    """Return an order of ``values`` (N,), and whether each in it is the first of a run of equal ones.

    They are sorted by their bits, which are in the order of the numbers, without those that all have in common at the
    ends: exactly if the others fit, as those of single-precision numbers do, else with a second look at close ones.
    """
    keys = (values + 0.0).view(np.int64)  # no negative zero
    if (keys < 0).any():
        keys ^= (keys >> 63) & np.iinfo(np.int64).max
    bits = np.subtract(keys, keys.min(), out=keys).view(np.uint64)
    used = int(np.bitwise_or.reduce(bits))
    exact = (used & -used).bit_length() - 1 if used else 0
    bits >>= (shift := max(exact, int(bits.max()).bit_length() - key_bits(len(values))))
    order, is_first = sort_keys(keys), np.ones(len(values), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    if shift > exact:
        rows = np.flatnonzero(~is_first | ~np.append(is_first[1:], True))  # whose keys agree with others
        own = order[rows]
        if (np.diff(values[own]).astype(bool) & ~is_first[rows][1:]).any():
            own = order[rows] = own[np.lexsort((values[own], keys[rows]))]
        is_first[rows[1:]] |= values[own[1:]] != values[own[:-1]]
    return order, is_first


# -- principal directions of the hidden layer -------------------------------------------------------------------


class _Whole:
    """Whole numbers (N,), in 6 bytes each unless some are above 2^47."""

    def __init__(self, size: int) -> None:
        self.high: NDArray[np.integer] = np.empty(size, np.int32)
        self.low = np.empty(size, np.uint16)

    def put(self, rows: slice, values: NDArray[np.int64]) -> None:
        """Write ``values`` to ``rows``."""
        high = values >> 16
        if len(high) and max(high.max(), -high.min()) >= 2**31:
            self.high = self.high.astype(np.int64, copy=False)
        self.high[rows], self.low[rows] = high, values.astype(np.uint16)  # the last 16 bits

    def read(self, rows: slice = slice(None)) -> Array:
        """Return the numbers of ``rows``, exactly."""
        found: Array = np.multiply(self.high[rows], _LOW, dtype=np.float64)
        found += self.low[rows]
        return found


class Projection(NamedTuple):
    """A pool along the principal directions of its layer."""

    packed: tuple[Array | Compact, ...]  # d of (N,), each of mean 0 and variance 1 over the pool
    mean: Array  # (d,) of the whole numbers
    deviation: Array  # (d,)


def find_projection(view: View, num: int) -> Projection:
    """Return the pool along the first ``num`` principal directions of its hidden layer, found once per view.

    Neurons count in proportion to their range. Directions without variance are left out. Raises DataError if a value is
    not finite.
    """
    return view.once("projection", num, lambda: _standardised(_whole_numbers(view, num)))


def project_others(view: View, num: int, other: Pool) -> Array:
    """Return the coordinates (k, d) of other examples; raises DataError if their layer differs, or is not finite."""
    projection, axes = find_projection(view, num), axes_of(view, num)
    low, high = part_bounds(other, "hidden")
    if len(low) != len(axes.whole):
        raise DataError(
            f"hidden has {len(low)} neurons, and the pool's {len(axes.whole)}; extract both from the same layer"
        )
    _check_finite(low, high)
    return (part_project(other, axes) - projection.mean) / projection.deviation


def _whole_numbers(view: View, num: int) -> list[_Whole]:
    """Return the whole numbers, d of (N,), which are kept in the memory of the view if it has one."""
    name = f"directions-{num}"
    if view.memory:
        recalled, read = list[_Whole](), 0
        for block in view.memory.recall(name, view.starts):
            recalled = recalled or [_Whole(view.size) for _ in block.T]
            read = _fill(recalled, slice(read, read + len(block)), block)
        if read == view.size:
            return recalled
        del recalled
    axes = axes_of(view, num)
    found = [_Whole(view.size) for _ in axes.whole.T]
    for rows, block in view.stream(part_project, axes):
        _fill(found, rows, block)
    if view.memory:
        parts = (_block(found, start, stop) for start, stop in pairwise(view.starts))
        view.memory.keep(name, view.size, parts)
    return found


def _fill(columns: list[_Whole], rows: slice, block: NDArray[Any]) -> int:
    """Write a ``block`` (n, d) to ``rows`` of d columns (N,), and return where they end."""
    for own, values in zip(columns, block.T.astype(np.int64, order="C"), strict=True):
        own.put(rows, values)
    return int(rows.stop)


def _block(columns: list[_Whole], start: int, stop: int) -> NDArray[np.int64]:
    found = np.empty((stop - start, len(columns)), np.int64)
    for k, own in enumerate(columns):
        found[:, k] = own.read(slice(start, stop))
    return found


def _standardised(columns: list[_Whole]) -> Projection:
    """Return the coordinates of whole numbers (N,), each of which is dropped from the list as it is packed."""
    packed, means, deviations = list[Array | Compact](), list[float](), list[float]()
    while columns:
        own = columns.pop(0)
        size = len(own.low)
        mean = sum(float(own.read(rows).sum()) for rows in blocks(size)) / size
        deviation = (sum(float(np.square(own.read(rows) - mean).sum()) for rows in blocks(size)) / size) ** 0.5
        packed.append(compacted(Compact((own.high, own.low), partial(_coordinate, mean, deviation))))
        means.append(mean)
        deviations.append(deviation)
    return Projection(tuple(packed), np.array(means), np.array(deviations))


def _coordinate(mean: float, deviation: float, high: NDArray[np.integer], low: NDArray[np.uint16]) -> Array:
    found: Array = np.multiply(high, _LOW, dtype=np.float64)
    found += low
    found -= mean
    found /= deviation
    return found
