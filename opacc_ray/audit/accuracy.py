"""Estimate the accuracy of a run's model on its pool, with an interval and its assumptions."""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.run_numbers import Asked, RunNumbers, asked_of, class_names, history_for, open_for_estimates
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.class_totals import cost_of_every_error, cost_of_failures
from opacc_ray.estimators.design_based import SPENDING, confidence_sequence, draw_sequence
from opacc_ray.estimators.label_noise import disagreement, widen
from opacc_ray.estimators.population import PoolAsSample
from opacc_ray.estimators.prediction_powered import assisted_estimate as assist_rounds
from opacc_ray.estimators.prediction_powered import tuned_strength
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.estimators.statement import Circumstances, SecondOpinions, Statement, baseline
from opacc_ray.labels.annotator_agreement import measure_agreement
from opacc_ray.labels.cost_table import Costs
from opacc_ray.labels.label_log import Score, label_files, refuse_lost
from opacc_ray.labels.labelled_rounds import (
    LabelledRound,
    digest_of,
    having_labels,
    no_label,
    none_imported,
    read_rounds,
    reason_of,
    stated,
    with_nonresponse,
)
from opacc_ray.parts.view import View
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import (
    AccuracyEstimate,
    AnytimeInterval,
    AssistedEstimate,
    LabelNoise,
    MeanCost,
    SimpleRandomBaseline,
    StatedEstimate,
)
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Seal
from opacc_ray.samplers.estimate import estimate as estimate_rounds
from opacc_ray.samplers.estimate import represent
from opacc_ray.samplers.metric_estimates import Sample
from opacc_ray.samplers.neyman.regression import uses_regression
from opacc_ray.selection import Selection


def estimate(
    run: Run,
    *,
    level: float = 0.95,
    partial: bool = False,
    conflict: str | None = None,
    costs: Costs | None = None,
    assist: bool = False,
    score: Score | None = None,
    metrics: Sequence[str] | None = None,
    by: Sequence[str] | None = None,
    keep: bool = True,
) -> AccuracyEstimate:
    """Estimate accuracy and metrics from the labels of all rounds, and write ``estimate.json`` if ``keep``.

    Labels may be missing, given up or "can't tell". If the labelled examples are the first ones of a sequential design,
    the sample keeps its design. Otherwise these labels are assumed to be missing at random: the result is then not
    design-based, and its ``reason`` says so.

    Parameters
    ----------
    level, partial : confidence level; whether labels may be missing
    conflict, score : rule for labels that differ; score of a regression's prediction; None: the settings of the run
    costs : costs of errors by the names of classes: also estimate their mean
    assist : also report a prediction-powered estimate by the confidences of the whole pool
    metrics : further metrics of the pool, such as ``f1@defect``; None: those of the spec
    by : slices, or ``prediction`` or ``truth``, to state the given metrics by; None: the slices of the spec

    Raises
    ------
    LabelError
        There is no label, or labels are missing in a round with labels and ``partial`` is not set. A further round
        without own labels is left out, as if it had not been drawn.
    SpecError
        ``assist`` is set, and the run has no confidence or its method already uses predictions; or there is no such
        metric, class or slice.
    """
    rounds, asked = read_rounds(run, conflict=conflict, score=score), asked_of(run, metrics, by)
    known = with_labels(run, rounds, partial)
    with open_for_estimates(run, sample_of(known)[0]) as view:
        numbers = RunNumbers(run, rounds, known, view, asked.slicings(view), level, asked.metrics)
        document = _stated(numbers, asked, level, costs, assist)
    for _, seal in run.logged(Seal):
        document = document.model_copy(
            update={"notes": [*document.notes, *map(_not_sealed, seal.deviations(document))]}
        )
    if keep:
        run.write_estimate(document)
    return document


def _not_sealed(deviation: str) -> str:
    return f"This is not what was sealed before the first label: {deviation}."


