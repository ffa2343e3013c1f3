"""Estimate metrics, classes and slices from the labels of one sample: which evidence there is, and what is asked of it.

Rounds of `neyman` with their pool have predicted failures for every example; other samples speak by their design alone.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.class_totals import ClassTotals, Labels
from opacc_ray.estimators.design_evidence import DesignEvidence
from opacc_ray.estimators.foreseen_evidence import RandomEvidence
from opacc_ray.estimators.intervals import normal_quantile
from opacc_ray.estimators.metric_comparison import Labelled, compare_metric, linearise
from opacc_ray.estimators.metrics import ACCURACY, AVERAGES, Metric, estimate_of, find_place
from opacc_ray.estimators.model_comparison import SeveralModels
from opacc_ray.estimators.ratios import Ratio
from opacc_ray.estimators.rounds import Outcome, linear_estimator
from opacc_ray.estimators.scores import (
    BINS,
    CALIBRATION,
    RANKINGS,
    Linear,
    bins_of,
    calibration_error,
    failures_along,
    ranking_of,
    score_of,
)
from opacc_ray.estimators.totals import Evidence, Groups
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.parts.view import View
from opacc_ray.samplers.neyman.regression import fit, gather_evidence, uses_regression
from opacc_ray.selection import Selection
from opacc_ray.slices import BY_PREDICTION, BY_TRUTH, Slicing

Array = NDArray[np.float64]
Codes = NDArray[np.integer]


class Sample(NamedTuple):
    """Labelled rounds of one pool."""

    selections: Sequence[Selection]
    outcomes: Sequence[Outcome]  # (n_t,) of each round
    truth: NDArray[np.int64] | None = None  # (n,) true class of each label; None: only outcomes are known
    history: History = NO_HISTORY
    counts: Mapping[str, Array] | None = None  # name -> (n,) counts of each label


def forecast_of(sample: Sample, view: View | None, size: int) -> Array:
    """Return the failures p (N,) that the labels predict in a pool of ``size`` examples."""
    selections, outcomes, _, history, _ = sample
    if view is None or not uses_regression(selections):
        return np.full(size, 1 - float(np.concatenate(outcomes).mean()))
    return fit(view, selections, outcomes, history).failure


def evidence_of(
    sample: Sample, groups: Callable[[Array], Sequence[Groups]], view: View | None, size: int, first: int = 0
) -> Sequence[Evidence]:
    """Return what rounds, from number ``first`` on, say of partitions of a pool of ``size`` examples.

    ``groups`` makes these from the failures p (N,) that the labels predict.
    """
    selections, outcomes, _, history, _ = sample
    if view is None or not uses_regression(selections):
        return [DesignEvidence(selections, own, first) for own in groups(forecast_of(sample, None, size))]
    found = gather_evidence(view, selections, outcomes, history, groups)
    return [own.since(first) for own in found] if first else found


Gather = Callable[[Callable[[Array], Sequence[Groups]]], Sequence[Evidence]]
"""Returns what is known of partitions of a pool, which a function makes from predicted failures p (N,)."""


class Interim(NamedTuple):
    """A number at an interim analysis."""

    estimate: Estimate
    met: float  # events that its interval rests on


class MetricEstimates:
    """Numbers of one pool, model and sample.

    Parameters
    ----------
    sample : the labelled rounds
    predicted : (N,) class of every example, 0 .. C - 1; zeros for a regression
    classes : C names of classes
    slicings : name -> slices of the pool
    view : the features of the pool, for rounds of `neyman`
    gather : what is known of partitions of the pool; None: what the labels say
    asked : numbers that will be asked for; what judges the confidence then shares the pass over the pool
    """

    def __init__(
        self,
        sample: Sample,
        predicted: Codes,
        classes: Sequence[str],
        slicings: Mapping[str, Slicing],
        view: View | None,
        gather: Gather | None = None,
        asked: Sequence[Metric] = (),
    ) -> None:
        self.sample, self.classes, self.slicings = sample, list(classes), slicings
        self.predicted, self._view, self._gather = predicted, view, gather
        self._asked = [own for own in asked if own.judges_confidence]
        self._linear: dict[Metric, Linear] = {}
        self._of_random_sample = False

    @cached_property
    def _evidence(self) -> dict[str | Metric | None, Evidence]:
        """By the name of the slices, or by the number; None: the whole pool."""
        return self._gather_all([None, *self.slicings, *self._asked])

    @property
    def _labels(self) -> Labels:
        return Labels(1 - np.concatenate(self.sample.outcomes), self.sample.truth)

    def totals(self, by: str | Metric | None = None) -> ClassTotals:
        """Return the totals of all classes in the pool, in the slices of a name, or for a number of the confidence."""
        return ClassTotals(self._evidence[by], self._labels)

    def estimate(self, metric: Metric, level: float) -> Estimate:
        """Return a metric of the whole pool, which is not the accuracy.

        Raises SpecError or LabelError as :meth:`by_slice`, and DataError without the confidence that one is about.
        """
        if metric.judges_confidence:
            return self._of_confidence(metric, level).estimate
        if metric.ratio is not None:
            return self._ratio(metric.ratio, None, level)[0].estimate
        return self.totals().estimate(metric, self.place_of(metric), level)[0]

    def interim(self, metric: Metric, by: str | None, level: float) -> dict[str, Interim]:
        """Return a metric of the pool (named ""), or in each slice of a name, with the events that each rests on.

        Of classes it is the accuracy by prediction, or the recall by truth. Raises as :meth:`by_slice`.
        """
        if metric.judges_confidence and by is None:
            return {"": self._of_confidence(metric, level)}
        if metric.ratio is not None:
            names = self.slicings[by].names if by else ("",)
            return dict(zip(names, self._ratio(metric.ratio, by, level), strict=True))
        if by == BY_TRUTH:
            found = self.by_truth(level)
            rows = [self.totals().met(Metric("recall"), self.classes.index(name), level)[0] for name in found]
        elif by == BY_PREDICTION:
            found, totals = self.by_prediction(level), self.totals()
            rows = totals.met_by_prediction([self.classes.index(name) for name in found], level)
        elif by is None:
            totals, c = self.totals(), self.place_of(metric)
            found, rows = {"": totals.estimate(metric, c, level)[0]}, totals.met(metric, c, level)
        else:
            found = self.by_slice(metric, by, level)
            rows = self.totals(by).met(metric, self.place_of(metric), level)
        return {name: Interim(own, met) for (name, own), met in zip(found.items(), rows, strict=True)}

    def by_random_sample(self) -> "MetricEstimates":
        """Return the same numbers as a simple random sample of as many labels is expected to state them."""
        num = len(np.unique(np.concatenate([part.index for part in self.sample.selections])))
        whole = _failures_by_group(self.totals())

        def gather(groups: Callable[[Array], Sequence[Groups]]) -> list[Evidence]:
            found = list[Evidence]()
            for own in self._evidence_of(groups):
                if own.groups.coefficient is None:
                    failed = _failures_by_group(ClassTotals(own, self.totals().labels))
                    found.append(RandomEvidence(own.groups, failed, failed, num, own.index))
                else:
                    share = whole / np.maximum(self.totals().evidence.sizes, 1)
                    found.append(RandomEvidence.of(own.groups, share[self.predicted], num, own.index))
            return found

        found = MetricEstimates(self.sample, self.predicted, self.classes, self.slicings, self._view, gather)
        found._of_random_sample = True
        return found

    def by_slice(self, metric: Metric, by: str, level: float) -> dict[str, Estimate]:
        """Return a metric in each slice of a name, each at the level.

        Raises
        ------
        SpecError
            The metric needs a class and names none, or one that there is not.
        LabelError
            Only outcomes are known, and the metric needs true classes.
        """
        if metric.judges_confidence:
            raise SpecError(f"{metric} is stated of the whole pool only; leave out {by!r}")
        if metric.ratio is not None:
            found = [own.estimate for own in self._ratio(metric.ratio, by, level)]
            return dict(zip(self.slicings[by].names, found, strict=True))
        found = self.totals(by).estimate(metric, self.place_of(metric), level)
        return dict(zip(self.slicings[by].names, found, strict=True))

    def by_prediction(self, level: float) -> dict[str, Estimate]:
        """Return the accuracy of the examples predicted as each class that the model predicts."""
        totals = self.totals()
        sizes = totals.evidence.sizes.tolist()
        rows = zip(self.classes, totals.by_prediction(level), sizes, strict=True)
        return {name: found for name, found, size in rows if size}

    def by_truth(self, level: float) -> dict[str, Estimate]:
        """Return the recall of each class that has labels or predictions; raises LabelError as :meth:`by_slice`."""
        self._need_truth("recall by true class")
        totals = self.totals()
        rows = zip(self.classes, totals.by_truth(level), totals.evidence.sizes.tolist(), strict=True)
        return {name: found for name, found, size in rows if size or found.n}

    def _ratio(self, ratio: Ratio, by: str | None, level: float) -> list[Interim]:
        """Return a ratio of totals in the pool, or in each slice of a name, from the labels and the design alone."""
        if self.sample.counts is None:
            raise LabelError(f"{ratio} needs counts for each example, and the labels have none; see estimate_ratio")
        if unknown := [name for name in ratio.names if name not in self.sample.counts]:
            raise SpecError(f"{ratio} has {unknown[0]!r}; the counts are {', '.join(self.sample.counts)}")
        selections, names = self.sample.selections, [""] if by is None else self.slicings[by].names
        codes = np.zeros(len(self.predicted), dtype=np.int64) if by is None else self.slicings[by].codes
        index, once = np.unique(np.concatenate([part.index for part in selections]), return_index=True)
        where, design, found = (
            codes[np.concatenate([part.index for part in selections])],
            linear_estimator(selections),
            [],
        )
        for place, size in enumerate(np.bincount(codes, minlength=len(names)).tolist()):
            num = int(np.count_nonzero(codes[index] == place))
            own = {name: values * (where == place) for name, values in self.sample.counts.items()}
            if num == size > 0:
                value = ratio.of_totals({name: float(values[once].sum()) for name, values in own.items()})
                found.append(Interim(ratio.known(value, num, level), 0.0))
            elif self._of_random_sample:
                found.append(Interim(ratio.of_random_sample(design, own, len(index) / len(codes), level), 0.0))
            else:
                found.append(Interim(ratio.estimate(design, own, num, level), ratio.events(design, own)))
        return found

    def slopes(self, metric: Metric) -> list[Array]:
        """Return how far the label of each example of each round, (n_t,), moves a ranking, times N."""
        coefficient = self.linear(metric).coefficient
        return [np.abs(coefficient[part.index]) for part in self.sample.selections]

    def linear(self, metric: Metric) -> Linear:
        """Return a number that judges the confidence, but not the calibration error, as a mean over the pool."""
        if metric not in self._linear:
            self._gather_all([metric])
        return self._linear[metric]

    def _of_confidence(self, metric: Metric, level: float) -> Interim:
        """Return a number that judges the confidence."""
        evidence = self._evidence.get(metric) or self._gather_all([metric])[metric]
        totals = ClassTotals(evidence, self._labels)
        if metric.name == CALIBRATION:
            return self._calibration(totals, level)
        c = self.place_of(metric) if metric.name in RANKINGS else -1
        return Interim(*totals.linear(self._linear[metric], c, level))

    def _calibration(self, totals: ClassTotals, level: float) -> Interim:
        bins, (_, confidence) = totals.evidence.groups.slices, self._confidence(Metric(CALIBRATION))
        assert bins is not None
        size = np.bincount(bins, minlength=BINS) / len(bins)
        mean = np.bincount(bins, weights=confidence, minlength=BINS) / np.maximum(size * len(bins), 1)
        shares = totals.failures(totals.slices, BINS)
        gap = mean - 1 + np.array([own.value for own in shares])
        ends = np.array([own.interval(level) for own in shares])
        error = (ends[:, 1] - ends[:, 0]) / (2 * normal_quantile(level))
        found = calibration_error(size, gap, error, level)
        num, events = sum(own.num for own in shares), sum(own.events for own in shares)
        return Interim(totals.noted(estimate_of(*found, level, num)), min(events, num - events))

    def _confidence(self, metric: Metric) -> tuple[View, Array]:
        """Return the features and the confidence of every example (N,), which a number needs."""
        if self._view is None:
            raise SpecError(f"{metric} needs the confidences of the whole pool; give the pool")
        self._view.need(("confidence",), str(metric))
        return self._view, self._view.column("confidence")

    def _gather_all(self, wanted: Sequence[str | Metric | None]) -> dict[str | Metric | None, Evidence]:
        """Return what is known of the pool, of slices by their names, and for numbers that judge the confidence."""
        for metric in [own for own in wanted if isinstance(own, Metric)]:
            self._check_confidence(metric)

        found = self._evidence_of(lambda p: [self._groups(own, p) for own in wanted])
        return dict(zip(wanted, found, strict=True))

    def _groups(self, wanted: str | Metric | None, p: Array) -> Groups:
        num = len(self.classes)
        if wanted is None:
            return Groups(self.predicted, num)
        if isinstance(wanted, str):
            own = self.slicings[wanted]
            return Groups(self.predicted, num, own.codes, len(own.names))
        confidence = self._confidence(wanted)[1]
        if wanted.name == CALIBRATION:
            return Groups(self.predicted, num, bins_of(confidence), BINS)
        number = score_of(wanted.name, confidence)
        if wanted.name in RANKINGS:
            inside = self.predicted == self.place_of(wanted)
            number = ranking_of(wanted.name, confidence, self._failures_for_ranking(p, confidence, inside), inside)
        self._linear[wanted] = number
        return Groups(self.predicted, num, coefficient=number.coefficient)

    def _failures_for_ranking(self, p: Array, confidence: Array, inside: NDArray[np.bool_]) -> Array:
        """Return the failures (N,) at which a ranking is linearised: as labels know them, else as they predict them."""
        selections = self.sample.selections
        if not selections:
            return p
        index, failure = np.concatenate([part.index for part in selections]), self._labels.failure
        if not uses_regression(selections):
            p = failures_along(confidence, inside, index, failure, linear_estimator(selections).weights)
        found = np.array(p)
        found[index] = failure
        return found

    def _check_confidence(self, metric: Metric) -> None:
        """Raise SpecError or DataError unless a number that judges the confidence can be stated."""
        self._confidence(metric)
        if metric.name in RANKINGS:
            self.place_of(metric)
            if (num := len(self.classes)) != 2:
                raise SpecError(
                    f"{metric}: the confidence is a score of one class with two classes, and there are {num}"
                )

    def _evidence_of(self, groups: Callable[[Array], Sequence[Groups]]) -> Sequence[Evidence]:
        if self._gather is not None:
            return self._gather(groups)
        return evidence_of(self.sample, groups, self._view, len(self.predicted))

    def place_of(self, metric: Metric) -> int:
        """Return the place of the class of a metric, 0 where it has none; raises as :meth:`by_slice`."""
        if metric.name == ACCURACY:
            return 0
        self._need_truth(str(metric))
        if metric.name in AVERAGES:
            return 0
        return find_place(metric, self.classes)

    def _need_truth(self, what: str) -> None:
        if self.sample.truth is None:
            raise LabelError(f"{what} needs the true class of each label, and only outcomes are given: give the labels")


def _failures_by_group(totals: ClassTotals) -> Array:
    """Return the expected number of failures in each group, (G,)."""
    num = totals.evidence.groups.num
    share = [min(max(own.value, 0.0), 1.0) for own in totals.failures(np.arange(num), num)]
    return np.array(share) * totals.evidence.sizes


def compare_by(metric: Metric, models: Sequence[MetricEstimates], level: float) -> SeveralModels:
    """Compare a metric of several models, which have the same sample and classes; differences are by the design alone.

    Raises SpecError or LabelError as :meth:`MetricEstimates.by_slice`, and SpecError for a number that judges the
    confidence.
    """
    if metric.judges_confidence:
        raise SpecError(f"{metric} is not compared between models; estimate it for each, or compare the accuracy")
    first = models[0]
    place, truth = first.place_of(metric), first.sample.truth
    assert truth is not None
    labels = Labelled(np.concatenate([part.index for part in first.sample.selections]), truth, len(first.classes))
    design = linear_estimator(first.sample.selections)
    found = [linearise(design, metric, place, own.predicted, labels) for own in models]
    return compare_metric(design, found, [own.estimate(metric, level) for own in models], labels, level)
