"""The signals of a pool, with what a history's labels teach as one more.

The failure model learns from the labels of other examples as it does from labels of the pool, and, as they are many,
what the signals mean in each predicted class; then it says p of every example of the pool. Its logit is a signal: two
experts take it for what it is, more or less, and the other experts know nothing of it. So labels here decide whether
the lesson holds, and a few correct its level and its slope.
"""

import numpy as np

from opacc_ray.failure.history import NO_HISTORY, History
from opacc_ray.failure.model import SLOPES, Mixture, learn
from opacc_ray.failure.signals import GIVEN, PoolSignals, Signals, make_signals, part_signals, signals_beside
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool


def read_signals(view: View, num_directions: int, history: History = NO_HISTORY) -> PoolSignals:
    """The signals, which the parts keep for rounds to come; made once per view.

    Raises
    ------
    DataError
        A feature of the pool or of the history is not finite or cannot be, or the hidden layers differ.
    """
    return view.once("signals", (num_directions, history), lambda: _read(view, num_directions, history))


def _read(view: View, num_directions: int, history: History) -> PoolSignals:
    own = make_signals(view, num_directions, history)
    if history.labelled:
        given = history.failures()
        seen = _together(own, [signals_beside(own, num_directions, pool) for pool, _ in given])
        failure = np.concatenate([failures for _, failures in given])
        view.map(part_teach, own.key, learn(seen, failure, own.present - GIVEN | {SLOPES}).mixture)
    return own


def _together(own: PoolSignals, seen: list[Signals]) -> Signals:
    classes = [np.empty(0, dtype=np.int64) if part.classes is None else part.classes for part in seen]
    return own.with_rows(np.concatenate([part.values for part in seen]), np.concatenate(classes))


def part_teach(part: Pool, key: str, mixture: Mixture) -> None:
    """Keep the lesson as the last signal of a part."""
    from scipy.special import logit

    own = part_signals(part, key)
    own.values[-1] = logit(mixture.failure(own))
