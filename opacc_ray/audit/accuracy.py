"""Estimate the accuracy of a run's model on its pool, with an interval and its assumptions; and all that a run states
besides: metrics, classes, slices and costs, from one pass over its rounds.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.earlier_labels import read_history
from opacc_ray.audit.status import warnings_of
from opacc_ray.designs.inclusion_probability import Grown
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimation import adjustments
from opacc_ray.estimation.adjustments import Circumstances, PoolAsSample, SecondOpinions, Statement, disagreement
from opacc_ray.estimation.class_totals import cost_of_every_error, cost_of_failures, scaled
from opacc_ray.estimation.design_numbers import effect_on_ratio, effects
from opacc_ray.estimation.estimate import (
    KnownPool,
    Numbers,
    judge_quality,
    judge_slicings,
    measure_failures,
    numbers_of,
)
from opacc_ray.estimation.failures import (
    PoolFailures,
    accuracy_of,
    assisted_estimate,
    failures_by_design,
    fit_failures,
    tuned_strength,
    uses_regression,
)
from opacc_ray.estimation.intervals import Estimate, level_of_each, zero_failure_bound
from opacc_ray.estimation.model_comparison import linearise
from opacc_ray.estimation.sample import Sample, join
from opacc_ray.estimation.sequential import SPENDING, confidence_sequence, draw_sequence
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import quoted
from opacc_ray.labels.joining import find_class, numbers_in, why_no_class
from opacc_ray.labels.label_log import Score, label_files, refuse_lost
from opacc_ray.labels.labelled_rounds import LabelledRound, mean_differences, reason_of, stated
from opacc_ray.metrics.metric import ACCURACY, RMSE, Metric, find_place, is_of_class, parse_metric, tells
from opacc_ray.metrics.scores import RANKINGS
from opacc_ray.parts.view import View
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, NO_HISTORY, History, Slicing
from opacc_ray.runs import run_documents as documents
from opacc_ray.runs.run import ESTIMATE, Run, check_drawn_from, find_changed, open_view, read_column
from opacc_ray.runs.run_documents import Seal
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.plausibility import without_lead
from opacc_ray.selection import Selection
from opacc_ray.spec import ModelSpec, read_yaml
from opacc_ray.spec.spec_sections import check_metric, check_metrics

_OF_CLASSES = (BY_PREDICTION, BY_TRUTH)
_VALUES = ("predicted", "truth")

# -- what is asked --------------------------------------------------------------------------------------------------


class Request(NamedTuple):
    """What is to be stated besides the accuracy of the pool."""

    metrics: tuple[Metric, ...]
    tables: tuple[tuple[Metric, str], ...]  # a metric and the slices, or classes, that it is stated by

    def slicings(self, view: View) -> dict[str, Slicing]:
        """Return the slices that are asked; raises SpecError for a name that the pool does not have."""
        return {by: view.slicing(by) for _, by in self.tables if by not in _OF_CLASSES}


def request_of(run: Run, metrics: Sequence[str] | None = None, by: Sequence[str] | None = None) -> Request:
    """Return the given metrics and slices, by default those of the spec.

    Each of the ``metrics`` is stated by all slices; those of the spec only by the first one. Raises SpecError for a
    metric or a class that there is not.
    """
    spec = run.spec
    task, has_classes = spec.model.task, spec.model.has_classes
    if not has_classes and spec.model.counts is None:
        check_metrics(metrics or (), spec.model, "--metric")
    if not has_classes and (of_classes := [name for name in by or () if name in _OF_CLASSES]):
        raise SpecError(f"--by {of_classes[0]} needs classes, and the task is {task}; remove it")
    classes = class_names(run)
    usual = [*spec.numbers, *([] if (lead := lead_of(run)) == ACCURACY else [lead])]
    wanted = [checked_metric(text, classes) for text in (usual if metrics is None else metrics)]
    for metric in wanted:
        if metric.name != ACCURACY:
            check_metric(metric, spec.model, "--metric")
    of_parts = [metric for metric in wanted if not metric.is_of_pool]
    of_slices = of_parts[: None if metrics else 1] or [Metric(ACCURACY)]
    tables = list[tuple[Metric, str]]()
    for name in dict.fromkeys(spec.pool.slice_names if by is None else by):
        tables += [(metric, name) for metric in ([Metric(ACCURACY)] if name in _OF_CLASSES else of_slices)]
    return Request(tuple(metric for metric in dict.fromkeys(wanted) if metric.name != ACCURACY), tuple(tables))


def lead_of(run: Run) -> str:
    """Return the number that a run is about: that of its newest goal, or else of its spec, or else the accuracy."""
    goal, least = next(reversed(run.goals().values()), None), run.spec.least
    if goal is not None:
        return goal.metric if goal.by is None else ACCURACY
    metric = least.metric if least else next(iter(run.spec.metrics), ACCURACY)
    return str(checked_metric(metric, class_names(run)))


def class_names(run: Run) -> list[str] | None:
    """Return the names of the classes of a run's model, None where their number is not known."""
    return None if run.num_classes is None else [run.spec.model.name_of(c) for c in range(run.num_classes)]


