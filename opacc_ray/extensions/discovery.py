"""Find parts of a pool where a model is worse than in the rest, and bound the share of false ones.

A *condition* is a slice of the pool ("camera = north"), a predicted class, the second choice of the output, or a tail
of a number: confidence, surprise, a principal direction of the hidden layer. A *candidate* is a crossing of two slices
or classes, a class or a tail; single slices are a family of their own.

The candidates are known before any label, so all labels test all of them. There are two families: the slices that the
pool has, and all other candidates. A slice is tested if a simple random sample of as many labels would have at least
five in it, another candidate with at least ten. Candidates that mostly repeat an earlier one are left out.

A later round can look where the first ones found most: :attr:`Discovery.suspects` has the slices and classes with the
least p-values that are not confirmed, for ``serve`` of `neyman`. All labels then test all candidates, as before: the
number of tests does not change, and the rounds are weighted by their designs.

Claimed is a *size*: the accuracy of a part is at least MARGIN lower than in the rest. In any pool most parts differ a
little, so "it is lower" says nothing. The p-value of a part is that of "it is lower by less", from the intervals of
both accuracies; p = 1 with fewer than LEAST_EFFECTIVE effective labels, (Σw)²/Σw² by their weights in the estimate of
the part, or fewer than LEAST_FAILURES failures. Benjamini and Hochberg's q-values are computed in each family. With two
families they are doubled, as the share of false ones among all confirmed parts is at most the sum of the two families'
shares. Confirmed are the parts with q at most ``fdr``.

A confirmed part is selected because it looks bad, so an interval at the level 1 - α would miss too often. With R of the
m tests of a family confirmed, and k families, its intervals are at the level 1 - R·α/(m·k): then the expected share of
intervals that miss, among those stated, is at most α (Y. Benjamini, D. Yekutieli, "False discovery rate-adjusted
multiple confidence intervals for selected parameters", JASA 100, 2005). With α = fdr they end above MARGIN.

A part D and the rest R of a pool share no example. With failure shares θ_D and θ_R, and their intervals [l, u] at any
level, the difference Δ = θ_D - θ_R, how much lower the accuracy of D is, has the lower end

    L = Δ̂ - √( (θ̂_D - l_D)² + (u_R - θ̂_R)² )

of G. Y. Zou and A. Donner ("Construction of confidence limits about effect measures", Statistics in Medicine 27, 2008),
and the upper end alike. So Δ has an interval wherever the two shares have one, by whatever design. The *p-value* is 1
less the level at which L is MARGIN. It is as valid as the intervals of the shares.

Several statements: Benjamini and Hochberg's q-values bound the expected share of false ones among those with q at most
the bound (JRSS B 57, 1995). They need tests that are independent or positively dependent (Y. Benjamini, D. Yekutieli,
Annals of Statistics 29, 2001). Parts that overlap are positively dependent. Parts that do not overlap are nearly
independent: each is a small share of the other's rest. The factor Σ 1/k of Benjamini and Yekutieli needs no assumption.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import SpecError, counted
from opacc_ray.estimation.class_totals import ClassTotals
from opacc_ray.estimation.distribution import AdjustedWilson, Mean
from opacc_ray.estimation.failures import Fit, fit_failures
from opacc_ray.estimation.intervals import Estimate, Interval
from opacc_ray.estimation.sample import Sample
from opacc_ray.estimation.totals import Evidence, Groups, measure
from opacc_ray.labelled import classes_of, read_sample
from opacc_ray.labels.given_labels import Labelled, labelled_rounds, named
from opacc_ray.metrics.metric import FEWEST
from opacc_ray.parts.view import View
from opacc_ray.pool import MOST, History, Pool, Slicing
from opacc_ray.samplers.neyman.sampling import Parameters
from opacc_ray.samplers.neyman.signals import find_projection
from opacc_ray.selection import Selection

Array = NDArray[np.float64]


_LEAST_TAIL = 1e-9
_HALVINGS = 16


class Contrast(NamedTuple):
    """The failure shares of a part and of the rest."""

    part: Mean
    rest: Mean

    @property
    def difference(self) -> float:
        """How much lower the accuracy of the part is."""
        return _inside(self.part) - _inside(self.rest)

    def interval(self, level: float) -> Interval:
        """Return both ends of the difference at a confidence level."""
        (low, high), (least, most) = self.part.interval(level), self.rest.interval(level)
        own, other = min(max(self.part.value, low), high), min(max(self.rest.value, least), most)
        below, above = np.hypot(own - low, most - other), np.hypot(high - own, other - least)
        return max(float(own - other - below), low - most), min(float(own - other + above), high - least)

    def p_value(self, margin: float) -> float:
        """Return the p-value of "the accuracy of the part is lower by less than ``margin``"."""
        if not self.part.num or not self.rest.num or self.difference <= margin:
            return 1.0
        least, most = np.log(_LEAST_TAIL), 0.0
        for _ in range(_HALVINGS):
            middle = (least + most) / 2
            if self.interval(1 - float(np.exp(middle)))[0] > margin:
                most = middle
            else:
                least = middle
        return float(np.exp(most))


def _inside(share: Mean) -> float:
    return min(max(share.value, 0.0), 1.0)


def q_values(p: Sequence[float]) -> list[float]:
    """Return Benjamini and Hochberg's q-values (m,)."""
    from scipy.stats import false_discovery_control

    return np.asarray(false_discovery_control(p)).tolist() if len(p) else []


