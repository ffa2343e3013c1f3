"""The numbers of a run, measured in one pass over its rounds: accuracy, metrics, classes, slices, costs and judges."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.history import read_history
from opacc_ray.designs.inclusion_probability import Grown
from opacc_ray.estimation.adjustments import Circumstances, SecondOpinions, disagreement
from opacc_ray.estimation.class_totals import scaled
from opacc_ray.estimation.design_numbers import effect_on_ratio, effects
from opacc_ray.estimation.estimate import (
    KnownPool,
    Numbers,
    judge_quality,
    judge_slicings,
    measure_failures,
    numbers_of,
)
from opacc_ray.estimation.failures import PoolFailures, accuracy_of, failures_by_design, uses_regression
from opacc_ray.estimation.intervals import Estimate, level_of_each, zero_failure_bound
from opacc_ray.estimation.model_comparison import linearise
from opacc_ray.estimation.sample import Sample, join
from opacc_ray.labels.joining import numbers_in
from opacc_ray.labels.labelled_rounds import LabelledRound, mean_differences, reason_of, stated
from opacc_ray.metrics.metric import RMSE, Metric, tells
from opacc_ray.metrics.scores import RANKINGS
from opacc_ray.parts.view import View
from opacc_ray.pool import BY_PREDICTION, NO_HISTORY, OF_CLASSES, History, Slicing
from opacc_ray.runs import run_documents as documents
from opacc_ray.runs.run import Run, open_view, read_column
from opacc_ray.samplers import parse_parameters
from opacc_ray.selection import Selection

_VALUES = ("predicted", "truth")


class Request(NamedTuple):
    """What is to be stated besides the accuracy of the pool."""

    metrics: tuple[Metric, ...]
    tables: tuple[tuple[Metric, str], ...]  # a metric and the slices, or classes, that it is stated by

    def slicings(self, view: View) -> dict[str, Slicing]:
        """Return the slices that are asked; raises SpecError for a name that the pool does not have."""
        return {by: view.slicing(by) for _, by in self.tables if by not in OF_CLASSES}


Costs = dict[str, float | dict[str, float]]
"""True class → cost of every error on it, or → predicted class → cost of that confusion."""


def class_names(run: Run) -> list[str] | None:
    """Return the names of the classes of a run's model, None where their number is not known."""
    return None if run.num_classes is None else [run.spec.model.name_of(c) for c in range(run.num_classes)]


def sample_of(known: Sequence[LabelledRound], history: History = NO_HISTORY) -> Sample:
    """Return the rounds with their outcomes."""
    return join([item.known for item in known], [item.outcome for item in known], history=history)


@contextmanager
def open_for_estimates(run: Run, selections: Sequence[Selection]) -> Iterator[View]:
    """Open what estimates from these rounds read of the pool: for `neyman` the features that its predictions use."""
    optional: tuple[str, ...] = ("confidence",)
    if uses_regression(selections):
        optional = parse_parameters(selections[0].method, selections[0].parameters).optional_features
    with open_view(run, (), optional) as view:
        yield view


def measure_run(
    run: Run,
    rounds: Sequence[LabelledRound],
    known: Sequence[LabelledRound],
    view: View,
    slicings: Mapping[str, Slicing] = MappingProxyType({}),
    metrics: Sequence[Metric] = (),
    stated_level: float | None = None,
) -> "RunNumbers":
    """Fit the failures to the ``known`` labels of some ``rounds``, and measure all totals.

    The others are as for :func:`opacc_ray.estimation.estimate.numbers_of` and :class:`RunNumbers`.
    """
    model, selections = run.spec.model, [item.known for item in known]
    history = read_history(run) if run.spec.has_history and uses_regression(selections) else NO_HISTORY
    predicted, classes = coded_classes(run, known, view)
    columns: dict[str, Any] = {"history": history}
    if model.has_classes:
        columns["truth"] = np.array([classes[name] for item in known for name in item.truth], dtype=np.int64)
    if model.task == "regression":
        said, true = ([float(text) for item in known for text in getattr(item, name)] for name in _VALUES)
        columns["errors"] = np.array(said) - np.array(true)
    if model.counts is not None:
        rows = [numbers_in(text) for item in known for text in item.truth]
        columns["counts"] = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in model.counts}
    judges = judge_slicings(history.judges) if history.judges else {}
    pool = KnownPool(view, predicted, list(classes), {**slicings, **judges})
    sample = join(selections, [item.outcome for item in known], **columns)
    return RunNumbers(run, rounds, known, numbers_of(pool, sample, metrics), stated_level)


