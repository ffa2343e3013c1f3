"""What a run states: its accuracy with an interval and what that rests on."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.history import read_history
from opacc_ray.audit.sanity import warnings_of
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.assisted import assist as assist_rounds
from opacc_ray.estimators.assisted import tuned_strength
from opacc_ray.estimators.base import Estimate, Outcome, joined_reasons
from opacc_ray.estimators.baseline import baseline
from opacc_ray.estimators.calibration import design_for_classes
from opacc_ray.estimators.domain import by_class, confusion, cost_of_every_error, cost_of_failures, mean_cost
from opacc_ray.estimators.label_noise import disagreement, widen
from opacc_ray.estimators.sequence import SPENDING, confidence_sequence, stream_of
from opacc_ray.estimators.statement import Circumstances, SecondOpinions, Statement
from opacc_ray.labels.agreement import agreement
from opacc_ray.labels.costs import Costs
from opacc_ray.labels.labelled_rounds import LabelledRound, digest_of, having_labels, no_label, read_rounds
from opacc_ray.labels.log import all_files, refuse_lost
from opacc_ray.labels.outcomes import Score
from opacc_ray.runs import feature_store
from opacc_ray.runs.documents import (
    AccuracyEstimate,
    AnytimeInterval,
    AssistedEstimate,
    ConfusionShares,
    LabelNoise,
    MeanCost,
    SimpleRandomBaseline,
    StatedEstimate,
)
from opacc_ray.runs.pool_objects import find_changed
from opacc_ray.runs.run import Run
from opacc_ray.samplers.estimate import estimate as estimate_rounds
from opacc_ray.samplers.neyman.regression import uses_regression
from opacc_ray.samplers.select import parse_parameters
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
) -> AccuracyEstimate:
    """State the accuracy from the labels of all rounds, and write ``estimate.json``.

    Labels that are missing, given up or "can't tell" leave a sample of the same design only where the labelled examples
    are the first ones of a design that is sequential. Otherwise they are taken to be missing at
    random, which is an assumption: the result then says so and is not design-based.

    Parameters
    ----------
    level, partial : confidence level; whether labels may be missing
    conflict, score : what to do where labels differ; what a regression's prediction is worth; None: as the run has it
    costs : of errors, by the names of classes: state their mean, too
    assist : state the accuracy with the help of the confidence of the whole pool, too

    Raises
    ------
    LabelError
        Labels are missing in a round that has some and ``partial`` is not set, or none is there. A further round that
        has none of its own yet is left out, as if it had not been drawn.
    SpecError
        The run has no confidence, or its method no use for it, and ``assist`` is set.
    """
    document = state(run, level=level, partial=partial, conflict=conflict, costs=costs, assist=assist, score=score)
    run.write_estimate(document)
    return document


def state(
    run: Run,
    *,
    level: float = 0.95,
    partial: bool = False,
    conflict: str | None = None,
    costs: Costs | None = None,
    assist: bool = False,
    score: Score | None = None,
) -> AccuracyEstimate:
    """State what :func:`estimate` states, and write nothing."""
    rounds = read_rounds(run, conflict=conflict, score=score)
    known = with_labels(run, rounds, partial)
    sample, circumstances = sample_of(known), circumstances_of(run, known, level)
    by_design = accuracy_of(run, *sample, level)
    found = by_design if circumstances.goal is None else accuracy_of(run, *sample, circumstances.own_level)
    said = circumstances.statement(found)
    return AccuracyEstimate(
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


def circumstances_of(run: Run, known: Sequence[LabelledRound], level: float) -> Circumstances:
    """What decides how an estimate from rounds with labels is stated: second opinions, and a goal that was reached."""
    goal = run.reached_goal()
    found = Circumstances(level) if goal is None else Circumstances(level, goal.half_width, tuple(goal.earlier_goals))
    return found._replace(opinions=_second_opinions(run, known, found.own_level))


def accuracy_to_state(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], level: float
) -> Statement:
    """What is stated of the accuracy, from those of some rounds that have labels."""
    circumstances = circumstances_of(run, known, level)
    found = accuracy_of(run, *sample_of(known), circumstances.own_level)
    return circumstances.statement(with_nonresponse(found, rounds))


def with_labels(run: Run, rounds: Sequence[LabelledRound], partial: bool) -> list[LabelledRound]:
    """The begun rounds that have labels; raises LabelError if none has, or if one lacks some without ``partial``."""
    begun = [item for item in rounds if item.is_begun] or rounds
    missing = [name for item in begun for name in item.missing]
    if missing and not partial:
        raise LabelError(
            f"{len(missing)} of {sum(len(item.selection) for item in begun)} labels are missing in {run.title}, the "
            f"first for {missing[0]!r}; import them, or give --partial to state the accuracy without them"
        )
    for item in rounds:
        run.check_copies(item.number)
    feature_store.check_drawn_from(run, [item.number for item in rounds])
    refuse_lost(run, _last_estimate(run))
    known = having_labels(begun)
    if not known:
        raise no_label(run, rounds)
    return known


def accuracy_of(run: Run, selections: Sequence[Selection], outcomes: Sequence[Outcome], level: float) -> Estimate:
    """The estimate from some rounds; the features of the pool are read if their method learns from all labels."""
    if not uses_regression(selections):
        return estimate_rounds(selections, outcomes, level)
    optional = parse_parameters(selections[0].method, selections[0].parameters).optional_features
    with feature_store.open_view(run, (), optional) as view:
        return estimate_rounds(selections, outcomes, level, pool=view, history=read_history(run))


def _last_estimate(run: Run) -> AccuracyEstimate | None:
    try:
        return run.read_estimate()
    except DataError:  # it is made anew
        return None


def basis_of(run: Run, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """The fields of :class:`Basis`: what the accuracy is of, and what it leaves out."""
    index = run.complete_features().index
    return {
        "run": run.uri,
        "track": run.track,
        "measure": rounds[0].measure,
        "clipped": sum(item.clipped for item in rounds),
        "pool_size": index.num_examples,
        "excluded": len(index.bad),
        "missing": sum(len(item.missing) for item in rounds),
        "unsure": sum(len(item.unsure) for item in rounds),
        "given_up": sum(len(item.given_up) for item in rounds),
        "rounds": [item.counts() for item in rounds],
        "objects": find_changed([run]),
    }


def stated(estimate: Estimate, rounds: Sequence[LabelledRound]) -> dict[str, Any]:
    """The fields of :class:`StatedEstimate`."""
    return with_nonresponse(estimate, rounds).to_dict()


def with_nonresponse(estimate: Estimate, rounds: Sequence[LabelledRound]) -> Estimate:
    """An estimate that is design-based only if labels that are not there leave the design whole, and says so if not."""
    whole = not any(item.nonresponse for item in rounds)
    reason = reason_of(estimate.reason, rounds)
    return replace(estimate, design_based=estimate.design_based and whole, reason=reason)


def reason_of(own: str | None, rounds: Sequence[LabelledRound]) -> str | None:
    """What an estimate rests on: its own reason, and nonresponse."""
    return joined_reasons([own, *(item.nonresponse for item in rounds)])


def sample_of(known: Sequence[LabelledRound]) -> tuple[list[Selection], list[NDArray[np.float64]]]:
    """Selections and outcomes, round by round, as the estimators take them."""
    return [item.known for item in known], [item.outcome for item in known]


def _sequence(known: Sequence[LabelledRound], circumstances: Circumstances) -> AnytimeInterval:
    """The confidence sequence so far; ``reason`` says which labels it does not count yet."""
    level = circumstances.level
    counted = _counted(known)
    bounds: dict[str, Any] = {"low": 0.0, "high": 1.0, "interval": SPENDING}
    if counted:
        found = whenever_stopped(circumstances, confidence_sequence(*sample_of(counted), level))
        bounds = {"low": found.low, "high": found.high, "interval": found.interval}
    reason = None
    if len(counted) < len(known):
        reason = f"it counts whole rounds only, and round {known[len(counted)].number} still waits for labels"
    return AnytimeInterval(**bounds, level=level, reason=reason)


def whenever_stopped(circumstances: Circumstances, sequence: Estimate) -> Estimate:
    """What is stated of a confidence sequence, which holds whatever made sampling stop."""
    return circumstances._replace(goal=None).statement(sequence).estimate


def _counted(known: Sequence[LabelledRound]) -> list[LabelledRound]:
    """The rounds that a confidence sequence may count: all if it follows them label by label, else the whole ones.

    It follows draws in their order. Labels that came before those of earlier draws would be looked at in another one.
    """
    has_gaps = any(item.missing and item.nonresponse for item in known)
    if has_gaps or stream_of(*sample_of(known)) is None:
        return whole_rounds(known)
    return list(known)


def whole_rounds(known: Sequence[LabelledRound]) -> list[LabelledRound]:
    """The first rounds that wait for no label."""
    return list(takewhile(lambda item: not item.missing, known))


def _assisted(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], circumstances: Circumstances
) -> AssistedEstimate:
    sample = sample_of(known)
    confidence = _confidence(run, sample[0])
    strength = tuned_strength(*sample, confidence)
    found = assist_rounds(*sample, confidence, circumstances.own_level, strength)
    return AssistedEstimate(**stated(circumstances.statement(found).estimate, rounds), strength=strength)


def _confidence(run: Run, rounds: Sequence[Selection]) -> NDArray[np.float64]:
    """The confidence of every example of the pool, (N,); raises SpecError if it cannot assist."""
    predicts = next((part.method for part in rounds if part.design.prediction is not None), None)
    if predicts:
        raise SpecError(
            f"--assist adds a prediction of the outcomes, and the estimate of {predicts} has its own in it; "
            "leave --assist out"
        )
    if run.spec.model.task == "regression":
        raise SpecError(
            "--assist takes the confidence of the model as its prediction of the outcome, and a regression has none; "
            "leave --assist out"
        )
    return feature_store.read_column(run, "confidence").astype(np.float64)


def _mean_cost(
    run: Run, rounds: Sequence[LabelledRound], known: Sequence[LabelledRound], accuracy: Estimate, costs: Costs
) -> MeanCost:
    """The mean cost: where every error costs the same, of the failures by the accuracy; else by the designs alone."""
    classes = None if run.num_classes is None else [run.spec.model.name_of(c) for c in range(run.num_classes)]
    every = cost_of_every_error(costs, classes)
    if every is not None:
        cost = cost_of_failures(accuracy, every)
    else:
        cost = mean_cost(sample_of(known)[0], _all(known, "truth"), _all(known, "predicted"), costs, accuracy.level)
    return MeanCost(**stated(cost, rounds), costs=costs)


def _second_opinions(run: Run, known: Sequence[LabelledRound], level: float) -> SecondOpinions | None:
    """What second opinions on labelled examples show; None if there are none."""
    twice = [~np.isnan(item.disagreement) for item in known]
    differences = [item.disagreement[has] for item, has in zip(known, twice, strict=True)]
    if not any(map(len, differences)):
        return None
    return SecondOpinions(
        examples=sum(map(len, differences)),
        differ=sum(int(np.count_nonzero(part)) for part in differences),
        disagreement=disagreement([item.known for item in known], twice, differences, level),
        alpha=agreement(run).alpha,
    )


def _label_noise(rounds: Sequence[LabelledRound], circumstances: Circumstances, found: Estimate) -> LabelNoise | None:
    """The interval widened by what second opinions show; None if there are none."""
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
    """Accuracy by predicted and by true class, and the confusion of the two, as shares of the pool; if it has any."""
    names = ("pool_by_predicted_class", "by_predicted_class", "by_true_class", "confusion")
    if run.spec.model.task == "regression":
        return dict.fromkeys(names)
    predicted, true = _all(known, "predicted"), _all(known, "truth")
    outcome = np.concatenate([item.outcome for item in known])
    counted = feature_store.predicted_classes(run)
    pool = None if counted is None else {run.spec.model.name_of(c): num for c, num in counted.items()}
    design = design_for_classes([item.known for item in known], predicted, pool)

    def accuracy_by(classes: NDArray[Any]) -> dict[str, StatedEstimate]:
        parts = by_class(design, outcome, classes, level)
        return {name: StatedEstimate(**stated(part, rounds)) for name, part in parts.items()}

    shares = confusion(design, true, predicted).to_dict() | {"reason": reason_of(design.reason, rounds)}
    values = (pool, accuracy_by(predicted), accuracy_by(true), ConfusionShares(**shares))
    return dict(zip(names, values, strict=True))


def _all(known: Sequence[LabelledRound], name: str) -> NDArray[Any]:
    """``truth`` or ``predicted`` of every label, (n,), over all rounds."""
    return np.array([text for item in known for text in getattr(item, name)])
