"""Estimate any number of one model on one pool by the labels of one sample: accuracy, metrics, classes, slices.

    fit       = fit_failures(view, sample)               once, or None where the design alone speaks
    failures, evidence = measure(sample, fit, groups)    totals of the pool and of its parts, in one pass
    estimate  = metric of these totals

Rounds of `neyman` with their pool have predicted failures for every example; other samples speak by their design alone.

**How good judges are.** A judge splits the part of the pool that it has judged in two parts of known size: the answers
that it calls right, and those that it calls wrong. How many are right in either is estimated from the labels as in any
slice. Sensitivity (the share of the right answers that it calls right), specificity (the share of the wrong ones that
it calls wrong) and Cohen's kappa are functions of these two totals (:mod:`opacc_ray.metrics.metric`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation import design_numbers
from opacc_ray.estimation.class_totals import ClassTotals, Interim, Totals, estimate_of
from opacc_ray.estimation.constants import NOISES
from opacc_ray.estimation.failures import Fit, PoolFailures, accuracy_of, assisted_estimate, fit_failures
from opacc_ray.estimation.intervals import Estimate, normal_quantile
from opacc_ray.estimation.sample import Sample, check_level, join
from opacc_ray.estimation.totals import Evidence, Groups, RandomEvidence, measure
from opacc_ray.metrics import scores
from opacc_ray.metrics.metric import ACCURACY, AVERAGES, Metric, Ratio, find_place
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import BY_TRUTH, NOT_JUDGED, SAYS_RIGHT, SAYS_WRONG, History, Pool, Slicing, histories_of, verdicts
from opacc_ray.samplers.select import content_of, refuse_other_order, refuse_other_pools
from opacc_ray.selection import Outcome, Selection

Array = NDArray[np.float64]
Codes = NDArray[np.integer]

Key = str | Metric | None
"""A partition of the pool by predicted class, and by slices of a name, or for a number that judges the confidence."""


@dataclass(frozen=True, eq=False)
class KnownPool:
    """What is known of every example without labels."""

    view: View  # the features, for rounds of `neyman` and for numbers that judge the confidence
    predicted: Codes  # (N,) class, 0 .. C - 1; zeros for a regression
    classes: Sequence[str] = ("all",)  # C names
    slicings: Mapping[str, Slicing] = field(default_factory=dict)  # by name

    def confidence(self, metric: Metric) -> Array:
        """Return the confidence of every example (N,), which a metric needs; raises DataError without it."""
        self.view.need(("confidence",), str(metric))
        return self.view.column("confidence")

    def check(self, metric: Metric) -> None:
        """Raise SpecError or DataError unless a number that judges the confidence can be stated."""
        self.view.need(("confidence",), str(metric))
        if metric.name in scores.RANKINGS:
            find_place(metric, self.classes)
            if (num := len(self.classes)) != 2:
                raise SpecError(
                    f"{metric}: the confidence is a score of one class with two classes, and there are {num}"
                )

    def groups(self, key: str | None) -> Groups:
        """Return the partition by predicted class, and by the slices of a name."""
        if key is None:
            return Groups(self.predicted, len(self.classes))
        slicing = self.slicings[key]
        return Groups(self.predicted, len(self.classes), slicing.codes, len(slicing.names))

    def groups_for(self, metric: Metric, failure: Array | None) -> tuple[Groups, scores.Linear | None]:
        """Return the partition for a number that judges the confidence, and its linear form, none if it has none.

        Rankings are linearised at ``failure`` (N,), which is known or predicted of every example.
        """
        confidence, num = self.confidence(metric), len(self.classes)
        if metric.name == scores.CALIBRATION:
            return Groups(self.predicted, num, scores.bins_of(confidence), scores.BINS), None
        number = scores.score_of(metric.name, confidence)
        if metric.name in scores.RANKINGS:
            assert failure is not None
            number = scores.ranking_of(
                metric.name, confidence, failure, self.predicted == find_place(metric, self.classes)
            )
        return Groups(self.predicted, num, coefficient=number.coefficient), number


def numbers_of(pool: KnownPool, sample: Sample, metrics: Sequence[Metric] = ()) -> "Numbers":
    """Fit the failures, and measure all totals of the pool and its slices in one pass.

    Those of the ``metrics`` that judge the confidence can be stated afterwards, and any other metric. Raises SpecError
    or DataError for one of them that the pool has no confidence or classes for.
    """
    judging = [metric for metric in dict.fromkeys(metrics) if metric.judges_confidence]
    for metric in judging:
        pool.check(metric)
    fit = fit_failures(pool.view, sample)
    partitions: dict[Key, Groups] = {key: pool.groups(key) for key in (None, *pool.slicings)}
    linear = dict[Metric, scores.Linear]()
    for metric in judging:
        failure = _failure_of_every_example(pool, sample, fit, metric) if metric.name in scores.RANKINGS else None
        partitions[metric], number = pool.groups_for(metric, failure)
        if number is not None:
            linear[metric] = number
    failures, evidence = measure(sample, fit, list(partitions.values()))
    return Numbers(pool, dict(zip(partitions, evidence, strict=True)), linear, sample, failures)


def _failure_of_every_example(pool: KnownPool, sample: Sample, fit: Fit | None, metric: Metric) -> Array:
    """Return the failures (N,) at which a ranking is linearised: as labels know them, else as they predict them."""
    index = sample.rounds.index
    if fit is None:
        inside = pool.predicted == find_place(metric, pool.classes)
        confidence, weights = pool.confidence(metric), sample.rounds.weights
        predicted = scores.failures_along(confidence, inside, index, sample.failure, weights)
    else:
        predicted = np.array(fit.failure)
    predicted[index] = sample.failure
    return predicted


@dataclass(frozen=True, eq=False)
class Numbers:
    """Numbers of one pool, model and sample, from totals that are measured.

    ``sample`` and ``failures`` are None before any label.
    """

    pool: KnownPool
    evidence: Mapping[Key, Evidence]
    linear: Mapping[Metric, scores.Linear]
    sample: Sample | None = None
    failures: PoolFailures | None = None
    is_random: bool = False  # whether the evidence is that of a simple random sample

    def totals(self, key: Key = None) -> ClassTotals:
        """Return the totals of all classes in the pool, in the slices of a name, or for a number of the confidence."""
        return ClassTotals(self.evidence[key], self.sample)

    def estimate(self, metric: Metric, level: float) -> Estimate:
        """Return a metric of the whole pool; raises as :meth:`by`, and LabelError for errors without true values."""
        if metric.name == ACCURACY and self.failures is not None:
            return self.failures.accuracy(level)
        if metric.is_error:
            return self._error(metric, level)
        return self.interim(metric, None, level)[""].estimate

    def by(self, metric: Metric, by: str, level: float) -> dict[str, Estimate]:
        """Return a metric in each slice of a name, or the accuracy by prediction, or the recall by truth, at the level.

        Classes that are neither predicted nor in labels are left out.

        Raises
        ------
        SpecError
            The metric needs a class and names none, or one that there is not; or it is stated of the pool only.
        LabelError
            Only outcomes are known, and the metric needs true classes.
        """
        return {name: found.estimate for name, found in self.interim(metric, by, level).items()}

    def interim(self, metric: Metric, by: str | None, level: float) -> dict[str, Interim]:
        """Return a metric of the pool (named ""), or as :meth:`by`, with the events that each interval rests on."""
        if by is not None and metric.is_of_pool:
            raise SpecError(f"{metric} is stated of the whole pool only; leave out {by!r}")
        names = ("",) if by is None else self.pool.slicings[by].names if by in self.pool.slicings else ()
        if names and metric.ratio is not None:
            found = self._ratio(metric.ratio, by, level)
        elif metric.judges_confidence:
            totals, place = self.totals(metric), self.place_of(metric) if metric.name in scores.RANKINGS else -1
            number = self.linear.get(metric)
            found = [self._calibration(totals, level) if number is None else totals.linear(number, place, level)]
        elif names:
            found = self.totals(by).interim(metric, self.place_of(metric), level)
        else:
            return self._in_classes(str(by), level)
        return dict(zip(names, found, strict=True))

    def _in_classes(self, by: str, level: float) -> dict[str, Interim]:
        totals = self.totals()
        if by == BY_TRUTH:
            self._need_truth("recall by true class")
        found = totals.by_truth(level) if by == BY_TRUTH else totals.by_prediction(level)
        rows = zip(self.pool.classes, found, totals.evidence.sizes.tolist(), strict=True)
        return {name: own for name, own, size in rows if size or (by == BY_TRUTH and own.estimate.n)}

    def by_random_sample(self) -> "Numbers":
        """Return the same numbers as a simple random sample of as many labels is expected to state them."""
        assert self.sample is not None
        evidence = dict[Key, Evidence]()
        for key, own in self.evidence.items():
            basis = own if own.groups.coefficient is None else self.evidence[None]
            totals = ClassTotals(basis, self.sample)
            num = basis.groups.num
            share = np.array([min(max(total.value, 0.0), 1.0) for total in totals.failures(np.arange(num), num)])
            p = share[basis.groups.code(slice(None))]
            evidence[key] = RandomEvidence(own.groups, p, self.sample.size, own.index)
        return replace(self, evidence=evidence, is_random=True)

    def slopes(self, metric: Metric) -> Array:
        """Return how far the label of each example, (n,), moves a ranking, times N."""
        assert self.sample is not None
        return np.abs(self.linear[metric].coefficient[self.sample.rounds.index])

    def place_of(self, metric: Metric) -> int:
        """Return the place of the class of a metric, 0 where it has none; raises as :meth:`by`."""
        if metric.name == ACCURACY:
            return 0
        self._need_truth(str(metric))
        return 0 if metric.name in AVERAGES else find_place(metric, self.pool.classes)

    def _need_truth(self, what: str) -> None:
        if self.sample is not None and self.sample.truth is None:
            raise LabelError(f"{what} needs the true class of each label, and only outcomes are given: give the labels")

    def _error(self, metric: Metric, level: float) -> Estimate:
        """Return a number about the errors of predicted values, from the labels and the design alone."""
        if self.sample is None or self.sample.errors is None:
            raise LabelError(f"{metric} needs the true value of each label, and only outcomes or classes are given")
        return design_numbers.estimate_error(metric.name, self.sample.rounds, self.sample.errors, level)

    def _ratio(self, ratio: Ratio, by: str | None, level: float) -> list[Interim]:
        """Return a ratio of totals in the pool, or in each slice of a name, from the labels and the design alone."""
        sample, size = self.sample, self.pool.view.size
        if sample is None or sample.counts is None:
            raise LabelError(f"{ratio} needs counts for each example, and the labels have none; see estimate_ratio")
        if unknown := [name for name in ratio.names if name not in sample.counts]:
            raise SpecError(f"{ratio} has {unknown[0]!r}; the counts are {', '.join(sample.counts)}")
        codes = np.zeros(size, dtype=np.int64) if by is None else self.pool.slicings[by].codes
        where, first, found = codes[sample.rounds.index], sample.rounds.first, list[Interim]()
        names = ("",) if by is None else self.pool.slicings[by].names
        for place, num_examples in enumerate(np.bincount(codes, minlength=len(names)).tolist()):
            num = int(np.count_nonzero(where[first] == place))
            counts = {name: values * (where == place) for name, values in sample.counts.items()}
            if num == num_examples > 0:
                value = ratio.of_totals({name: float(values[first].sum()) for name, values in counts.items()})
                found.append(Interim(design_numbers.known_ratio(value, num, level), float))
            elif self.is_random:
                share = sample.size / size
                own = design_numbers.ratio_of_random_sample(ratio, sample.rounds, counts, share, level)
                found.append(Interim(own, float))
            else:
                own = design_numbers.ratio_of(ratio, sample.rounds, counts, num, level)
                found.append(Interim(own, partial(design_numbers.events_of_ratio, ratio, sample.rounds, counts)))
        return found

    def _calibration(self, totals: ClassTotals, level: float) -> Interim:
        bins, confidence = totals.evidence.groups.slices, self.pool.confidence(Metric(scores.CALIBRATION))
        assert bins is not None
        size = np.bincount(bins, minlength=scores.BINS) / len(bins)
        mean = np.bincount(bins, weights=confidence, minlength=scores.BINS) / np.maximum(size * len(bins), 1)
        failures = totals.failures(totals.slices, scores.BINS)
        gap = mean - 1 + np.array([own.value for own in failures])
        ends = np.array([own.interval(level) for own in failures])
        error = (ends[:, 1] - ends[:, 0]) / (2 * normal_quantile(level))
        found = calibration_error(size, gap, error, level)
        num, events = sum(own.num for own in failures), sum(own.events for own in failures)
        return Interim(totals.noted(estimate_of(*found, level, num)), partial(min, events, num - events))


def calibration_error(size: Array, gap: Array, error: Array, level: float) -> tuple[float, float, float]:
    """Return the calibration error and its interval.

    Parameters
    ----------
    size : (k,) share of the pool in each bin
    gap : (k,) d̂, mean confidence less accuracy
    error : (k,) standard error of d̂
    """
    plain, noise = float(size @ np.abs(gap)), size * error
    z = np.minimum(np.abs(gap) / np.maximum(error, 1e-300), 40.0)
    value = max(plain - float(noise @ np.exp(-(z**2) / 2)) * math.sqrt(2 / math.pi), 0.0)
    spread, quarter = float(np.sqrt(noise @ noise)), (1 + level) / 2
    random = np.abs(np.random.default_rng(0).standard_normal((NOISES, len(noise)))) @ noise
    low = plain - float(np.quantile(random, (1 + quarter) / 2))
    low = max(low, abs(float(size @ gap)) - normal_quantile(quarter) * spread, 0.0)
    high = min(plain + normal_quantile(level) * spread, 1.0)
    return min(max(value, low), high), low, high


def estimate(
    pool: KnownPool, sample: Sample, metric: Metric, by: str | None = None, level: float = 0.95
) -> dict[str, Estimate]:
    """Estimate a number of the pool (named ""), or in each of its slices or classes.

    Raises as :func:`numbers_of` and :meth:`Numbers.by`.
    """
    numbers = numbers_of(pool, sample, [metric])
    if by is not None:
        return numbers.by(metric, by, level)
    if metric.name == ACCURACY and numbers.failures is not None:
        return {"": accuracy_of(numbers.failures, sample, level)}
    return {"": numbers.estimate(metric, level)}


def measure_failures(view: View | None, sample: Sample) -> tuple[PoolFailures, Fit | None]:
    """Return the failures of the pool, and the fit that predicts them, if there is one."""
    fit = fit_failures(view, sample)
    return measure(sample, fit)[0], fit


def estimate_outcomes(
    selection: Selection | Sequence[Selection],
    outcome: Sequence[Any] | Outcome,
    level: float = 0.95,
    *,
    prediction: ArrayLike | None = None,
    pool: Pool | View | None = None,
    history: History | None = None,
) -> Estimate:
    """Estimate the accuracy on the pool of ``selection`` from outcomes (n,), or from a list with those of each round.

    Arguments and errors are those of :func:`opacc_ray.labelled.estimate`, which also accepts labels and adds the
    effective sample size. Without ``pool``, rounds are combined by their designs alone. With it, those of `neyman` with
    ``combine="labels"`` are combined by a fit to all labels.
    """
    return fitted_outcomes(selection, outcome, level, prediction=prediction, pool=pool, history=history)[0]


def fitted_outcomes(
    selection: Selection | Sequence[Selection],
    outcome: Sequence[Any] | Outcome,
    level: float,
    *,
    prediction: ArrayLike | None,
    pool: Pool | View | None,
    history: History | None,
) -> tuple[Estimate, Sample, Fit | None]:
    """Return the estimate of :func:`estimate_outcomes`, the labels, and the fit that it uses, if there is one."""
    check_level(level)
    view, known = None if pool is None else view_of(pool), histories_of(history, 1)[0]
    selections = [selection] if isinstance(selection, Selection) else list(selection)
    if view is not None and prediction is None:
        refuse_other_pools([view], selections)
    sample = join(selection, outcome, history=known)
    if prediction is not None:
        found = assisted_estimate(sample, prediction, level)
        content = content_of(view_of(Pool(confidence=prediction)))
        for part in selections:
            refuse_other_order(part, content, "the prediction")
        return found, sample, None
    failures, fit = measure_failures(view, sample)
    return accuracy_of(failures, sample, level), sample, fit


_PREFIX = "judge*"
"""Begins the name of the slices of a judge: no column's slices have that name."""


