"""The audit, verb by verb: extract → select → write manifests, round after round.

``answers.py`` takes the labels back and ``verdict.py`` states the accuracy. Each verb reads and writes the run's
prefix only, so that days may pass between two of them and each may run in another process. Every verb may be
repeated: what is done is kept.
"""

import hashlib
import json
import logging
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from opacc_ray import catalog, manifest
from opacc_ray.answers import Answers, read_answers
from opacc_ray.errors import LabelError, SpecError
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


def select(
    run: Run, method: str, budget: int | None, parameters: Mapping[str, Any], seed: int | None = None
) -> Selection:
    """Choose what to label in the newest round and write its manifests.

    A selection that has no labels yet is replaced, and kept under ``superseded/``; one that has labels is not touched.

    Raises
    ------
    SpecError
        Unknown method or parameter, unfit budget, or labels that are there already.
    """
    number = max(run.rounds(), default=1)
    earlier = read_answers(run)[:-1] if number > 1 else []
    selection = _choose(run, method, budget, parameters, seed, earlier)
    if number in run.rounds():
        if run.read_selection(number).to_dict() == selection.to_dict():
            return selection
        if run.read_labels(number):
            raise SpecError(
                f"round {number} of {run.uri} has labels already, which another selection would orphan; "
                "draw a further round with `opacc next`, or start a new run with another name or seed"
            )
        run.set_aside(number)
    _write_round(run, selection)
    return selection


def next_round(
    run: Run,
    budget: int | None,
    *,
    method: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    close: bool = False,
) -> Selection:
    """Choose what to label next, knowing all labels so far.

    Method and parameters are those of the round before unless given. ``close`` gives up the labels that the round
    before still waits for: they count as not drawn, and their examples may be drawn again.

    Raises
    ------
    LabelError
        The round before waits for labels and is not closed.
    """
    answers = read_answers(run)
    last = answers[-1]
    if last.missing and not close:
        raise LabelError(
            f"round {last.selection.round} of {run.uri} waits for {len(last.missing)} labels, the first for "
            f"{last.missing[0]!r}; import them, or give --close to go on without them"
        )
    if last.missing:
        run.close(last.selection.round, last.missing)
    if method is None:
        method, parameters = last.selection.method, parameters or last.selection.parameters
    selection = _choose(run, method, budget, parameters or {}, last.selection.seed, answers)
    _write_round(run, selection)
    return selection


def _choose(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None,
    earlier: Sequence[Answers],
) -> Selection:
    parsed = parse_parameters(method, parameters)
    previous = [(answers.known, answers.outcome) for answers in earlier if answers.labelled.any()]
    with catalog.open_view(run, find_method(method).needs(parsed), parsed.uses) as view:
        chosen = select_from(
            view, method, budget, run.spec.seed if seed is None else seed, previous=previous, **parameters
        )
    return replace(chosen, round=len(earlier) + 1)


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
        for i in _first_draws(selection)
    ]
    context = manifest.Context(tuple(spec.model.classes) if spec.model.classes else None)
    files = {
        f"manifest{manifest.FORMATS[kind].suffix}": manifest.encode(
            kind, rows, show_prediction=spec.manifest.show_prediction, context=context
        )
        for kind in spec.manifest.formats
    }
    run.write_round(selection, chosen, files)


def _first_draws(selection: Selection) -> list[int]:
    """Places in the selection, without the repeats of an example that was drawn more than once: it is labelled once."""
    return sorted({name: i for i, name in reversed(list(enumerate(selection.ids)))}.values())


def _name_of(spec: Spec, prediction: Any) -> str:
    return spec.model.classes[prediction] if spec.model.classes else str(prediction)


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
