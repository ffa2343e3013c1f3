"""Candidates: parts of a pool where a model may be worse, all of them or those that some labels propose.

A *condition* is a slice of the pool ("camera = north"), a predicted class, the second choice of the output, or a tail
of a number: confidence, surprise, a principal direction of the hidden layer. A *candidate* is a crossing of two slices
or classes, a class or a tail; single slices are a family of their own.

To rank candidates by labels, the failure model (:mod:`~opacc_ray.samplers.neyman.failure_model`) predicts failures p
for every example. One more coefficient per candidate says how much its logits differ from that, with the prior N(0, τ²)
and τ = 1; linearised around 0, it and the share of failures in the candidate D are

    δ = Σ_D (f - p) / (1/τ² + Σ_D p(1 - p))      θ_D = mean_D p + δ·mean_D p(1 - p)

with the sums over labels and the means over the pool. The *evidence* is the difference to the same number for the rest,
in standard errors. It only ranks: what is proposed is tested on other labels. A crossing is proposed if its evidence is
larger than that of both of its parts, and nothing that mostly repeats a candidate with more evidence.

Legend: N pool, n labels, K conditions, s examples that stand for the pool, f failure, p predicted failure.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.estimators.metrics import FEWEST
from opacc_ray.history import History
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.neyman.failure_model import Forecast, predict_failure, read_signals
from opacc_ray.samplers.neyman.sampling import Parameters
from opacc_ray.samplers.neyman.signals import find_projection
from opacc_ray.slices import MOST, Slicing

Array = NDArray[np.float64]
Index = NDArray[np.int64]

SUSPECTS = "suspects"
"""Start of the names of slicings that repeat candidates, to draw more labels there: they are not tested again."""

TAILS = (10, 25)
"""Percent of the pool in the tails of a number."""


MOST_OF_POOL = 0.5
"""Largest share of the pool in a tail."""

LEAST_EVIDENCE = 1.0
"""Standard errors."""

MOST_SHARED = 0.5
"""Largest overlap of two proposals: examples of both as a share of those of either."""

DIRECTIONS = Parameters().directions
"""Principal directions of the hidden layer: as many as `neyman` uses by default."""

SAME = 0.8
"""Overlap from which on one of two candidates is left out, whatever the labels are."""

_STAND_IN = 20_000
"""Examples that stand for the pool when candidates are ranked."""


class Kind(Enum):
    """What a condition is about."""

    SLICE = "slice"  # of the pool, which its owner has named
    CLASS = "class"
    TAIL = "tail"


class Condition(NamedTuple):
    """Examples with low <= code < high."""

    text: str
    attribute: str
    codes: NDArray[np.integer]  # (N,)
    low: int
    high: int
    kind: Kind

    def holds(self, index: Any) -> NDArray[np.bool_]:
        """Return whether it holds for the examples ``index``, in their order."""
        codes = self.codes[index]
        return np.asarray((codes >= self.low) & (codes < self.high))

    def size(self) -> int:
        """Return the number of examples of the pool."""
        return int(self.holds(slice(None)).sum())


class Candidate(NamedTuple):
    """A part of the pool: the examples for which all conditions hold."""

    conditions: tuple[Condition, ...]
    evidence: float = 0.0
    proposed: bool = False  # by labels

    @property
    def name(self) -> str:
        """Return the conditions in words."""
        return ", ".join(own.text for own in self.conditions)

    @property
    def is_slice(self) -> bool:
        """Whether it is a single slice of the pool."""
        return len(self.conditions) == 1 and self.conditions[0].kind is Kind.SLICE

    def holds(self, index: Any = slice(None)) -> NDArray[np.bool_]:
        """Return whether each example ``index`` is in it; default: all of the pool, (N,)."""
        return np.logical_and.reduce([own.holds(index) for own in self.conditions])


# -- conditions -------------------------------------------------------------------------------------------------


def conditions_of(view: View, classes: list[str] | None) -> Iterator[Condition]:
    """Yield all conditions that the slices and the features of a pool give; ``classes`` names the predicted ones."""
    for name in view.map(_slices_of)[0]:
        if name.startswith(SUSPECTS):
            continue
        yield from _named(view.slicing(name), name, f"{name} = ", Kind.SLICE)
    if classes is not None:
        yield from _classes(view, classes)
    for field, words in (("confidence", "confidence"), ("dsa", "DSA"), ("lsa", "LSA")):
        if field in view.fields:
            yield from _tails(view.column(field), field, words)
    if "hidden" in view.fields:
        for number, own in enumerate(find_projection(view, DIRECTIONS).packed, start=1):
            yield from _tails(own[:], f"direction {number}", f"direction {number} of the hidden layer")


def _named(slicing: Slicing, attribute: str, prefix: str, kind: Kind = Kind.CLASS) -> Iterator[Condition]:
    for code, text in enumerate(slicing.names):
        yield Condition(prefix + text, attribute, slicing.codes, code, code + 1, kind)


def _classes(view: View, classes: list[str]) -> Iterator[Condition]:
    """Yield the predicted classes, and the second choices of the output."""
    if not 2 <= len(classes) <= MOST:
        return
    yield from _named(Slicing(tuple(classes), view.column("prediction").astype(np.int32)), "prediction", "predicted ")
    if "output" in view.fields and view.map(_width)[0] == len(classes) > 2:
        second = Slicing(tuple(classes), view.gather(_second_choice))
        yield from _named(second, "second choice", "second choice ")


def _tails(values: Array, attribute: str, words: str) -> Iterator[Condition]:
    """Yield the tails of a number; where many examples share a value, they are larger or none."""
    lower, upper = (np.unique(np.percentile(values, own)) for own in (TAILS, [100 - own for own in TAILS]))
    codes = np.searchsorted(lower, values, side="left") + np.searchsorted(upper, values, side="right")
    num = len(lower) + len(upper) + 1
    below = np.cumsum(np.bincount(codes, minlength=num)) / len(values)
    for code, share in enumerate(below[:-1].tolist(), start=1):
        is_lower = code <= len(lower)
        low, high, side = (0, code, "below") if is_lower else (code, num, "above")
        if 0 < (share if is_lower else 1 - share) <= MOST_OF_POOL:
            text = f"{words} {side} its {_ordinal(share)} percentile"
            yield Condition(text, attribute, codes.astype(np.int8), low, high, Kind.TAIL)


def _ordinal(share: float) -> str:
    number = round(100 * share)
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _slices_of(part: Pool) -> tuple[str, ...]:
    return tuple(part.slices)


def _width(part: Pool) -> int:
    return 0 if part.output is None else part.output.shape[1]


def _second_choice(part: Pool) -> NDArray[np.int32]:
    """Return the class with the largest output besides the predicted one, (n,)."""
    assert part.output is not None
    assert part.prediction is not None
    rest = np.array(part.output, dtype=np.float64)
    rest[np.arange(len(rest)), part.prediction.astype(np.int64)] = -np.inf
    return rest.argmax(axis=1).astype(np.int32)


def all_candidates(view: View, given: Sequence[Condition], least: int, known: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates of at least ``least`` examples that do not repeat each other, or those ``known``."""
    stand_in = np.random.default_rng(0).permutation(view.size)[:_STAND_IN]
    least_here = least * len(stand_in) / view.size
    large = [own for own in given if own.holds(stand_in).sum() >= least_here]
    named = [own for own in large if own.kind is not Kind.TAIL]
    found = [Candidate((own,)) for own in large if own.kind is not Kind.SLICE]
    found += [Candidate((a, b)) for a, b in combinations(named, 2) if a.attribute != b.attribute]
    kept, members = list[Candidate](), [own.holds(stand_in) for own in known]
    for own in found:
        member = own.holds(stand_in)
        if least_here <= member.sum() < len(stand_in) and not _repeats(member, members, SAME):
            kept.append(own)
            members.append(member)
    return kept


