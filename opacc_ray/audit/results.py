"""What a run says: its accuracy with an interval and what that rests on, its model beside another, and its state."""

import hashlib
import json
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit import feature_store
from opacc_ray.audit.labelled_rounds import Answers, outcomes_of_another, read_answers
from opacc_ray.audit.run import Run
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.assisted import assist as assist_rounds
from opacc_ray.estimators.assisted import tuned_strength
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.baseline import baseline
from opacc_ray.estimators.calibration import design_for_classes
from opacc_ray.estimators.comparison import compare as compare_outcomes
from opacc_ray.estimators.domain import by_class, confusion, mean_cost
from opacc_ray.estimators.estimate import estimate as estimate_rounds
from opacc_ray.estimators.sequence import SPENDING, confidence_sequence, labels_needed, stream_of
from opacc_ray.labelling.costs import Costs
from opacc_ray.selection import Selection


def estimate(
    run: Run,
    *,
    level: float = 0.95,
    partial: bool = False,
    conflict: str = "error",
    costs: Costs | None = None,
    assist: bool = False,
) -> dict[str, Any]:
    """State the accuracy from the labels of all rounds, and write ``estimate.json``.

    Labels that are missing, given up or "can't tell" leave a sample of the same design only where the labelled examples
    are the first ones of a design that is sequential. Otherwise they are taken to be missing at
    random, which is an assumption: the result then says so and is not design-based.

    Parameters
    ----------
    level, partial, conflict : confidence level; whether labels may be missing; what to do where they differ
    costs : of errors, by the names of classes: state their mean, too
    assist : state the accuracy with the help of the confidence of the whole pool, too

    Raises
    ------
    LabelError
        Labels are missing and ``partial`` is not set, or none is there.
    SpecError
        The run has no confidence, or its method no use for it, and ``assist`` is set.
    """
    answers = read_answers(run, conflict=conflict)
    known = _labelled(run, answers, partial)
    rounds = _rounds(known)
    accuracy = estimate_rounds(*rounds, level)
    result = _stated(accuracy, answers) | _about(run, answers) | {"labels_digest": _digest(answers)}
    result["srs"] = baseline(*rounds, accuracy).to_dict()
    result["sequence"] = _sequence(known, level)
    if assist:
        confidence = _confidence(run, rounds[0])
        strength = tuned_strength(*rounds, confidence)
        result["assisted"] = _stated(assist_rounds(*rounds, confidence, level, strength), answers)
        result["assisted"]["strength"] = strength
    if costs is not None:
        cost = mean_cost(rounds[0], _all(known, "truth"), _all(known, "predicted"), costs, level)
        result["mean_cost"] = _stated(cost, answers) | {"costs": costs}
    if run.spec.model.task == "classification":
        result |= _in_classes(run, answers, known, level)
    run.write_estimate(result)
    return result


def compare(
    run: Run, other: Run, *, level: float = 0.95, partial: bool = False, conflict: str = "error"
) -> dict[str, Any]:
    """State the accuracy of a run's model beside that of another one on the same pool, by the labels of the run.

    The other run needs features only: what its model says of the labelled examples is found by their ids. Nothing is
    written.

    Raises
    ------
    LabelError
        As :func:`estimate`, or the other model errs by more than the ``error_scale`` of the run.
    SpecError
        The models have different tasks or classes.
    DataError
        The other run lacks a labelled example.
    """
    _check_comparable(run, other)
    answers = read_answers(run, conflict=conflict)
    known = _labelled(run, answers, partial)
    said = feature_store.find_predictions(other, [name for item in known for name in item.known.ids])
    try:
        outcomes = outcomes_of_another(known, run.spec.model, other.spec.model, said)
    except LabelError as error:  # a regression's score on the scale of the run
        raise LabelError(f"the model of {other.uri} does not fit the spec of {run.uri}: {error}") from None
    found = compare_outcomes(*_rounds(known), outcomes, level)
    return _about(run, answers) | {
        "other": other.uri,
        "same_listing": run.header["pool"]["digest"] == other.header["pool"]["digest"],
        "first": _stated(found.first, answers),
        "second": _stated(found.second, answers),
        "difference": _stated(found.difference, answers),
        "num_first_better": found.num_first_better,
        "num_second_better": found.num_second_better,
    }


