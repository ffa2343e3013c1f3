"""Define what every sampling design offers: how n labels represent the pool that they were drawn from.

A design estimates the mean of any variable x of the pool in one form, linear in x:

    x̂ = Σ_k w_k x_k        v(x̂) = Σ_k c_k (z_k - z̄)²        z̄ the mean of z, weighted by c, over the group of k

    design                    w_k             z_k                             c_k                           group
    simple random             1/n             x_k                             (1 - n/N) / (n(n - 1))        all
    stratified                P_h/n_h         x_k                             P_h²(1 - f_h) / (n_h(n_h-1))  stratum
    Hansen-Hurwitz            1/(n N p_k)     x_k / (N p_k)                   1 / (n(n - 1))                all
    Rao-Hartley-Cochran       Q_k/(N p_k)     x_k / (N p_k)                   F · Q_k                       all
    step by step (DeepEST)    (see there)     (Σ_{j<k} x_j + x_k / q_k) / N   1 / (n(n - 1))                all
    inclusion probability     1/(N π_k)       n x_k / (N π_k)                 (1 - π_k) / (n(n - 1))        all

x̂ is unbiased where ``reason`` is None, and so is v unless the design's file states otherwise. A design states how a
sample was drawn, not only how it is estimated: intervals that are valid at any time follow from its ``stream``. Each
design has a line in :data:`opacc_ray.designs.DESIGNS`. Its fields are what was known when the sample was
drawn; selections save them under the design's ``name``.

Legend: N examples to draw from, n labels or draws, N_h and n_h those of stratum h, P_h = N_h/N, f_h = n_h/N_h.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, fields, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError

# -- what designs exchange with estimators ------------------------------------------------------------------------

Array = NDArray[np.float64]


class PredictedFailures(NamedTuple):
    """Failure probabilities that were predicted before the labels were known."""

    labelled: Array  # (n,) of the labelled examples
    share: float  # mean over all examples that the sample was drawn from


class LabelledBefore(NamedTuple):
    """Labels that were known when a round was drawn."""

    num: int  # labelled examples
    failures: float  # their sum
    pool_size: int


class DrawSequence(NamedTuple):
    """Draws in their order, each with what was known before it.

    With m the share of failures in the pool, E[value | all before] = pool_size · m - drawn, and 0 <= value <= bound.
    """

    value: Array  # (n,)
    drawn: Array  # (n,) failures drawn before
    bound: Array  # (n,)
    pool_size: int

    def mirrored(self) -> "DrawSequence":
        """Return the sequence of bound - value, which bounds 1 - m from below."""
        # E[b - g] = b - N·m + D = N·(1 - m) - (N - b - D)
        return self._replace(value=self.bound - self.value, drawn=self.pool_size - self.bound - self.drawn)


_ROUNDING = 1e-9
"""Rounding error by which a sum of shares may exceed 1."""


# -- types of the fields of a design, and how they are read from JSON -------------------------------------------


class FieldType(NamedTuple):
    """Finite numbers from ``low`` to ``high``: "per example" is one per label, in the order of the labels."""

    kind: type
    shape: str  # "per example", "array" or "number"
    low: float = 0
    high: float = math.inf
    open: bool = False  # excludes ``low``

    def holds(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        above = numbers > self.low if self.open else numbers >= self.low
        return np.asarray(above & (numbers <= self.high + _ROUNDING) & np.isfinite(numbers))

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a finite number of at least {self.low:g}"
        return f"a number in {'(' if self.open else '['}{self.low:g}, {self.high:g}]"


Probabilities = Annotated[NDArray[np.float64], FieldType(np.float64, "per example", 0, 1, open=True)]
"""Probabilities above 0: of draws that were made."""
Shares = Annotated[NDArray[np.float64], FieldType(np.float64, "per example", 0, 1)]
Numbers = Annotated[NDArray[np.int64], FieldType(np.int64, "per example")]
Counts = Annotated[NDArray[np.int64], FieldType(np.int64, "per example", 1)]
Sizes = Annotated[NDArray[np.int64], FieldType(np.int64, "array", 1)]
Places = Annotated[NDArray[np.int64], FieldType(np.int64, "array")]
Number = Annotated[int, FieldType(int, "number")]
Count = Annotated[int, FieldType(int, "number", 1)]
Amount = Annotated[float, FieldType(float, "number")]
Probability = Annotated[float, FieldType(float, "number", 0, 1, open=True)]


def read_field(item: "Field[Any]", content: dict[str, Any], source: str) -> Any:
    """Return the field's value in ``content``; raise DataError, naming ``source``, if it is not valid."""
    wanted, given = _field_type(item.type), content.get(item.name)
    if given is None:
        if type(None) in get_args(item.type):
            return None
        raise DataError(f"{source}: its design {content.get('type')!r} has no {item.name}; restore the file")
    if isinstance(wanted, FieldType):
        return _read_numbers(given, wanted, f"{source}: {item.name} of its design")
    if not isinstance(given, wanted):
        raise DataError(f"{source}: {item.name} of its design is {given!r}, and must be of type {wanted.__name__}")
    return given