def _repeats(member: NDArray[np.bool_], others: list[NDArray[np.bool_]], most: float) -> bool:
    """Return whether a part shares with one of several others more than ``most`` of the examples of either."""
    return any((member & other).sum() > most * (member | other).sum() for other in others)


# -- evidence ---------------------------------------------------------------------------------------------------


class Known(NamedTuple):
    """The labels that propose."""

    places: Index  # (n,) in the pool
    failure: Array  # (n,)


def propose(view: View, known: Known, given: Sequence[Condition], most: int, history: History) -> list[Candidate]:
    """Return at most ``most`` candidates of the ``given`` conditions by their evidence, the strongest first."""
    found = [own for own in given if own.holds(known.places).sum() >= FEWEST]
    if not found:
        return []
    forecast = predict_failure(read_signals(view, DIRECTIONS, history), known.places, known.failure)
    stand_in = np.random.default_rng(0).permutation(view.size)[:_STAND_IN]
    evidence = _evidence(found, known, forecast, stand_in)
    evidence[~_allowed(found, evidence)] = -np.inf
    chosen, members = list[Candidate](), list[NDArray[np.bool_]]()
    for place in np.argsort(-evidence, axis=None, kind="stable").tolist():
        a, b = divmod(place, len(found))
        if len(chosen) == most or evidence[a, b] < LEAST_EVIDENCE:
            break
        own = Candidate((found[a],) if a == b else (found[a], found[b]), float(evidence[a, b]), True)
        member = own.holds(stand_in)
        if not _repeats(member, members, MOST_SHARED):
            chosen.append(own)
            members.append(member)
    return chosen


