"""Model-assisted adaptive Neyman sampling: labels where the outcome is most uncertain, in rounds that learn. Ours.

A predictor p(x) of failure (:mod:`~opacc_ray.samplers.neyman.failure_model`) has two uses. Before the draw it shows
where labels are most informative: J. Neyman's optimal allocation (JRSS 97, 1934) gives each example an inclusion
probability in proportion to the standard deviation of its outcome,

    π_i = n · [ φ / N_r + (1 - φ) · σ_i / Σσ ]         σ_i = √(p_i (1 - p_i))

After the labels it predicts what was not drawn, and the sample corrects its errors (the difference estimator; C.-E.
Särndal, B. Swensson, J. Wretman, "Model Assisted Survey Sampling", 1992, 6.3):

    z = (1/N) · [ Σ_labelled f + Σ_rest p + Σ_batch (f - p) / π ]

This is unbiased for any p: p decides only the precision. No unbiased design does better than the bound of V. P. Godambe
and V. M. Joshi (AMS 36, 1965), ((Σσ)²/n - Σσ²)/N² at the true p, where no π reaches 1. Round 1 relies on the model's
confidence alone. Every later round learns from the labels so far (``previous``) and draws from the rest.

The uniform share is the insurance. If p is worthless, failures can be anywhere, and the design has

    A(φ) = (1/N_r) · Σ n / (N_r π)

times the variance of SRS: the price of having trusted p. φ is the least share, not below ``floor``, at which

    A(φ) <= 1 + price · max(1, B)

with B the Bayes factor of the labels so far for the signals. Without labels B = 1, and a useless predictor raises the
variance by at most 20 %, whatever confidence it states, or whatever history p was fitted to. Where the signals have
predicted failures, B is soon in the thousands, and φ at its floor. A worthless predictor does not get there: B exceeds
1/α with a probability of at most α, also where the model states a wrong rate of failure. A predictor that is worse than
worthless, confident where the failures are, can cost more, at most 1/φ.

Where p foresees no failure in a predicted class, the optimum takes few labels there, and nothing can then be said of
the class. So where the accuracy is served, every predicted class has at least LEAST_OF_CLASS of the labels that a
simple random sample would take from it.

The batch is drawn by the cube method (:mod:`~opacc_ray.samplers.neyman.compiled`), exactly n examples with exactly π. p
is fitted to few labels, and a coefficient that is off by δ shifts p by σ²·x·δ, where x is its signal. So the sample is
balanced on σ² and on σ²·x for each signal: such a shift moves the prediction of the rest and the correction by the
sample equally. The walk goes by predicted class, and up and down along p within: classes get their share. Without
classes it goes along p. Without confidence and judges as well, p is weak. Then the sample is balanced on nothing and
spread along the pool's listing, where neighbours, such as frames of one drive, are often alike. The batch is returned
in random order. If labelling stops early, the first k labels are a random part of it, with π · k/n, and the estimate is
still unbiased.

A large pool is first thinned to some examples for each to draw, by Deville's systematic sampling along the same line
with π' = min(1, cπ). The walk starts from π/π' there. Probabilities stay exact; of the variance that balance removes,
the share n/M returns, with M examples kept.

Several rounds are combined by ``estimation/sample.py`` with ``combine="rounds"``, exactly unbiased. By default
predictions that are fitted to all labels correct each round (:mod:`~opacc_ray.estimation.failures`), if the
estimate has the pool. Four rounds that grow (10, 20, 30 and 40 % of the labels) work well: few labels depend on the
model's confidence alone.

Several models that are measured by the same labels share the draw. Each model's variance is counted as a multiple of
the least that it could have with all labels to itself, (Σσ_m)²/n, and the sum of these is least at

    σ_i = √( Σ_m σ_mi² / mean(σ_m)² )

which replaces σ above; B is the least of theirs, so that no model pays more than the price for the others. The sample
is balanced on σ_m² of every model.

**The number that is asked**: how much each example's outcome moves a metric, a class or a slice. A metric g of totals
T_k moves with an example by u = Σ_k ∂g/∂T_k · v_k, so the best probabilities are in proportion to the standard
deviation of u given what is known of the example. With p its predicted failure, and each other class equally likely
where it fails:

    served                  standard deviation σ_m of u
    accuracy                √(p(1 - p))
    metric of class c       |∂g/∂TP|·√(p(1 - p)) where c is predicted, |∂g/∂FN|·√(q(1 - q)) elsewhere, q = p/(C - 1)
    average over classes    √(p·s - p²·m²), m and s the mean and mean square of W(k, ŷ) over the classes k ≠ ŷ
    brier, rankings         |coefficient|·√(p(1 - p)), with the coefficient of the failure in the number
    prediction, a slice     s·√(p'(1 - p'))/Σ_S √(p'(1 - p')): labels in proportion to s, in all slices
    truth                   as the metric of each class, their variances added

with g at the totals that the predictions give (:mod:`opacc_ray.metrics.metric`). For F1 = F these are the factors 2
- F where c is predicted and F elsewhere.

A slice has more labels where its accuracy is less known, and where its labels contradict the predictions they speak in
their place. With m labels in it, g of them failures, c their agreement with p
(:func:`~opacc_ray.samplers.plausibility.agreement`), and σ' the mean of √(p'(1 - p')) over its other examples,

    p' = c·p + (1 - c)·(g + ½)/(m + 1)              s = √(m·σ'² + ¼)/(m + 1)

where s is the standard error of its accuracy, with one label more of which nothing is known. So all slices have as many
labels in the first round, whatever their confidence. Two of two that fail where all are sure then call for more there,
and a slice that is half wrong for more in every round; one that is known, wholly right or wholly wrong, for fewer.

Where all examples that are predicted as the class take a tenth of the labels or less, all are drawn: their part of the
metric is then known.

Where a class is rare, most of its examples are among very many others, each unlikely. There a mixture of experts
overstates p: one that is slightly wrong about 100,000 examples predicts a hundred failures. So if the model itself
states that fewer than RARE of the pool are of a served class, p is its stated confidence alone, recalibrated by labels.
Of what probabilities in proportion to σ give, most labels then go to the many, and an example that is likely of the
class is met by luck. So a share of each batch goes to the largest σ_m for certain, as large as the price of worthless
predictions allows (:func:`sure_share`).

Legend: N pool, N_r examples not labelled yet, n budget, k labels so far, f = 1 - outcome, p predicted failure, σ the
standard deviation of f, π inclusion probability, φ uniform share, C classes, ŷ predicted class, N_S size of a slice, W
as in ``metrics/metric.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.designs.inclusion_probability import (
    SURE,
    InclusionProbability,
    draw_found,
    inclusion_probabilities,
    inclusion_scale,
    line_lengths,
)
from opacc_ray.designs.simple_random import unlabelled_index
from opacc_ray.errors import SpecError
from opacc_ray.metrics import scores
from opacc_ray.metrics.metric import (
    ACCURACY,
    AVERAGES,
    Metric,
    Parts,
    is_of_class,
    misprediction_weights,
    parse_metric,
    slopes,
)
from opacc_ray.parts.loops import Line, blocks, key_bits, sums_by
from opacc_ray.parts.view import View
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, History
from opacc_ray.samplers.base import Draw, MethodParameters, OtherModel, Task, parameter, unlabelled
from opacc_ray.samplers.neyman.failure_model import Forecast, predict_failure, read_signals
from opacc_ray.samplers.neyman.signals import JUDGE, STATED, Signals, with_stated
from opacc_ray.samplers.plausibility import FORESEEN_FROM, agreement

Array = NDArray[np.float64]

COMBINATIONS = ("labels", "rounds")

KEPT_PER_LABEL, LEAST_KEPT = 25, 1000
"""Examples that the walk starts from, for each to draw and in all."""

CHEAP = 0.1
"""Share of all labels that a part may take to be labelled wholly."""

MOST_SURE = 0.3
"""Largest share of a batch that goes for certain to the examples most likely to be of a rare class."""

_GIVEN = {"confidence": "confidence", "history": "labelled reference", "judge": "judges"}
"""Signals that claim to know how likely failures are, and what users call them."""

_CLOSE = 1e-4
"""Up to which the uniform share is found."""

_BINS = 1 << 14
"""Bins in which the sizes of more examples are added up before the uniform share is found."""

LEAST_OF_CLASS, _CLASS_STEPS = 0.75, 20
"""Least labels of a predicted class, in multiples of those of a simple random sample; most steps towards it."""


@dataclass(frozen=True)
class Parameters(MethodParameters):
    """How much the predictions of failure are trusted."""

    floor: float = parameter(0.1, "least share φ of the draw that is uniform")
    price: float = parameter(
        0.2, "share of the variance of SRS that worthless predictions may add at first; 0: all at random"
    )
    directions: int = parameter(6, "principal directions of the hidden layer that predict failures; 0: none")
    combine: str = parameter(
        "labels",
        "labels: the estimate predicts by a fit to all labels; rounds: each round by the labels before it, exactly "
        "unbiased",
    )
    serve: tuple[str, ...] = parameter(
        (ACCURACY,),
        "numbers that the draw serves: accuracy, metrics such as macro_f1 or recall@3, the name of slices, prediction "
        "or truth (all classes)",
    )
    predicts_failures = learns_from_history = serves_several = True

    @property
    def optional_features(self) -> tuple[str, ...]:
        return ("prediction", "confidence", "dsa", "lsa", *(["hidden"] if self.directions else []))

    def __post_init__(self) -> None:
        object.__setattr__(self, "serve", tuple(self.serve))
        if not self.serve:
            raise SpecError("serve=[]: name a number, such as accuracy")
        for name in filter(is_of_class, self.serve):
            parse_metric(name)
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
    """The deterministic part of a draw: inclusion probabilities, and what the sample is spread over and balanced on."""

    signals: Signals  # of the whole pool
    labelled: NDArray[np.int64]  # (k,) sorted; the others can be drawn, and keep their order
    classes: NDArray[np.integer] | None  # (N_r,) predicted class
    failure: tuple[Array, ...]  # of each model p (N_r,), that of the view first
    size: Array  # (N_r,) what π is proportional to
    parts: tuple[NDArray[np.bool_], ...]  # (N_r,) each: parts that are labelled wholly if that is cheap
    sure: float  # share of the batch that the largest sizes take for certain
    probability: Array  # (N_r,) π

    def probability_of(self, num: int) -> Array:
        """Return π (N_r,) of a draw of ``num`` examples."""
        return _probability(self.size, self.parts, self.sure, num, len(self.labelled))

    @property
    def free(self) -> NDArray[np.int64]:
        """Return the examples that can be drawn, (N_r,)."""
        return self.at(np.arange(len(self.size)))

    def at(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the examples of the pool at ``places`` (k,) among those that can be drawn."""
        return unlabelled_index(places, self.labelled)

    @property
    def along(self) -> str:
        """Return what the line goes by: "classes", "p" or the pool's "listing"."""
        if self.signals.names is not None:
            return "classes"
        return "listing" if self.signals.present.isdisjoint(("confidence", JUDGE)) else "p"

    @property
    def expected(self) -> float:
        """Return Σp of the model of the view."""
        return float(self.failure[0].sum())

    def line(self, places: Any = slice(None)) -> Array:
        """Return numbers (k,) of ``places`` by which the line goes; default: of all, (N_r,).

        Class by class, up and down along p in turns; p; or none.
        """
        p = self.failure[0][places]
        if self.along == "classes":
            assert self.classes is not None
            classes = self.classes[places]
            line = np.where(classes & 1, 1 - p, p)  # p in (0, 1)
            line += classes
            return line
        return p if self.along == "p" else np.zeros(len(p))

    def balance(self, places: NDArray[np.int64]) -> Array:
        """Return what the sample is balanced on, (k, models + signals): σ² and σ²·x of the first model, others' σ²."""
        if self.along == "listing":
            return np.empty((len(places), 0))
        variance, *others = (p[places] * (1 - p[places]) for p in self.failure)
        values = self.signals.take(self.at(places)).values
        return np.column_stack([variance, *(variance * own for own in values), *others])

    def draw(self, places: NDArray[np.int64]) -> Draw:
        """Return the batch of the examples at ``places`` (n,)."""
        design = InclusionProbability(
            inclusion_probability=self.probability[places],
            predicted_failure=self.failure[0][places],
            predicted_failures=self.expected,
            population=len(self.size),
            num_drawn=len(places),
            labelled_before=self.labelled,
        )
        given = [name for kind, name in _GIVEN.items() if kind in self.signals.present]
        return Draw(self.at(places), design, {FORESEEN_FROM: " and ".join(given)} if given else {})


