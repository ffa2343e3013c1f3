"""Neuron coverage: the requirements that an example meets, one bit per requirement.

Each neuron has one or more requirements; v is its output for the example, [low, high] the range of its outputs over
reference data (usually training data):

    nc:β     v, scaled with its layer to [0, 1], is greater than β                                    1 per neuron
    nc-raw:β v, not scaled, is greater than β, as DeepXplore's text has it                            1 per neuron
    kmnc:k   v lies in section 1, .., k of its range, cut in k parts of equal width                   k per neuron
    nbc      v < low, v > high                                                                        2 per neuron
    snac     v > high                                                                                 1 per neuron
    tknc:k   v is no less than the k-th highest of its layer                                          1 per neuron

NC: Pei, Cao, Yang, Jana, "DeepXplore", SOSP 2017, https://doi.org/10.1145/3132747.3132785. The others: Ma et al.,
"DeepGauge", ASE 2018, https://doi.org/10.1145/3238147.3238202.

Choices that the papers leave open. NC: a layer whose neurons all have the same value activates none. KMNC: a section
includes its upper end, and the first one `low`, as in :mod:`opacc_ray.neurons.sections`; a neuron that is constant over
the reference data has one section; a value out of range is in none. NBC, SNAC: the range includes its ends, because
otherwise every inactive ReLU would count. A value beyond an end by float32 rounding alone is at it, since two runs of a
model on one example differ in the last bits. TKNC: all ties count.

Legend: B examples, m neurons of a layer, q requirements per neuron, R requirements in all.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError

FORMAT = "opacc-ranges/1"

_EXAMPLES = "nc:0.5, kmnc:10, nbc, snac or tknc:2"

_BITS = 1 << 22  # unpacked bits in memory, one byte each

ROUNDING = 64 * float(np.finfo(np.float32).eps)
"""How far runs of a model on one example may differ, as a share of the larger end of the neuron's range."""

Values = NDArray[np.float64]
Layers = Sequence[NDArray[np.float32]]


class Ranges(NamedTuple):
    """Smallest and largest output of every neuron over reference data, layer by layer."""

    low: tuple[NDArray[np.float32], ...]  # (m,) each
    high: tuple[NDArray[np.float32], ...]

    @classmethod
    def of(cls, layers: Layers) -> "Ranges":
        """Compute the ranges over at least one example, each layer (B, m); raises DataError if one is not finite."""
        for number, values in enumerate(layers):
            if not np.isfinite(values).all():
                raise DataError(f"layer {number} of the reference data contains NaN or infinity; remove such examples")
        return cls(tuple(values.min(axis=0) for values in layers), tuple(values.max(axis=0) for values in layers))

    @classmethod
    def merge(cls, parts: Sequence["Ranges"]) -> "Ranges":
        """Merge the ranges of parts, in any order."""
        low = (np.min(layer, axis=0) for layer in zip(*(part.low for part in parts), strict=True))
        high = (np.max(layer, axis=0) for layer in zip(*(part.high for part in parts), strict=True))
        return cls(tuple(low), tuple(high))

    def encode(self) -> bytes:
        """Encode as one .npz file; equal ranges give equal bytes."""
        sink = io.BytesIO()
        ends = {f"{name}_{i}": values for name in self._fields for i, values in enumerate(getattr(self, name))}
        np.savez(sink, format=np.array(FORMAT), num_layers=np.array(len(self.low)), **ends)
        return sink.getvalue()

    @classmethod
    def decode(cls, data: bytes, source: str) -> "Ranges":
        """Decode the bytes of :meth:`encode`; raises DataError if ``source`` contains something else."""
        try:
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                if str(archive["format"]) != FORMAT:
                    raise ValueError(f"format {str(archive['format'])!r}, and this version reads {FORMAT!r}")
                numbers = range(int(archive["num_layers"]))
                return cls(*(tuple(archive[f"{name}_{i}"] for i in numbers) for name in cls._fields))
        except Exception as error:  # NumPy raises several kinds on damaged files
            raise DataError(
                f"{source} is not a file of neuron ranges ({error}); run the spec again to recreate it"
            ) from None


