"""What a run says: its accuracy with an interval and what that rests on, and its state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from opacc_ray.answers import Answers, read_answers
from opacc_ray.errors import LabelError
from opacc_ray.estimators import estimate as estimate_rounds
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
    known = [item for item in answers if item.labelled.any()]
    if not known:
        raise LabelError(f"no example of {run.uri} has a label yet; import some with `opacc labels import`")
    rounds = [item.known for item in known], [item.outcome for item in known]
    result = estimate_rounds(*rounds, level).to_dict()
    result |= _caveats(answers, result) | _about(run, answers)
    run.write_estimate(result)
    return result


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