Index = NDArray[np.int64]

SUSPECTS = "suspects"
"""Start of the names of slicings that repeat candidates, to draw more labels there: they are not tested again."""

TAILS = (10, 25)
"""Percent of the pool in the tails of a number."""


MOST_OF_POOL = 0.5
"""Largest share of the pool in a tail."""

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

    @property
    def name(self) -> str:
        """Return the conditions in words."""
        return ", ".join(condition.text for condition in self.conditions)

    @property
    def is_slice(self) -> bool:
        """Whether it is a single slice of the pool."""
        return len(self.conditions) == 1 and self.conditions[0].kind is Kind.SLICE

    def holds(self, index: Any = slice(None)) -> NDArray[np.bool_]:
        """Return whether each example ``index`` is in it; default: all of the pool, (N,)."""
        return np.logical_and.reduce([condition.holds(index) for condition in self.conditions])


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
        for number, values in enumerate(find_projection(view, DIRECTIONS).packed, start=1):
            yield from _tails(values[:], f"direction {number}", f"direction {number} of the hidden layer")


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
    lower, upper = (np.unique(np.percentile(values, shares)) for shares in (TAILS, [100 - share for share in TAILS]))
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


def all_candidates(
    view: View, conditions: Sequence[Condition], least: int, slices: Sequence[Candidate]
) -> list[Candidate]:
    """Return the candidates of at least ``least`` examples that do not repeat each other, or the ``slices``."""
    stand_in = np.random.default_rng(0).permutation(view.size)[:_STAND_IN]
    least_here = least * len(stand_in) / view.size
    large = [one for one in conditions if one.holds(stand_in).sum() >= least_here]
    holds = {id(one): one.holds(stand_in) for one in large}
    named = [one for one in large if one.kind is not Kind.TAIL]
    candidates = [Candidate((one,)) for one in large if one.kind is not Kind.SLICE]
    candidates += [Candidate((a, b)) for a, b in combinations(named, 2) if a.attribute != b.attribute]
    kept, members = list[Candidate](), [one.holds(stand_in) for one in slices]
    for candidate in candidates:
        member = np.logical_and.reduce([holds[id(one)] for one in candidate.conditions])
        if least_here <= member.sum() < len(stand_in) and not _repeats(member, members):
            kept.append(candidate)
            members.append(member)
    return kept


def _repeats(member: NDArray[np.bool_], others: list[NDArray[np.bool_]]) -> bool:
    """Return whether a part shares with one of several others more than SAME of the examples of either."""
    return any((member & other).sum() > SAME * (member | other).sum() for other in others)


MOST_SUSPECTS, FEWEST_SUSPECTS = 8, 2
"""Slices and classes where the second round looks; each later one looks at half as many, down to the fewest."""

MOST_SHOWN = 20
"""Parts in the table, unless more are confirmed, and slicings of the result."""

FDR = 0.05
"""Expected share of false ones among the confirmed parts."""

MARGIN = 0.02
"""How much lower the accuracy of a confirmed part is, at least."""

LEAST_EFFECTIVE, LEAST_FAILURES = 8, 3
"""Effective labels, and failures among them, without which no part is confirmed."""

LEAST_EXPECTED = 10
"""Labels that a simple random sample would have in a candidate that is not a slice, at least."""

_MOST_CODES = 1 << 28
"""Bytes of the codes of parts that are tested at a time."""