class JudgeQuality(NamedTuple):
    """What one judge is worth, with intervals."""

    judged: int  # examples of the pool
    labels: int  # of these, with a label
    says_right: float  # share of the judged answers that it calls right
    sensitivity: Estimate  # share of the right answers that it calls right
    specificity: Estimate  # share of the wrong answers that it calls wrong
    kappa: Estimate  # agreement beyond chance


def judge_slicings(judges: Mapping[str, NDArray[np.float64]]) -> dict[str, Slicing]:
    """Return the slices by what each judge says, as :func:`judge_quality` needs them."""
    return {f"{_PREFIX}{name}": verdicts(score) for name, score in judges.items()}


def judge_quality(numbers: Numbers, name: str, level: float) -> JudgeQuality:
    """Return what the labels say of a judge, each interval at the level; needs its slices among those of the pool."""
    slicing = numbers.pool.slicings[f"{_PREFIX}{name}"]
    totals = numbers.totals(f"{_PREFIX}{name}")
    failures = totals.failures(totals.slices, totals.num_slices)
    both = Totals(failures[SAYS_RIGHT], failures[SAYS_WRONG].complement())
    size = np.bincount(slicing.codes, minlength=totals.num_slices)
    found = [totals.noted(both.estimate(Metric(own), level)) for own in ("recall", "specificity", "kappa")]
    judged, labels = int(size.sum() - size[NOT_JUDGED]), sum(own.num for own in both)
    return JudgeQuality(judged, labels, float(size[SAYS_RIGHT] / max(judged, 1)), *found)
