"""What is known of every example before it is labelled, as a few numbers on comparable scales.

    confidence   logit(1 - c), c kept within [1e-3, 1 - 1e-5]
    rank         rank of 1 - c, 0 for the most doubtful and -3.5 for the least (standard deviation 1)
    surprise     ranks of DSA and of LSA likewise, 0 for the most surprising
    prediction   the predicted class; for a predicted value, its rank and the square of it
    direction    the first few principal directions of the hidden layer, standard deviation 1
    prior        ranks of the user's own columns likewise, 0 for the example most likely to fail
    lesson       logit of p by what the history's labels teach (:mod:`opacc_ray.failure.lessons`)

Ranks, because surprise has no natural unit and tails without end, and because softmax saturates: of two examples that
get 0.9999 and 0.9998 one may fail ten times as often, which the logit hardly tells and the rank does. They end at 0, so
that the coefficient of a rank says how fast failures thin out below the most suspicious example, and not how often that
one fails.

The signals of a pool stay with its parts; the driver knows their names and scales (:class:`PoolSignals`).

Legend: N pool, n examples of a part, k examples in hand, d signals, C classes.
"""

import secrets
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.failure.directions import find_projection, part_coordinates
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.parts.cache import kept_name, part_keep, part_recall
from opacc_ray.parts.ranks import Column, count_ends, keep_ends
from opacc_ray.parts.sums import exact_sum, mean_of
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import auxiliary

LEAST_DOUBT, MOST_DOUBT = 1e-5, 1 - 1e-3
_SHARE_WITHOUT_CONFIDENCE = 0.1
HALF_RANGE = float(np.sqrt(3.0))
"""Half the range of ranks with standard deviation 1."""

GIVEN = frozenset({"prior", "lesson"})
"""Kinds, and their forms, that are made of no feature: they are known of the pool alone."""

_KEPT = "signals"


class Signals(NamedTuple):
    """The signals of examples in hand."""

    values: NDArray[np.float64]  # (k, d)
    kinds: tuple[str, ...]  # (d,) the names above
    classes: NDArray[np.int64] | None  # (k,) predicted class, from 0 to C - 1
    num_classes: int
    expected_logit: float  # of the share of failures, by the model's own word

    @property
    def size(self) -> int:
        return len(self.values)


class Raw(NamedTuple):
    """A feature of one number per example as it is."""

    name: str

    def read(self, part: Pool) -> NDArray[np.float64]:
        values: NDArray[np.float64] = getattr(part, self.name).astype(np.float64, copy=False)
        return values


class Signal(NamedTuple):
    """One signal: what it is made of, and how."""

    kind: str
    form: str  # "doubt", "direction", one that is GIVEN or one of _RANKED
    column: Column | None = None  # None where it is no feature of one number
    place: int = 0  # of a direction, or of a user's column

    @property
    def field(self) -> str:
        """The feature that it is made of."""
        if isinstance(self.column, auxiliary.Variable):
            return self.column.auxiliary
        return self.column.name if isinstance(self.column, Raw) else "hidden"


class PoolSignals(NamedTuple):
    """The signals of a pool, which its parts keep."""

    view: View
    key: str
    kept: tuple[Signal, ...]
    names: NDArray[np.float64] | None  # (C,) classes as they are predicted
    expected_logit: float

    @property
    def size(self) -> int:
        return self.view.size

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(signal.kind for signal in self.kept)

    @property
    def num_classes(self) -> int:
        return 0 if self.names is None else len(self.names)

    @property
    def present(self) -> frozenset[str]:
        """The kinds there are."""
        return frozenset(self.kinds) | (frozenset() if self.names is None else {"prediction"})

    def take(self, index: NDArray[np.int64]) -> Signals:
        """The signals of the examples ``index`` (k,)."""
        if not len(index):
            return self.with_rows(np.empty((0, len(self.kept))), np.empty(0, dtype=np.int64))
        rows = self.view.take(part_rows, index, self.key)  # (k, d + 1)
        return self.with_rows(rows[:, :-1], rows[:, -1].astype(np.int64))

    def with_rows(self, values: NDArray[np.float64], classes: NDArray[np.int64]) -> Signals:
        """Examples in hand, (k, d) and (k,), on these scales."""
        there = None if self.names is None else classes
        return Signals(values, self.kinds, there, self.num_classes, self.expected_logit)