def labels_to_go(run: Run, half_width: float, *, level: float = 0.95, close: bool = False) -> int:
    """About how many more labels bring the interval to ``± half_width``; 0 if it is that narrow.

    The interval that decides is the confidence sequence, which holds though one stops because it looks narrow. Of
    methods that it follows round by round, a round that still waits for labels does not count, unless it is to be
    closed now (``close``).

    Raises
    ------
    LabelError
        No label is there, or no round that counts.
    """
    known = _labelled(run, read_answers(run), partial=True)
    counted = known if close else _counted(known)
    if not counted:
        raise LabelError(
            f"round {known[0].selection.round} of {run.uri} waits for {len(known[0].missing)} labels, and the "
            f"{SPENDING} counts whole rounds only; import them, or give --close to go on without them"
        )
    more = labels_needed(confidence_sequence(*_rounds(counted), level), half_width, known[0].selection.pool_size)
    there = sum(len(item.outcome) for item in known[len(counted) :])
    return max(1, more - there) if more else 0


def status(run: Run) -> dict[str, Any]:
    """What is done and what the run waits for."""
    index, total = run.read_index(), run.header["pool"]["num_shards"]
    state: dict[str, Any] = {
        "run": run.uri,
        "shards": {"done": total if index else len(run.finished_shards()), "total": total},
        "examples": index["num_examples"] if index else None,
        "excluded": len(index["bad"]) if index else None,
        "rounds": [],
        "estimate": run.read_estimate(),
    }
    if index is None:
        return state | {"waits_for": "extraction: run the spec again, finished shards are kept"}
    if not run.rounds():
        return state | {"waits_for": "a selection: run the spec again, or `opacc select`"}
    answers = read_answers(run, conflict="majority")
    state["rounds"] = [item.counts() for item in answers]
    missing = sum(item["missing"] for item in state["rounds"])
    if missing:
        return state | {"waits_for": f"{missing} labels"}
    is_current = state["estimate"] is not None and state["estimate"].get("labels_digest") == _digest(answers)
    return state | {"waits_for": "nothing" if is_current else "nothing but `opacc estimate`"}


def _labelled(run: Run, answers: Sequence[Answers], partial: bool) -> list[Answers]:
    """The rounds that have labels; raises LabelError if none has, or if any lacks some and ``partial`` is not set."""
    missing = [name for item in answers for name in item.missing]
    if missing and not partial:
        raise LabelError(
            f"{len(missing)} of {sum(len(item.selection) for item in answers)} labels are missing in {run.uri}, the "
            f"first for {missing[0]!r}; import them, or give --partial to state the accuracy without them"
        )
    known = [item for item in answers if item.labelled.any()]
    if not known:
        raise LabelError(f"no example of {run.uri} has a label yet; import some with `opacc labels import`")
    return known


def _stated(estimate: Estimate, answers: Sequence[Answers]) -> dict[str, Any]:
    """An estimate, which is design-based only if labels that are not there leave the design whole."""
    whole = not any(_gap(item) for item in answers)
    reason = _reason(estimate.reason, answers)
    return estimate.to_dict() | {"design_based": estimate.design_based and whole, "reason": reason}


def _reason(own: str | None, answers: Sequence[Answers]) -> str | None:
    """What an estimate rests on: its own reason, and labels that are not there."""
    reasons = [own, *(_gap(item) for item in answers)]
    return "; ".join(reason for reason in reasons if reason) or None


def _rounds(known: Sequence[Answers]) -> tuple[list[Selection], list[NDArray[np.float64]]]:
    return [item.known for item in known], [item.outcome for item in known]


def _sequence(known: Sequence[Answers], level: float) -> dict[str, Any]:
    """The confidence sequence so far; ``reason`` says which labels it does not count yet."""
    counted = _counted(known)
    bounds: dict[str, Any] = {"low": 0.0, "high": 1.0, "level": level, "interval": SPENDING, "reason": None}
    if counted:
        found = confidence_sequence(*_rounds(counted), level)
        bounds |= {"low": found.low, "high": found.high, "interval": found.interval}
    if len(counted) < len(known):
        number = known[len(counted)].selection.round
        bounds["reason"] = f"it counts whole rounds only, and round {number} still waits for labels"
    return bounds


