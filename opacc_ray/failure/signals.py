"""What is known of every example before it is labelled, as a few numbers on comparable scales.

    confidence   logit(1 - c), c kept within [1e-3, 1 - 1e-5]
    rank         rank of 1 - c, 0 for the most doubtful and -3.5 for the least (standard deviation 1)
    surprise     ranks of DSA and of LSA likewise, 0 for the most surprising
    prediction   the predicted class; for a predicted value, its rank and the square of it
    direction    the first few principal directions of the hidden layer, standard deviation 1

Ranks, because surprise has no natural unit and tails without end, and because softmax saturates: of two examples that
get 0.9999 and 0.9998 one may fail ten times as often, which the logit hardly tells and the rank does. They end at 0, so
that the coefficient of a rank says how fast failures thin out below the most suspicious example, and not how often that
one fails.

Legend: N pool, d signals, C classes.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from opacc_ray.failure import auxiliary
from opacc_ray.failure.directions import project
from opacc_ray.parts.view import View

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


def read_signals(view: View, num_directions: int) -> Signals:
    """All signals that the pool's features give; read once per view, for the rounds to come."""
    return view.once("signals", num_directions, lambda: _read(view, num_directions))


def _read(view: View, num_directions: int) -> Signals:
    columns: list[tuple[str, NDArray[np.float64]]] = []
    share = _SHARE_WITHOUT_CONFIDENCE
    if "confidence" in view.fields:
        doubt = np.clip(1 - auxiliary.read(view, "confidence"), LEAST_DOUBT, MOST_DOUBT)
        share = float(doubt.mean())
        columns.append(("confidence", logit(doubt)))
        columns.append(("rank", spread_ranks(-view.column("confidence")) - HALF_RANGE))
    columns += [
        ("surprise", spread_ranks(auxiliary.read(view, name)) - HALF_RANGE)
        for name in ("dsa", "lsa")
        if name in view.fields
    ]
    classes, num_classes = None, 0
    if "prediction" in view.fields:
        prediction = view.column("prediction")
        if (prediction == np.rint(prediction)).all():
            names, classes = np.unique(prediction, return_inverse=True)
            num_classes = len(names)
        else:
            rank = spread_ranks(prediction)
            columns += [("prediction", rank), ("prediction", rank**2 - 1)]
    if "hidden" in view.fields and num_directions:
        columns += [("direction", column) for column in project(view, num_directions).T]
    values = np.column_stack([column for _, column in columns]) if columns else np.empty((view.size, 0))
    kinds = tuple(kind for kind, _ in columns)
    return Signals(values, kinds, classes, num_classes, float(logit(share)))


def spread_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of ``values`` (N,) with mean 0 and standard deviation 1; equal values share theirs."""
    _, place, num = np.unique(values, return_inverse=True, return_counts=True)
    middle = np.cumsum(num) - num / 2
    return (2 * middle / len(values) - 1)[place] * HALF_RANGE