def coded_classes(run: Run, known: Sequence[LabelledRound], view: View) -> tuple[NDArray[np.int32], dict[str, int]]:
    """Return the place of the predicted class of every example, (N,), and the place of each class.

    Where the number of classes is not known, they are those that are predicted, or in labels.
    """
    if not run.spec.model.has_classes:
        return np.zeros(view.size, dtype=np.int32), {"all": 0}
    predicted, names = read_column(run, "prediction"), class_names(run)
    if names is None:
        texts = {text for item in known for own in (item.truth, *item.opinions) for text in own}
        numbers = np.unique([*np.unique(predicted), *map(int, texts)])
        predicted = np.searchsorted(numbers, predicted)
        names = [run.spec.model.name_of(int(number)) for number in numbers]
    return predicted.astype(np.int32), {name: place for place, name in enumerate(names)}


class RunAccuracy(NamedTuple):
    """The labels of a run, and the failures of its pool by them."""

    sample: Sample
    failures: PoolFailures

    def estimate(self, level: float) -> Estimate:
        """Return the accuracy."""
        return accuracy_of(self.failures, self.sample, level)


def measure_accuracy(run: Run, known: Sequence[LabelledRound], view: View | None = None) -> RunAccuracy:
    """Measure the failures by some rounds; if their method learns from all labels, with features of the pool.

    The ``view`` of these is opened unless it is given.
    """
    selections = [item.known for item in known]
    if not uses_regression(selections):
        sample = sample_of(known)
        return RunAccuracy(sample, failures_by_design(sample))
    with nullcontext(view) if view else open_for_estimates(run, selections) as opened:
        sample = sample_of(known, read_history(run))
        return RunAccuracy(sample, measure_failures(opened, sample)[0])