def needs(parameters: Parameters) -> tuple[str, ...]:
    """Return no feature: those that there are serve."""
    return ()


def draw(view: View, task: Task, rng: np.random.Generator) -> Draw:
    """Draw the whole batch, and put it in random order."""
    ready = plan(view, task)
    ready = ready._replace(size=ready.probability)  # no other number of labels is asked for
    return draw_planned(ready, task.budget, rng)


def draw_planned(ready: Plan, num: int, rng: np.random.Generator) -> Draw:
    """Draw ``num`` examples of a plan."""
    from opacc_ray.samplers.neyman.compiled import draw_balanced

    places, before = thin(ready, rng, max(KEPT_PER_LABEL * num, LEAST_KEPT))
    order = np.lexsort((places, ready.line(places)))
    places, before = places[order], before[order]
    drawn = draw_balanced(rng, ready.probability[places], before, ready.balance(places))
    return ready.draw(places[rng.permutation(drawn)])


def thin(ready: Plan, rng: np.random.Generator, kept: int) -> tuple[NDArray[np.int64], Array]:
    """Keep ``kept`` examples by systematic sampling along the line; all where there are no more.

    Returns their places in the plan, (k,), and π' (k,).
    """
    if kept >= (num := len(ready.size)):
        return np.arange(num), np.ones(num)
    scale, sure = inclusion_scale(ready.probability, kept)
    certain = np.flatnonzero(sure)
    left = kept - len(certain)
    unit = 2.0 ** (key_bits(num) - 1) / max(1.0, *(float(ready.line(rows).max()) for rows in blocks(num)))

    def keys(rows: Any) -> NDArray[np.int64]:
        return (ready.line(rows) * unit).astype(np.int64)

    def lengths(rows: Any) -> NDArray[np.int64]:
        found = line_lengths(scale * ready.probability[rows], left)
        found[sure[rows]] = 0
        return found

    line = Line(num, keys, lengths)
    drawn = draw_found(rng, line.find, line.total, left) if left else certain[:0]
    before = scale * ready.probability[drawn]
    return np.concatenate([certain, drawn]), np.concatenate([np.ones(len(certain)), before])


