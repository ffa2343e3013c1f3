"""What a run says: its accuracy with an interval and what that rests on, and its state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from opacc_ray.answers import Answers, read_answers
from opacc_ray.errors import LabelError
from opacc_ray.estimators import estimate as estimate_rounds
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.baseline import baseline
from opacc_ray.estimators.domain import by_class, confusion
from opacc_ray.estimators.sequence import confidence_sequence, labels_needed
from opacc_ray.run import Run
from opacc_ray.sampling import parse_parameters


def estimate(run: Run, *, level: float = 0.95, partial: bool = False, conflict: str = "error") -> dict[str, Any]:
    """State the accuracy from the labels of all rounds, and write ``estimate.json``.

    Labels that are missing, given up or "can't tell" leave a sample of the same design only where the labelled examples
    are the first ones of a method that chooses one by one (``sequential``). Otherwise they are taken to be missing at
    random, which is an assumption: the result then says so and is not design-based.

    Raises
    ------
    LabelError
        Labels are missing and ``partial`` is not set, or none is there.
    """
    answers = read_answers(run, conflict=conflict)
    missing = [name for item in answers for name in item.missing]
    if missing and not partial:
        raise LabelError(
            f"{len(missing)} of {sum(len(item.selection) for item in answers)} labels are missing, the first for "
            f"{missing[0]!r}; import them, or give --partial to state the accuracy without them"
        )
    known = _labelled(run, answers)
    rounds = [item.known for item in known], [item.outcome for item in known]
    accuracy = estimate_rounds(*rounds, level)
    result = accuracy.to_dict()
    result |= _caveats(answers, result) | _about(run, answers)
    result["srs"] = baseline(*rounds, accuracy).to_dict()
    result["sequence"] = _bounds(confidence_sequence(*rounds, level))
    if run.spec.model.task == "classification":
        result |= _in_classes(run, known, level)
    run.write_estimate(result)
    return result


def labels_to_go(run: Run, half_width: float, *, level: float = 0.95) -> int:
    """About how many more labels bring the interval to ``± half_width``; 0 if it is that narrow.

    The interval that decides is the confidence sequence, which holds though one stops because it looks narrow.
    """
    known = _labelled(run, read_answers(run))
    rounds = [item.known for item in known], [item.outcome for item in known]
    return labels_needed(confidence_sequence(*rounds, level), half_width, known[0].selection.pool_size)


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
    state["rounds"] = [item.counts() for item in read_answers(run, conflict="majority")]
    missing = sum(item["missing"] for item in state["rounds"])
    if missing:
        return state | {"waits_for": f"{missing} labels"}
    labelled = sum(item["labelled"] for item in state["rounds"])
    is_current = state["estimate"] is not None and state["estimate"]["n"] == labelled
    return state | {"waits_for": "nothing" if is_current else "nothing but `opacc estimate`"}


def _labelled(run: Run, answers: Sequence[Answers]) -> list[Answers]:
    """The rounds that have labels; raises LabelError if none has."""
    known = [item for item in answers if item.labelled.any()]
    if not known:
        raise LabelError(f"no example of {run.uri} has a label yet; import some with `opacc labels import`")
    return known


def _bounds(interval: Estimate) -> dict[str, Any]:
    return {name: getattr(interval, name) for name in ("low", "high", "level", "interval")}


def _in_classes(run: Run, known: Sequence[Answers], level: float) -> dict[str, Any]:
    """Accuracy by predicted and by true class, and the confusion of the two, as shares of the pool."""
    rounds = [item.known for item in known]
    outcome = np.concatenate([item.outcome for item in known])
    said = np.array([name for item in known for name in item.predicted])
    true = np.array([name for item in known for name in item.truth])
    return {
        "by_predicted_class": {name: part.to_dict() for name, part in by_class(rounds, outcome, said, level).items()},
        "by_true_class": {name: part.to_dict() for name, part in by_class(rounds, outcome, true, level).items()},
        "confusion": confusion(rounds, true, said).to_dict(),
    }


def _caveats(answers: Sequence[Answers], result: dict[str, Any]) -> dict[str, Any]:
    """Whether labels that are not there leave the design whole."""
    reasons = [result["reason"], *(_gap(item) for item in answers)]
    said = [reason for reason in reasons if reason]
    return {"design_based": result["design_based"] and not any(reasons[1:]), "reason": "; ".join(said) or None}


def _gap(item: Answers) -> str | None:
    absent = len(item.labelled) - int(item.labelled.sum())
    first_are_labelled = bool(np.all(item.labelled[:-1] >= item.labelled[1:]))
    sequential = parse_parameters(item.selection.method, item.selection.parameters).sequential
    if not absent or (sequential and first_are_labelled and not item.unsure):
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
