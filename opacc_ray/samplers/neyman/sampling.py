"""Model-assisted adaptive Neyman sampling: labels where the outcome is most in doubt, in rounds that learn. Ours.

A predictor p(x) of failure (:mod:`opacc_ray.samplers.neyman.failure_model`) does two things. Before the draw it says where
labels tell most: J. Neyman's optimal allocation (JRSS 97, 1934) gives each example an inclusion probability in
proportion to the standard deviation of its outcome,

    π_i = n · [ φ / N_r + (1 - φ) · σ_i / Σσ ]         σ_i = √(p_i (1 - p_i))

After the labels it predicts what was not drawn, and the sample corrects its errors (the difference estimator; C.-E.
Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3):

    z = (1/N) · [ Σ_labelled f + Σ_rest p + Σ_batch (f - p) / π ]

This is unbiased whatever p is: p decides only the precision. No unbiased design does better than the bound of V. P.
Godambe and V. M. Joshi (AMS 36, 1965), ((Σσ)²/n - Σσ²)/N² at the true p, where no π reaches 1. Round 1 has only the
model's own word; every later round learns from the labels so far (``previous``) and draws from the rest.

The uniform share is the insurance. Should p be worthless, failures lie anywhere, and the design has

    A(φ) = (1/N_r) · Σ n / (N_r π)

times the variance of SRS: the price of having trusted p. φ is the least share, not below ``floor``, at which

    A(φ) <= 1 + price · max(1, κB)

with B the Bayes factor by which the labels so far speak for the signals, and κ = 1. Without labels B = 1, and whatever
the model says of itself, it costs 7 % at most. Where the signals have foreseen failures B soon is in the thousands,
and φ at its floor. No worthless predictor gets there: then B is above 1/α with a probability of α at most, also where
the model states another rate of failure than the true one (:mod:`opacc_ray.samplers.neyman.failure_model`). A predictor that is not
worthless but the wrong way round, calm where the failures are, can cost more, at most 1/φ. Once labels have taught p,
those of the pool or of a history, κ = 3: on a history alone 21 % are staked at most.

The batch is drawn by the cube method (:mod:`opacc_ray.samplers.neyman.cube`), exactly n examples with exactly π. p is learned
from few labels, and a coefficient that is off by δ shifts p by σ²·x·δ, x being its signal. So the sample is balanced on
σ² and on σ²·x for each signal: such a shift moves the prediction of the rest and the correction by the sample equally.
The walk goes by predicted class, and up and down along p within: classes get their share. Without classes it goes along
p. Where there is no confidence either, p is weak; the sample is balanced on nothing then, and spread along the pool's
listing, where neighbours, such as frames of one drive, are often alike. The batch is handed out in random order: should
labelling stop early, the first k labels are a random part of it, with π · k/n, and the estimate is unbiased still.

A pool of any size is first thinned to some examples for each to draw, by Deville's systematic sampling along the same
line with π' = min(1, cπ), and the walk starts from π/π' there. Probabilities stay exact; of the variance that balance
takes away, the share n/M returns, with M examples kept. Signals, p, π and the line stay with the parts of the pool;
sums over it are exact, so the sample is the same however it is cut.

Several rounds are combined by ``estimators/rounds.py`` with ``combine="rounds"``, exactly unbiased; by default what all
labels say together corrects each round (``samplers/learned.py``), if the estimate is given the pool. Four rounds that
grow (10, 20, 30 and 40 % of the labels) serve well: little is spent on the model's word.

Several models that are to be known from the same labels share the draw. Each model's variance is counted as a multiple
of the least that it could have with all labels to itself, (Σσ_m)²/n, and the sum of these is least at

    σ_i = √( Σ_m σ_mi² / mean(σ_m)² )

which takes the place of σ above; B is the least of theirs, so that no model pays more than the price for the others.
The sample is balanced on σ_m² of every model.

Legend: N pool, N_r examples not labelled yet, n budget, k labels so far, f = 1 - outcome, p predicted failure, σ the
standard deviation of f, π inclusion probability, φ uniform share.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.unequal import SURE, draw_along, lengths
from opacc_ray.errors import SpecError
from opacc_ray.estimators.contradiction import FORESEEN_FROM
from opacc_ray.parts.order import Line, part_lay
from opacc_ray.parts.view import View
from opacc_ray.pool import Pool
from opacc_ray.samplers.base import Draw, MethodParameters, OtherModel, Task, parameter
from opacc_ray.samplers.neyman.failure_model import Forecast, predict_failure, read_signals
from opacc_ray.samplers.neyman.inclusion import Chances, Foreseen, Unlabelled, find_unlabelled, part_free
from opacc_ray.samplers.neyman.signals import PoolSignals, part_signals

COMBINATIONS = ("labels", "rounds")

CREDIT = 3.0
"""κ where labels, of the pool or of a history, have taught p."""

KEPT_PER_LABEL, LEAST_KEPT = 25, 1000
"""Examples that the walk starts from, for each to draw and in all."""

_LINE = "line"  # what the parts keep under this name

_GIVEN = {"confidence": "confidence", "lesson": "labelled reference", "prior": "prior"}
"""Signals that claim to know how likely failures are, and what users call them."""


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """How far the predictions of failure are trusted."""

    floor: float = parameter(0.1, "least share φ of the draw that is uniform")
    price: float = parameter(
        0.07,
        "share of the variance of SRS that worthless predictions may add at first; 0: all at random",
    )
    directions: int = parameter(6, "directions of the hidden layer that failures are learned from; 0: none")
    combine: str = parameter(
        "labels",
        "labels: the estimate predicts by what all labels say; rounds: each round by the labels before it, exactly "
        "unbiased",
    )

    @property
    def optional_features(self) -> tuple[str, ...]:
        return ("prediction", "confidence", "dsa", "lsa", *(["hidden"] if self.directions else []))

    @property
    def predicts_failures(self) -> bool:
        return True

    @property
    def learns_from_history(self) -> bool:
        return True

    @property
    def serves_several(self) -> bool:
        return True

    def __post_init__(self) -> None:
        if not 0 < self.floor <= 1:
            raise SpecError(
                f"floor={self.floor}: give a share above 0, so that every example can be drawn, "
                "and at most 1 (all at random)"
            )
        if not self.price >= 0:
            raise SpecError(
                f"price={self.price}: give 0 (all at random) or more, such as 0.1: 10 % of the variance of SRS"
            )
        if self.directions < 0:
            raise SpecError(f"directions={self.directions}: give 0 (none) or more")
        if self.combine not in COMBINATIONS:
            raise SpecError(f"combine={self.combine!r}: choose one of {', '.join(COMBINATIONS)}")


class Plan(NamedTuple):
    """What is settled before chance decides."""

    unlabelled: Unlabelled
    chances: Chances  # π of p
    along: str  # the line goes by "classes", by "p", or by the pool's "listing"
    signals: PoolSignals
    labelled: NDArray[np.int64]  # (k,) sorted

    def candidates(self, index: NDArray[np.int64]) -> "Candidates":
        """Examples ``index`` (k,) of the pool, not labelled, in the order of the line."""
        foreseen = self.unlabelled.at(index)
        signals = self.signals.take(index)
        order = np.lexsort((index, _along(self.along, foreseen.p, signals.classes)))
        index, foreseen, values = index[order], foreseen.take(order), signals.values[order]
        variance = (foreseen.p * (1 - foreseen.p))[:, None]
        balance = np.hstack([variance, variance * values, (foreseen.others * (1 - foreseen.others)).T])
        return Candidates(
            index, foreseen, self.chances.of(foreseen), balance if self.along != "listing" else balance[:, :0]
        )

    def draw(self, index: NDArray[np.int64]) -> Draw:
        """The batch of the examples ``index`` (n,)."""
        foreseen = self.unlabelled.at(index)
        design = InclusionProbability(
            inclusion_probability=self.chances.of(foreseen),
            predicted_failure=foreseen.p,
            predicted_failures=self.unlabelled.expected,
            population=self.unlabelled.num,
            num_drawn=len(index),
            labelled_before=self.labelled,
        )
        given = [name for kind, name in _GIVEN.items() if kind in self.signals.present]
        return Draw(index, design, {FORESEEN_FROM: " and ".join(given)} if given else {})


@dataclass(frozen=True)
class Candidates:
    """Examples in the order of the line: neighbours are alike."""

    index: NDArray[np.int64]  # (k,)
    foreseen: Foreseen
    probability: NDArray[np.float64]  # (k,) π
    balance: NDArray[np.float64]  # (k, models + signals) σ² and σ²·x of the first model, σ² of the others


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ()


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    assert task.budget is not None
    return draw_planned(plan(view, task), task.budget, rng)


def draw_planned(ready: Plan, num: int, rng: np.random.Generator, kept: int | None = None) -> Draw:
    """``num`` examples of a plan, the walk starting from ``kept``: by default 25 for each, and 1000 at least."""
    from opacc_ray.samplers.neyman.cube import draw_balanced

    index, chances = thin(ready, rng, max(KEPT_PER_LABEL * num, LEAST_KEPT) if kept is None else kept)
    found = ready.candidates(index)
    before = np.ones(len(index)) if chances is None else chances.of(found.foreseen)
    return ready.draw(found.index[rng.permutation(draw_balanced(rng, found.probability, before, found.balance))])


def thin(ready: Plan, rng: np.random.Generator, kept: int) -> tuple[NDArray[np.int64], Chances | None]:
    """``kept`` examples by systematic sampling along the line, and their probabilities; all where there are no more."""
    view, key = ready.signals.view, ready.unlabelled.key
    if kept >= ready.unlabelled.num:
        rows = view.map(part_free, key)
        return np.concatenate([start + own.row for start, own in zip(view.starts, rows, strict=False)]), None
    chances = ready.unlabelled.capped(ready.chances, kept, ready.unlabelled.total(ready.chances))
    sure = view.map(part_spread, key, ready.signals.key, chances, ready.along, kept)
    always = np.concatenate([start + rows for start, rows in zip(view.starts, sure, strict=False)])
    line = Line(view, _LINE, key)
    return np.concatenate([always, draw_along(rng, line, kept - len(always))]), chances


def plan(view: View, task: Task) -> Plan:
    """Set π, and what the sample is to be spread over and balanced on."""
    unlabelled, chances, signals = allocate(view, task)
    along = "listing"
    if signals.names is not None:
        along = "classes"
    elif "confidence" in signals.present:
        along = "p"
    return Plan(unlabelled, chances, along, signals, task.previous.chosen)


def allocate(view: View, task: Task) -> tuple[Unlabelled, Chances, PoolSignals]:
    """Learn p from the labels so far, and set π."""
    assert task.budget is not None
    forecasts = foresee(view, task)
    unlabelled = find_unlabelled(forecasts, task.previous.chosen)
    price = price_of(task, min(forecast.bayes_factor for forecast in forecasts))
    share = unlabelled.uniform_share(price, task.parameters.floor)
    sizes = Chances(unlabelled.doubts, share)
    return unlabelled, unlabelled.capped(sizes, task.budget, unlabelled.total(sizes)), forecasts[0].signals


def price_of(task: Task, bayes_factor: float = 1.0) -> float:
    """price · max(1, κB): what predictions that are worthless may add to the variance of SRS."""
    taught = len(task.previous.chosen) or all(
        own.labelled for own in (task.history, *(model.history for model in task.others))
    )
    return float(task.parameters.price * max(1.0, CREDIT * bayes_factor if taught else bayes_factor))


def foresee(view: View, task: Task) -> list[Forecast]:
    """What the labels so far say of every model, that of the view first."""
    labelled, outcome = task.previous
    return [
        predict_failure(
            read_signals(model.view, task.parameters.directions, model.history),
            labelled,
            1 - model.outcome,
        )
        for model in (OtherModel(view, outcome, task.history), *task.others)
    ]


def _along(line: str, p: NDArray[np.float64], classes: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Numbers by which the line goes: class by class, up and down along p alternately; along p; or as listed."""
    if line == "classes":
        assert classes is not None
        return np.where(classes & 1, 1 - p, p) + classes  # p in (0, 1)
    return p if line == "p" else np.zeros(len(p))


def part_spread(part: Pool, key: str, signals: str, chances: Chances, line: str, num: int) -> NDArray[np.integer]:
    """Lay the examples on the line of ``num`` strata, and return the rows of those that are sure, which are not."""
    own, classes = part_free(part, key), part_signals(part, signals).classes
    probability = chances.of(own.foreseen)
    along, row, sure = _along(line, own.foreseen.p, None if classes is None else own.of(classes)), own.row, own.row[:0]
    unsure = probability < SURE
    if not unsure.all():
        along, row, sure, probability = along[unsure], row[unsure], row[~unsure], probability[unsure]
    part_lay(part, _LINE, key, along, row, lengths(probability, num))
    return sure