def _allowed(found: list[Condition], evidence: Array) -> NDArray[np.bool_]:
    """Return which pairs (K, K) are candidates: on the diagonal conditions but slices, above it crossings."""
    named, alone = (np.array([own.kind is not kind for own in found]) for kind in (Kind.TAIL, Kind.SLICE))
    attribute = np.unique([own.attribute for own in found], return_inverse=True)[1]
    each = np.diag(evidence)
    crossed = named & named[:, None] & (attribute != attribute[:, None])
    better = evidence > np.maximum(each, each[:, None])
    return np.asarray(np.diag(alone) | np.triu(crossed & better))


def _evidence(found: list[Condition], known: Known, forecast: Forecast, stand_in: Index) -> Array:
    """Return how much worse each pair of conditions (K, K) is than the rest, in standard errors; -inf if too few."""
    p, of_pool = forecast.at(known.places), forecast.at(stand_in)
    labels = _sums(found, known.places, [np.ones(len(p)), known.failure - p, p * (1 - p)])
    pool = _sums(found, stand_in, [np.ones(len(stand_in)), of_pool, of_pool * (1 - of_pool)])
    share, variance = _estimated(labels.inside, pool.inside)
    other, others = _estimated(labels.rest, pool.rest)
    z = (share - other) / np.sqrt(np.maximum(variance + others, 1e-300))
    return np.where((labels.inside[0] >= FEWEST) & (pool.inside[0] > 0) & (pool.rest[0] > 0), z, -np.inf)


class _Sums(NamedTuple):
    """Sums of several variables over each pair of conditions, and over its rest, (variables, K, K) each."""

    inside: Array
    rest: Array


def _sums(found: list[Condition], index: Index, variables: list[Array]) -> _Sums:
    member = np.stack([own.holds(index) for own in found]).astype(np.float64)  # (K, k)
    inside = np.stack([(member * own) @ member.T for own in variables])
    return _Sums(inside, np.array([own.sum() for own in variables])[:, None, None] - inside)


def _estimated(labels: Array, pool: Array) -> tuple[Array, Array]:
    """Return θ and its variance from the sums over labels (of 1, f - p, p(1 - p)) and the pool (of 1, p, p(1 - p))."""
    size, information = np.maximum(pool[0], 1), 1 + labels[2]
    return (pool[1] + pool[2] * labels[1] / information) / size, (pool[2] / size) ** 2 / information
