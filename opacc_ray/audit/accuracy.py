"""State the accuracy of a run's model on its pool, with an interval and its assumptions, and what else was asked of it.

:mod:`~opacc_ray.audit.run_numbers` measures it all.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from opacc_ray.audit.run_numbers import (
    Costs,
    Request,
    RunAccuracy,
    RunNumbers,
    class_names,
    measure_accuracy,
    measure_run,
    open_for_estimates,
    sample_of,
)
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimation import adjustments
from opacc_ray.estimation.adjustments import Circumstances, PoolAsSample, SecondOpinions, Statement
from opacc_ray.estimation.class_totals import cost_of_every_error, cost_of_failures
from opacc_ray.estimation.failures import assisted_estimate, fit_failures, tuned_strength
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sequential import SPENDING, confidence_sequence, draw_sequence
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.formats import quoted
from opacc_ray.labels.joining import find_class, why_no_class
from opacc_ray.labels.label_log import Score, label_files, refuse_lost
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.metrics.metric import ACCURACY, Metric, find_place, is_of_class, parse_metric
from opacc_ray.parts.view import View
from opacc_ray.pool import OF_CLASSES, Slicing
from opacc_ray.runs import run_documents as documents
from opacc_ray.runs.run import ESTIMATE, Run, check_drawn_from, find_changed, read_column
from opacc_ray.runs.run_documents import Seal
from opacc_ray.samplers.plausibility import without_lead
from opacc_ray.spec import ModelSpec, read_yaml
from opacc_ray.spec.spec_sections import check_metric, check_metrics

# -- what is asked --------------------------------------------------------------------------------------------------


def request_of(run: Run, metrics: Sequence[str] | None = None, by: Sequence[str] | None = None) -> Request:
    """Return the given metrics and slices, by default those of the spec.

    Each of the ``metrics`` is stated by all slices; those of the spec only by the first one. Raises SpecError for a
    metric or a class that there is not.
    """
    spec = run.spec
    task, has_classes = spec.model.task, spec.model.has_classes
    if not has_classes and spec.model.counts is None:
        check_metrics(metrics or (), spec.model, "--metric")
    if not has_classes and (of_classes := [name for name in by or () if name in OF_CLASSES]):
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
        tables += [(metric, name) for metric in ([Metric(ACCURACY)] if name in OF_CLASSES else of_slices)]
    return Request(tuple(metric for metric in dict.fromkeys(wanted) if metric.name != ACCURACY), tuple(tables))


def lead_of(run: Run) -> str:
    """Return the number that a run is about: that of its newest goal, or else of its spec, or else the accuracy."""
    goal, least = next(reversed(run.goals().values()), None), run.spec.least
    if goal is not None:
        return goal.metric if goal.by is None else ACCURACY
    metric = least.metric if least else next(iter(run.spec.metrics), ACCURACY)
    return str(checked_metric(metric, class_names(run)))


def checked_metric(text: str, classes: Sequence[str] | None) -> Metric:
    """Return a metric with the name of its class; raises SpecError if there is no such class."""
    metric = parse_metric(text)
    if classes is None or not is_of_class(text):
        return metric
    return metric._replace(positive=classes[find_place(metric, classes)])


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
) -> Iterator[RunNumbers]:
    """Measure what is asked of the rounds of a run, and further ``slicings``; raises LabelError as :func:`estimate`."""
    known = with_labels(run, rounds, partial)
    with open_for_estimates(run, [item.known for item in known]) as view:
        yield measure_run(run, rounds, known, view, {**request.slicings(view), **slicings}, request.metrics, level)


def state(
    numbers: RunNumbers,
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


def _mean_cost(numbers: RunNumbers, accuracy: Estimate, costs: Costs, level: float) -> documents.MeanCost:
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