def checked_metric(text: str, classes: Sequence[str] | None) -> Metric:
    """Return a metric with the name of its class; raises SpecError if there is no such class."""
    metric = parse_metric(text)
    if classes is None or not is_of_class(text):
        return metric
    return metric._replace(positive=classes[find_place(metric, classes)])


Costs = dict[str, float | dict[str, float]]
"""True class → cost of every error on it, or → predicted class → cost of that confusion."""


def load_costs(path: str | Path, model: ModelSpec, num_classes: int | None = None) -> Costs:
    """Read costs, by the class names of the run's labels and predictions.

    ``num_classes`` is the number of classes of the run's model, if that is known. Raises SpecError if the model is a
    regression, if a name is no class, or if a cost is no finite number of at least 0.
    """
    if not model.has_classes:
        raise SpecError(f"--costs is only supported for classification, and the task is {model.task}; remove it")

    def by_class(content: Any, what: str, true: str | None = None) -> dict[str, Any]:
        """Return costs with canonical class names as keys: of all errors, or on the class ``true``."""
        if not isinstance(content, dict) or not content:
            classes = model.classes or ["3"]
            raise SpecError(f"{path}: {what} must have lines with a class and a cost, such as {classes[0]}: 10")
        named: dict[str, Any] = {}
        for key, value in content.items():
            if (name := _class_of(key, str(path), model, num_classes)) in named:
                raise SpecError(f"{path}: the class {name!r} appears twice; keep one of its lines")
            if name == true:
                raise SpecError(f"{path}: predicting {true!r} for {true!r} is no error; remove that line")
            if true is None and isinstance(value, dict):
                named[name] = by_class(value, f"the costs of {name!r}", name)
            elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                of = f"errors on {name!r}" if true is None else f"predicting {name!r} for {true!r}"
                raise SpecError(f"{path}: the cost of {of} is {value!r}; give a finite number of at least 0")
            else:
                named[name] = float(value)
        return named

    return by_class(read_yaml(path, "file of costs"), "costs")


def _class_of(key: Any, path: str, model: ModelSpec, num_classes: int | None) -> str:
    """Return the canonical name of a class in a file of costs."""
    if isinstance(key, bool) or not isinstance(key, str | int | float):
        raise SpecError(f"{path}: YAML parses the name of a class as {key!r}; put quotes around it")
    place = find_class(str(key), model.classes)
    if place is None:
        raise SpecError(f"{path} names {quoted(str(key))}, {why_no_class(str(key), model.classes)}")
    if num_classes is not None and place >= num_classes:
        raise SpecError(f"{path}: the class {place} is none of the model's, 0 to {num_classes - 1}")
    return model.name_of(place)


