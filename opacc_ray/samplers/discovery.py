"""Find parts of a pool where a model is worse than in the rest, proposed and confirmed by different labels.

The labels of the first rounds propose (:mod:`~opacc_ray.samplers.proposals`), those of later rounds confirm. So no
label speaks for a part because it was the reason to look there. Each round is a random sample of what was not labelled
before, given all earlier labels. The examples that proposed are left out of the parts and of the rest: what is tested
is the accuracy on the other examples of the pool. The labels of a single round are split at random, and each half is a
sample of the same design.

For every proposal one p-value says how well the confirming labels agree with "the accuracy is not lower than in the
rest": Fisher's exact one for simple random samples, else from intervals for unequal probabilities
(:mod:`opacc_ray.estimators.against_rest`). A part with fewer than five confirming labels has p = 1. Confirmed are those
with Benjamini and Hochberg's q at most ``fdr``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.against_rest import Contrast, fisher, q_values
from opacc_ray.estimators.class_totals import ClassTotals, Labels
from opacc_ray.estimators.metrics import ACCURACY, FEWEST, Metric
from opacc_ray.estimators.rounds import as_simple_random, is_binary
from opacc_ray.estimators.totals import Groups
from opacc_ray.parts.view import View
from opacc_ray.samplers.metric_estimates import Sample, evidence_of
from opacc_ray.samplers.proposals import Candidate, Known, propose
from opacc_ray.slices import Slicing

MOST_PROPOSED = 20
"""Most proposals that are tested."""

FDR = 0.05
"""Expected share of false ones among the confirmed parts."""

_REST, _PART, _PROPOSED = range(3)


@dataclass(frozen=True)
class WorsePart:
    """A part of the pool that was proposed, and what the confirming labels say of it.

    ``size`` counts the examples of the pool in it, and ``labels`` the confirming ones. ``low`` .. ``high`` holds the
    ``difference``, how much lower its accuracy is than that of the rest, at the level of ``accuracy``.
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
    """The proposed parts, the confirmed first, then by p-value.

    ``proposing`` and ``confirming`` count labels; ``slices`` has a slicing for each part, by its name, as
    ``Pool(slices=…)`` accepts it: the next round can draw there.
    """

    parts: tuple[WorsePart, ...]
    slices: dict[str, Slicing]
    proposing: int
    confirming: int
    fdr: float
    level: float

    @property
    def confirmed(self) -> tuple[WorsePart, ...]:
        """Return the parts that are confirmed."""
        return tuple(own for own in self.parts if own.confirmed)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types: the counts, and the parts as a list."""
        counts = {name: getattr(self, name) for name in ("proposing", "confirming", "fdr", "level")}
        return counts | {"parts": [own.to_dict() for own in self.parts]}

    def __str__(self) -> str:
        found = f"{counted(len(self.parts), 'part')} proposed by {counted(self.proposing, 'label')}, "
        found += f"{len(self.confirmed)} confirmed by {self.confirming} others"
        if not self.parts:
            return found
        width = max(len(own.name) for own in self.parts)
        head = f"{'part':{width}}  {'size':>8}  labels  accuracy  below the rest by  {'p':>6}  {'q':>6}"
        return "\n".join([found, head, *(_line(own, width) for own in self.parts)])


def _line(part: WorsePart, width: int) -> str:
    between = f"{100 * part.difference:.0f} [{100 * part.low:.0f}, {100 * part.high:.0f}]"
    return (
        f"{part.name:{width}}  {part.size:8,}  {part.labels:6}  {100 * part.accuracy.value:6.1f} %  {between:>17}  "
        f"{part.p_value:6.4f}  {part.q_value:6.4f}{'  confirmed' if part.confirmed else ''}"
    )


class Asked(NamedTuple):
    """What is asked for."""

    level: float = 0.95
    fdr: float = FDR
    seed: int = 0
    proposing: int | None = None  # rounds; None: as many as have about half of the labels
    most: int = MOST_PROPOSED


def discover(sample: Sample, predicted: NDArray[Any], classes: Sequence[str], view: View, asked: Asked) -> Discovery:
    """Propose parts by the labels of some rounds, and confirm them by those of later ones.

    Parameters
    ----------
    predicted : (N,) class of every example, 0 .. C - 1
    classes : C names

    Raises
    ------
    SpecError
        A number asked for is not valid.
    LabelError
        There are fewer than two labels.
    """
    before, after, first = _split(sample, asked)
    known = Known(np.concatenate([own.index for own in before.selections]), 1 - np.concatenate(before.outcomes))
    names = list(classes) if len(classes) > 1 else None
    proposed = propose(view, known, names, asked.most, sample.history)
    confirming = sum(map(len, after.selections[first:]))
    tested = _tested(proposed, after, view, first, known, asked) if proposed else []
    q = q_values([own.p_value for own in tested])
    parts = [_with_q(own, value, asked.fdr) for own, value in zip(tested, q, strict=True)]
    slices = {own.name: Slicing((own.name, "rest"), (~own.holds()).astype(np.int32)) for own in proposed}
    parts.sort(key=lambda own: (own.p_value, -own.difference))
    return Discovery(tuple(parts), slices, len(known.places), confirming, asked.fdr, asked.level)


def _split(sample: Sample, asked: Asked) -> tuple[Sample, Sample, int]:
    """Return the labels that propose, those that confirm, and the number of their first round."""
    rounds, first = len(sample.selections), asked.proposing
    if not 0 < asked.fdr < 1:
        raise SpecError(f"fdr={asked.fdr}: give a number between 0 and 1, such as 0.05")
    if asked.most < 1:
        raise SpecError(f"most={asked.most}: give the most parts to propose, such as {MOST_PROPOSED}")
    if rounds == 1:
        return *_halves(sample, asked.seed), 0
    if first is None:
        labels = np.cumsum([len(own) for own in sample.selections])
        first = 1 + int(np.argmin(np.abs(labels[:-1] / labels[-1] - 0.5)))
    if not 0 < first < rounds:
        raise SpecError(f"proposing={first}: give 1 to {rounds - 1} of the rounds, so that a later one confirms")
    before = sample._replace(selections=sample.selections[:first], outcomes=sample.outcomes[:first])
    return before, sample, first


def _halves(sample: Sample, seed: int) -> tuple[Sample, Sample]:
    """Return the labels of a single round in two random halves."""
    (selection,), (outcome,) = sample.selections, sample.outcomes
    if len(selection) < 2:
        raise LabelError(f"{counted(len(selection), 'label')} cannot both propose and confirm: label more")
    own = np.random.default_rng(seed).permutation(len(selection)) < len(selection) // 2
    first, second = (
        sample._replace(selections=[selection.restrict(keep)], outcomes=[outcome[keep]]) for keep in (own, ~own)
    )
    return first, second


def _tested(
    proposed: Sequence[Candidate], sample: Sample, view: View, first: int, known: Known, asked: Asked
) -> list[WorsePart]:
    """Return the proposals with what the rounds from number ``first`` on say of them; q is not known yet."""
    single = np.zeros(view.size, dtype=np.int8)
    groups = list[Groups]()
    for own in proposed:
        codes = np.where(own.holds(), _PART, _REST).astype(np.int8)
        if first:
            codes[known.places] = _PROPOSED
        groups.append(Groups(single, 1, codes, 3))
    failure = 1 - np.concatenate(sample.outcomes)
    found = list[WorsePart]()
    for own, evidence in zip(proposed, evidence_of(sample, groups, view, first), strict=True):
        totals = ClassTotals(evidence, Labels(failure))
        part, rest = totals.failures(totals.slices, 3)[:2][::-1]
        contrast, estimate = Contrast(part, rest), totals.estimate(Metric(ACCURACY), 0, asked.level)[_PART]
        exact = _exact(own, sample, first)
        p = 1.0 if part.num < FEWEST else contrast.p_value() if exact is None else exact
        low, high = contrast.interval(asked.level)
        size = int(own.holds().sum())
        found.append(
            WorsePart(own.name, size, part.num, estimate, contrast.difference, low, high, p, 1.0, confirmed=False)
        )
    return found


def _exact(own: Candidate, sample: Sample, first: int) -> float | None:
    """Return Fisher's p-value, or None where the rounds are no simple random sample, or outcomes are scores."""
    outcome = np.concatenate(sample.outcomes[first:])
    if as_simple_random(sample.selections[first:]) is None or not is_binary(outcome):
        return None
    inside = own.holds(np.concatenate([part.index for part in sample.selections[first:]]))
    failures = int((1 - outcome)[inside].sum())
    return fisher(failures, int(inside.sum()), int((1 - outcome).sum()), len(outcome))


def _with_q(own: WorsePart, q: float, fdr: float) -> WorsePart:
    return WorsePart(**{**vars(own), "q_value": q, "confirmed": q <= fdr})