def _stated(numbers: RunNumbers, asked: Asked, level: float, costs: Costs | None, assist: bool) -> AccuracyEstimate:
    run, rounds, known = numbers.run, numbers.rounds, numbers.known
    sample, circumstances = sample_of(known), circumstances_of(run, known, level, numbers.view)
    others = numbers.fields(asked, circumstances.own_level)  # first: their fit of the failures serves the accuracy
    by_design = accuracy_of(run, *sample, level, numbers.view)
    found = by_design
    if circumstances.goal is not None:
        found = accuracy_of(run, *sample, circumstances.own_level, numbers.view)
    said = circumstances.statement(found)
    return AccuracyEstimate(
        **basis_of(run, rounds),
        **stated(said.estimate, rounds),
        labels_digest=digest_of(rounds),
        label_files=label_files(run),
        allows_for=list(said.allows_for),
        goal=circumstances.goal,
        goal_of=circumstances.goal_of,
        by_design=StatedEstimate(**stated(by_design, rounds)),
        notes=[*said.notes, *numbers.notes(asked, circumstances.own_level)],
        srs=SimpleRandomBaseline(**baseline(*sample, by_design).to_dict()),
        sequence=_sequence(known, circumstances),
        assisted=_assisted(run, rounds, known, circumstances) if assist else None,
        mean_cost=None if costs is None else _mean_cost(numbers, said.estimate, costs, circumstances.own_level),
        label_noise=_label_noise(rounds, circumstances, circumstances.of_population(found)),
        warnings=warnings_of(run, rounds),
        **others,
    )


def circumstances_of(run: Run, known: Sequence[LabelledRound], level: float, view: View | None = None) -> Circumstances:
    """Return what changes the interval to report: a population, second opinions, and a goal that was reached.

    The ``view`` of what estimates read is opened if it is needed and not given.
    """
    goal = run.newest_goal(reached=True)
    found = Circumstances(level)
    if goal is not None:
        found = Circumstances(level, goal.half_width, goal.target, tuple(goal.earlier_goals))
    population = _population(run, known, found.own_level, view)
    return found._replace(opinions=_second_opinions(run, known, found.own_level), population=population)


def _population(run: Run, known: Sequence[LabelledRound], level: float, view: View | None) -> PoolAsSample | None:
    """Return how well the pool represents what the spec says that it is a sample of; None if it says nothing."""
    asked, sample = run.spec.pool.population, sample_of(known)
    if asked is None:
        return None
    with nullcontext(view) if view else open_for_estimates(run, sample[0]) as opened:
        clusters = None if asked.cluster is None else opened.slicing(asked.cluster).codes
        found = accuracy_of(run, *sample, level, opened)
        return represent(asked, found, Sample(*sample, history=history_for(run, sample[0])), clusters, opened)


def accuracy_to_state(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], level: float
) -> Statement:
    """Return the estimate to report, from those of some rounds that have labels."""
    circumstances = circumstances_of(run, known, level)
    found = accuracy_of(run, *sample_of(known), circumstances.own_level)
    return circumstances.statement(with_nonresponse(found, rounds))


def with_labels(run: Run, rounds: Sequence[LabelledRound], partial: bool) -> list[LabelledRound]:
    """Return the rounds with labels; raises LabelError without any, or if some are missing without ``partial``."""
    begun = [item for item in rounds if item.is_counted] or rounds
    missing = [name for item in begun for name in item.missing]
    if missing and not partial and not any(item.labelled.any() or item.unsure for item in begun):
        raise none_imported(run, begun[0].number)
    if missing and not partial:
        raise LabelError(
            f"{len(missing)} of {sum(len(item.selection) for item in begun)} labels are missing in {run.title}, the "
            f"first for {missing[0]!r}; import them, or estimate without them, by --partial or, in Python, partial=True"
        )
    for item in rounds:
        run.check_copies(item.number)
    feature_store.check_drawn_from(run, [item.number for item in rounds])
    last = None
    with suppress(DataError):  # it is about to be replaced
        last = run.read_document(AccuracyEstimate, run.estimate_key)
    refuse_lost(run, last)
    known = having_labels(begun)
    if not known:
        raise no_label(run, rounds)
    return known


def accuracy_of(
    run: Run, selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float, view: View | None = None
) -> Estimate:
    """Estimate the accuracy from some rounds; if their method learns from all labels, from features of the pool.

    The ``view`` of these is opened unless it is given.
    """
    if not uses_regression(selections):
        return estimate_rounds(selections, outcomes, level)
    with nullcontext(view) if view else open_for_estimates(run, selections) as opened:
        return estimate_rounds(selections, outcomes, level, pool=opened, history=history_for(run, selections))


