"""Estimate the accuracy of a run's model on its pool, with an interval and its assumptions."""

import math
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.audit import run_numbers
from opacc_ray.audit.run_numbers import Request, RunNumbers
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimation import adjustments
from opacc_ray.estimation.adjustments import Circumstances, PoolAsSample, SecondOpinions, Statement
from opacc_ray.estimation.class_totals import cost_of_every_error, cost_of_failures
from opacc_ray.estimation.estimate import measure_failures
from opacc_ray.estimation.failures import (
    PoolFailures,
    accuracy_of,
    assisted_estimate,
    failures_by_design,
    fit_failures,
    tuned_strength,
    uses_regression,
)
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.sample import Sample, join
from opacc_ray.estimation.sequential import SPENDING, confidence_sequence, draw_sequence
from opacc_ray.history import NO_HISTORY, History
from opacc_ray.labels import labelled_rounds
from opacc_ray.labels.label_log import Score, label_files, refuse_lost
from opacc_ray.labels.label_rows import find_class, quoted, why_no_class
from opacc_ray.labels.labelled_rounds import LabelledRound
from opacc_ray.parts.view import View
from opacc_ray.runs import estimate_documents as documents
from opacc_ray.runs import feature_store
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import ESTIMATE, Run
from opacc_ray.runs.run_documents import Seal
from opacc_ray.samplers.plausibility import without_lead
from opacc_ray.spec import ModelSpec, read_yaml

Costs = dict[str, float | dict[str, float]]
"""True class → cost of every error on it, or → predicted class → cost of that confusion."""


def load_costs(path: str | Path, model: ModelSpec, num_classes: int | None = None) -> Costs:
    """Read costs, by the class names of the run's labels and predictions.

    ``num_classes`` is the number of classes of the run's model, if that is known. Raises SpecError if the model is a
    regression, if a name is no class, or if a cost is no finite number of at least 0.
    """
    if not model.has_classes:
        raise SpecError(f"--costs is only supported for classification, and the task is {model.task}; remove it")

    def by_class(content: Any, what: str) -> dict[str, Any]:
        """Return a mapping with canonical class names as keys."""
        if not isinstance(content, dict) or not content:
            classes = model.classes or ["3"]
            raise SpecError(f"{path}: {what} must have lines with a class and a cost, such as {classes[0]}: 10")
        named: dict[str, Any] = {}
        for key, value in content.items():
            if (name := _class_of(key, str(path), model, num_classes)) in named:
                raise SpecError(f"{path}: the class {name!r} appears twice; keep one of its lines")
            named[name] = value
        return named

    costs: Costs = {}
    for true, item in by_class(read_yaml(path, "file of costs"), "costs").items():
        if isinstance(item, dict):
            confused = by_class(item, f"the costs of {true!r}")
            costs[true] = {predicted: _cost(value, str(path), true, predicted) for predicted, value in confused.items()}
        else:
            costs[true] = _cost(item, str(path), true)
    return costs


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


def _cost(value: Any, path: str, true: str, predicted: str | None = None) -> float:
    """Return a cost as a number of at least 0."""
    of = f"errors on {true!r}" if predicted is None else f"predicting {predicted!r} for {true!r}"
    if true == predicted:
        raise SpecError(f"{path}: predicting {true!r} for {true!r} is no error; remove that line")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise SpecError(f"{path}: the cost of {of} is {value!r}; give a finite number of at least 0")
    return float(value)


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
    rounds, request = labelled_rounds.read_rounds(run, score=score), run_numbers.request_of(run, metrics, by)
    known = with_labels(run, rounds, partial)
    with run_numbers.open_for_estimates(run, [item.known for item in known]) as view:
        numbers = run_numbers.measure_run(run, rounds, known, view, request.slicings(view), request.metrics, level)
        document = _stated(numbers, request, level, costs, assist)
    lead = lead or next(iter(metrics or ()), None) or run_numbers.lead_of(run)
    document = document.model_copy(update={"lead": str(run_numbers.checked_metric(lead, run_numbers.class_names(run)))})
    for _, seal in run.logged(Seal):
        unsealed = [f"This is not what was sealed before the first label: {it}." for it in seal.deviations(document)]
        document = document.model_copy(update={"notes": [*document.notes, *unsealed]})
    if keep:
        run.write_estimate(document)
    return document


def _stated(
    numbers: RunNumbers, request: Request, level: float, costs: Costs | None, assist: bool
) -> documents.AccuracyEstimate:
    run, rounds, known = numbers.run, numbers.rounds, numbers.known
    sample, failures = numbers.sample, numbers.numbers.failures
    assert failures is not None
    accuracy = RunAccuracy(sample, failures)
    circumstances = circumstances_of(run, known, level, accuracy, numbers.numbers.pool.view)
    by_design, found = accuracy.estimate(level), accuracy.estimate(circumstances.own_level)
    said, warnings = circumstances.statement(found), warnings_of(run, rounds)
    own = replace(said.estimate, reason=without_lead(said.estimate.reason, warnings))
    return documents.AccuracyEstimate(
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
        **numbers.fields(request, circumstances.own_level),
    )


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
    sample = sample_of(known, run_numbers.history_for(run, [item.known for item in known]))
    if not uses_regression(sample.rounds.selections):
        return RunAccuracy(sample, failures_by_design(sample))
    with nullcontext(view) if view else run_numbers.open_for_estimates(run, sample.rounds.selections) as opened:
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
    with nullcontext(view) if view else run_numbers.open_for_estimates(run, [item.known for item in known]) as opened:
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
    feature_store.check_drawn_from(run, [item.number for item in rounds])
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
    confidence = feature_store.read_column(run, "confidence").astype(np.float64)
    strength = tuned_strength(sample, confidence)
    found = assisted_estimate(sample, confidence, circumstances.own_level, strength)
    return documents.AssistedEstimate(
        **labelled_rounds.stated(circumstances.statement(found).estimate, rounds), strength=strength
    )


def _mean_cost(numbers: RunNumbers, accuracy: Estimate, costs: Costs, level: float) -> documents.MeanCost:
    """Estimate the mean cost: from the accuracy if every error costs the same, otherwise from the confusions."""
    every = cost_of_every_error(costs, run_numbers.class_names(numbers.run))
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