def plan(view: View, task: Task) -> Plan:
    """Fit p to the labels so far, and set π."""
    forecasts, labelled = foresee(view, task), task.previous.chosen
    failure = tuple(unlabelled(own.failure, labelled) for own in forecasts)
    models = [OtherModel(view, task.previous.outcome), *task.others]
    served = [
        own
        for model, forecast, p in zip(models, forecasts, failure, strict=True)
        for own in serve(task.parameters.serve, Pieces(model.view, forecast, labelled, 1 - model.outcome, p))
    ]
    effects, parts = [own.effect for own in served], tuple(own.part for own in served if own.part is not None)
    deviations = [own.deviation for own in served]
    del served  # the deviations are long, and gone where the size is known
    size = relative_deviation(deviations)
    del deviations
    price = task.parameters.price * max(1.0, min(own.bayes_factor for own in forecasts))
    share = max(uniform_share(size, price, task.parameters.floor, own) for own in effects)
    del effects
    size *= 1 - share
    size += share
    classes = forecasts[0].signals.classes
    classes = None if classes is None else unlabelled(classes, labelled)
    if ACCURACY in task.parameters.serve and classes is not None:
        serve_classes(size, classes)
    sure = sure_share(price) if STATED in forecasts[0].signals.kinds else 0.0
    probability = _probability(size, parts, sure, task.budget, len(labelled))
    return Plan(forecasts[0].signals, labelled, classes, failure, size, parts, sure, probability)