def basis_of(run: Run, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """Return the fields of :class:`Basis`: run, pool, rounds, and what is missing."""
    index, counts = run.complete_features().index, [item.counts() for item in rounds]
    return {
        "run": run.uri,
        "track": run.track,
        "measure": rounds[0].measure,
        "clipped": sum(item.clipped for item in rounds),
        "pool_size": index.num_examples,
        "excluded": len(index.bad),
        **{name: sum(getattr(item, name) for item in counts) for name in ("missing", "unsure", "given_up")},
        "rounds": counts,
        "objects": find_changed([run]),
    }


def sample_of(known: Sequence[LabelledRound]) -> tuple[list[Selection], list[NDArray[np.float64]]]:
    """Return selections and outcomes of the rounds, as the estimators take them."""
    return [item.known for item in known], [item.outcome for item in known]


def _sequence(known: Sequence[LabelledRound], circumstances: Circumstances) -> AnytimeInterval:
    """Return the confidence sequence so far; its ``reason`` names the labels that it leaves out."""
    counted = list(known)
    # It follows the draws in their order, so a label does not count before those of earlier draws.
    if any(item.missing and item.nonresponse for item in known) or draw_sequence(*sample_of(known)) is None:
        counted = whole_rounds(known)
    level, reason = circumstances.level, None
    bounds: dict[str, Any] = {"low": 0.0, "high": 1.0, "interval": SPENDING}
    if counted:
        found = whenever_stopped(circumstances, confidence_sequence(*sample_of(counted), level))
        bounds = {"low": found.low, "high": found.high, "interval": found.interval}
    if len(counted) < len(known):
        reason = f"it only includes complete rounds, and round {known[len(counted)].number} still needs labels"
    return AnytimeInterval(**bounds, level=level, reason=reason)


def whenever_stopped(circumstances: Circumstances, sequence: Estimate) -> Estimate:
    """Return the confidence sequence to report, which is valid for every rule that stops sampling."""
    return circumstances._replace(goal=None).statement(sequence).estimate


def whole_rounds(known: Sequence[LabelledRound]) -> list[LabelledRound]:
    """Return the rounds before the first one with missing labels."""
    return list(takewhile(lambda item: not item.missing, known))


def _assisted(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], circumstances: Circumstances
) -> AssistedEstimate:
    sample = sample_of(known)
    predicts = next((part.method for part in sample[0] if part.design.prediction is not None), None)
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
    strength = tuned_strength(*sample, confidence)
    found = assist_rounds(*sample, confidence, circumstances.own_level, strength)
    return AssistedEstimate(**stated(circumstances.statement(found).estimate, rounds), strength=strength)


def _mean_cost(numbers: RunNumbers, accuracy: Estimate, costs: Costs, level: float) -> MeanCost:
    """Estimate the mean cost: from the accuracy if every error costs the same, otherwise from the confusions."""
    every = cost_of_every_error(costs, class_names(numbers.run))
    cost = numbers.mean_cost(costs, level) if every is None else cost_of_failures(accuracy, every)
    return MeanCost(**stated(replace(cost, level=accuracy.level), numbers.rounds), costs=costs)


def _second_opinions(run: Run, known: Sequence[LabelledRound], level: float) -> SecondOpinions | None:
    """Estimate the disagreement of second opinions on labelled examples; None if there are none."""
    twice = [~np.isnan(item.disagreement) for item in known]
    differences = [item.disagreement[has] for item, has in zip(known, twice, strict=True)]
    if not any(map(len, differences)):
        return None
    return SecondOpinions(
        examples=sum(map(len, differences)),
        differ=sum(int(np.count_nonzero(part)) for part in differences),
        disagreement=disagreement([item.known for item in known], twice, differences, level),
        alpha=measure_agreement(run).alpha,
    )


def _label_noise(rounds: Sequence[LabelledRound], circumstances: Circumstances, found: Estimate) -> LabelNoise | None:
    """Return the interval widened by the disagreement of second opinions; None if there are none."""
    opinions = circumstances.opinions
    if opinions is None:
        return None
    low, high = widen(found, opinions.disagreement)
    return LabelNoise(
        low=low,
        high=high,
        level=circumstances.level,
        interval=f"{found.interval} widened for label noise",
        examples=opinions.examples,
        differ=opinions.differ,
        disagreement=min(max(opinions.disagreement.value, 0.0), 1.0),
        disagreement_high=opinions.disagreement.high,
        alpha=opinions.alpha,
        reason=reason_of(found.reason, rounds),
    )
