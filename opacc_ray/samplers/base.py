"""What every sampler is given and gives back."""

from collections.abc import Callable
from dataclasses import field
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs import Design
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.view import View

Report = Callable[[int, int | None], None]
"""Called with the number of examples chosen so far and in all; None in all where the method stops by itself."""


def parameter(default: Any, meaning: str) -> Any:
    """A field of a method's Parameters; its meaning goes to docs/methods.md, `opacc methods` and specs' templates."""
    return field(default=default, metadata={"help": meaning})


class MethodParameters:
    """Base of every method's Parameters."""

    @property
    def stops_itself(self) -> bool:
        """Whether the method ends without a budget."""
        return False

    @property
    def optional_features(self) -> tuple[str, ...]:
        """Features it reads where they are there, beside those it needs."""
        return ()

    @property
    def predicts_failures(self) -> bool:
        """Whether its estimate uses predictions of its own, so that no other one can assist it."""
        return False

    @property
    def learns_from_history(self) -> bool:
        """Whether it draws on what was known before the first label."""
        return False

    @property
    def serves_several(self) -> bool:
        """Whether it can choose for several models at once."""
        return False

    @property
    def instead(self) -> dict[str, str]:
        """What to do if a feature is missing, for each that the method can do without."""
        return {}


class Previous(NamedTuple):
    """Examples labelled in earlier rounds."""

    chosen: NDArray[np.int64]  # (k,) sorted
    outcome: NDArray[np.float64]  # (k,)

    @classmethod
    def of(cls, index: NDArray[np.int64], outcome: NDArray[np.float64]) -> Self:
        """Labels in any order, (n,) each; an example that has several counts with the first."""
        index, first = np.unique(index, return_index=True)
        return cls(index, outcome[first])


NO_PREVIOUS = Previous(np.empty(0, dtype=np.int64), np.empty(0))


def unreported(done: int, total: int | None) -> None:
    """Do nothing."""


class OtherModel(NamedTuple):
    """A further model on the same pool, which the same labels are to serve."""

    view: View
    outcome: NDArray[np.float64]  # (k,) on the examples that were labelled in earlier rounds
    history: History = NO_HISTORY


class Task(NamedTuple):
    """What is asked of a sampler: ``budget`` new labels, after ``previous`` ones."""

    budget: int | None  # None only if the parameters say that the method stops by itself
    parameters: Any  # the sampler's own Parameters
    previous: Previous
    progress: Report = unreported
    history: History = NO_HISTORY
    others: tuple[OtherModel, ...] = ()  # beside the one that the view shows


class Draw(NamedTuple):
    """A sample with the design that drew it."""

    chosen: NDArray[np.int64]  # (n,) in order of choice
    design: Design
    facts: dict[str, Any]  # stated of the draw, for people; JSON types


class Sampler(Protocol):
    """The names a sampler's module offers."""

    @property
    def Parameters(self) -> type[MethodParameters]:
        """Frozen dataclass of the method's parameters; its ``__post_init__`` validates them."""

    def needs(self, parameters: Any) -> tuple[str, ...]:
        """Names of the pool's features the method reads."""

    def draw(self, view: View, task: Task, rng: np.random.Generator) -> Draw:
        """Choose. Pure: the same view, task and state of the generator give the same sample."""