class PartSignals(NamedTuple):
    """The signals of a part."""

    values: NDArray[np.float64]  # (d, n)
    classes: NDArray[np.integer] | None  # (n,) of a type that is as small as can be


def part_signals(part: Pool, key: str) -> PartSignals:
    """What the part keeps under the key of its pool's signals."""
    own: PartSignals = part_recall(part, kept_name(_KEPT, key), key)
    return own


def signals_beside(own: PoolSignals, num_directions: int, other: Pool) -> Signals:
    """The signals of other examples (k,), on the scales of the pool.

    A rank is the place that the value would have in the pool. A signal that ``other`` lacks is the pool's mean of it; a
    class that the pool does not have is -1.

    Raises
    ------
    DataError
        A number of ``other`` is not finite or cannot be, or its hidden layer is another one.
    """
    try:
        found = [_beside(own, place, num_directions, other) for place in range(len(own.kept))]
    except DataError as error:
        raise DataError(f"history: of the labelled examples, {error}") from None
    values = np.column_stack(found) if found else np.empty((other.size, 0))
    if own.names is None:
        return own.with_rows(values, np.empty(0, dtype=np.int64))
    said = np.full(other.size, np.nan) if other.prediction is None else other.prediction
    place = np.minimum(np.searchsorted(own.names, said), len(own.names) - 1)
    return own.with_rows(values, np.where(own.names[place] == said, place, -1))


def _beside(own: PoolSignals, place: int, num_directions: int, other: Pool) -> NDArray[np.float64]:
    signal, view = own.kept[place], own.view
    if signal.form in GIVEN or getattr(other, signal.field) is None:
        return np.full(other.size, mean_of(view.map(part_signal_sum, own.key, place), view.size))
    if signal.form == "direction":
        return find_projection(view, num_directions).of(other)[:, signal.place]
    assert signal.column is not None
    if isinstance(signal.column, auxiliary.Variable):
        auxiliary.find(view_of(other), signal.field)
    else:
        view_of(other).bounds(signal.field)
    values = signal.column.read(other)
    ends = count_ends(view, signal.column, values) if signal.form in _RANKED else np.empty(0, dtype=np.int64)
    return _form(signal.form, values, ends, view.size)


def make_signals(view: View, num_directions: int, history: History = NO_HISTORY) -> PoolSignals:
    """Let the parts make all signals that the pool's features and the history's ``prior`` give, for rounds to come.

    The lesson of a history is 0 until it is taught.
    """
    from scipy.special import logit

    key = f"{num_directions} {id(history)} {secrets.token_hex(8)}"
    names, num = _class_names(view), 0
    if "hidden" in view.fields and num_directions:
        num = find_projection(view, num_directions).num
    prior = _spread_columns(history.columns(view.size))  # (columns, N)
    signals = (
        *_find(view, num, names is None),
        *(Signal("prior", "prior", None, i) for i in range(len(prior))),
        *([Signal("lesson", "lesson")] if history.labelled else []),
    )
    for signal in signals:
        if signal.form in _RANKED and signal.form != "square":
            assert signal.column is not None
            keep_ends(view, f"ends of {signal.field}", key, signal.column)
    share = _SHARE_WITHOUT_CONFIDENCE
    if "confidence" in view.fields:
        share = mean_of(view.map(part_doubt, auxiliary.find(view, "confidence")), view.size)
    columns = [prior[:, start:stop] for start, stop in pairwise(view.starts)]
    projection = find_projection(view, num_directions).key if num else ""
    view.map_each(part_make, [(key, signals, names, view.size, projection, rows) for rows in columns])
    return PoolSignals(view, key, signals, names, float(logit(share)))


