"""History: what is known before the first label. Labels of other examples, and columns that may predict failures.

``labelled`` are examples outside this pool, with their features and outcomes: the model's labelled test set, or an
earlier audit of the same model. ``judges`` are columns of the pool that may predict failures, as of
:mod:`opacc_ray.judges`: what a language model says of the answers, or the share of other models that are right. None of
it is trusted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.judges import scores_of
from opacc_ray.pool import Pool

CALL = 'opacc.History(labelled=[{"pool": pool, "outcomes": outcomes}]), with 1 for right and 0 for wrong'


@dataclass(frozen=True, eq=False)
class History:
    """Knowledge that `neyman` may start from; the estimate is unbiased for any history.

    Signals from a history are cached with the view of a pool, so a history does not change: outcomes and ``judges`` are
    copied, and the copies are read-only. The labelled pools are not copied; do not change their arrays.

    Parameters
    ----------
    labelled : ``{"pool": pool, "outcomes": outcomes}`` for each pool of labelled examples. It has the features that the
        audited pool has, and outcomes (k,): 1 where its model is right, 0 where it is wrong, or a score in [0, 1]
    judges : name -> (N,) scores or verdicts for the audited pool, as ``Pool(judges=…)``, to which they are added

    Raises
    ------
    DataError
        If outcomes do not fit their pool or are not in [0, 1], or a judge says neither a score nor a verdict.
    """

    labelled: Sequence[Mapping[str, Any]] = ()
    judges: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.labelled, Iterable):
            raise DataError(f"history: labelled has the type {type(self.labelled).__name__}; give {CALL}")
        object.__setattr__(self, "labelled", tuple(map(_labelled, self.labelled)))
        object.__setattr__(self, "judges", {name: _scores(name, own) for name, own in self.judges.items()})

    def take(self, index: NDArray[np.int64]) -> "History":
        """Return the same knowledge of the examples ``index`` (k,) of the pool; judges of none of them are left out."""
        judges = {name: own[index] for name, own in self.judges.items()}
        return replace(self, judges={name: own for name, own in judges.items() if not np.isnan(own).all()})

    def failures(self) -> list[tuple[Pool, NDArray[np.float64]]]:
        """Return the labelled pools with 1 - outcome, (k,) each."""
        return [(own["pool"], 1 - np.asarray(own["outcomes"], dtype=np.float64)) for own in self.labelled]


def _labelled(item: Any) -> dict[str, Any]:
    """Return a pool and its outcomes (k,), a read-only copy; bare pairs could hold true classes of 0 and 1 instead."""
    if not isinstance(item, Mapping) or set(item) != {"pool", "outcomes"}:
        keys = ", ".join(map(str, item)) if isinstance(item, Mapping) else None
        found = f"the type {type(item).__name__}" if keys is None else f"the keys {keys}"
        raise DataError(f"history: an item of labelled has {found}; give {CALL}")
    pool = item["pool"]
    try:
        values = np.array(item["outcomes"])
    except ValueError as error:  # rows that differ in length
        raise DataError(f"history: outcomes is not made of numbers ({error}); give one number per example") from None
    values.setflags(write=False)
    if not isinstance(pool, Pool):
        raise DataError(f"history: a labelled pool is of type {type(pool).__name__}; give opacc.Pool(confidence=...)")
    if values.shape != (pool.size,) or values.dtype.kind not in "biuf":
        raise DataError(
            f"history: outcomes of shape {values.shape} and type {values.dtype} for {pool.size} labelled "
            "examples; give one number per example"
        )
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError("history: an outcome is not in [0, 1]: 1 is correct, 0 a misprediction")
    return {"pool": pool, "outcomes": values}


def _scores(name: str, given: Any) -> NDArray[np.float64]:
    """Return the scores (N,) of a judge, read-only."""
    values = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    scores = scores_of(name, values, None, values.size)
    scores.setflags(write=False)
    return scores


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
        raise SpecError(f"a history has the type {type(strange).__name__}; give {CALL}")
    if len(given) != num:
        raise SpecError(f"{len(given)} histories for {num} models: give one for all, or one for each")
    return given
