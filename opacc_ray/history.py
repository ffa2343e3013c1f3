"""History: what is known before the first label. Labels of other examples, and columns that may predict failures.

``labelled`` are examples outside this pool, with their features and outcomes: the model's labelled test set, or an
earlier audit of the same model. ``prior`` are numbers for each example of the pool, larger for those more likely to
fail: how many other models got the example wrong, a monitor's alarm. ``judges`` are scores of the answers, as of
:mod:`opacc_ray.judges`. None of it is trusted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.pool import Pool

NO_PAIRS = "history: labelled is not a list of pairs; give (pool, outcomes) for each labelled pool"


@dataclass(frozen=True, eq=False)
class History:
    """Knowledge that `neyman` may start from; the estimate is unbiased for any history.

    Signals from a history are cached with the view of a pool, so a history does not change: outcomes and ``prior`` are
    copied, and the copies are read-only. The labelled pools are not copied; do not change their arrays.

    Parameters
    ----------
    labelled : pairs of a pool of labelled examples, with the features that the audited pool has, and their outcomes
        (k,) in [0, 1]
    prior : (N,) or (N, columns) for the audited pool, larger for the examples more likely to fail
    judges : name -> (N,) scores of the answers of the audited pool, as ``Pool(judges=…)``, to which they are added

    Raises
    ------
    DataError
        If outcomes do not fit their pool or are not in [0, 1], or a column of ``prior`` is not finite.
    """

    labelled: Sequence[tuple[Pool, ArrayLike]] = ()
    prior: ArrayLike | None = None
    judges: Mapping[str, ArrayLike] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.labelled, Iterable):
            raise DataError(NO_PAIRS)
        object.__setattr__(self, "labelled", tuple(_labelled(pair) for pair in self.labelled))
        if self.prior is not None:
            prior = _array(self.prior, "prior", np.float64)
            if not np.isfinite(prior).all():
                raise DataError("history: a value of prior is not finite; give a number for every example of the pool")
            object.__setattr__(self, "prior", prior)
        kept = {name: _array(own, f"judge {name!r}", np.float64) for name, own in self.judges.items()}
        object.__setattr__(self, "judges", kept)

    def scores(self) -> dict[str, NDArray[np.float64]]:
        """Return the scores (N,) of each judge."""
        return {name: np.asarray(own, dtype=np.float64) for name, own in self.judges.items()}

    def take(self, index: NDArray[np.int64]) -> "History":
        """Return the same knowledge of the examples ``index`` (k,) of the pool."""
        prior = None if self.prior is None else np.asarray(self.prior)[index]
        return replace(self, prior=prior, judges={name: own[index] for name, own in self.scores().items()})

    def failures(self) -> list[tuple[Pool, NDArray[np.float64]]]:
        """Return the labelled pools with 1 - outcome, (k,) each."""
        return [(pool, 1 - np.asarray(outcome, dtype=np.float64)) for pool, outcome in self.labelled]

    def columns(self, size: int) -> NDArray[np.float64]:
        """Return ``prior`` as (N, columns); raises DataError unless it has ``size`` rows."""
        if self.prior is None:
            return np.empty((size, 0))
        values: NDArray[Any] = np.asarray(self.prior, dtype=np.float64)
        values = values[:, None] if values.ndim == 1 else values
        if values.ndim != 2 or len(values) != size:
            raise DataError(
                f"history: prior has shape {values.shape}, and the pool has {size} examples; give one row for each"
            )
        return values


def _labelled(pair: Any) -> tuple[Pool, NDArray[Any]]:
    """Return a pool and its outcomes (k,), a read-only copy."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(NO_PAIRS)
    pool, values = pair[0], _array(pair[1], "outcomes")
    if not isinstance(pool, Pool):
        raise DataError(f"history: a labelled pool is of type {type(pool).__name__}; give opacc.Pool(confidence=...)")
    if values.shape != (pool.size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"history: outcomes of shape {values.shape} and type {values.dtype} for {pool.size} labelled "
            "examples; give one number per example"
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("history: an outcome is not in [0, 1]: 1 is correct, 0 a misprediction")
    return pool, values


def _array(given: ArrayLike, name: str, kind: type | None = None) -> NDArray[Any]:
    """Return a read-only copy, or the array itself if it is one already."""
    try:
        array = np.asarray(given, dtype=kind)
    except (TypeError, ValueError) as error:  # text, or rows that differ in length
        raise DataError(f"history: {name} is not made of numbers ({error}); give one number per example") from None
    if array.flags.writeable or not array.flags.owndata:
        array = array.copy()
        array.setflags(write=False)
    return array


NO_HISTORY = History()


def histories_of(history: History | Sequence[History] | None, num: int) -> list[History]:
    """Return one history for each of ``num`` models; raises SpecError if the type or the number is wrong."""
    if history is None:
        return [NO_HISTORY] * num
    if isinstance(history, History):
        return [history] * num
    given = list(history) if isinstance(history, Sequence) else [history]
    strange = next((own for own in given if not isinstance(own, History)), None)
    if strange is not None:
        raise SpecError(
            f"a history has the type {type(strange).__name__}; give opacc.History(labelled=[(pool, outcomes)])"
        )
    if len(given) != num:
        raise SpecError(f"{len(given)} histories for {num} models: give one for all, or one for each")
    return given
