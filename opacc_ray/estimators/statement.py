"""Choose the interval that an audit reports: that of its sampling design, widened for other errors.

The design gives an interval at the requested level. If sampling stopped at a planned width
(``interim_analyses.py``), the interval of the last analysis is reported, which holds under that rule. If second
opinions show that annotators' errors matter, the interval is widened for them (``label_noise.py``). With both, the
interval of the last analysis is widened.

Annotators' errors matter if they probably move the accuracy by more than a quarter of the half-width. They move it by
at most δ/2 if they are rare and equally likely everywhere, so if

    δ̂ / 2 > ¼ · (high - low) / 2

Beyond that an interval of 95 % covers at most 92 %. Fewer than `LEAST_OPINIONS` examples with two opinions are too few
to widen an interval: a note reports what they show.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.interim_analyses import interim_level
from opacc_ray.estimators.label_noise import widen

LEAST_OPINIONS = 10
"""Examples with two opinions from which on the interval is widened."""

BY_CHANCE = 0.1
"""Largest value of Krippendorff's alpha that counts as agreement by chance."""

Allowance = Literal["stopping", "label noise"]


class SecondOpinions(NamedTuple):
    """Agreement of annotators on the examples with two opinions."""

    examples: int
    differ: int  # examples on which the outcomes of the two opinions differ
    disagreement: Estimate  # mean difference of the outcomes of two opinions, over the pool
    alpha: float | None  # Krippendorff's, of the labels; None: not defined

    @property
    def only_chance(self) -> bool:
        """Whether annotators agree no better than chance."""
        return self.alpha is not None and self.alpha <= BY_CHANCE and self.differ > 1


class Statement(NamedTuple):
    """The reported estimate."""

    estimate: Estimate
    allows_for: tuple[Allowance, ...]
    notes: tuple[str, ...]  # sentences that a reader must know about the number


class Circumstances(NamedTuple):
    """Circumstances that decide which interval an audit reports.

    Attributes
    ----------
    level : coverage of the reported interval.
    goal : half-width at which sampling stopped; None without such a rule.
    earlier_goals : previous goals.
    opinions : None without second opinions.
    """

    level: float
    goal: float | None = None
    earlier_goals: tuple[float, ...] = ()
    opinions: SecondOpinions | None = None

    @property
    def own_level(self) -> float:
        """Level of the estimate to report."""
        return self.level if self.goal is None else interim_level(self.level)

    def statement(self, found: Estimate) -> Statement:
        """Return the reported estimate, from the one by the sampling design at :attr:`own_level`."""
        stated, allows_for = replace(found, level=self.level), list[Allowance]()
        if self.goal is not None:
            allows_for.append("stopping")
            stated = replace(stated, interval=f"{stated.interval} for stopping at ±{self.goal:g}")
        if self.opinions and self.opinions.examples >= LEAST_OPINIONS and _matters(found, self.opinions):
            allows_for.append("label noise")
            low, high = widen(found, self.opinions.disagreement)
            stated = replace(stated, low=low, high=high, interval=f"{stated.interval} widened for label noise")
        return Statement(stated, tuple(allows_for), (*self._stopping_notes(), *_opinion_notes(found, self.opinions)))

    def _stopping_notes(self) -> list[str]:
        if self.goal is None:
            return []
        notes = [f"Sampling stopped once the interval was within ±{self.goal:g}; the stated interval allows for that."]
        if self.earlier_goals:
            notes.append(
                f"The goal was ±{self.earlier_goals[-1]:g} before; if it was changed because of what the labels show, "
                "state the interval that holds at any time."
            )
        return notes


def _matters(found: Estimate, opinions: SecondOpinions) -> bool:
    """Return whether errors of annotators matter compared with the sampling error."""
    return opinions.differ > 0 and opinions.disagreement.value > (found.high - found.low) / 4


def _opinion_notes(found: Estimate, opinions: SecondOpinions | None) -> list[str]:
    if opinions is None:
        return []
    notes = []
    shown = f"on {opinions.differ} of {opinions.examples} examples with two opinions"
    if opinions.only_chance:
        notes.append(
            f"Annotators agree no better than chance (alpha {opinions.alpha:.2f}): they differ {shown}. "
            "Clarify the labelling instructions before you rely on this number."
        )
    if not _matters(found, opinions):
        return notes
    if opinions.examples >= LEAST_OPINIONS:
        return [*notes, f"Annotators differ {shown}; the stated interval is widened for errors of labels."]
    return [
        *notes,
        f"Annotators differ {shown}, too few to widen the interval by; errors of labels may move the accuracy beyond "
        f"it. Collect second opinions on {LEAST_OPINIONS} examples or more.",
    ]