@dataclass(frozen=True)
class WorsePart:
    """A part of the pool, and what the labels say of it.

    ``size`` counts the examples of the pool in it, and ``labels`` those with a label. ``low`` .. ``high`` holds the
    ``difference``, how much lower its accuracy is than that of the rest, at the level of ``accuracy``: higher for a
    confirmed part, because it was selected. So a confirmed part is lower by ``low``, at least.
    """

    name: str
    size: int
    labels: int
    accuracy: Estimate
    difference: float
    low: float
    high: float
    p_value: float
    q_value: float
    confirmed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, under the names of the attributes."""
        return {**vars(self), "accuracy": self.accuracy.to_dict()}


@dataclass(frozen=True, eq=False)
class Discovery:
    """The parts of a pool that were tested, by q-value.

    ``slices`` has slicings of the first parts that are not slices of the pool, by name, as ``Pool(slices=…)`` accepts
    them. ``suspects`` is one slicing of the slices and classes with the least p-values that are not confirmed; its last
    slice is the rest of the pool.
    """

    parts: tuple[WorsePart, ...]
    slices: dict[str, Slicing]
    suspects: Slicing
    labels: int
    fdr: float
    level: float

    @property
    def confirmed(self) -> tuple[WorsePart, ...]:
        """Return the parts that are confirmed."""
        return tuple(part for part in self.parts if part.confirmed)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types: the counts, and the parts as a list."""
        counts = {name: getattr(self, name) for name in ("labels", "fdr", "level")}
        return counts | {"parts": [part.to_dict() for part in self.parts]}

    def __str__(self) -> str:
        parts = counted(len(self.parts), "part")
        summary = f"{len(self.confirmed)} of {parts} confirmed by {counted(self.labels, 'label')}"
        shown = self.parts[: max(MOST_SHOWN, len(self.confirmed))]
        if not shown:
            return summary
        width = max(len(part.name) for part in shown)
        head = f"{'part':{width}}  {'size':>8}  labels  accuracy  below the rest by  {'p':>6}  {'q':>6}"
        return "\n".join([summary, head, *(_line(part, width) for part in shown)])


def _line(part: WorsePart, width: int) -> str:
    between = f"{100 * part.difference:.0f} [{100 * part.low:.0f}, {100 * part.high:.0f}]"
    return (
        f"{part.name:{width}}  {part.size:8,}  {part.labels:6}  {100 * part.accuracy.value:6.1f} %  {between:>17}  "
        f"{part.p_value:6.4f}  {part.q_value:6.4f}"
        + (f"  confirmed: at least {100 * part.low:.0f}" if part.confirmed else "")
    )


@named("opacc.discover(selection, labels=…, pool=pool) or opacc.discover(selection, outcomes=…, pool=pool)")
def discover(
    selection: Selection | Labelled | Sequence[Labelled],
    *,
    labels: Any = None,
    outcomes: Any = None,
    level: float = 0.95,
    pool: Pool | View,
    history: History | None = None,
    fdr: float = FDR,
) -> Discovery:
    """Find parts of the pool where the model is less accurate than in the rest.

    Candidates are slices of the pool, predicted classes, pairs of first and second choice, tails of the confidence, the
    surprise and the directions of the hidden layer, and crossings. They are known before the labels, so all labels test
    them.

    Parameters
    ----------
    selection, labels, outcomes, pool, history : as for :func:`opacc_ray.estimate`, all rounds in their order
    level : confidence level of the interval of each accuracy and each difference; of confirmed parts, of all together
    fdr : bound of the expected share of false ones among the confirmed parts (Benjamini and Hochberg)

    Returns
    -------
    Discovery
        Its ``parts`` have name, size, labels, accuracy, difference, p- and q-value. Its ``slices`` can be given to
        ``Pool(slices=…)``, so that the next round can look there.

    Raises
    ------
    LabelError, DataError
        As for :func:`opacc_ray.estimate`.
    SpecError
        ``fdr`` is not between 0 and 1.
    """
    if not 0 < fdr < 1:
        raise SpecError(f"fdr={fdr}: give a number between 0 and 1, such as 0.05")
    sample, view = read_sample(labelled_rounds(selection, labels, outcomes), level, pool, history)
    _, classes = classes_of(pool, view, sample.truth)
    conditions = list(conditions_of(view, list(classes) if len(classes) > 1 else None))
    share, fit = len(sample.outcome) / view.size, fit_failures(view, sample)
    slices = [Candidate((one,)) for one in conditions if one.kind is Kind.SLICE and one.size() * share >= FEWEST]
    others = all_candidates(view, conditions, round(LEAST_EXPECTED / share), slices)
    families = [family for family in (slices, others) if family]  # fixed before the labels
    tests = partial(_tested, sample=sample, fit=fit)
    rows = [
        row
        for family in families
        for row in zip(family, _judged(family, tests, len(families), level, fdr), strict=True)
    ]
    rows.sort(key=lambda row: (row[1].q_value, row[1].p_value, -row[1].difference))
    first = [candidate for candidate, _ in rows if not candidate.is_slice][:MOST_SHOWN]
    return Discovery(
        parts=tuple(part for _, part in rows),
        slices={one.name: Slicing((one.name, "rest"), (~one.holds()).astype(np.int32)) for one in first},
        suspects=_suspects(view.size, rows, max(MOST_SUSPECTS >> (len(sample.rounds.selections) - 1), FEWEST_SUSPECTS)),
        labels=len(sample.outcome),
        fdr=fdr,
        level=level,
    )


