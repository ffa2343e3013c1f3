"""Model-assisted adaptive Neyman sampling: labels where the outcome is most in doubt, in rounds that learn. Ours.

A predictor p(x) of failure (:mod:`opacc_ray.failure.model`) does two things. Before the draw it says where
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

    A(φ) <= 1 + price · max(1, B)

with B the Bayes factor by which the labels so far speak for the signals. Without labels B = 1, and whatever the model
says of itself, it costs 10 % at most. Where the signals have foreseen failures B soon is in the thousands, and φ at its
floor. No worthless predictor gets there: then B is above 1/α with a probability of about α (the mean of a Bayes factor
is 1 where its denominator holds). A predictor that is not worthless but the wrong way round, calm where the failures
are, can cost more, at most 1/φ.

The batch is drawn by the cube method (:mod:`opacc_ray.samplers.cube`), exactly n examples with exactly π. p is learned
from few labels, and a coefficient that is off by δ shifts p by σ²·x·δ, x being its signal. So the sample is balanced on
σ² and on σ²·x for each signal: such a shift moves the prediction of the rest and the correction by the sample equally.
The walk goes by predicted class, and up and down along p within: classes get their share. Without classes it goes along
p. Where there is no confidence either, p is weak; the sample is balanced on nothing then, and spread along the pool's
listing, where neighbours, such as frames of one drive, are often alike. The batch is handed out in random order: should
labelling stop early, the first k labels are a random part of it, with π · k/n, and the estimate is unbiased still.

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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.designs.unequal import inclusion_probabilities
from opacc_ray.errors import SpecError
from opacc_ray.failure.lessons import read_lessons
from opacc_ray.failure.model import Forecast, predict_failure
from opacc_ray.failure.signals import Signals, read_signals
from opacc_ray.parts.view import View
from opacc_ray.samplers.base import Draw, MethodParameters, OtherModel, Task, parameter

COMBINATIONS = ("labels", "rounds")


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """How far the predictions of failure are trusted."""

    floor: float = parameter(0.1, "least share φ of the draw that is uniform")
    price: float = parameter(
        0.1,
        "share of the variance of SRS that worthless predictions may add at first; 0: all at random",
    )
    directions: int = parameter(6, "directions of the hidden layer that failures are learned from; 0: none")
    combine: str = parameter(
        "labels",
        "labels: the estimate predicts by what all labels say, without each one's own fold; rounds: each round by the "
        "labels before it, exactly unbiased",
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


class Allocation(NamedTuple):
    """Where the labels go."""

    free: NDArray[np.int64]  # (N_r,) examples not labelled yet
    expected: NDArray[np.float64]  # (N_r,) p
    probability: NDArray[np.float64]  # (N_r,) π
    others: list[NDArray[np.float64]]  # (N_r,) p of each further model


class Plan(NamedTuple):
    """What is settled before chance decides."""

    free: NDArray[np.int64]  # (N_r,) examples not labelled yet
    expected: NDArray[np.float64]  # (N_r,) p
    probability: NDArray[np.float64]  # (N_r,) π
    order: NDArray[np.int64]  # (N_r,) places in ``free``: neighbours are alike
    balance: NDArray[np.float64]  # (N_r, 1 + signals) σ², σ²·x
    labelled: NDArray[np.int64]  # (k,) sorted

    def draw(self, places: NDArray[np.int64]) -> Draw:
        """The batch at ``places`` (n,) of ``free``."""
        design = InclusionProbability(
            inclusion_probability=self.probability[places],
            predicted_failure=self.expected[places],
            predicted_failures=float(self.expected.sum()),
            population=len(self.free),
            num_drawn=len(places),
            labelled_before=self.labelled,
        )
        return Draw(self.free[places], design, {})


def needs(parameters: Parameters) -> tuple[str, ...]:
    return ()


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    ready = plan(view, task)
    from opacc_ray.samplers.cube import draw_balanced

    return ready.draw(rng.permutation(draw_balanced(rng, ready.probability, ready.balance, ready.order)))


def plan(view: View, task: Task) -> Plan:
    """Set π, and what the sample is to be spread over and balanced on."""
    free, expected, probability, others = allocate(view, task)
    signals = read_signals(view, task.parameters.directions, task.history)
    variance = (expected * (1 - expected))[:, None]
    balance = np.hstack([variance, variance * signals.values[free]])
    if task.others:
        balance = np.hstack([balance, *[(p * (1 - p))[:, None] for p in others]])
    order = spread_order(signals, free, expected)
    if order is None:
        order, balance = np.arange(len(free)), balance[:, :0]
    return Plan(free, expected, probability, order, balance, task.previous.chosen)


def allocate(view: View, task: Task) -> Allocation:
    """Learn p from the labels so far, and set π."""
    parameters = task.parameters
    assert task.budget is not None
    free = np.delete(np.arange(view.size), task.previous.chosen)
    forecasts = foresee(view, task)
    expected, *others = (forecast.failure[free] for forecast in forecasts)
    doubt = joint_doubt([expected, *others])
    trust = min(forecast.bayes_factor for forecast in forecasts)
    share = uniform_share(doubt, parameters.price * max(1.0, trust), parameters.floor)
    probability = inclusion_probabilities(share + (1 - share) * doubt, task.budget)
    return Allocation(free, expected, probability, others)


def foresee(view: View, task: Task) -> list[Forecast]:
    """What the labels so far say of every model, that of the view first."""
    labelled, outcome = task.previous
    return [
        predict_failure(
            read_signals(model.view, task.parameters.directions, model.history),
            labelled,
            1 - model.outcome,
            read_lessons(model.view, task.parameters.directions, model.history),
        )
        for model in (OtherModel(view, outcome, task.history), *task.others)
    ]


def joint_doubt(failures: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """σ (N_r,) over its mean, from p (N_r,) of each model; of several the root of the mean square."""
    doubts = [np.sqrt(p * (1 - p)) for p in failures]
    for doubt in doubts:
        doubt /= doubt.mean()
    if len(doubts) == 1:
        return doubts[0]
    joint = np.sqrt(np.mean(np.square(doubts), axis=0))
    return joint / joint.mean()


def spread_order(signals: Signals, free: NDArray[np.int64], expected: NDArray[np.float64]) -> NDArray[np.int64] | None:
    """Places in ``free`` (N_r,), class by class, along p within, up and down alternately; None if p is too weak."""
    if signals.classes is not None:
        code = signals.classes[free]
        along = np.where(code % 2 == 0, expected, 1 - expected)  # in (0, 1)
        return np.argsort(code + along, kind="stable")
    if "confidence" in signals.present:
        return np.argsort(expected, kind="stable")
    return None


def uniform_share(doubt: NDArray[np.float64], price: float, floor: float) -> float:
    """φ: the least share, not below ``floor``, at which a worthless p costs no more than ``price``.

    ``doubt`` is σ (N_r,) over its mean.
    """

    def is_cheap(share: float) -> bool:
        return float((1 / (share + (1 - share) * doubt)).mean()) <= 1 + price

    if is_cheap(floor):
        return floor
    low, high = floor, 1.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (low, middle) if is_cheap(middle) else (middle, high)
    return high