def _probability(size: Array, parts: Sequence[NDArray[np.bool_]], sure: float, num: int, labelled: int) -> Array:
    """Return π in proportion to ``size`` (n,), but 1 in each part that takes few of all labels, and of the largest."""
    most = min(CHEAP * (num + labelled), num - 1)
    for part in [own for own in parts if own.sum() <= most]:
        size = np.where(part, size.max() / SURE * num, size)
    if 0 < (certain := int(sure * num)) < len(size):
        edge = np.partition(size, -certain - 1)[-certain - 1]  # of equal sizes that end there, none is certain
        size = np.where(size > edge, size.max() / SURE * num, size)
    return inclusion_probabilities(size, num)


def sure_share(price: float) -> float:
    """Return the share of a batch that may go to the largest sizes for certain, where a rare class is served.

    If p is worthless these labels teach nothing, and 1/(1 - share) of the variance is what they cost.
    """
    return min(MOST_SURE, 1 - 1 / (1 + price))


def serve_classes(size: Array, classes: NDArray[np.integer]) -> None:
    """Raise ``size`` (n,) in place where a class has less than LEAST_OF_CLASS of its share of the examples."""
    count = sums_by(classes, int(classes.max()) + 1)
    least, factor = LEAST_OF_CLASS * count / len(classes), np.ones(len(count))
    total = sums_by(classes, len(count), size)
    for _ in range(_CLASS_STEPS):  # each raise lowers the shares of the others a little
        raised = np.maximum(least * total.sum() / np.maximum(total, 1e-300), 1.0)
        if raised.max() < 1 + _CLOSE:
            break
        total *= raised
        factor *= raised
    if factor.max() > 1:
        for rows in blocks(len(size)):
            size[rows] *= factor[classes[rows]]