def estimate(
    run: Run,
    *,
    level: float = 0.95,
    partial: bool = False,
    costs: Costs | None = None,
    assist: bool = False,
    score: Score | None = None,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    lead: str | None = None,
    keep: bool = True,
) -> documents.AccuracyEstimate:
    """Estimate accuracy and metrics from the labels of all rounds, and write ``estimate.json`` if ``keep``.

    Labels may be missing, given up or "can't tell". If the labelled examples are the first ones of a sequential design,
    the sample keeps its design. Otherwise these labels are assumed to be missing at random: the result is then not
    design-based, and its ``reason`` says so.

    Parameters
    ----------
    level, partial : confidence level; whether labels may be missing
    score : score of a regression's prediction; None: that of the run
    costs : costs of errors by the names of classes: also estimate their mean
    assist : also report a prediction-powered estimate by the confidences of the whole pool
    metrics : further metrics of the pool, such as ``f1@defect``; None: those of the spec
    by : slices, or ``prediction`` or ``truth``, to state the given metrics by; None: the slices of the spec
    lead : the number that answers begin with; None: the first of the metrics, or else what the run is about

    Raises
    ------
    LabelError
        There is no label, or labels are missing in a round with labels and ``partial`` is not set. A further round
        without own labels is left out, as if it had not been drawn.
    SpecError
        ``assist`` is set, and the run has no confidence or its method already uses predictions; or there is no such
        metric, class or slice.
    """
    rounds, request = labelled_rounds.read_rounds(run, score=score), request_of(run, metrics, by)
    with measured(run, rounds, request, level, partial) as numbers:
        document = state(numbers, request, level, lead or next(iter(metrics or ()), None), costs, assist)
    if keep:
        run.write_estimate(document)
    return document


@contextmanager
def measured(
    run: Run,
    rounds: Sequence[LabelledRound],
    request: Request,
    level: float,
    partial: bool,
    slicings: Mapping[str, Slicing] = MappingProxyType({}),
) -> Iterator["RunNumbers"]:
    """Measure what is asked of the rounds of a run, and further ``slicings``; raises LabelError as :func:`estimate`."""
    known = with_labels(run, rounds, partial)
    with open_for_estimates(run, [item.known for item in known]) as view:
        yield measure_run(run, rounds, known, view, {**request.slicings(view), **slicings}, request.metrics, level)


def state(
    numbers: "RunNumbers",
    request: Request,
    level: float,
    lead: str | None = None,
    costs: Costs | None = None,
    assist: bool = False,
) -> documents.AccuracyEstimate:
    """Return all that an estimate states, from what was measured; the others are as for :func:`estimate`."""
    run, rounds, known = numbers.run, numbers.rounds, numbers.known
    sample, accuracy = numbers.sample, numbers.accuracy
    circumstances = circumstances_of(run, known, level, accuracy, numbers.numbers.pool.view)
    by_design, found = accuracy.estimate(level), accuracy.estimate(circumstances.own_level)
    said, warnings = circumstances.statement(found), warnings_of(run, rounds)
    own = replace(said.estimate, reason=without_lead(said.estimate.reason, warnings))
    document = documents.AccuracyEstimate(
        **basis_of(run, rounds),
        **labelled_rounds.stated(own, rounds),
        labels_digest=labelled_rounds.digest_of(rounds),
        label_files=label_files(run),
        allows_for=list(said.allows_for),
        goal=circumstances.goal,
        goal_of=circumstances.goal_of,
        by_design=documents.StatedEstimate(**labelled_rounds.stated(by_design, rounds)),
        notes=[*said.notes, *numbers.notes(request, circumstances.own_level)],
        srs=documents.SimpleRandomBaseline(**adjustments.baseline(sample, by_design).to_dict()),
        sequence=_sequence(known, circumstances),
        assisted=_assisted(run, rounds, known, circumstances) if assist else None,
        mean_cost=None if costs is None else _mean_cost(numbers, said.estimate, costs, circumstances.own_level),
        label_noise=_label_noise(rounds, circumstances, circumstances.of_population(found)),
        warnings=warnings,
        lead=str(checked_metric(lead or lead_of(run), class_names(run))),
        **numbers.fields(request, circumstances.own_level),
    )
    unsealed = [text for _, seal in run.logged(Seal) for text in seal.deviations(document)]
    notes = [f"This is not what was sealed before the first label: {text}." for text in unsealed]
    return document.model_copy(update={"notes": [*document.notes, *notes]})


