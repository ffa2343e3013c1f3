"""What a history teaches, ready for a pool: see :func:`opacc_ray.failure.model.learn`."""

import numpy as np

from opacc_ray.failure.history import History
from opacc_ray.failure.model import Lesson, learn
from opacc_ray.failure.signals import Signals, read_signals, signals_beside
from opacc_ray.parts.view import View

SHARES = (1.0, 0.1)
"""How much of a label here a label of the history may count for."""

PRIOR = 4.0
"""Of all lessons together; that of the experts without one sums to 1 as well."""


def read_lessons(view: View, num_directions: int, history: History) -> list[Lesson]:
    """The lessons of the history's labelled examples; learned once per view, none without a history."""
    if not history.labelled:
        return []
    return view.once("lessons", (num_directions, history), lambda: _learn(view, num_directions, history))


def _learn(view: View, num_directions: int, history: History) -> list[Lesson]:
    given = history.failures()
    seen = [signals_beside(view, num_directions, history, pool) for pool, _ in given]
    together = seen[0]._replace(
        values=np.concatenate([part.values for part in seen]),
        classes=None if seen[0].classes is None else np.concatenate([_classes(part) for part in seen]),
    )
    failure = np.concatenate([failures for _, failures in given])
    return learn(read_signals(view, num_directions, history), together, failure, SHARES, PRIOR)


def _classes(part: Signals) -> np.ndarray:
    assert part.classes is not None
    return part.classes