def _counted(known: Sequence[Answers]) -> list[Answers]:
    """The rounds that a confidence sequence may count: all if it follows them label by label, else the whole ones."""
    if stream_of(*_rounds(known)) is not None:
        return list(known)
    return list(takewhile(lambda item: not item.missing, known))


def _digest(answers: Sequence[Answers]) -> str:
    """Of all labels: an estimate that was made of others is not current."""
    content = [
        [item.selection.round, item.selection.ids, item.labelled.tolist(), item.truth, item.unsure, item.given_up]
        for item in answers
    ]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _confidence(run: Run, rounds: Sequence[Selection]) -> NDArray[np.float64]:
    """Of every example of the pool; raises SpecError if it cannot assist."""
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
    values = feature_store.read_column(run, "confidence").astype(np.float64)
    return np.where((values > 1) & (values < 1 + 1e-6), 1.0, values)  # a float32 softmax may round to above 1


def _in_classes(run: Run, answers: Sequence[Answers], known: Sequence[Answers], level: float) -> dict[str, Any]:
    """Accuracy by predicted and by true class, and the confusion of the two, as shares of the pool."""
    said, true = _all(known, "predicted"), _all(known, "truth")
    outcome = np.concatenate([item.outcome for item in known])
    counted = feature_store.predicted_classes(run)
    pool = None if counted is None else {run.spec.model.name_of(c): num for c, num in counted.items()}
    design = design_for_classes([item.known for item in known], said, pool)

    def accuracy_by(classes: NDArray[Any]) -> dict[str, Any]:
        return {name: _stated(part, answers) for name, part in by_class(design, outcome, classes, level).items()}

    return {
        "pool_by_predicted_class": pool,
        "by_predicted_class": accuracy_by(said),
        "by_true_class": accuracy_by(true),
        "confusion": confusion(design, true, said).to_dict() | {"reason": _reason(design.reason, answers)},
    }


def _all(known: Sequence[Answers], name: str) -> NDArray[Any]:
    """``truth`` or ``predicted`` of every label, (n,), over all rounds."""
    return np.array([text for item in known for text in getattr(item, name)])


def _check_comparable(run: Run, other: Run) -> None:
    """The models of two runs answer the same question in the same words."""
    own, theirs = run.spec.model, other.spec.model
    if own.task != theirs.task:
        raise SpecError(f"{run.uri} is a {own.task} and {other.uri} a {theirs.task}; give runs with the same task")
    if own.task == "regression" or (own.classes is None and theirs.classes is None):
        return
    if own.classes is None or theirs.classes is None:
        nameless = (run if own.classes is None else other).uri
        raise SpecError(
            f"{nameless} does not name its classes, and the other run does; run its spec with model.classes"
        )
    for names, place, known, rest in ((own, run, theirs, other), (theirs, other, own, run)):
        strange = next((name for name in names.classes or () if name not in (known.classes or ())), None)
        if strange is not None:
            near = get_close_matches(strange, known.classes or (), 1, cutoff=0.0)
            raise SpecError(
                f"{strange!r} is a class of {place.uri} and not of {rest.uri}, where {near[0]!r} comes nearest; "
                "give runs whose models tell the same classes apart, in whatever order"
            )


def _gap(item: Answers) -> str | None:
    """Why the labels of a round may not be a sample of its design; a round without any label is not used."""
    if not item.labelled.any() and not item.unsure:
        return None
    absent = len(item.labelled) - int(item.labelled.sum())
    first_are_labelled = bool(np.all(item.labelled[:-1] >= item.labelled[1:]))
    if not absent or (first_are_labelled and not item.unsure and item.selection.design.is_sequential):
        return None
    return f"{absent} of {len(item.labelled)} labels of round {item.selection.round} are taken to be missing at random"


def _about(run: Run, answers: Sequence[Answers]) -> dict[str, Any]:
    """What the accuracy is of, and what it leaves out."""
    index = run.read_index() or {"num_examples": None, "bad": []}
    return {
        "run": run.uri,
        "pool_size": index["num_examples"],
        "excluded": len(index["bad"]),
        "missing": sum(len(item.missing) for item in answers),
        "unsure": sum(len(item.unsure) for item in answers),
        "given_up": sum(len(item.given_up) for item in answers),
        "rounds": [item.counts() for item in answers],
    }