@dataclass(frozen=True)
class Criterion:
    """A coverage criterion, written as in ``nc:0.5``, ``kmnc:10``, ``nbc``, ``snac`` or ``tknc:2``."""

    name: str
    number: float | int | None = None  # β, k, or none

    @classmethod
    def parse(cls, text: str) -> "Criterion":
        """Parse a criterion; raises SpecError if the name is unknown or the number does not fit."""
        name, colon, number = text.partition(":")
        if name not in _RULES:
            near = get_close_matches(name.lower(), _RULES, 1)
            hint = f"did you mean {near[0] + colon + number!r}?" if near else f"give {_EXAMPLES}"
            raise SpecError(f"there is no coverage criterion {text!r}; {hint}")
        try:
            return cls(name, _number(_RULES[name].kind, number))
        except ValueError:
            raise SpecError(f"coverage criterion {text!r}: {_RULES[name].wanted}") from None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}:{self.number}"

    @property
    def needs_ranges(self) -> bool:
        """Whether the criterion needs ranges over reference data."""
        return _RULES[self.name].needs_ranges

    def requirements(self, widths: Sequence[int]) -> int:
        """Return R for the number of neurons of each layer."""
        return sum(widths) * _RULES[self.name].per_neuron(self.number)

    def bits(self, layers: Layers, ranges: Ranges | None = None) -> NDArray[np.uint8]:
        """Return the requirements that each example meets: layers (B, m) -> (B, ceil(R / 8)), as by ``numpy.packbits``.

        They are ordered by layer, then by neuron, then as listed for the criterion, and do not depend on the batch.
        Raises DataError if ranges are needed and missing, or are those of other layers.
        """
        widths, met = [values.shape[1] for values in layers], _RULES[self.name].met
        ends, num = self._ends(widths, ranges), self.requirements(widths)
        step = max(1, _BITS // num)
        packed = [np.empty((0, -(-num // 8)), dtype=np.uint8)]
        for start in range(0, len(layers[0]), step):
            blocks = [values[start : start + step].astype(np.float64) for values in layers]
            if self.needs_ranges:
                blocks = [_to_ends(block, *own) for block, own in zip(blocks, ends, strict=True)]
            pairs = zip(blocks, ends, strict=True)
            bits = [met(block, low, high, self.number).reshape(len(block), -1) for block, (low, high) in pairs]
            packed.append(np.packbits(np.concatenate(bits, axis=1), axis=1))  # (b, R) -> (b, ceil(R / 8))
        return np.concatenate(packed)

    def _ends(self, widths: Sequence[int], ranges: Ranges | None) -> list[tuple[Values, Values]]:
        """Return the ends of the neurons' ranges (m,), layer by layer; empty if the criterion needs none."""
        if not self.needs_ranges:
            return [(np.empty(0), np.empty(0)) for _ in widths]
        if ranges is None:
            raise DataError(f"coverage {self} needs reference data; add a reference to the spec")
        known = [len(low) for low in ranges.low]
        if known != list(widths):
            raise DataError(
                f"coverage {self}: the layers have {list(widths)} neurons, and the reference ranges have {known}; "
                "use the same layers for both"
            )
        return [(low.astype(np.float64), high.astype(np.float64)) for low, high in zip(*ranges, strict=True)]


class _Rule(NamedTuple):
    """The definition of a criterion."""

    met: Callable[[Values, Values, Values, Any], NDArray[np.bool_]]  # values (b, m), low, high, number -> (b, m, q)
    per_neuron: Callable[[Any], int]  # q, given the number
    needs_ranges: bool
    kind: type[float] | type[int] | None  # of the number: β, k, or none
    wanted: str  # the fix for a wrong number


def _to_ends(values: Values, low: Values, high: Values) -> Values:
    """Return values (b, m) with those that are beyond an end by rounding alone at this end."""
    slack = ROUNDING * np.maximum(np.abs(low), np.abs(high))
    near = (values >= low - slack) & (values <= high + slack)
    return np.where(near, np.clip(values, low, high), values)


def _activated(values: Values, _: Values, __: Values, threshold: float) -> NDArray[np.bool_]:
    low = values.min(axis=1, keepdims=True)
    width = values.max(axis=1, keepdims=True) - low
    scaled = np.divide(values - low, width, out=np.zeros_like(values), where=width > 0)
    return np.asarray(scaled > threshold)[:, :, None]


def _above(values: Values, _: Values, __: Values, threshold: float) -> NDArray[np.bool_]:
    return np.asarray(values > threshold)[:, :, None]


def _in_section(values: Values, low: Values, high: Values, num: int) -> NDArray[np.bool_]:
    width = np.where(high > low, high - low, np.inf)
    section = np.maximum(np.ceil((values - low) / width * num), 1)  # (b, m)
    section[(values < low) | (values > high)] = 0
    return np.asarray(section[:, :, None] == np.arange(1, num + 1))


def _out_of_range(values: Values, low: Values, high: Values, _: None) -> NDArray[np.bool_]:
    return np.stack([values < low, values > high], axis=2)


def _above_range(values: Values, _: Values, high: Values, __: None) -> NDArray[np.bool_]:
    return np.asarray(values > high)[:, :, None]


def _in_top(values: Values, _: Values, __: Values, num: int) -> NDArray[np.bool_]:
    place = max(values.shape[1] - num, 0)
    least = np.partition(values, place)[:, place]  # (b,) the k-th highest
    return np.asarray(values >= least[:, None])[:, :, None]


def _number(kind: type[float] | type[int] | None, text: str) -> float | int | None:
    """Return a share below 1, a whole number above 0, or none; raises ValueError if ``text`` is anything else."""
    value = kind(text) if kind else None
    fits = not text if value is None else 0 <= value < 1 if kind is float else value >= 1
    if not fits:
        raise ValueError
    return value


_RULES = {
    "nc": _Rule(_activated, lambda _: 1, False, float, "give the threshold, from 0 to below 1, as in nc:0.5"),
    "nc-raw": _Rule(_above, lambda _: 1, False, float, "give the threshold, from 0 to below 1, as in nc-raw:0.5"),
    "kmnc": _Rule(_in_section, lambda k: k, True, int, "give the number of sections, as in kmnc:10"),
    "nbc": _Rule(_out_of_range, lambda _: 2, True, None, "it takes no number; write nbc"),
    "snac": _Rule(_above_range, lambda _: 1, True, None, "it takes no number; write snac"),
    "tknc": _Rule(_in_top, lambda _: 1, False, int, "give the number of top neurons, as in tknc:2"),
}