def _field_type(kind: Any) -> Any:
    """Return the FieldType that annotates ``kind``, or ``kind`` itself if nothing does."""
    extras = (extra for part in (kind, *get_args(kind)) for extra in getattr(part, "__metadata__", ()))
    return next((extra for extra in extras if isinstance(extra, FieldType)), kind)


def _read_numbers(given: Any, wanted: FieldType, name: str) -> Any:
    try:
        numbers = np.asarray(given)
    except ValueError:  # lists that differ in length
        numbers = np.asarray(None)
    whole, single = wanted.kind in (int, np.int64), wanted.shape == "number"
    if numbers.ndim != (0 if single else 1) or (numbers.size and numbers.dtype.kind not in ("iu" if whole else "iuf")):
        kind = f"{'whole ' if whole else ''}number"
        raise DataError(f"{name} is {given!r:.60}, and must be {f'one {kind}' if single else f'a list of {kind}s'}")
    wrong = np.flatnonzero(~wanted.holds(numbers))
    if len(wrong):
        place = f" at place {wrong[0]}" if numbers.ndim else ""
        raise DataError(f"{name} is {numbers.flat[wrong[0]]!s}{place}, and must be {wanted}")
    return numbers.astype(wanted.kind) if numbers.ndim else wanted.kind(given)


