"""The audit, verb by verb: extract → select → write manifests, round after round.

``answers.py`` takes the labels back and ``verdict.py`` states the accuracy. Each verb reads and writes the run's
prefix only (extraction also the reference beside it), so that days may pass between two of them and each may run in
another process. Every verb may be repeated: what is done is kept.
"""

import hashlib
import json
import logging
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from opacc_ray.audit import feature_store
from opacc_ray.audit.labelled_rounds import Answers, read_answers
from opacc_ray.audit.run import Run
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.extract import reference
from opacc_ray.extract.extractor import Extraction, refusal
from opacc_ray.extract.shards import FEATURES_FORMAT, finished_shards, read_index
from opacc_ray.labelling import manifest
from opacc_ray.lake.sources import BadItem, Plan, Shard, plan_shards
from opacc_ray.lake.storage import join, open_store, read_uri
from opacc_ray.samplers.base import Progress, no_progress
from opacc_ray.samplers.select import find_method, parse_parameters
from opacc_ray.samplers.select import select as select_from
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec

log = logging.getLogger(__name__)


class Stage(NamedTuple):
    """A folder to fill with features, shard by shard."""

    job: Extraction
    plan: Plan


def start(spec: Spec) -> tuple[Run, list[Stage]]:
    """Resolve the spec against pool, reference and weights, and open its run: the same spec and data, the same run.

    Returns
    -------
    (Run, list of Stage)
        The run, and what to extract for it: the reference if a feature compares with it, then the pool.

    Raises
    ------
    StorageError, DataError, SpecError
        Pool, reference, weights or output cannot be used. Nothing is written then.
    """
    plan = plan_shards(open_store(spec.pool.uri), spec.pool.format, spec.extract.shard_size)
    num_files = sum(len(shard.keys) for shard in plan.shards)
    if spec.pool.format == "images" and (spec.sample.budget or 0) > num_files:
        raise SpecError(
            f"sample.budget={spec.sample.budget} is more than the pool {spec.pool.uri} can give: "
            f"it holds {num_files} examples; give at most {num_files}"
        )
    spec = _with_digest(spec)
    compared = reference.plan(spec)
    header = _header(spec, plan, compared)
    run = Run.create(join(spec.output, f"{spec.name}-{header['digest'][:8]}"), header)
    return run, _stages(run, spec, plan, compared)


def _stages(run: Run, spec: Spec, plan: Plan, compared: Plan | None) -> list[Stage]:
    if compared is None or spec.reference is None:
        return [Stage(Extraction(spec, spec.pool, spec.features(), run.features), plan)]
    folder = reference.folder(spec, compared, run.store)
    ranges = "ranges" in spec.compares_with()
    return [
        Stage(Extraction(spec, spec.reference, reference.names(spec), folder, ranges=ranges), compared),
        Stage(Extraction(spec, spec.pool, spec.features(), run.features, reference=folder), plan),
    ]


def run(spec: Spec, progress: Callable[[int, int], None] = lambda done, total: None) -> Run:
    """Extract, select and write manifests; what an earlier call did is kept."""
    audit, stages = start(spec)
    log.info("run %s: %d shards", audit.uri, sum(len(stage.plan.shards) for stage in stages))
    extract(stages, progress)
    if not audit.rounds():
        sample = spec.sample
        select(audit, sample.method, sample.budget, sample.parameters, replicates=sample.replicates)
    return audit


def extract(stages: Sequence[Stage], progress: Callable[[int, int], None]) -> None:
    """Extract every shard that is not there yet, stage after stage, and write each one's index when all are.

    ``progress(done, total)`` counts shards.
    """
    from opacc_ray.cluster import session

    todo = [_missing(stage) for stage in stages]
    total = sum(len(stage.plan.shards) for stage in stages)
    kept = total - sum(map(len, todo))
    progress(kept, total)
    finished = iter(range(kept + 1, total + 1))
    with session.connected() if any(todo) else nullcontext():
        for stage, shards in zip(stages, todo, strict=True):
            if shards:
                session.extract_shards(stage.job, shards, lambda _: progress(next(finished), total))
            _complete(stage)


def _missing(stage: Stage) -> list[Shard]:
    """Shards that are not there yet."""
    shards, folder = stage.plan.shards, stage.job.target
    done = finished_shards(folder)
    missing = [shard for shard in shards if shard.name not in done]
    if len(missing) < len(shards):
        kept = len(shards) - len(missing)
        log.info("%d of %d shards were done before and are kept: %s", kept, len(shards), folder.uri)
    return missing