@dataclass(frozen=True, eq=False)
class RunNumbers:
    """Numbers of one run from the labels of some of its rounds, each at a confidence level.

    They are stated to hold at ``stated_level`` where that is given: intervals are stricter after a goal was reached.
    """

    run: Run
    rounds: Sequence[LabelledRound]
    known: Sequence[LabelledRound]
    numbers: Numbers
    stated_level: float | None = None

    def fields(self, request: Request, level: float) -> dict[str, Any]:
        """Return what is asked, and the numbers of classes, as fields of an estimate document."""
        metrics = {str(metric): self._metric(self.metric(metric, level)) for metric in request.metrics}
        tables = [self.table(metric, by, level) for metric, by in request.tables]
        judges = {name: self._judge(name, level) for name in self.sample.history.judges}
        return {"metrics": metrics, "by_slice": tables, "judges": judges} | self._in_classes(level)

    def notes(self, request: Request, level: float) -> list[str]:
        """Return what must be known of slices of a grown pool, and of ratios, whose large counts labels may miss."""
        drawn = [item.selection for item in self.known]
        is_apart = any(isinstance(own.design, Grown) and own.parameters.get("combine") == "labels" for own in drawn)
        said = [
            "Labels of an earlier run are carried, so intervals of slices rest on the sampling design alone, without "
            "predicted failures. They may be wider than in that run; only a fresh draw (`sample: {fresh: true}`) has "
            "predictions again."
        ] * (is_apart and bool(request.tables))
        metrics = (*request.metrics, *(metric for metric, _ in request.tables))
        num = sum(len(np.unique(item.known.index)) for item in self.known)
        if all(metric.ratio is None for metric in metrics) or num >= self.numbers.pool.view.size:
            return said
        share = zero_failure_bound(num, level)
        return [
            *said,
            f"Examples of a kind that is less than {100 * share:.2g} % of the pool may be missing among {num} labels. "
            "If their counts are much larger than others, intervals of ratios do not allow for them.",
        ]

    def metric(self, metric: Metric, level: float) -> Estimate:
        """Return a metric of the pool, widened for label noise like the accuracy."""
        found = self.numbers.estimate(metric, level)
        opinions = self._second_opinions(metric, level)
        return found if opinions is None else Circumstances(level, opinions=opinions).statement(found).estimate

    def _second_opinions(self, metric: Metric, level: float) -> SecondOpinions | None:
        """Return how far a metric differs between the opinions on one example; None without two."""
        if not any(len(own) > 1 for item in self.known for own in item.opinions):
            return None
        value_of, most = self._effects(metric)
        slope = self.numbers.slopes(metric) if metric.name in RANKINGS else np.ones(len(self.sample.outcome))
        most *= max(float(np.max(slope)), 1e-300)
        moved = np.concatenate([mean_differences(item.opinions, item.predicted, value_of) for item in self.known])
        twice = ~np.isnan(moved)
        differences = slope[twice] * moved[twice] / most
        found = disagreement(self.sample.rounds, twice, differences, level)
        return SecondOpinions(len(differences), int(np.count_nonzero(differences)), scaled(found, most), None)

    def _effects(self, metric: Metric) -> tuple[Callable[[str, str], float], float]:
        """Return what a label adds to a metric, given the label and the prediction, and the most that labels differ."""
        if metric.is_error:
            return self._effects_on_error(metric)
        if metric.judges_confidence:  # each is a mean over examples that moves with the difference of outcomes
            return lambda label, said: float(label == said), 1.0
        sample, place = self.sample, self.numbers.place_of(metric) if metric.ratio is None else 0
        if metric.ratio is not None:
            own = effect_on_ratio(metric.ratio, sample.rounds, sample.counts or {})
            values = [own(numbers_in(text)) for item in self.known for texts in item.opinions for text in texts]
            return lambda label, _: own(numbers_in(label)), max(float(np.ptp(values)), 1e-300)
        classes = self._classes
        effect = linearise(sample, metric, place, self.numbers.pool.predicted, len(classes)).effect
        most = max(float(np.ptp(effect, axis=0).max()), 1e-300)
        return lambda label, said: float(effect[classes[label], classes[said]]), most

    def _effects_on_error(self, metric: Metric) -> tuple[Callable[[str, str], float], float]:
        """Return the same of a number about errors of values; of a root, from the slope at its estimate."""
        slope = 1.0 if metric.name != RMSE else 1 / max(2 * self.numbers.estimate(metric, 0.95).value, 1e-300)

        def effect(label: str, said: str) -> float:
            return slope * float(effects(metric.name, np.array(float(said) - float(label))))

        values = [
            effect(text, said)
            for item in self.known
            for texts, said in zip(item.opinions, item.predicted, strict=True)
            for text in texts
        ]
        return effect, max(float(np.ptp(values)), 1e-300)

    def mean_cost(self, costs: Costs, level: float) -> Estimate:
        """Return the mean cost per example of the pool, in units of cost."""
        classes = self._classes
        table = np.ones((len(classes), len(classes)))
        for true, cost in costs.items():
            row = table[classes[true]] if true in classes else np.empty(len(classes))
            if not isinstance(cost, Mapping):
                row[:] = cost
                continue
            for predicted, own in cost.items():
                if predicted in classes:
                    row[classes[predicted]] = own
        np.fill_diagonal(table, 0)
        return scaled(self.numbers.totals().mean_cost(table, level), float(table.max()))

    @property
    def sample(self) -> Sample:
        """The labels."""
        assert self.numbers.sample is not None
        return self.numbers.sample

    @property
    def accuracy(self) -> RunAccuracy:
        """The labels, and the failures by them."""
        assert self.numbers.failures is not None
        return RunAccuracy(self.sample, self.numbers.failures)

    @property
    def _classes(self) -> dict[str, int]:
        """Place of each class, in order."""
        return {name: place for place, name in enumerate(self.numbers.pool.classes)}

    # -- classes ------------------------------------------------------------------------------------------

    def _in_classes(self, level: float) -> dict[str, Any]:
        """Return the accuracy by predicted and by true class, and the confusion matrix; None for regressions."""
        if not self.run.spec.model.has_classes:
            return dict.fromkeys(("pool_by_predicted_class", "by_predicted_class", "by_true_class", "confusion"))
        totals, names = self.numbers.totals(), list(self.numbers.pool.classes)
        truth, predicted = self.sample.truth, totals.predicted
        assert truth is not None
        true, said, seen = (np.unique(own).tolist() for own in (truth, predicted, np.r_[truth, predicted]))
        by_prediction = totals.by_prediction(level)
        by_truth = zip(true, totals.by_truth(level, true), strict=True)
        share, error = totals.confusion(seen)
        labels: NDArray[np.int64] = np.zeros(share.shape, dtype=np.int64)
        np.add.at(labels, tuple(np.searchsorted(seen, own) for own in (truth, predicted)), 1)
        return {
            "pool_by_predicted_class": {
                name: int(size) for name, size in zip(names, totals.evidence.sizes, strict=True) if size
            },
            "by_predicted_class": {names[c]: self._stated(by_prediction[c].estimate) for c in said},
            "by_true_class": {names[c]: self._stated(own.estimate) for c, own in by_truth},
            "confusion": documents.ConfusionShares(
                classes=[names[c] for c in seen],
                share=share.tolist(),
                standard_error=error.tolist(),
                num=labels.tolist(),
                reason=reason_of(totals.evidence.reason, self.rounds),
            ),
        }

    # -- judges -------------------------------------------------------------------------------------------

    def _judge(self, name: str, level: float) -> documents.StatedJudge:
        found = judge_quality(self.numbers, name, level)
        numbers = {key: self._stated(getattr(found, key)) for key in ("sensitivity", "specificity", "kappa")}
        return documents.StatedJudge(judged=found.judged, labels=found.labels, says_right=found.says_right, **numbers)

    # -- slices -------------------------------------------------------------------------------------------

    def table(self, metric: Metric, by: str, level: float) -> documents.SliceTable:
        """Return a metric in every slice, with ends that hold for all slices at once by Bonferroni's inequality."""
        own, sizes = self.numbers.by(metric, by, level), self._sizes(by)
        together = self.numbers.by(metric, by, level_of_each(level, len(own)))
        slices = {
            name: documents.SliceEstimate(
                **self._metric(found).model_dump(),
                size=sizes[name],
                low_together=min(found.low, together[name].low),
                high_together=max(found.high, together[name].high),
                tells=tells(found.low, found.high, found.n),
            )
            for name, found in own.items()
        }
        return documents.SliceTable(metric=str(metric), by=by, level_together=self.stated_level or level, slices=slices)

    def _sizes(self, by: str) -> dict[str, int]:
        """Return the examples of the pool in each slice, those of true classes as estimated."""
        pool = self.numbers.pool
        if by in pool.slicings:
            names, codes = pool.slicings[by]
            return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
        totals = self.numbers.totals()
        if by == BY_PREDICTION:
            return dict(zip(pool.classes, map(int, totals.evidence.sizes), strict=True))
        return {name: round(sum(totals.of_class(c)[0].point())) for c, name in enumerate(pool.classes)}

    def _metric(self, found: Estimate) -> documents.StatedMetric:
        told = found.if_predicted
        second = None if told is None else documents.IfPredicted(**asdict(told))
        return documents.StatedMetric(**self._stated(found).model_dump(), if_predicted=second)

    def _stated(self, found: Estimate) -> documents.StatedEstimate:
        found = replace(found, level=self.stated_level or found.level)
        return documents.StatedEstimate(**stated(found, self.rounds))