def foresee(view: View, task: Task) -> list[Forecast]:
    """Return what the labels so far predict for every model, that of the view first."""
    labelled, outcome = task.previous
    models = (OtherModel(view, outcome, task.history), *task.others)
    return [
        predict_failure(signals_for(model.view, task.parameters, model.history), labelled, 1 - model.outcome)
        for model in models
    ]


def signals_for(view: View, parameters: Parameters, history: History) -> Signals:
    """Return the signals of a pool that predict its failures."""
    found = read_signals(view, parameters.directions, history)
    if not is_rare(parameters.serve, view, found):
        return found
    return view.once("stated signals", (parameters.directions, history), lambda: with_stated(view, found))


def relative_deviation(deviations: Sequence[Array]) -> Array:
    """Return σ over its mean, (n,), from that of each number, which is overwritten, or what those of several make."""
    for deviation in deviations:
        deviation /= max(float(deviation.mean()), 1e-300)
    if len(deviations) == 1:
        return deviations[0]
    joint: Array = np.sqrt(np.mean(np.square(deviations), axis=0))
    return joint / joint.mean()


def uniform_share(deviation: Array, price: float, floor: float, effect: Array | None = None) -> float:
    """Return φ: the least share, not below ``floor``, at which a worthless p costs no more than ``price``.

    The mean in A is weighted by the square of the ``effect`` (n,) that an outcome has on the number.
    """
    values, weight = _binned(deviation, effect)

    def is_cheap(share: float) -> bool:  # A(φ) <= 1 + price
        return float((weight / (share + (1 - share) * values)).sum()) <= (1 + price) * float(weight.sum())

    return least_share(is_cheap, floor)


def _binned(deviation: Array, effect: Array | None) -> tuple[Array, Array]:
    """Return a ``deviation`` (n,) and its weights; of many, their means in bins, by which A is right to 1e-7."""
    if len(deviation) <= _BINS:
        return deviation, np.ones(len(deviation)) if effect is None else np.square(effect)
    sums = np.zeros((2, _BINS))
    for rows in blocks(len(deviation)):
        own = deviation[rows]
        weight = np.ones(len(own)) if effect is None else np.square(effect[rows])
        code = (own / (1 + own) * (_BINS - 1)).astype(np.int64)
        sums += [np.bincount(code, weights=each, minlength=_BINS) for each in (weight, weight * own)]
    weight = sums[0][sums[0] > 0]
    return sums[1][sums[0] > 0] / weight, weight


