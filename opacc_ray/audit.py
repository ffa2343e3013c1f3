"""The audit, verb by verb: extract → select → write manifests → take labels back → estimate.

Each verb reads and writes the run's prefix only, so that days may pass between two of them and each may run in another
process. Every verb may be repeated: what is done is kept.
"""

import hashlib
import json
import logging
import platform
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from opacc_ray import catalog, manifest
from opacc_ray import labels as labelling
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators import estimate as estimate_selection
from opacc_ray.run import Run
from opacc_ray.sampling import find_method, parse_parameters
from opacc_ray.sampling import select as select_from
from opacc_ray.selection import Selection
from opacc_ray.sources import Plan, plan_shards
from opacc_ray.spec import Spec
from opacc_ray.storage import join, open_store, read_uri

log = logging.getLogger(__name__)

FEATURE_FORMAT = 1
"""Raised when the same spec would give other features, so that runs of different versions do not mix."""


def start(spec: Spec) -> tuple[Run, Plan]:
    """Resolve the spec against pool and weights, and open its run: the same spec and data, the same run.

    Raises
    ------
    StorageError, DataError, SpecError
        Pool, weights or output cannot be used. Nothing is written then.
    """
    plan = plan_shards(open_store(spec.pool.uri), spec.pool.format, spec.extract.shard_size)
    num_files = sum(len(shard.keys) for shard in plan.shards)
    if spec.pool.format == "images" and (spec.sample.budget or 0) > num_files:
        raise SpecError(
            f"sample.budget={spec.sample.budget} is more than the pool {spec.pool.uri} can give: "
            f"it holds {num_files} examples; give at most {num_files}"
        )
    spec = _with_digest(spec)
    identity = {"spec": spec.identity(), "pool": plan.digest, "features": FEATURE_FORMAT}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    header = {
        "spec": spec.model_dump(mode="json"),
        "digest": digest,
        "pool": {"digest": plan.digest, "num_files": num_files, "num_shards": len(plan.shards)},
        "model": {"sha256": spec.model.sha256},
        "versions": _versions(),
        "git_commit": _git_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return Run.create(join(spec.output, f"{spec.name}-{digest[:8]}"), header), plan


def run(spec: Spec, progress: Callable[[int, int], None] = lambda done, total: None) -> Run:
    """Extract, select and write manifests; what an earlier call did is kept."""
    audit, plan = start(spec)
    log.info("run %s: %d shards", audit.uri, len(plan.shards))
    extract(audit, plan, progress)
    if not audit.rounds():
        sample = spec.sample
        select(audit, sample.method, sample.budget, sample.parameters)
    return audit


def extract(run: Run, plan: Plan, progress: Callable[[int, int], None]) -> None:
    """Extract the features of every shard that is not there yet, and write the index when all are.

    ``progress(done, total)`` counts shards.
    """
    from opacc_ray import cluster
    from opacc_ray.extraction import Extraction

    done = run.finished_shards()
    todo = [shard for shard in plan.shards if shard.name not in done]
    kept = len(plan.shards) - len(todo)
    if kept:
        log.info("%d of %d shards were done before and are kept", kept, len(plan.shards))
    progress(kept, len(plan.shards))
    if todo:
        finished = iter(range(kept + 1, len(plan.shards) + 1))
        job = Extraction(run.spec, run.spec.features(), run.features)
        with cluster.connected():
            cluster.extract_shards(job, todo, lambda _: progress(next(finished), len(plan.shards)))
    if run.read_index() is None:
        catalog.write_index(run, plan)


def select(run: Run, method: str, budget: int | None, parameters: dict[str, Any], seed: int | None = None) -> Selection:
    """Choose what to label in the run's first round and write the manifests.

    A selection that has no labels yet is replaced, and kept under ``superseded/``; one that has labels is not touched.

    Raises
    ------
    SpecError
        Unknown method or parameter, unfit budget, or labels that are there already.
    """
    needed = find_method(method).needs(parse_parameters(method, parameters))
    with catalog.open_view(run, needed) as view:
        seed = run.spec.seed if seed is None else seed
        selection = select_from(view, method, budget, seed, **parameters)
    if 1 in run.rounds():
        if run.read_selection(1).to_dict() == selection.to_dict():
            return selection
        if run.read_labels(1):
            raise SpecError(
                f"{run.uri} has labels for its selection already, so another one would orphan them; "
                "start a new run with another name or seed"
            )
        run.set_aside(1)
    _write_round(run, selection)
    return selection


def import_labels(run: Run, name: str, data: bytes, *, conflict: str = "error") -> dict[str, Any]:
    """Take a file of labels back; it is kept only if all labels so far fit together.

    Returns
    -------
    dict
        Counts of what is labelled, missing and "can't tell" after the import.
    """
    number = _open_round(run)
    given = labelling.parse(data, name)
    _join(run, number, [*_labels(run, number), *given], conflict, name)  # raises before anything is kept
    run.write_labels(number, name, data)
    return {"file": name, "rows": len(given)} | label_counts(run, conflict)


def estimate(run: Run, *, level: float = 0.95, partial: bool = False, conflict: str = "error") -> dict[str, Any]:
    """State the accuracy from the labels that are there, and write ``estimate.json``.

    Raises
    ------
    LabelError
        Labels are missing and ``partial`` is not set, or none is there.
    """
    number = _open_round(run)
    selection, chosen = run.read_selection(number), run.read_chosen(number)
    joined = _join(run, number, _labels(run, number), conflict, "the labels so far")
    if joined.missing and not partial:
        raise LabelError(
            f"{len(joined.missing)} of {len(selection)} labels are missing, the first for {joined.missing[0]!r}; "
            "import them, or give --partial to treat them as missing at random"
        )
    known = np.array([name in joined.label for name in chosen.ids])
    if not known.any():
        raise LabelError(f"no example of {run.uri} has a label yet; import some with `opacc labels import`")
    outcome = [
        _outcome(run.spec, name, joined.label[name], prediction)
        for name, prediction in zip(chosen.ids, chosen.predictions, strict=True)
        if name in joined.label
    ]
    result = estimate_selection(selection.restrict(known), outcome, level).to_dict()
    result |= _caveats(run, joined, result)
    run.write_estimate(result)
    return result


def label_counts(run: Run, conflict: str = "majority") -> dict[str, int]:
    """How many chosen examples are labelled, missing and "can't tell"."""
    number = _open_round(run)
    joined = _join(run, number, _labels(run, number), conflict, "the labels so far")
    return {
        "round": number,
        "labelled": len(joined.label),
        "missing": len(joined.missing),
        "unsure": len(joined.unsure),
    }


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
    selection = run.read_selection(_open_round(run))
    counts = label_counts(run)
    state["rounds"] = [{"method": selection.method, "budget": len(selection)} | counts]
    waits = f"{counts['missing']} labels" if counts["missing"] else "nothing: `opacc estimate`"
    return state | {"waits_for": "nothing" if state["estimate"] and not counts["missing"] else waits}


def _with_digest(spec: Spec) -> Spec:
    """The spec with the digest of its weights, checked here once, before any actor starts."""
    if spec.model.weights is None:
        return spec
    digest = hashlib.sha256(read_uri(spec.model.weights)).hexdigest()
    if spec.model.sha256 not in (None, digest):
        raise SpecError(
            f"model.sha256: {spec.model.weights} has digest {digest}, and the spec expects {spec.model.sha256}; "
            "audit the weights you meant, or mend the spec"
        )
    return spec.model_copy(update={"model": spec.model.model_copy(update={"sha256": digest})})


def _write_round(run: Run, selection: Selection) -> None:
    spec = run.spec
    chosen = catalog.find_chosen(run, selection)
    rows = [
        manifest.ManifestRow(
            id=chosen.ids[i],
            uri=chosen.uris[i],
            run=run.name,
            round=selection.round,
            order=i + 1,
            design={name: values[i].item() for name, values in selection.design.items()},
            prediction=_name_of(spec, chosen.predictions[i]),
        )
        for i in range(len(selection))
    ]
    context = manifest.Context(tuple(spec.model.classes) if spec.model.classes else None)
    files = {
        f"manifest{manifest.FORMATS[kind].suffix}": manifest.encode(
            kind, rows, show_prediction=spec.manifest.show_prediction, context=context
        )
        for kind in spec.manifest.formats
    }
    run.write_round(selection, chosen, files)


def _open_round(run: Run) -> int:
    """The round that labels are for."""
    rounds = run.rounds()
    if not rounds:
        raise LabelError(f"{run.uri} has no selection yet; run its spec, or `opacc select`")
    return rounds[-1]


def _labels(run: Run, number: int) -> list[labelling.Label]:
    return [label for name, data in run.read_labels(number) for label in labelling.parse(data, name)]


def _join(run: Run, number: int, given: Sequence[labelling.Label], conflict: str, source: str) -> labelling.Joined:
    selected = run.read_selection(number).ids
    return labelling.join(given, selected, run=run.name, conflict=conflict, source=source)


def _outcome(spec: Spec, name: str, label: str, prediction: Any) -> float:
    if spec.model.task == "regression":
        return labelling.outcome_of_values(label, prediction, spec.model.error_scale, id=name)
    return labelling.outcome_of_classes(label, prediction, spec.model.classes, id=name)


def _name_of(spec: Spec, prediction: Any) -> str:
    return spec.model.classes[prediction] if spec.model.classes else str(prediction)


def _caveats(run: Run, joined: labelling.Joined, result: dict[str, Any]) -> dict[str, Any]:
    """What the estimate is of, and what it leaves out."""
    index = run.read_index() or {"num_examples": None, "bad": []}
    said = {
        "run": run.uri,
        "pool_size": index["num_examples"],
        "excluded": len(index["bad"]),
        "missing": len(joined.missing),
        "unsure": len(joined.unsure),
    }
    if joined.missing:
        reason = f"{len(joined.missing)} labels are missing and taken to be missing at random"
        said |= {"design_based": False, "reason": "; ".join(filter(None, [result["reason"], reason]))}
    return said


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("opacc_ray", "numpy", "torch", "ray", "pyarrow", "boto3"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a working directory that was shipped, not installed
            found[name] = "not installed"
    return found


def _git_commit() -> str | None:
    """The commit of the user's working directory, if it is one."""
    try:
        told = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None if told.returncode == 0 else None
