"""Find parts of a pool where a model is worse than in the rest, and bound the share of false ones.

The candidates (:mod:`~opacc_ray.samplers.proposals`) are known before any label, so all labels test all of them. There
are two families: the slices that the pool has, and all other candidates. A slice is tested if a simple random sample of
as many labels would have at least five in it, another candidate with at least ten. Candidates that mostly repeat an
earlier one are left out.

Alternatively the labels of the first rounds *propose* a few of the other candidates, and only later rounds test these.
Given all earlier labels, a round is a random sample of what was left. The examples that proposed are left out of the
part and of the rest: what is tested is the accuracy on the other examples of the pool. The labels of a single round are
split at random, and each half is a sample of the same design. Fewer tests make up for the labels that propose
only where there are many thousands of candidates.

A later round can look where the first ones found most: :attr:`Discovery.suspects` has the slices and classes with the
least p-values that are not confirmed, for ``serve`` of `neyman`. All labels then test all candidates, as before: the
number of tests does not change, and the rounds are weighted by their designs.

Every part has a p-value for "the accuracy is not lower than in the rest": Fisher's exact one for simple random samples,
else from intervals for unequal probabilities (:mod:`opacc_ray.estimators.against_rest`). A part with fewer than five
labels that test it has p = 1. Benjamini and Hochberg's q-values are computed in each family. With two families they are
doubled, as the share of false ones among all confirmed parts is at most the sum of the two families' shares. Confirmed
are the parts with q at most ``fdr``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.against_rest import Contrast, fisher, q_values
from opacc_ray.estimators.class_totals import ClassTotals, Labels
from opacc_ray.estimators.metrics import ACCURACY, FEWEST, Metric
from opacc_ray.estimators.rounds import as_simple_random, is_binary
from opacc_ray.estimators.totals import Array, Evidence, Groups
from opacc_ray.parts.view import View
from opacc_ray.samplers.metric_estimates import Sample, evidence_of
from opacc_ray.samplers.proposals import Candidate, Kind, Known, all_candidates, conditions_of, propose
from opacc_ray.slices import Slicing

MOST_PROPOSED = 20
"""Most proposals that are tested."""

MOST_SUSPECTS, FEWEST_SUSPECTS = 8, 2
"""Slices and classes where the second round looks; each later one looks at half as many, down to the fewest."""

MOST_SHOWN = 20
"""Parts in the table, unless more are confirmed."""

FDR = 0.05
"""Expected share of false ones among the confirmed parts."""

LEAST_EXPECTED = 10
"""Labels that a simple random sample would have in a candidate that is not a slice, at least."""

_MOST_CODES = 1 << 28
"""Bytes of the codes of parts that are tested at a time."""

_REST, _PART, _LEFT_OUT = range(3)


@dataclass(frozen=True)
class WorsePart:
    """A part of the pool, and what labels that did not propose it say of it.

    ``size`` counts the examples of the pool in it, and ``labels`` those that test it. ``low`` .. ``high`` holds the
    ``difference``, how much lower its accuracy is than that of the rest, at the level of ``accuracy``.
    """

    name: str
    proposed: bool  # by other labels; False: known before any label
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

    ``proposing`` counts the labels that proposed, 0 if none did, and ``testing`` those that tested what is not a slice
    of the pool. ``slices`` has slicings of the first of these parts, by name, as ``Pool(slices=…)`` accepts them: the
    next round can look there. ``suspects`` is one slicing of the slices and classes with the least p-values that are
    not confirmed; its last slice is the rest of the pool.
    """

    parts: tuple[WorsePart, ...]
    slices: dict[str, Slicing]
    suspects: Slicing
    proposing: int
    testing: int
    fdr: float
    level: float

    @property
    def confirmed(self) -> tuple[WorsePart, ...]:
        """Return the parts that are confirmed."""
        return tuple(own for own in self.parts if own.confirmed)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types: the counts, and the parts as a list."""
        counts = {name: getattr(self, name) for name in ("proposing", "testing", "fdr", "level")}
        return counts | {"parts": [own.to_dict() for own in self.parts]}

    def __str__(self) -> str:
        found = (
            f"{len(self.confirmed)} of {counted(len(self.parts), 'part')} confirmed by {counted(self.testing, 'label')}"
        )
        if self.proposing:
            found += f"; {self.proposing} others proposed those that are not slices of the pool"
        shown = self.parts[: max(MOST_SHOWN, len(self.confirmed))]
        if not shown:
            return found
        width = max(len(own.name) for own in shown)
        head = f"{'part':{width}}  {'size':>8}  labels  accuracy  below the rest by  {'p':>6}  {'q':>6}"
        return "\n".join([found, head, *(_line(own, width) for own in shown)])


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
    proposing: int = 0  # rounds; of a single one, half of its labels
    most: int = MOST_PROPOSED


def discover(sample: Sample, classes: Sequence[str], view: View, asked: Asked) -> Discovery:
    """Test the candidates by all labels, or what the labels of some rounds propose by those of later ones.

    Parameters
    ----------
    classes : names of the predicted classes; fewer than two for a regression

    Raises
    ------
    SpecError
        A number asked for is not valid.
    LabelError
        There is a single label, and it should propose.
    """
    _check(asked, len(sample.selections))
    conditions = list(conditions_of(view, list(classes) if len(classes) > 1 else None))
    share = sum(map(len, sample.selections)) / view.size
    slices = [Candidate((own,)) for own in conditions if own.kind is Kind.SLICE and own.size() * share >= FEWEST]
    test, before = _Test(sample, view, asked.level), 0
    families = [(slices, test)]
    if asked.proposing:
        known, others = _split(test, asked)
        families.append((propose(view, known, conditions, asked.most, sample.history), others))
        before, test = len(known.places), others
    else:
        families.append((all_candidates(view, conditions, round(LEAST_EXPECTED / share), slices), test))
    several = 2 if slices and (asked.proposing or families[1][0]) else 1  # fixed before the labels
    rows = [row for own, by in families for row in zip(own, _with_q(_tested(own, by), several, asked.fdr), strict=True)]
    rows.sort(key=lambda row: (row[1].q_value, row[1].p_value, -row[1].difference))
    found = [own for own, _ in rows if not own.is_slice][: asked.most]
    slicings = {own.name: Slicing((own.name, "rest"), (~own.holds()).astype(np.int32)) for own in found}
    labels = sum(map(len, test.sample.selections[test.first :]))
    most = max(MOST_SUSPECTS >> (len(sample.selections) - 1), FEWEST_SUSPECTS)
    suspects = _suspects(view.size, rows, most)
    return Discovery(tuple(part for _, part in rows), slicings, suspects, before, labels, asked.fdr, asked.level)


def _suspects(size: int, rows: Sequence[tuple[Candidate, WorsePart]], most: int) -> Slicing:
    """Return the slices and classes that look worst; what two of them share belongs to the first."""
    ranked = sorted(rows, key=lambda row: (row[1].p_value, -row[1].difference))
    named = [own for own, part in ranked if len(own.conditions) == 1 and not part.confirmed]
    found = [own for own in named if own.conditions[0].kind is not Kind.TAIL][:most]
    codes = np.full(size, len(found), dtype=np.int32)
    for place, own in reversed(list(enumerate(found))):
        codes[own.holds()] = place
    return Slicing((*(own.name for own in found), "rest"), codes)


def _check(asked: Asked, rounds: int) -> None:
    """Raise SpecError if a number asked for is not valid."""
    if not 0 < asked.fdr < 1:
        raise SpecError(f"fdr={asked.fdr}: give a number between 0 and 1, such as 0.05")
    if asked.most < 1:
        raise SpecError(f"most={asked.most}: give a number of parts, such as {MOST_PROPOSED}")
    if not 0 <= asked.proposing <= max(rounds - 1, 1):
        raise SpecError(
            f"proposing={asked.proposing}: give 0 to {max(rounds - 1, 1)} of the rounds, so that a later one tests"
        )


def _split(test: "_Test", asked: Asked) -> tuple[Known, "_Test"]:
    """Return the labels that propose, and those that test."""
    first, sample = asked.proposing, test.sample
    before, after = sample._replace(selections=sample.selections[:first], outcomes=sample.outcomes[:first]), sample
    if len(sample.selections) == 1:
        first = 0
        before, after = _halves(sample, asked.seed)
    known = Known(np.concatenate([own.index for own in before.selections]), 1 - np.concatenate(before.outcomes))
    return known, test._replace(sample=after, first=first, left_out=known.places if first else None)


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
        return WorsePart(part.name, part.proposed, size, own.num, accuracy, contrast.difference, *ends, p, 1.0, False)


def _tested(parts: Sequence[Candidate], test: _Test) -> list[WorsePart]:
    """Return what the labels say of each part, a few at a time; q is not known yet."""
    found, few = list[WorsePart](), max(_MOST_CODES // test.view.size, 1)
    for at in range(0, len(parts), few):
        own = parts[at : at + few]
        groups = [test.groups(part) for part in own]
        evidence = evidence_of(test.sample, partial(_returned, groups), test.view, test.view.size, test.first)
        found += [test.of(part, its) for part, its in zip(own, evidence, strict=True)]
    return found


def _returned(groups: Sequence[Groups], _: Array) -> Sequence[Groups]:
    return groups


def _with_q(family: Sequence[WorsePart], several: int, fdr: float) -> list[WorsePart]:
    """Return one of ``several`` families with its q-values."""
    found = [min(several * q, 1.0) for q in q_values([own.p_value for own in family])]
    return [replace(own, q_value=q, confirmed=q <= fdr) for own, q in zip(family, found, strict=True)]