# -- designs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Design(ABC):
    """Describe how n labels represent the pool.

    Variables x are (n,) or, several at once, (n, q), in the order of the labels. A new design defines ``name``, its
    fields, ``weights`` and ``variance``; everything else has a default.
    """

    name: ClassVar[str]
    """Name of the design in saved selections."""

    predicted: ClassVar[tuple[str, ...]] = ()
    """Columns that show what the model is expected to get wrong: annotators must not see them."""

    column_names: ClassVar[tuple[str, ...]] = ()
    """Fields with one number per example, found by their types."""

    def __init_subclass__(cls) -> None:
        kinds = {name: _field_type(kind) for name, kind in cls.__annotations__.items()}
        own = (name for name, kind in kinds.items() if getattr(kind, "shape", "") == "per example")
        cls.column_names = (*cls.column_names, *own)

    def __len__(self) -> int:
        """Return n, the number of labels."""
        return len(getattr(self, self.column_names[0]))

    @property
    @abstractmethod
    def weights(self) -> Array:
        """(n,): x̂ = Σ weights · x."""

    @abstractmethod
    def variance(self, x: Array) -> Any:
        """Return v(x̂), for each variable."""

    def mean(self, x: Array) -> Any:
        """Return x̂, for each variable."""
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
        """(n,) how far each label moves the estimate."""
        return self.weights

    @property
    def interval(self) -> str:
        """Interval that belongs to the design: see ``estimation/failures.py``."""
        return "weighted Clopper-Pearson"

    @property
    def reason(self) -> str | None:
        """Why the estimate is not design-based; None if it is."""
        return None

    @property
    def is_sequential(self) -> bool:
        """Whether the first k labels are a sample of the same design with k labels."""
        return False

    @property
    def is_distinct(self) -> bool:
        """Whether no example can be drawn twice."""
        return True

    # -- failures: a variable in [0, 1] that a method may have predicted ------------------------------------

    @property
    def prediction(self) -> PredictedFailures | None:
        """The failures that the method predicted; None if it predicted none."""
        return None

    def failure_share(self, failure: Array) -> float:
        """Estimate the share of failures from those of the labels (n,)."""
        return float(self.mean(failure))

    def failure_variance(self, failure: Array) -> float:
        """Estimate the variance of the share of failures."""
        return float(self.variance(failure))

    # -- how the sample was drawn ---------------------------------------------------------------------------

    @property
    def drawn_after(self) -> NDArray[np.int64] | None:
        """Examples labelled before the draw, if the estimate depends on them; None: those of the earlier rounds."""
        return None

    def forget(self, index: NDArray[np.int64]) -> Self:
        """Return the design if some examples have lost the labels that they had before the draw."""
        return self

    def stream(self, failure: Array, before: LabelledBefore) -> DrawSequence | None:
        """Return the failures (n,) draw by draw; None without known draw probabilities, or if labels are missing."""
        return None

    # -- as a table and as JSON -----------------------------------------------------------------------------

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what the design knows of each example: (n,) each."""
        named = {name: getattr(self, name) for name in self.column_names}
        return {name: values for name, values in named.items() if values is not None}

    def restrict(self, keep: NDArray[np.bool_]) -> Self:
        """Return the design of the labels where ``keep`` (n,) is true; the others are missing at random."""
        return replace(self, **{name: values[keep] for name, values in self.columns().items()})

    def to_json(self) -> dict[str, Any]:
        """Return JSON types; :meth:`from_json` restores the design without loss."""
        content = {item.name: getattr(self, item.name) for item in fields(self)}
        plain = {name: item.tolist() if isinstance(item, np.ndarray) else item for name, item in content.items()}
        return {"type": self.name} | {name: item for name, item in plain.items() if item is not None}

    @classmethod
    def from_json(cls, content: dict[str, Any], source: str) -> Self:
        """Restore what :meth:`to_json` returned; raises DataError as :func:`opacc_ray.selection.read_design`."""
        design = cls(**{item.name: read_field(item, content, source) for item in fields(cls)})
        design.check(source)
        return design

    def check(self, source: str) -> None:
        """Raise DataError, naming ``source``, if fields contradict each other."""
        lengths = {name: len(values) for name, values in self.columns().items()}
        if set(lengths.values()) - {len(self)}:
            stated = ", ".join(f"{name} {num}" for name, num in lengths.items())
            raise DataError(f"{source}: the columns of its design for {len(self)} examples differ in length: {stated}")


def scatter(z: Array, factor: Array | None = None, group: NDArray[np.int64] | None = None) -> Any:
    """Return Σ_k c_k (z_k - z̄)²; ``group`` (k,) numbers groups with a z̄ of their own.

    c is the ``factor`` (k,), by default 1 / (n(n - 1)) for each of n draws.
    """
    if factor is None:
        factor = np.full(len(z), equal_factor(len(z)))
    if group is None:
        centre = factor @ z / max(float(factor.sum()), 1e-300)
        return factor @ (z - centre) ** 2
    member = (group == np.arange(group.max() + 1)[:, None]) * factor  # (groups, k)
    centres = (member / np.maximum(member.sum(axis=1, keepdims=True), 1e-300)) @ z
    return factor @ (z - centres[group]) ** 2


def equal_factor(n: int) -> float:
    """Return c = 1 / (n(n - 1)) of each of n draws."""
    return 1 / (n * max(n - 1, 1))


def times(factor: Array, x: Array) -> Array:
    """Multiply x, (n,) or (n, q), by ``factor`` (n,), example by example."""
    return (x.T * factor).T
