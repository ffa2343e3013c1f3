"""The types that every sampling method takes and returns."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.parts.view import View
from opacc_ray.pool import NO_HISTORY, History

Presets = Mapping[str, Mapping[str, Any]]
"""Name of a published setting -> its parameters."""

Report = Callable[[int, int | None], None]
"""Called with the number of examples chosen so far and the total; None for a method that stops by itself."""


def parameter(default: Any, meaning: str) -> Any:
    """Declare a field of a method's Parameters; ``meaning`` is shown in docs/methods.md and `opacc methods`."""
    return field(default=default, metadata={"help": meaning})


class MethodParameters:
    """Base class of the Parameters of a method; these properties state what the method can do."""

    supports_regression: bool = True
    """Whether outcomes may be scores of a regression; if not, a spec with ``model.task: regression`` is refused."""

    predicts_failures: bool = False
    """Whether its estimate uses its own predictions, so that it cannot be assisted by others."""

    learns_from_history: bool = False
    """Whether it uses a history: data known before the first label."""

    serves_several: bool = False
    """Whether it can choose examples for several models at once."""

    presets: ClassVar[Presets] = {}
    """Name -> parameters of a published setting, which `preset: NAME` sets."""

    @property
    def stops_itself(self) -> bool:
        """Whether the method stops without a budget."""
        return False

    @property
    def optional_features(self) -> tuple[str, ...]:
        """Features that it reads if the pool has them, in addition to those it needs."""
        return ()

    @property
    def instead(self) -> dict[str, str]:
        """How to run the method without a feature, by the name of the feature."""
        return {}


class Previous(NamedTuple):
    """Examples labelled in earlier rounds."""

    chosen: NDArray[np.int64]  # (k,) sorted
    outcome: NDArray[np.float64]  # (k,)

    @classmethod
    def of(cls, index: NDArray[np.int64], outcome: NDArray[np.float64]) -> Self:
        """Sort labels (n,); of several labels of an example the first counts."""
        index, first = np.unique(index, return_index=True)
        return cls(index, outcome[first])


NO_PREVIOUS = Previous(np.empty(0, dtype=np.int64), np.empty(0))


def unlabelled(values: NDArray[Any], taken: NDArray[np.int64]) -> NDArray[Any]:
    """Return ``values`` (N,) of the examples that are not ``taken`` (k,): (N - k,), or the same array if none is."""
    return np.delete(values, taken) if len(taken) else values


def unreported(done: int, total: int | None) -> None:
    """Do nothing."""


class OtherModel(NamedTuple):
    """Another model on the same pool, evaluated with the same labels."""

    view: View
    outcome: NDArray[np.float64]  # (k,) on the examples that were labelled in earlier rounds
    history: History = NO_HISTORY


class Task(NamedTuple):
    """A request to a sampler: ``budget`` new labels, after ``previous`` ones."""

    budget: Any  # int; None only for a method that stops by itself
    parameters: Any  # the sampler's own Parameters
    previous: Previous
    progress: Report = unreported
    history: History = NO_HISTORY
    others: tuple[OtherModel, ...] = ()  # in addition to the model of the view

    def free(self, size: int) -> NDArray[np.int64]:
        """Return the examples of a pool of ``size`` that earlier rounds have not labelled, sorted."""
        return np.delete(np.arange(size), self.previous.chosen)


class Draw(NamedTuple):
    """A sample with the design that drew it."""

    chosen: NDArray[np.int64]  # (n,) in order of choice
    design: Design
    facts: dict[str, Any]  # about the draw, shown to people; JSON types


class Sampler(Protocol):
    """The names that the module of a sampling method defines."""

    @property
    def Parameters(self) -> type[MethodParameters]:
        """Frozen dataclass of the method's parameters; its ``__post_init__`` validates them."""

    def needs(self, parameters: Any) -> tuple[str, ...]:
        """Return the names of the features that the method reads."""

    def draw(self, view: View, task: Task, rng: np.random.Generator) -> Draw:
        """Choose examples. Pure: the same view, task and state of the generator give the same sample."""