def _complete(stage: Stage) -> None:
    """Write the index of a folder whose shards are all there, and tell what is left out."""
    job = stage.job
    index = read_index(job.target)
    if index is None:
        if job.ranges:
            reference.merge_ranges(job.target)
        index = feature_store.index_features(job, stage.plan)
    if index["bad"]:
        first = BadItem(**index["bad"][0])
        if job.spec.extract.on_bad_item == "error":  # the run that extracted the reference went on without
            raise refusal(job, first)
        log.warning("%d examples of %s are left out, such as %s: %s", len(index["bad"]), job.source.uri, *first)


def select(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None = None,
    replicates: int | None = None,
    progress: Progress = no_progress,
) -> Selection:
    """Choose what to label in the newest round and write its manifests.

    A selection that has no labels yet is replaced, and kept under ``superseded/``; one that has labels is not touched.
    ``progress`` is that of :func:`opacc_ray.select`.

    Raises
    ------
    SpecError
        Unknown method or parameter, unfit budget, or labels that are there already.
    """
    number = max(run.rounds(), default=1)
    earlier = read_answers(run)[:-1] if number > 1 else []
    selection = _choose(run, method, budget, parameters, seed, earlier, replicates, progress)
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
    replicates: int | None = None,
    close: bool = False,
    progress: Progress = no_progress,
) -> Selection:
    """Choose what to label next, knowing all labels so far.

    Method, parameters and number of replicates are those of the round before unless given; another method starts from
    its own defaults. ``replicates=0`` goes on without them. ``close`` gives up the labels that the round before still
    waits for: they count as not drawn, and their examples may be drawn again.

    Raises
    ------
    LabelError
        The round before waits for labels and is not closed.
    SpecError
        Unknown method or parameter, or unfit budget. Nothing is closed then.
    """
    answers = read_answers(run)
    last = answers[-1]
    if last.missing and not close:
        raise LabelError(
            f"round {last.selection.round} of {run.uri} waits for {len(last.missing)} labels, the first for "
            f"{last.missing[0]!r}; import them, or give --close to go on without them"
        )
    before, parameters = last.selection, parameters or {}
    if method in (None, before.method):
        parameters = before.parameters | dict(parameters)
        replicates = before.design.num_replicates if replicates is None else replicates
    chosen_method, asked = method or before.method, replicates or None
    selection = _choose(run, chosen_method, budget, parameters, before.seed, answers, asked, progress)
    if last.missing:  # only now: a wrong parameter or budget must not cost labels
        run.close(before.round, last.missing)
    _write_round(run, selection)
    return selection


def close(run: Run) -> None:
    """Give up the labels that the newest round still waits for: they count as not drawn."""
    last = read_answers(run)[-1]
    if last.missing:
        run.close(last.selection.round, last.missing)


def _choose(
    run: Run,
    method: str,
    budget: int | None,
    parameters: Mapping[str, Any],
    seed: int | None,
    earlier: Sequence[Answers],
    replicates: int | None,
    progress: Progress,
) -> Selection:
    parsed = parse_parameters(method, parameters)
    previous = [(answers.known, answers.outcome) for answers in earlier if answers.labelled.any()]
    with feature_store.open_view(
        run, find_method(method).needs(parsed), parsed.optional_features, parsed.instead
    ) as view:
        chosen = select_from(
            view,
            method,
            budget,
            run.spec.seed if seed is None else seed,
            previous=previous,
            replicates=replicates,
            progress=progress,
            **parameters,
        )
    return replace(chosen, round=len(earlier) + 1)


def _header(spec: Spec, plan: Plan, compared: Plan | None) -> dict[str, Any]:
    """What a run says of itself. Its ``digest`` names all that decides the result."""
    identity = {"spec": spec.identity(), "pool": plan.digest, "features": FEATURES_FORMAT}
    if compared is not None:
        identity["reference"] = compared.digest
    num_files = sum(len(shard.keys) for shard in plan.shards)
    return {
        "spec": spec.model_dump(mode="json"),
        "digest": hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
        "pool": {"digest": plan.digest, "num_files": num_files, "num_shards": len(plan.shards)},
        "reference": None if compared is None else {"digest": reference.digest(spec, compared)},
        "model": {"sha256": spec.model.sha256},
        "versions": _versions(),
        "git_commit": _git_commit(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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
    chosen = feature_store.find_chosen(run, selection)
    columns, predicted = selection.design.columns(), selection.design.predicted
    rows = [
        manifest.ManifestRow(
            id=chosen.ids[i],
            uri=chosen.uris[i],
            run=run.name,
            round=selection.round,
            order=i + 1,
            design={name: values[i].item() for name, values in columns.items() if name not in predicted},
            predicted={name: values[i].item() for name, values in columns.items() if name in predicted},
            prediction=spec.model.name_of(chosen.predictions[i]),
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