def least_share(is_cheap: Callable[[float], bool], floor: float) -> float:
    """Return the least share, not below ``floor``, that is cheap, by halving to 1e-4."""
    if is_cheap(floor):
        return floor
    low, high = floor, 1.0
    while high - low > _CLOSE:
        middle = (low + high) / 2
        low, high = (low, middle) if is_cheap(middle) else (middle, high)
    return high


# -- the number that is asked -----------------------------------------------------------------------------------

RARE = 0.02
"""Share of a class, as the model states it, below which its stated confidence alone predicts failures."""


class Served(NamedTuple):
    """What one number is to the examples that can be drawn, (n,)."""

    deviation: Array  # σ_m, up to a factor
    effect: Array | None = None  # by how much an outcome moves the number, up to a factor; None: equally
    part: NDArray[np.bool_] | None = None  # a part to be labelled wholly if that is cheap: then the rest decides


class Pieces(NamedTuple):
    """What is known of a pool when a number is served."""

    view: View
    forecast: Forecast
    labelled: NDArray[np.int64]  # (k,)
    failure: Array  # (k,) f
    p: Array  # (n,) of the other examples

    @property
    def signals(self) -> Signals:
        """Those that predict failures."""
        return self.forecast.signals

    @property
    def classes(self) -> NDArray[np.integer]:
        """(N,) predicted class."""
        if self.signals.classes is None:
            raise SpecError("a metric of classes is served, and the pool predicts none; give Pool(prediction=…)")
        return self.signals.classes

    def free(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return those of ``values`` (N,) that belong to examples without a label, (n,)."""
        return unlabelled(values, self.labelled)

    @property
    def deviation(self) -> Array:
        """(n,) √(p(1 - p))."""
        found = 1 - self.p
        found *= self.p
        return np.sqrt(found, out=found)

    @property
    def rivals(self) -> int:
        """Classes other than the predicted one; at least 1."""
        return max(self.signals.num_classes - 1, 1)

    def slopes(self, metric: Metric, classes: Sequence[int]) -> tuple[Array, Array]:
        """Return the derivatives of the mean metric of some classes by TP and by FN of each, (k,).

        TP and FN are as known or predicted. Class -1 is one that is never predicted.
        """
        num, total = self.signals.num_classes, self.signals.size
        known = np.bincount(self.classes[self.labelled], weights=self.failure, minlength=num).astype(np.float64)
        failed = known + np.bincount(self.free(self.classes), weights=self.p, minlength=num)
        size, own = (np.append(values, 0.0)[classes] for values in (np.bincount(self.classes, minlength=num), failed))
        tp, fn = np.maximum(size - own, 0), (failed.sum() - own) / self.rivals
        return slopes(metric, tp, fn, Parts(size, total - size))[1:]


def serve(numbers: Sequence[str], known: Pieces) -> list[Served]:
    """Return what each of the ``numbers`` is to the examples that can be drawn.

    Raises SpecError for a number that there is not, or that needs classes. Classes are named by their places.
    """
    return [_serve(name, known) for name in numbers]


def is_rare(numbers: Sequence[str], view: View, signals: Signals) -> bool:
    """Return whether the model states a share below RARE for the class of one of the numbers."""
    metrics = [parse_metric(name) for name in numbers if "@" in name]
    if not metrics or "confidence" not in view.fields:
        return False
    doubt = 1 - view.column("confidence")
    return min(_stated_share(_place(metric, signals), signals, doubt) for metric in metrics) < RARE


def _stated_share(c: int, signals: Signals, doubt: Array) -> float:
    inside = np.zeros(signals.size, dtype=bool) if signals.classes is None else signals.classes == c
    elsewhere = float(doubt[~inside].sum()) / max(signals.num_classes - 1, 1)
    return (float((1 - doubt[inside]).sum()) + elsewhere) / signals.size


def _serve(name: str, known: Pieces) -> Served:
    if name in (ACCURACY, scores.CALIBRATION):  # a calibration error is a sum of accuracies, up to signs
        return Served(known.deviation)
    if name in scores.SCORES:
        return _linear(scores.score_of(name, known.view.column("confidence")), known)
    if "@" in name:
        metric = parse_metric(name)
        c = _place(metric, known.signals)
        if metric.name in scores.RANKINGS:
            return _linear(_ranking(metric, c, known), known)
        return _of_class(metric, c, known)
    if name == BY_TRUTH:
        return _of_every_class(Metric("recall"), known)
    if name in AVERAGES:
        return _of_average(Metric(name), known)
    return _of_slices(known.classes if name == BY_PREDICTION else known.view.slicing(name).codes, known)


def _linear(number: scores.Linear, known: Pieces) -> Served:
    effect = np.abs(known.free(number.coefficient))
    return Served(known.deviation * effect, effect)


def _ranking(metric: Metric, c: int, known: Pieces) -> scores.Linear:
    """Return AUC or average precision of one of two classes at what is known or predicted of every example."""
    failure = np.empty(known.signals.size)
    failure[known.free(np.arange(len(failure)))] = known.p
    failure[known.labelled] = known.failure
    return scores.ranking_of(metric.name, known.view.column("confidence"), failure, known.classes == c)


def _of_class(metric: Metric, c: int, known: Pieces) -> Served:
    """Return what a metric of class ``c`` is to the examples; -1: of a class that is never predicted."""
    inside = known.free(known.classes) == c
    [by_tp], [by_fn] = known.slopes(metric, [c])
    effect = np.where(inside, abs(by_tp), abs(by_fn))
    q = np.where(inside, known.p, known.p / known.rivals)
    return Served(np.sqrt(q * (1 - q)) * effect, effect, inside)


def _of_every_class(metric: Metric, known: Pieces) -> Served:
    """Return what the metrics of all predicted classes are, their variances added."""
    by_tp, by_fn = (own**2 for own in known.slopes(metric, range(known.signals.num_classes)))
    classes, p, q = known.free(known.classes), known.p, known.p / known.rivals
    others = (by_fn.sum() - by_fn)[classes]
    return Served(np.sqrt(by_tp[classes] * p * (1 - p) + others * q * (1 - q)), np.sqrt(by_tp[classes] + others))


def _of_average(metric: Metric, known: Pieces) -> Served:
    """Return what an average over all predicted classes is."""
    classes = known.free(known.classes)
    weight = misprediction_weights(*known.slopes(metric, range(known.signals.num_classes)))
    mean, square = weight.sum(axis=0) / known.rivals, (weight**2).sum(axis=0) / known.rivals
    variance = known.p * square[classes] - (known.p * mean[classes]) ** 2
    return Served(np.sqrt(np.maximum(variance, 0)), np.sqrt(square)[classes])


def _of_slices(codes: NDArray[np.integer], known: Pieces) -> Served:
    """Return what the accuracies of all slices are, ``codes`` (N,)."""
    here, there, size = known.free(codes), codes[known.labelled], np.bincount(codes)

    def summed(values: Array) -> Any:  # over the labels of each slice
        return np.bincount(there, weights=values, minlength=len(size))

    p = known.forecast.at(known.labelled)
    error = (known.failure - p) / np.sqrt(1 - known.forecast.leverage)
    labels, failures = summed(np.ones(len(p))), summed(known.failure)
    confirmed = agreement(summed(error), summed(p * (1 - p)))
    mixed = confirmed[here] * known.p
    mixed += ((1 - confirmed) * (failures + 0.5) / (labels + 1))[here]
    deviation = np.sqrt(mixed * (1 - mixed))
    total = np.bincount(here, weights=deviation, minlength=len(size))
    mean = total / np.maximum(size - labels, 1)
    left = np.sqrt(labels * mean**2 + 0.25) / (labels + 1)
    return Served(deviation * (left / np.maximum(total, 1e-300))[here], 1 / size[here])


def _place(metric: Metric, signals: Signals) -> int:
    """Return the place of a metric's class among those that are predicted; -1 if it never is."""
    names = np.empty(0) if signals.names is None else signals.names
    found = np.flatnonzero(names == float(metric.positive or 0))
    return int(found[0]) if len(found) else -1