def _find(view: View, num_directions: int, is_value: bool) -> Iterator[Signal]:
    """The signals that are made of features; ``is_value`` tells a predicted value from a class."""
    if "confidence" in view.fields:
        confidence = auxiliary.find(view, "confidence")
        yield Signal("confidence", "doubt", confidence)
        yield Signal("rank", "falling", confidence)
    for name in ("dsa", "lsa"):
        if name in view.fields:
            yield Signal("surprise", "rising", auxiliary.find(view, name))
    if "prediction" in view.fields and is_value:
        yield Signal("prediction", "middle", Raw("prediction"))
        yield Signal("prediction", "square", Raw("prediction"))
    for place in range(num_directions):
        yield Signal("direction", "direction", None, place)


_RANKED = ("falling", "rising", "middle", "square")


def _form(form: str, values: NDArray[np.float64], ends: NDArray[np.integer], size: int) -> NDArray[np.float64]:
    """A signal of ``values`` (n,) whose ends among ``size`` are ``ends`` (n,)."""
    if form == "doubt":
        return _logit_of_doubt(values)
    rank = ((2 * size - ends if form == "falling" else ends) / size - 1) * HALF_RANGE
    if form == "middle":
        return rank
    return rank**2 - 1 if form == "square" else rank - HALF_RANGE


def _class_names(view: View) -> NDArray[np.float64] | None:
    """The classes that are predicted, (C,); None if there are none, or values are predicted."""
    if "prediction" not in view.fields:
        return None
    view.bounds("prediction")
    found = view.map(part_classes)
    return None if any(own is None for own in found) else np.unique(np.concatenate(found))


def _spread_columns(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """A user's columns (N, c) as ranks (c, N), 0 for the highest."""
    return np.array([spread_ranks(own) - HALF_RANGE for own in columns.T]).reshape(columns.shape[1], len(columns))


def part_make(
    part: Pool,
    key: str,
    signals: tuple[Signal, ...],
    names: NDArray[np.float64] | None,
    size: int,
    projection: str,
    prior: NDArray[np.float64],
) -> None:
    """Make and keep a part's signals."""
    values = np.empty((len(signals), part.size))
    for row, signal in zip(values, signals, strict=True):
        if signal.form == "direction":
            row[:] = part_coordinates(part, projection)[:, signal.place]
        elif signal.form in GIVEN:
            row[:] = prior[signal.place] if signal.form == "prior" else 0.0
        else:
            assert signal.column is not None
            ranked = signal.form in _RANKED
            ends = part_recall(part, f"ends of {signal.field}", key) if ranked else np.empty(0, dtype=np.int64)
            row[:] = _form(signal.form, signal.column.read(part), ends, size)
    for name in [name for name in part.kept if name.startswith("ends of ")]:
        del part.kept[name]
    classes = None
    if names is not None and part.prediction is not None:
        classes = np.searchsorted(names, part.prediction).astype(np.min_scalar_type(len(names)))
    part_keep(part, kept_name(_KEPT, key), key, PartSignals(values, classes))


def part_rows(part: Pool, rows: NDArray[np.int64], key: str) -> NDArray[np.float64]:
    """Signals and class of some rows: (k, d + 1)."""
    own = part_signals(part, key)
    classes = np.zeros(len(rows)) if own.classes is None else own.classes[rows]
    return np.column_stack([own.values[:, rows].T, classes])


def part_signal_sum(part: Pool, key: str, place: int) -> int:
    return exact_sum(part_signals(part, key).values[place])


def part_doubt(part: Pool, confidence: auxiliary.Variable) -> int:
    """The exact sum of what the model itself expects to fail."""
    return exact_sum(np.clip(1 - confidence.read(part), LEAST_DOUBT, MOST_DOUBT))


def part_classes(part: Pool) -> NDArray[np.float64] | None:
    """The predictions of a part, each once, if all are whole."""
    prediction: Any = part.prediction
    whole = bool((prediction == np.rint(prediction)).all())
    return np.unique(prediction.astype(np.float64)) if whole else None


def _logit_of_doubt(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.special import logit

    found: NDArray[np.float64] = logit(np.clip(1 - confidence, LEAST_DOUBT, MOST_DOUBT))
    return found


def spread_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of ``values`` (N,) with mean 0 and standard deviation 1; equal values share theirs."""
    _, place, num = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(num) - num / 2
    return (2 * middle / len(values) - 1)[place] * HALF_RANGE
