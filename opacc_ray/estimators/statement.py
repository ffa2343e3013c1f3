"""What an audit states: the interval of its sampling design, with allowance for what else can move the number.

Three things decide the interval that is stated. The design gives one at the level that is asked for. Where sampling
stopped once the interval was narrow enough (`looks.py`), the interval of the last look is stated, which holds under
that rule. Where second opinions show errors of annotators that matter in addition to the sampling error, the interval
is widened for them (`label_noise.py`). With both, the interval of the last look is widened, and holds under the rule.

Errors of annotators matter where they are likely to move the accuracy by more than a quarter of the half-width. They
move it by δ/2 at most where they are rare and alike everywhere, so where

    δ̂ / 2 > ¼ · (high - low) / 2

Beyond that an interval of 95 % covers 92 % at best. Fewer than `LEAST_OPINIONS` examples with two opinions, such as a
few doubtful ones that somebody checked, are too few to state another interval by: a note reports what they show.
"""

from dataclasses import replace
from typing import Literal, NamedTuple

from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.label_noise import widen
from opacc_ray.estimators.looks import look_level

LEAST_OPINIONS = 10
"""Examples with two opinions from which on the interval is widened."""

BY_CHANCE = 0.1
"""Krippendorff's alpha up to which annotators agree no better than chance."""

Allowance = Literal["stopping", "label noise"]


class SecondOpinions(NamedTuple):
    """What the examples with two opinions show."""

    examples: int
    differ: int  # of them, those on which the outcomes of two opinions differ
    disagreement: Estimate  # mean difference of the outcomes of two opinions, over the pool
    alpha: float | None  # Krippendorff's, of the labels; None: not defined

    @property
    def only_chance(self) -> bool:
        """Whether annotators agree no better than chance."""
        return self.alpha is not None and self.alpha <= BY_CHANCE and self.differ > 1


class Statement(NamedTuple):
    """What is stated."""

    estimate: Estimate
    allows_for: tuple[Allowance, ...]
    notes: tuple[str, ...]  # what a reader must know of the number, in sentences


class Circumstances(NamedTuple):
    """What decides how an estimate of an audit is stated.

    Attributes
    ----------
    level : how often the stated interval holds.
    goal : half-width at which sampling stopped; None: no such rule stopped it.
    earlier_goals : half-widths that were asked for before.
    opinions : None without second opinions.
    """

    level: float
    goal: float | None = None
    earlier_goals: tuple[float, ...] = ()
    opinions: SecondOpinions | None = None

    @property
    def own_level(self) -> float:
        """The level at which the estimate to state is to be made."""
        return self.level if self.goal is None else look_level(self.level)

    def statement(self, found: Estimate) -> Statement:
        """Return what is stated, from the estimate by the sampling design at :attr:`own_level`."""
        stated, allows_for = replace(found, level=self.level), list[Allowance]()
        if self.goal is not None:
            allows_for.append("stopping")
            stated = replace(stated, interval=f"{stated.interval} for stopping at ±{self.goal:g}")
        if self.opinions and self.opinions.examples >= LEAST_OPINIONS and _matters(found, self.opinions):
            allows_for.append("label noise")
            low, high = widen(found, self.opinions.disagreement)
            stated = replace(stated, low=low, high=high, interval=f"{stated.interval} widened for label noise")
        return Statement(stated, tuple(allows_for), (*self._of_stopping(), *_of_opinions(found, self.opinions)))

    def _of_stopping(self) -> list[str]:
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
    """Whether errors of annotators matter in addition to the sampling error."""
    return opinions.differ > 0 and opinions.disagreement.value > (found.high - found.low) / 4


def _of_opinions(found: Estimate, opinions: SecondOpinions | None) -> list[str]:
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
