"""What every sampler is given and gives back, and the small parts that several of them share."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.base import Estimate, Outcome
from opacc_ray.parts.view import View
from opacc_ray.selection import Selection


class MethodParameters:
    """Base of every method's Parameters."""

    @property
    def stops_itself(self) -> bool:
        """Whether the method ends without a budget."""
        return False

    @property
    def uses(self) -> tuple[str, ...]:
        """Features it reads where they are there, beside those it needs."""
        return ()

    @property
    def sequential(self) -> bool:
        """Whether the first k chosen are a sample of the same design with budget k."""
        return False

    @property
    def instead(self) -> dict[str, str]:
        """For each feature that the method can do without: what to do if it is missing."""
        return {}


class Previous(NamedTuple):
    """Examples labelled in earlier rounds."""

    chosen: NDArray[np.int64]  # (k,) sorted
    outcome: NDArray[np.float64]  # (k,)


class Task(NamedTuple):
    """What is asked of a sampler: ``budget`` new labels, after ``previous`` ones."""

    budget: int | None
    parameters: Any  # the sampler's own Parameters
    previous: Previous


class Draw(NamedTuple):
    """A finished sample with what its estimator needs."""

    chosen: NDArray[np.int64]  # (n,) in order of choice
    design: dict[str, NDArray[Any]]  # per chosen example, each (n,)
    facts: dict[str, Any]  # of the pool or the whole draw; JSON types


class Sampler(Protocol):
    """The names a sampler's module offers.

    ``init`` and ``step`` are pure: the generator is passed in, and a state holds arrays, numbers and strings.
    ``step`` is called until ``finished``; ``draw`` reads the sample off the last state.
    """

    @property
    def Parameters(self) -> type[MethodParameters]:
        """Frozen dataclass of the method's parameters; its ``__post_init__`` validates them."""

    def needs(self, parameters: Any) -> tuple[str, ...]:
        """Names of the pool's features the method reads."""

    def init(self, view: View, task: Task, rng: np.random.Generator) -> Any: ...

    def step(self, view: View, task: Task, state: Any, rng: np.random.Generator) -> tuple[Any, Any]: ...

    def finished(self, task: Task, state: Any) -> bool: ...

    def draw(self, state: Any) -> Draw: ...

    def estimate(self, selection: Selection, outcome: Outcome, level: float) -> Estimate:
        """Value and interval under the method's design."""


NO_PREVIOUS = Previous(np.empty(0, dtype=np.int64), np.empty(0))


def untaken(rank: NDArray[np.int64], taken: NDArray[np.int64]) -> NDArray[np.int64]:
    """The pool's index of the rank-th example that is not taken; any shape in, the same shape out.

    Needs memory for ``taken`` (sorted) only, so a pool of 10^9 costs nothing: below the r-th free example lie
    r free ones and as many taken ones as have fewer than r + 1 free ones before them.
    """
    free_before = taken - np.arange(len(taken))  # (k,), not decreasing
    return rank + np.searchsorted(free_before, rank, side="right")


def draw_uniform(rng: np.random.Generator, size: int, taken: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Simple random sample without replacement of ``num`` of the ``size`` examples, none of them taken."""
    rank = rng.choice(size - len(taken), size=num, replace=False, shuffle=True)
    return untaken(rank.astype(np.int64), taken)
