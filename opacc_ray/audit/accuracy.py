"""Estimate the accuracy of a run's model on its pool, with an interval and its assumptions."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.prior_knowledge import read_history
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate, joined_reasons
from opacc_ray.estimators.confidence_sequence import SPENDING, confidence_sequence, draw_sequence
from opacc_ray.estimators.domain import (
    by_class,
    confusion,
    cost_of_every_error,
    cost_of_failures,
    design_for_classes,
    mean_cost,
)
from opacc_ray.estimators.label_noise import disagreement, widen
from opacc_ray.estimators.prediction_powered import assisted_estimate as assist_rounds
from opacc_ray.estimators.prediction_powered import tuned_strength
from opacc_ray.estimators.rounds import Outcome
from opacc_ray.estimators.statement import Circumstances, SecondOpinions, Statement, baseline
from opacc_ray.labels.annotator_agreement import measure_agreement
from opacc_ray.labels.costs import Costs
from opacc_ray.labels.label_log import Score, all_files, refuse_lost
from opacc_ray.labels.labelled_rounds import (
    LabelledRound,
    digest_of,
    having_labels,
    no_label,
    none_imported,
    read_rounds,
)
from opacc_ray.runs import feature_store
from opacc_ray.runs.estimate_documents import (
    AccuracyEstimate,
    AnytimeInterval,
    AssistedEstimate,
    ConfusionShares,
    LabelNoise,
    MeanCost,
    SimpleRandomBaseline,
    StatedEstimate,
)
from opacc_ray.runs.feature_store import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.samplers import parse_parameters
from opacc_ray.samplers.estimate import estimate as estimate_rounds
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
    keep: bool = True,
) -> AccuracyEstimate:
    """Estimate the accuracy from the labels of all rounds, and write ``estimate.json`` if ``keep``.

    Labels may be missing, given up or "can't tell". If the labelled examples are the first ones of a sequential design,
    the sample keeps its design. Otherwise these labels are assumed to be missing at random: the result is then not
    design-based, and its ``reason`` says so.

    Parameters
    ----------
    level, partial : confidence level; whether labels may be missing
    conflict, score : rule for labels that differ; score of a regression's prediction; None: the settings of the run
    costs : costs of errors by the names of classes: also estimate their mean
    assist : also report a prediction-powered estimate by the confidences of the whole pool

    Raises
    ------
    LabelError
        There is no label, or labels are missing in a round with labels and ``partial`` is not set. A further round
        without own labels is left out, as if it had not been drawn.
    SpecError
        ``assist`` is set, and the run has no confidence or its method already uses predictions.
    """
    rounds = read_rounds(run, conflict=conflict, score=score)
    known = with_labels(run, rounds, partial)
    sample, circumstances = sample_of(known), circumstances_of(run, known, level)
    by_design = accuracy_of(run, *sample, level)
    found = by_design if circumstances.goal is None else accuracy_of(run, *sample, circumstances.own_level)
    said = circumstances.statement(found)
    document = AccuracyEstimate(
        **basis_of(run, rounds),
        **stated(said.estimate, rounds),
        labels_digest=digest_of(rounds),
        label_files=all_files(run),
        allows_for=list(said.allows_for),
        goal=circumstances.goal,
        by_design=StatedEstimate(**stated(by_design, rounds)),
        notes=list(said.notes),
        srs=SimpleRandomBaseline(**baseline(*sample, by_design).to_dict()),
        sequence=_sequence(known, circumstances),
        assisted=_assisted(run, rounds, known, circumstances) if assist else None,
        mean_cost=None if costs is None else _mean_cost(run, rounds, known, said.estimate, costs),
        label_noise=_label_noise(rounds, circumstances, found),
        warnings=warnings_of(run, rounds),
        **_in_classes(run, rounds, known, level),
    )
    if keep:
        run.write_estimate(document)
    return document


def circumstances_of(run: Run, known: Sequence[LabelledRound], level: float) -> Circumstances:
    """Return what changes the interval to report: second opinions, and a goal that was reached."""
    goal = run.reached_goal()
    found = Circumstances(level) if goal is None else Circumstances(level, goal.half_width, tuple(goal.earlier_goals))
    return found._replace(opinions=_second_opinions(run, known, found.own_level))


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
            f"first for {missing[0]!r}; import them, or give --partial to estimate the accuracy without them"
        )
    for item in rounds:
        run.check_copies(item.number)
    feature_store.check_drawn_from(run, [item.number for item in rounds])
    last = None
    with suppress(DataError):  # it is about to be replaced
        last = run.read_estimate()
    refuse_lost(run, last)
    known = having_labels(begun)
    if not known:
        raise no_label(run, rounds)
    return known


def accuracy_of(run: Run, selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """Estimate the accuracy from some rounds; reads features of the pool if their method learns from all labels."""
    if not uses_regression(selections):
        return estimate_rounds(selections, outcomes, level)
    optional = parse_parameters(selections[0].method, selections[0].parameters).optional_features
    with feature_store.open_view(run, (), optional) as view:
        return estimate_rounds(selections, outcomes, level, pool=view, history=read_history(run))


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


def stated(estimate: Estimate, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """Return the fields of :class:`StatedEstimate`."""
    return with_nonresponse(estimate, rounds).to_dict()


def with_nonresponse(estimate: Estimate, rounds: Sequence[LabelledRound]) -> Estimate:
    """Return the estimate with its assumptions about labels that are not there."""
    whole = not any(item.nonresponse for item in rounds)
    reason = reason_of(estimate.reason, rounds)
    return replace(estimate, design_based=estimate.design_based and whole, reason=reason)


def reason_of(own: str | None, rounds: Sequence[LabelledRound]) -> str | None:
    """Return the assumptions of an estimate: its own, and those about nonresponse."""
    return joined_reasons([own, *(item.nonresponse for item in rounds)])


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


def _mean_cost(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], accuracy: Estimate, costs: Costs
) -> MeanCost:
    """Estimate the mean cost: from the accuracy if every error costs the same, otherwise by the designs alone."""
    classes = None if run.num_classes is None else [run.spec.model.name_of(c) for c in range(run.num_classes)]
    every = cost_of_every_error(costs, classes)
    if every is not None:
        cost = cost_of_failures(accuracy, every)
    else:
        cost = mean_cost(sample_of(known)[0], _all(known, "truth"), _all(known, "predicted"), costs, accuracy.level)
    return MeanCost(**stated(cost, rounds), costs=costs)


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


def _in_classes(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], level: float
) -> dict[str, Any]:
    """Estimate accuracy by predicted and by true class, and the confusion matrix; None for regressions."""
    if run.spec.model.task == "regression":
        return dict.fromkeys(("pool_by_predicted_class", "by_predicted_class", "by_true_class", "confusion"))
    predicted, true = _all(known, "predicted"), _all(known, "truth")
    outcome = np.concatenate([item.outcome for item in known])
    counted = feature_store.predicted_classes(run)
    pool = None if counted is None else {run.spec.model.name_of(c): num for c, num in counted.items()}
    design = design_for_classes([item.known for item in known], predicted, pool)

    def accuracy_by(classes: NDArray[Any]) -> dict[str, StatedEstimate]:
        parts = by_class(design, outcome, classes, level)
        return {name: StatedEstimate(**stated(part, rounds)) for name, part in parts.items()}

    shares = confusion(design, true, predicted).to_dict() | {"reason": reason_of(design.reason, rounds)}
    return {
        "pool_by_predicted_class": pool,
        "by_predicted_class": accuracy_by(predicted),
        "by_true_class": accuracy_by(true),
        "confusion": ConfusionShares(**shares),
    }


def _all(known: Sequence[LabelledRound], name: str) -> NDArray[Any]:
    """Return ``truth`` or ``predicted`` of every label, (n,), over all rounds."""
    return np.array([text for item in known for text in getattr(item, name)])
