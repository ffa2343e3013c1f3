"""What every design offers: how n labels represent the pool that they were drawn from.

A design estimates the mean of any variable x of the pool in one form, linear in x:

    x̂ = Σ_k w_k x_k        v(x̂) = Σ_k c_k (z_k - z̄)²        z̄ the mean of z, weighted by c, over the group of k

    design                    w_k             z_k                             c_k                           group
    simple random             1/n             x_k                             (1 - n/N) / (n(n - 1))        all
    stratified                P_h/n_h         x_k                             P_h²(1 - f_h) / (n_h(n_h-1))  stratum
    Hansen-Hurwitz            1/(n N p_k)     x_k / (N p_k)                   1 / (n(n - 1))                all
    Rao-Hartley-Cochran       Q_k/(N p_k)     x_k / (N p_k)                   F · Q_k                       all
    step by step (DeepEST)    (see the file)  (Σ_{j<k} x_j + x_k / q_k) / N   1 / (n(n - 1))                all
    inclusion probability     1/(N π_k)       n x_k / (N π_k)                 (1 - π_k) / (n(n - 1))        all
    replicates                w_k N_r/N       x̂ of replicate r                1 / (R(R - 1))                all

x̂ is unbiased wherever ``reason`` is None, and so is v unless a file says otherwise. Each file holds one design: its
fields are what was known when the sample was drawn, and they travel in the saved selection under the design's ``name``.

Legend: N examples to draw from, n labels or draws, N_h and n_h those of stratum h, P_h = N_h/N, f_h = n_h/N_h, R
replicates.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.fields import is_per_example, read
from opacc_ray.errors import DataError

Array = NDArray[np.float64]


class Prediction(NamedTuple):
    """Failures that were predicted before the labels came."""

    labelled: Array  # (n,) of the labelled examples
    share: float  # mean over all examples that the sample was drawn from


class Before(NamedTuple):
    """What was known when a round was drawn."""

    num: int  # labelled examples
    failures: float  # their sum
    pool_size: int


class Stream(NamedTuple):
    """Draws in their order, each with what is known before it.

    With m the share of failures in the pool, E[value | all before] = pool_size · m - drawn, and 0 <= value <= bound.
    """

    value: Array  # (n,)
    drawn: Array  # (n,) failures drawn before
    bound: Array  # (n,)
    pool_size: int

    def mirrored(self) -> "Stream":
        """The same for bound - value, whose expectation falls with m: then 1 - m is bounded from below."""
        # E[b - g] = b - N·m + D = N·(1 - m) - (N - b - D)
        return self._replace(value=self.bound - self.value, drawn=self.pool_size - self.bound - self.drawn)


class Part(NamedTuple):
    """A replicate."""

    size: int  # examples that it was drawn from
    design: "Design"
    places: NDArray[np.int64]  # of its labels, among those of all replicates


@dataclass(frozen=True, eq=False)
class Design(ABC):
    """How n labels represent the pool. Variables x are (n,) or, several at once, (n, q), in the order of the labels.

    A new design states ``name``, its fields, ``weights`` and ``variance``; all else has a default.
    """

    name: ClassVar[str]
    """What saved selections call the design."""

    predicted: ClassVar[tuple[str, ...]] = ()
    """Columns that say what the model is expected to get wrong: annotators must not see them."""

    column_names: ClassVar[tuple[str, ...]] = ()
    """Fields with one number per example, which are found by their types."""

    def __init_subclass__(cls) -> None:
        cls.column_names = tuple(name for name, kind in cls.__annotations__.items() if is_per_example(kind))

    def __len__(self) -> int:
        """n."""
        return len(getattr(self, self.column_names[0]))

    @property
    @abstractmethod
    def weights(self) -> Array:
        """(n,): x̂ = Σ weights · x."""

    @abstractmethod
    def variance(self, x: Array) -> Any:
        """v(x̂), for each variable."""

    @property
    def degrees(self) -> int | None:
        """Degrees of freedom of v where few replicates make it; None if the labels do."""
        return None

    def mean(self, x: Array) -> Any:
        """x̂, for each variable."""
        return self.weights @ x

    @property
    def largest_weight(self) -> float:
        """The most that one of the labels moves the estimate; 0 if the whole pool is labelled."""
        return float(self.effects.max())

    @property
    def weight_bound(self) -> float:
        """The most that any example could have moved the estimate, had it been drawn."""
        return self.largest_weight

    @property
    def effects(self) -> Array:
        """How far each label moves the estimate: (n,)."""
        return self.weights

    @property
    def interval(self) -> str:
        """Which interval belongs to the design: a key of ``estimators.by_design.INTERVALS``."""
        return "weighted Clopper-Pearson"

    @property
    def reason(self) -> str | None:
        """Why it is not design-based; None if it is."""
        return None

    @property
    def is_sequential(self) -> bool:
        """Whether the first k labels are a sample of the same design with k labels."""
        return False

    @property
    def is_distinct(self) -> bool:
        """Whether no example can be drawn twice."""
        return True

    @property
    def drawn_by_belief(self) -> bool:
        """Whether single examples were drawn in proportion to a belief that they fail: a few weigh far more."""
        return False

    # -- failures: a variable in [0, 1] that a method may know more of than the labels say ------------------

    @property
    def prediction(self) -> Prediction | None:
        """The failures that the method predicted, if it did."""
        return None

    def failure_share(self, failure: Array) -> float:
        """Estimated share of failures, from those of the labels (n,)."""
        return float(self.mean(failure))

    def failure_variance(self, failure: Array) -> float:
        """Estimated variance of the share of failures."""
        return float(self.variance(failure))

    # -- how it was drawn -----------------------------------------------------------------------------------

    @property
    def drawn_after(self) -> NDArray[np.int64] | None:
        """Examples labelled before the draw, if the estimate rests on which; None: those of the earlier rounds."""
        return None

    def stream(self, failure: Array, before: Before) -> Stream | None:
        """The failures (n,) draw by draw; None if draws do not have known probabilities, or labels are missing."""
        return None

    @property
    def num_replicates(self) -> int:
        """How many replicates were drawn; 0 if it is not replicated."""
        return 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """The replicates that have labels; none if it is not replicated."""
        return ()

    # -- as a table and as JSON -----------------------------------------------------------------------------

    def columns(self) -> dict[str, NDArray[Any]]:
        """What it knows of each example: (n,) each."""
        named = {name: getattr(self, name) for name in self.column_names}
        return {name: values for name, values in named.items() if values is not None}

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        """The same design for the labels where ``keep`` (n,) is true; the others are missing at random."""
        return replace(self, **{name: values[keep] for name, values in self.columns().items()})

    def to_json(self) -> dict[str, Any]:
        """JSON types; :meth:`from_json` gives the design back without loss."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        plain = {name: item.tolist() if isinstance(item, np.ndarray) else item for name, item in content.items()}
        return {"type": self.name} | {name: item for name, item in plain.items() if item is not None}

    @classmethod
    def from_json(
        cls, content: dict[str, Any], source: str, read_inner: Callable[[dict[str, Any], str], "Design"]
    ) -> Self:
        """What :meth:`to_json` gave. ``read_inner`` reads a design that is part of this one.

        Raises
        ------
        DataError
            A field is missing or cannot be: ``source``, field and value are named.
        """
        design = cls(**{item.name: read(item, content, source) for item in fields(cls)})
        design.check(source)
        return design

    def check(self, source: str) -> None:
        """Raise DataError, naming ``source``, if fields do not fit each other."""
        lengths = {name: len(values) for name, values in self.columns().items()}
        if set(lengths.values()) - {len(self)}:
            stated = ", ".join(f"{name} {num}" for name, num in lengths.items())
            raise DataError(f"{source}: the columns of its design for {len(self)} examples differ in length: {stated}")


def scatter(z: Array, factor: Array, group: NDArray[np.int64] | None = None) -> Any:
    """Σ_k c_k (z_k - z̄)² with c the ``factor`` (k,); ``group`` (k,) numbers groups with a z̄ of their own."""
    if group is None:
        centre = factor @ z / max(float(factor.sum()), 1e-300)
        return factor @ (z - centre) ** 2
    member = (group == np.arange(group.max() + 1)[:, None]) * factor  # (groups, k)
    centres = (member / np.maximum(member.sum(axis=1, keepdims=True), 1e-300)) @ z
    return factor @ (z - centres[group]) ** 2


def equal_factor(n: int) -> Array:
    """c = 1 / (n(n - 1)) for each of n draws."""
    return np.full(n, 1 / (n * max(n - 1, 1)))


def times(factor: Array, x: Array) -> Array:
    """factor (n,) times x (n,) or (n, q), example by example."""
    return (x.T * factor).T
