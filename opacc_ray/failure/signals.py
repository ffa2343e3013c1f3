"""What is known of every example before it is labelled, as a few numbers on comparable scales.

    confidence   logit(1 - c), c kept within [1e-3, 1 - 1e-5]
    rank         rank of 1 - c, 0 for the most doubtful and -3.5 for the least (standard deviation 1)
    surprise     ranks of DSA and of LSA likewise, 0 for the most surprising
    prediction   the predicted class; for a predicted value, its rank and the square of it
    direction    the first few principal directions of the hidden layer, standard deviation 1
    prior        ranks of the user's own columns likewise, 0 for the example most likely to fail

Ranks, because surprise has no natural unit and tails without end, and because softmax saturates: of two examples that
get 0.9999 and 0.9998 one may fail ten times as often, which the logit hardly tells and the rank does. They end at 0, so
that the coefficient of a rank says how fast failures thin out below the most suspicious example, and not how often that
one fails.

Legend: N pool, d signals, C classes.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from opacc_ray.failure import auxiliary
from opacc_ray.failure.directions import Projection, find_projection
from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool

LEAST_DOUBT, MOST_DOUBT = 1e-5, 1 - 1e-3
_SHARE_WITHOUT_CONFIDENCE = 0.1
HALF_RANGE = float(np.sqrt(3.0))
"""Of ranks with standard deviation 1."""


class Signals(NamedTuple):
    values: NDArray[np.float64]  # (N, d)
    kinds: tuple[str, ...]  # (d,) confidence, rank, surprise, prediction or direction
    classes: NDArray[np.int64] | None  # (N,) predicted class, from 0 to C - 1
    num_classes: int
    expected_logit: float  # of the share of failures, by the model's own word

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def present(self) -> frozenset[str]:
        """The kinds there are."""
        return frozenset(self.kinds) | ({"prediction"} if self.classes is not None else set())

    def take(self, rows: NDArray[np.int64]) -> "Signals":
        """The same for some examples."""
        return self._replace(values=self.values[rows], classes=None if self.classes is None else self.classes[rows])


class Column(NamedTuple):
    """One signal."""

    kind: str
    values: NDArray[np.float64]  # (N,) of the pool
    of: Callable[[Pool], NDArray[np.float64] | None]  # other examples on the pool's scale: (k,); None if they lack it


def read_signals(view: View, num_directions: int, history: History = NO_HISTORY) -> Signals:
    """All signals that the pool's features and the history's ``prior`` give; read once per view, for rounds to come."""
    return view.once("signals", (num_directions, history), lambda: _read(view, num_directions, history))


def signals_beside(view: View, num_directions: int, history: History, other: Pool) -> Signals:
    """The signals of other examples (k,), on the scales of the view's pool.

    A rank is the place that the value would have in the pool. A signal that ``other`` lacks is the pool's mean of it; a
    class that the pool does not have is -1.
    """
    own, columns = read_signals(view, num_directions, history), _columns(view, num_directions, history)
    found = [np.full(other.size, column.values.mean()) if (x := column.of(other)) is None else x for column in columns]
    values = np.column_stack(found) if found else np.empty((other.size, 0))
    if own.classes is None:
        return own._replace(values=values)
    names = np.unique(view.column("prediction"))
    said = np.full(other.size, np.nan) if other.prediction is None else other.prediction
    place = np.minimum(np.searchsorted(names, said), len(names) - 1)
    return own._replace(values=values, classes=np.where(names[place] == said, place, -1))


def _read(view: View, num_directions: int, history: History) -> Signals:
    columns = _columns(view, num_directions, history)
    share = _SHARE_WITHOUT_CONFIDENCE
    if "confidence" in view.fields:
        share = float(np.clip(1 - auxiliary.read(view, "confidence"), LEAST_DOUBT, MOST_DOUBT).mean())
    classes, num_classes = None, 0
    if _has_classes(view):
        names, classes = np.unique(view.column("prediction"), return_inverse=True)
        num_classes = len(names)
    values = np.column_stack([column.values for column in columns]) if columns else np.empty((view.size, 0))
    return Signals(values, tuple(column.kind for column in columns), classes, num_classes, float(logit(share)))


def _columns(view: View, num_directions: int, history: History) -> list[Column]:
    return view.once("columns", (num_directions, history), lambda: list(_find(view, num_directions, history)))


def _find(view: View, num_directions: int, history: History) -> Iterator[Column]:
    if "confidence" in view.fields:
        confidence = auxiliary.read(view, "confidence")
        yield _column("confidence", "confidence", _logit_of_doubt(confidence), _logit_of_doubt)
        yield _ranked("rank", "confidence", -confidence, sign=-1)
    for name in ("dsa", "lsa"):
        if name in view.fields:
            yield _ranked("surprise", name, auxiliary.read(view, name))
    if "prediction" in view.fields and not _has_classes(view):
        prediction = view.column("prediction")
        rank = spread_ranks(prediction)
        yield _column("prediction", "prediction", rank, lambda x: ranks_among(prediction, x))
        yield _column("prediction", "prediction", rank**2 - 1, lambda x: ranks_among(prediction, x) ** 2 - 1)
    if "hidden" in view.fields and num_directions:
        yield from _directions(find_projection(view, num_directions))
    for own in history.columns(view.size).T:
        yield Column("prior", spread_ranks(own) - HALF_RANGE, lambda other: None)


def _column(
    kind: str, field: str, values: NDArray[np.float64], scale: Callable[[NDArray[np.float64]], NDArray[np.float64]]
) -> Column:
    def of(other: Pool) -> NDArray[np.float64] | None:
        given = getattr(other, field)
        return None if given is None else scale(np.asarray(given, dtype=np.float64))

    return Column(kind, values, of)


def _ranked(kind: str, field: str, values: NDArray[np.float64], sign: int = 1) -> Column:
    """Ranks of ``values`` (N,), which are ``sign`` times the field's, 0 for the highest."""

    def beside(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return ranks_among(values, sign * x) - HALF_RANGE

    return _column(kind, field, spread_ranks(values) - HALF_RANGE, beside)


def _directions(projection: Projection) -> Iterator[Column]:
    for place, coordinates in enumerate(projection.pool.T):

        def of(other: Pool, place: int = place) -> NDArray[np.float64] | None:
            return None if other.hidden is None else projection.of(other)[:, place]

        yield Column("direction", coordinates, of)


def _has_classes(view: View) -> bool:
    if "prediction" not in view.fields:
        return False
    prediction = view.column("prediction")
    return bool((prediction == np.rint(prediction)).all())


def _logit_of_doubt(confidence: NDArray[np.float64]) -> NDArray[np.float64]:
    return logit(np.clip(1 - confidence, LEAST_DOUBT, MOST_DOUBT))


def spread_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of ``values`` (N,) with mean 0 and standard deviation 1; equal values share theirs."""
    _, place, num = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(num) - num / 2
    return (2 * middle / len(values) - 1)[place] * HALF_RANGE


def ranks_among(values: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ranks that ``x`` (k,) would have among ``values`` (N,), on the scale of :func:`spread_ranks`."""
    ordered = np.sort(values)
    ends = np.searchsorted(ordered, x, side="left") + np.searchsorted(ordered, x, side="right")
    return (ends / len(values) - 1) * HALF_RANGE