def _suspects(size: int, rows: Sequence[tuple[Candidate, WorsePart]], most: int) -> Slicing:
    """Return the slices and classes that look worst; what two of them share belongs to the first."""
    ranked = sorted(rows, key=lambda row: (row[1].p_value, -row[1].difference))
    single = [candidate for candidate, part in ranked if len(candidate.conditions) == 1 and not part.confirmed]
    suspects = [candidate for candidate in single if candidate.conditions[0].kind is not Kind.TAIL][:most]
    codes = np.full(size, len(suspects), dtype=np.int32)
    for place, candidate in reversed(list(enumerate(suspects))):
        codes[candidate.holds()] = place
    return Slicing((*(candidate.name for candidate in suspects), "rest"), codes)


# -- tests ------------------------------------------------------------------------------------------------------


def _tested(candidates: Sequence[Candidate], sample: Sample, fit: Fit | None, level: float) -> list[WorsePart]:
    """Return what the labels say of each candidate, a few at a time; q is not known yet."""
    size, parts = sample.rounds.pool_size, list[WorsePart]()
    few = max(_MOST_CODES // size, 1)
    for at in range(0, len(candidates), few):
        some = candidates[at : at + few]
        # the rest is slice 0 and the part slice 1
        groups = [Groups(np.zeros(size, dtype=np.int8), 1, one.holds().astype(np.int8), 2) for one in some]
        _, evidence = measure(sample, fit, groups)
        parts += [_part(one, its, sample, level) for one, its in zip(some, evidence, strict=True)]
    return parts


def _part(candidate: Candidate, evidence: Evidence, sample: Sample, level: float) -> WorsePart:
    """Return what the labels say of a candidate."""
    totals = ClassTotals(evidence, sample)
    rest, part = totals.failures(totals.slices, 2)
    domain = np.where(totals.slices == 1, 0, -1)
    accuracy, contrast = totals.accuracies(domain, 1, level)[0].estimate, Contrast(part, rest)
    inside = candidate.holds(sample.rounds.index)
    weight, failures = sample.rounds.weights[inside], float(sample.failure[inside].sum())
    by_rounds = float(weight.sum()) ** 2 / max(float(weight @ weight), 1e-300)
    effective = round(part.law.labels if isinstance(part.law, AdjustedWilson) else by_rounds, 6)
    p = contrast.p_value(MARGIN) if effective >= LEAST_EFFECTIVE and failures >= LEAST_FAILURES else 1.0
    ends, size = contrast.interval(level), int(candidate.holds().sum())
    return WorsePart(candidate.name, size, part.num, accuracy, contrast.difference, *ends, p, 1.0, False)


def _judged(
    family: Sequence[Candidate], tests: Callable[..., list[WorsePart]], several: int, level: float, fdr: float
) -> list[WorsePart]:
    """Return the parts of one of ``several`` families with q-values, and the intervals of selected parts."""
    parts = tests(family, level=level)
    values = [min(several * q, 1.0) for q in q_values([part.p_value for part in parts])]
    confirmed = [place for place, q in enumerate(values) if q <= fdr]
    selected = 1 - len(confirmed) * (1 - level) / (len(family) * several)
    for place, part in zip(confirmed, tests([family[place] for place in confirmed], level=selected), strict=True):
        parts[place] = replace(part, confirmed=True)
    return [replace(part, q_value=q) for part, q in zip(parts, values, strict=True)]
