"""Signals: what is known of every example before it is labelled, as a few numbers on comparable scales.

    confidence   logit(1 - c), c kept within [1e-3, 1 - 1e-5]
    rank         rank of 1 - c, 0 for the most doubtful and -3.5 for the least (standard deviation 1)
    surprise     ranks of DSA and of LSA likewise, 0 for the most surprising
    prediction   the predicted class; for a predicted value, its rank and the square of it
    direction    the first few principal directions of the hidden layer, standard deviation 1
    prior        ranks of the user's own columns likewise, 0 for the example most likely to fail
    history      logit of p by a history's labels (:func:`opacc_ray.samplers.neyman.failure_model.read_signals`)

Ranks, because surprise has no natural unit and long tails, and because softmax saturates: of two examples that get
0.9999 and 0.9998 one may fail ten times as often, which the logit hardly shows and the rank does. They end at 0, so
that the coefficient of a rank is how fast failures thin out below the most suspicious example, and not how often that
one fails.

Legend: N pool, n examples, k examples of a history, d signals, C classes.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers.neyman.directions import find_projection, project_others

Array = NDArray[np.float64]

LEAST_DOUBT, MOST_DOUBT = 1e-5, 1 - 1e-3
_SHARE_WITHOUT_CONFIDENCE = 0.1
HALF_RANGE = float(np.sqrt(3.0))
"""Half the range of ranks with standard deviation 1."""

GIVEN = frozenset({"prior", "history"})
"""Kinds that are made of no feature: they are known of the pool alone."""

_FORMS = {
    "confidence": (("confidence", "doubt"), ("rank", "falling")),
    "dsa": (("surprise", "rising"),),
    "lsa": (("surprise", "rising"),),
    "prediction": (("prediction", "middle"), ("prediction", "square")),
}
"""The kinds of signal that are made of a column, and how."""

_BLOCK = 1 << 20


class Signals(NamedTuple):
    """The signals of some examples, or of a whole pool."""

    kinds: tuple[str, ...]  # (d,) the names above
    values: tuple[Array, ...]  # d of (n,)
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

    def add(self, kind: str, values: Array) -> "Signals":
        """Return these signals with one more."""
        return self._replace(kinds=(*self.kinds, kind), values=(*self.values, values))


def pool_signals(view: View, num_directions: int) -> Signals:
    """Return the signals that the features of a pool give, made once per view.

    Raises
    ------
    DataError
        A feature is not finite or cannot be.
    """
    return view.once("pool signals", num_directions, lambda: _make(view, num_directions))


def _make(view: View, num_directions: int) -> Signals:
    from scipy.special import logit

    names, classes = _classes(view)
    kinds, values, share = list[str](), list[Array](), _SHARE_WITHOUT_CONFIDENCE
    for field in _columns(view, names):
        column = _read(view, field)
        ends = _ends_of(column)
        for kind, form in _FORMS[field]:
            kinds.append(kind)
            values.append(_signal(form, column, ends, view.size))
        if field == "confidence":
            share = float(np.clip(1 - column, LEAST_DOUBT, MOST_DOUBT).mean())
    if "hidden" in view.fields and num_directions:
        coordinates = find_projection(view, num_directions).coordinates
        kinds += ["direction"] * len(coordinates)
        values += coordinates
    return Signals(tuple(kinds), tuple(values), classes, names, float(logit(share)), view.size)


def signals_of_others(view: View, own: Signals, num_directions: int, other: Pool) -> Signals:
    """Return the signals of other examples (k,), on the scales of the pool, whose signals are ``own``.

    A rank is the place that the value would have in the pool. A signal that ``other`` lacks is the pool's mean of it; a
    class that the pool does not have is -1.

    Raises
    ------
    DataError
        A number of ``other`` is not finite or cannot be, or its hidden layer is another one.
    """
    try:
        found = list(_others(view, own, num_directions, other))
    except DataError as error:
        raise DataError(f"history: of the labelled examples, {error}") from None
    found += [None] * (len(own.values) - len(found))  # those that are GIVEN, which are the last
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
            yield from [None] * len(_FORMS[field])
            continue
        column, ordered = _read(view_of(other), field), np.sort(_read(view, field))
        ends = np.searchsorted(ordered, column, side="left") + np.searchsorted(ordered, column, side="right")
        for _, form in _FORMS[field]:
            yield _signal(form, column, ends, view.size)
    num = own.kinds.count("direction")
    if num:
        yield from [None] * num if other.hidden is None else project_others(view, num_directions, other).T


def _columns(view: View, names: Array | None) -> list[str]:
    """Return the columns that signals are made of; a predicted class, one of ``names``, is no number."""
    return [field for field in _FORMS if field in view.fields and not (field == "prediction" and names is not None)]


def _read(view: View, field: str) -> Array:
    return view.column(field)


def _signal(form: str, values: Array, ends: NDArray[np.integer], size: int) -> Array:
    """Return a signal of ``values`` (n,) whose ends among ``size`` are ``ends`` (n,)."""
    if form == "doubt":
        return _logit_of_doubt(values)
    rank: Array = ((2 * size - ends if form == "falling" else ends) / size - 1) * HALF_RANGE
    if form == "middle":
        return rank
    if form == "square":
        return rank**2 - 1
    rank -= HALF_RANGE
    return rank


def _classes(view: View) -> tuple[Array | None, NDArray[np.integer] | None]:
    """Return the classes that are predicted, (C,), and each example's, (N,); None where values are predicted."""
    if "prediction" not in view.fields:
        return None, None
    prediction = view.column("prediction")
    blocks = np.split(prediction, range(_BLOCK, view.size, _BLOCK))
    if any((own != np.rint(own)).any() for own in blocks):
        return None, None
    names = np.unique(np.concatenate([np.unique(own) for own in blocks]))
    kind = np.min_scalar_type(len(names))
    return names, np.concatenate([np.searchsorted(names, own).astype(kind) for own in blocks])


def spread_ranks(values: Array) -> Array:
    """Return the ranks of ``values`` (N,) with mean 0 and standard deviation 1; equal values share theirs."""
    return (_ends_of(values) / len(values) - 1) * HALF_RANGE


def _ends_of(values: Array) -> NDArray[np.unsignedinteger]:
    """Return twice the middle rank of each value, (N,): how many are lower, plus how many are lower or the same."""
    order = np.argsort(values)
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))  # of each run of equal values
    num = np.diff(first, append=len(values))
    ends = np.empty(len(values), np.min_scalar_type(2 * len(values)))
    ends[order] = np.repeat(2 * first + num, num)
    return ends


def _logit_of_doubt(confidence: Array) -> Array:
    from scipy.special import logit

    found: Array = logit(np.clip(1 - confidence, LEAST_DOUBT, MOST_DOUBT))
    return found