# -- measuring ------------------------------------------------------------------------------------------------------


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


def circumstances_of(
    run: Run,
    known: Sequence[LabelledRound],
    level: float,
    accuracy: RunAccuracy | None = None,
    view: View | None = None,
) -> Circumstances:
    """Collect adjustments of the interval: sampling of the pool, label noise, early stopping.

    The accuracy, and the ``view`` of what it reads, are measured and opened if they are needed and not given.
    """
    goal = run.newest_goal(reached=True)
    found = Circumstances(level)
    if goal is not None:
        found = Circumstances(level, goal.half_width, goal.target, tuple(goal.earlier_goals))
    population = _population(run, known, found.own_level, accuracy, view)
    return found._replace(opinions=_second_opinions(run, known, found.own_level), population=population)


def _population(
    run: Run, known: Sequence[LabelledRound], level: float, accuracy: RunAccuracy | None, view: View | None
) -> PoolAsSample | None:
    """Return how well the pool represents what the spec says that it is a sample of; None if it says nothing."""
    population = run.spec.pool.population
    if population is None:
        return None
    with nullcontext(view) if view else open_for_estimates(run, [item.known for item in known]) as opened:
        sample, failures = accuracy or measure_accuracy(run, known, opened)
        clusters = fit = None
        if population.cluster is not None:
            clusters, fit = opened.slicing(population.cluster).codes, fit_failures(opened, sample)
        return adjustments.represent(population, failures.accuracy(level), sample, clusters, fit)


def accuracy_to_state(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], level: float
) -> Statement:
    """Return the estimate to report, from those of some rounds that have labels."""
    accuracy = measure_accuracy(run, known)
    circumstances = circumstances_of(run, known, level, accuracy)
    return circumstances.statement(labelled_rounds.with_nonresponse(accuracy.estimate(circumstances.own_level), rounds))


def with_labels(run: Run, rounds: Sequence[LabelledRound], partial: bool) -> list[LabelledRound]:
    """Return the rounds with labels; raises LabelError without any, or if some are missing without ``partial``."""
    begun = [item for item in rounds if item.is_counted] or rounds
    missing = [name for item in begun for name in item.missing]
    if missing and not partial and not any(item.labelled.any() or item.unsure for item in begun):
        raise labelled_rounds.none_imported(run, begun[0].number)
    if missing and not partial:
        raise LabelError(
            f"{len(missing)} of {sum(len(item.selection) for item in begun)} labels are missing in {run.uri}, the "
            f"first for {missing[0]!r}; import them, or estimate without them, by --partial or, in Python, partial=True"
        )
    check_drawn_from(run, [item.number for item in rounds])
    last = None
    with suppress(DataError):  # it is about to be replaced
        last = run.read_document(documents.AccuracyEstimate, ESTIMATE)
    refuse_lost(run, last)
    known = labelled_rounds.having_labels(begun)
    if not known:
        raise labelled_rounds.no_label(run, rounds)
    return known


