"""Find parts of a pool where a model is worse than in the rest, and test each by labels that did not propose it.

There are two families. *Slices of the pool* are named before any label, so all labels test them: those in which a
simple random sample of as many labels would have at least five. *Proposed parts* are found by the labels of the first
rounds (:mod:`~opacc_ray.samplers.proposals`), so only later rounds test them. Given all earlier labels, a round is a
random sample of what was left. The examples that proposed are left out of the part and of the rest: what is tested is
the accuracy on the other examples of the pool. The labels of a single round are split at random, and each half is a
sample of the same design.

Every part has a p-value for "the accuracy is not lower than in the rest": Fisher's exact one for simple random samples,
else from intervals for unequal probabilities (:mod:`opacc_ray.estimators.against_rest`). A part with fewer than five
labels that test it has p = 1. Benjamini and Hochberg's q-values are computed in each family. With two families they are
doubled, as the share of false ones among all confirmed parts is at most the sum of the two families' shares. Confirmed
are the parts with q at most ``fdr``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.against_rest import Contrast, fisher, q_values
from opacc_ray.estimators.class_totals import ClassTotals, Labels
from opacc_ray.estimators.metrics import ACCURACY, FEWEST, Metric
from opacc_ray.estimators.rounds import as_simple_random, is_binary
from opacc_ray.estimators.totals import Evidence, Groups
from opacc_ray.parts.view import View
from opacc_ray.samplers.metric_estimates import Sample, evidence_of
from opacc_ray.samplers.proposals import Candidate, Condition, Kind, Known, conditions_of, propose
from opacc_ray.slices import Slicing

MOST_PROPOSED = 20
"""Most proposals that are tested."""

FDR = 0.05
"""Expected share of false ones among the confirmed parts."""

PROPOSING = 0.5
"""Share of the labels that propose, about."""

_REST, _PART, _LEFT_OUT = range(3)


@dataclass(frozen=True)
class WorsePart:
    """A part of the pool, and what labels that did not propose it say of it.

    ``size`` counts the examples of the pool in it, and ``labels`` those that test it. ``low`` .. ``high`` holds the
    ``difference``, how much lower its accuracy is than that of the rest, at the level of ``accuracy``.
    """

    name: str
    proposed: bool  # by labels; False: a slice of the pool
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

    ``proposing`` counts the labels that proposed, and ``confirming`` those that tested the proposals. ``slices`` has a
    slicing for each proposed part, by its name, as ``Pool(slices=…)`` accepts it: the next round can draw there, and
    test it with all labels from then on.
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
        found = f"{counted(len(self.confirmed), 'part')} of {len(self.parts)} confirmed: {self.proposing} labels "
        found += f"proposed {len(self.slices)}, which {self.confirming} others tested; all tested slices of the pool"
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
    """Test the slices of the pool by all labels, and what the labels of some rounds propose by those of later ones.

    Parameters
    ----------
    classes : names of the predicted classes; fewer than two for a regression

    Raises
    ------
    SpecError
        A number asked for is not valid.
    LabelError
        There are fewer than two labels.
    """
    before, after, first = _split(sample, asked)
    known = Known(np.concatenate([own.index for own in before.selections]), 1 - np.concatenate(before.outcomes))
    conditions = list(conditions_of(view, list(classes) if len(classes) > 1 else None))
    proposed = propose(view, known, conditions, asked.most, sample.history)
    slices = _large_slices(conditions, sum(map(len, sample.selections)) / view.size)
    tests = [
        _tested(slices, _Test(sample, view, asked.level)),
        _tested(proposed, _Test(after, view, asked.level, first, known.places if first else None)),
    ]
    several = 2 if slices else 1
    parts = [own for family in tests for own in _with_q(family, several, asked.fdr)]
    parts.sort(key=lambda own: (own.q_value, own.p_value, -own.difference))
    found = {own.name: Slicing((own.name, "rest"), (~own.holds()).astype(np.int32)) for own in proposed}
    confirming = sum(map(len, after.selections[first:]))
    return Discovery(tuple(parts), found, len(known.places), confirming, asked.fdr, asked.level)


def _split(sample: Sample, asked: Asked) -> tuple[Sample, Sample, int]:
    """Return the labels that propose, those that test, and the number of their first round."""
    rounds, first = len(sample.selections), asked.proposing
    if not 0 < asked.fdr < 1:
        raise SpecError(f"fdr={asked.fdr}: give a number between 0 and 1, such as 0.05")
    if asked.most < 1:
        raise SpecError(f"most={asked.most}: give the most parts to propose, such as {MOST_PROPOSED}")
    if rounds == 1:
        return *_halves(sample, asked.seed), 0
    if first is None:
        labels = np.cumsum([len(own) for own in sample.selections])
        first = 1 + int(np.argmin(np.abs(labels[:-1] / labels[-1] - PROPOSING)))
    if not 0 < first < rounds:
        raise SpecError(f"proposing={first}: give 1 to {rounds - 1} of the rounds, so that a later one confirms")
    before = sample._replace(selections=sample.selections[:first], outcomes=sample.outcomes[:first])
    return before, sample, first


def _halves(sample: Sample, seed: int) -> tuple[Sample, Sample]:
    """Return the labels of a single round in two random parts."""
    (selection,), (outcome,) = sample.selections, sample.outcomes
    if len(selection) < 2:
        raise LabelError(f"{counted(len(selection), 'label')} cannot both propose and confirm: label more")
    num = max(round(PROPOSING * len(selection)), 1)
    own = np.random.default_rng(seed).permutation(len(selection)) < num
    first, second = (
        sample._replace(selections=[selection.restrict(keep)], outcomes=[outcome[keep]]) for keep in (own, ~own)
    )
    return first, second


def _large_slices(conditions: Sequence[Condition], share: float) -> list[Candidate]:
    """Return the slices of the pool of which a ``share`` is at least FEWEST examples."""
    return [Candidate((own,)) for own in conditions if own.kind is Kind.SLICE and own.size() * share >= FEWEST]


# -- tests ------------------------------------------------------------------------------------------------------


class _Test(NamedTuple):
    """The labels that test parts."""

    sample: Sample
    view: View
    level: float
    first: int = 0  # number of their first round; earlier ones count as labelled before
    left_out: NDArray[np.int64] | None = None  # (k,) examples

    def groups(self, part: Candidate) -> Groups:
        """Return the pool as the rest, the part, and what is left out."""
        codes = np.where(part.holds(), _PART, _REST).astype(np.int8)
        if self.left_out is not None:
            codes[self.left_out] = _LEFT_OUT
        return Groups(np.zeros(self.view.size, dtype=np.int8), 1, codes, 3)

    def exact(self, part: Candidate) -> float | None:
        """Return Fisher's p-value, or None where the rounds are no simple random sample, or outcomes are scores."""
        selections, outcome = self.sample.selections[self.first :], np.concatenate(self.sample.outcomes[self.first :])
        if as_simple_random(selections) is None or not is_binary(outcome):
            return None
        inside, failure = part.holds(np.concatenate([own.index for own in selections])), 1 - outcome
        return fisher(int(failure[inside].sum()), int(inside.sum()), int(failure.sum()), len(failure))

    def of(self, part: Candidate, evidence: Evidence) -> WorsePart:
        """Return what the labels say of a part."""
        totals = ClassTotals(evidence, Labels(1 - np.concatenate(self.sample.outcomes)))
        rest, own, _ = totals.failures(totals.slices, 3)
        accuracy, contrast = totals.estimate(Metric(ACCURACY), 0, self.level)[_PART], Contrast(own, rest)
        exact = self.exact(part)
        p = 1.0 if own.num < FEWEST else contrast.p_value() if exact is None else exact
        ends, size = contrast.interval(self.level), int(part.holds().sum())
        proposed = self.left_out is not None or part.evidence != 0
        return WorsePart(part.name, proposed, size, own.num, accuracy, contrast.difference, *ends, p, 1.0, False)


def _tested(parts: Sequence[Candidate], test: _Test) -> list[WorsePart]:
    """Return what the labels say of each part; q is not known yet."""
    if not parts:
        return []
    groups = [test.groups(own) for own in parts]
    rows = zip(parts, evidence_of(test.sample, groups, test.view, test.first), strict=True)
    return [test.of(own, evidence) for own, evidence in rows]


def _with_q(family: Sequence[WorsePart], several: int, fdr: float) -> list[WorsePart]:
    """Return one of ``several`` families with its q-values."""
    found = [min(several * q, 1.0) for q in q_values([own.p_value for own in family])]
    return [replace(own, q_value=q, confirmed=q <= fdr) for own, q in zip(family, found, strict=True)]