def basis_of(run: Run, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """Return the fields of :class:`Basis`: run, pool, rounds, and what is missing."""
    index, counts = run.complete_features().index, [item.counts() for item in rounds]
    return {
        "run": run.uri,
        "measure": rounds[0].measure,
        "clipped": sum(item.clipped for item in rounds),
        "pool_size": index.num_examples,
        "excluded": len(index.bad),
        **{name: sum(getattr(item, name) for item in counts) for name in ("missing", "unsure", "given_up")},
        "rounds": counts,
        "objects": find_changed(run),
    }


def sample_of(known: Sequence[LabelledRound], history: History = NO_HISTORY) -> Sample:
    """Return the rounds with their outcomes."""
    return join([item.known for item in known], [item.outcome for item in known], history=history)


def _sequence(known: Sequence[LabelledRound], circumstances: Circumstances) -> documents.AnytimeInterval:
    """Return the confidence sequence so far; its ``reason`` names the labels that it leaves out."""
    counted = list(known)
    # It follows the draws in their order, so a label does not count before those of earlier draws.
    if any(item.missing and item.nonresponse for item in known) or draw_sequence(sample_of(known)) is None:
        counted = whole_rounds(known)
    level, reason = circumstances.level, None
    bounds: dict[str, Any] = {"low": 0.0, "high": 1.0, "method": SPENDING}
    if counted:
        found = whenever_stopped(circumstances, confidence_sequence(sample_of(counted), level))
        bounds = {"low": found.low, "high": found.high, "method": found.method}
    if len(counted) < len(known):
        reason = f"it only includes complete rounds, and round {known[len(counted)].number} still needs labels"
    return documents.AnytimeInterval(**bounds, level=level, reason=reason)


def whenever_stopped(circumstances: Circumstances, sequence: Estimate) -> Estimate:
    """Return the confidence sequence to report, which is valid for every rule that stops sampling."""
    return circumstances._replace(goal=None).statement(sequence).estimate


def whole_rounds(known: Sequence[LabelledRound]) -> list[LabelledRound]:
    """Return the rounds before the first one with missing labels."""
    return list(takewhile(lambda item: not item.missing, known))


def _assisted(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], circumstances: Circumstances
) -> documents.AssistedEstimate:
    sample = sample_of(known)
    selections = sample.rounds.selections
    predicts = next((part.method for part in selections if part.design.prediction is not None), None)
    if predicts:
        raise SpecError(
            f"--assist adds a prediction of the outcomes, and the estimate of {predicts} already uses one; "
            "remove --assist"
        )
    if run.spec.model.task == "regression":
        raise SpecError(
            "--assist uses the confidence of the model to predict outcomes, and a regression has none; remove --assist"
        )
    confidence = read_column(run, "confidence").astype(np.float64)
    strength = tuned_strength(sample, confidence)
    found = assisted_estimate(sample, confidence, circumstances.own_level, strength)
    return documents.AssistedEstimate(
        **labelled_rounds.stated(circumstances.statement(found).estimate, rounds), strength=strength
    )


def _mean_cost(numbers: "RunNumbers", accuracy: Estimate, costs: Costs, level: float) -> documents.MeanCost:
    """Estimate the mean cost: from the accuracy if every error costs the same, otherwise from the confusions."""
    every = cost_of_every_error(costs, class_names(numbers.run))
    cost = numbers.mean_cost(costs, level) if every is None else cost_of_failures(accuracy, every)
    return documents.MeanCost(
        **labelled_rounds.stated(replace(cost, level=accuracy.level), numbers.rounds), costs=costs
    )


def _second_opinions(run: Run, known: Sequence[LabelledRound], level: float) -> SecondOpinions | None:
    """Estimate the disagreement of second opinions on labelled examples; None if there are none."""
    differences = np.concatenate([item.disagreement for item in known])
    twice = ~np.isnan(differences)
    if not twice.any():
        return None
    agreement, differences = labelled_rounds.measure_agreement(run), differences[twice]
    return SecondOpinions(
        examples=len(differences),
        differ=int(np.count_nonzero(differences)),
        disagreement=adjustments.disagreement(sample_of(known).rounds, twice, differences, level),
        alpha=agreement.alpha,
        pairs=agreement.pairs,
    )


def _label_noise(
    rounds: Sequence[LabelledRound], circumstances: Circumstances, found: Estimate
) -> documents.LabelNoise | None:
    """Return the interval widened by the disagreement of second opinions; None if there are none."""
    opinions = circumstances.opinions
    if opinions is None:
        return None
    low, high = adjustments.widen(found, opinions.disagreement)
    return documents.LabelNoise(
        low=low,
        high=high,
        level=circumstances.level,
        method=f"{found.method} widened for label noise",
        examples=opinions.examples,
        differ=opinions.differ,
        disagreement=min(max(opinions.disagreement.value, 0.0), 1.0),
        disagreement_high=opinions.disagreement.high,
        alpha=opinions.alpha,
        pairs=list(opinions.pairs),
        reason=labelled_rounds.reason_of(found.reason, rounds),
    )


# -- the numbers of a run -------------------------------------------------------------------------------------------


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
