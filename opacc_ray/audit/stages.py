"""The features of a run: find the run of a spec, reuse the features that fit its code, and extract what is missing.

**Which run.** The digest of features includes the code that makes them. So changed code gives another run with its own
features, and the earlier run keeps its features, rounds and labels. Stored features have a record of what else was
loaded, which is compared, and some stored examples are extracted again. If either differs, the same spec gives the next
edition of its run.

**Extraction**, folder by folder, is the driver's part; actors do the work (:mod:`opacc_ray.cluster.actor_pool`). Ray
starts only if needed. If a folder has an index, its files are compared with it: every byte, up to ``READ_WHOLE`` in
total; above, the sizes and footers, which identify a file (`opacc verify` reads everything). Without an index, files
are compared with the plan and with the digests inside them.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import NamedTuple

from opacc_ray.audit.checks import check_pool
from opacc_ray.audit.comparison import check_models
from opacc_ray.errors import DataError, LostRayError, counted
from opacc_ray.extract import feature_set, reference
from opacc_ray.extract.extraction import Extraction, extract_shards
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.inference import check_decided, refusal
from opacc_ray.extract.model_code import Code, changes, code_of, confirm, copy_records, has_records, outdated, records
from opacc_ray.extract.shards import ShardReport, check_plan, find_repeated, finished_shards, hashes_of, read_report
from opacc_ray.extract.trial import difference, left_nothing
from opacc_ray.extract.user_code import call
from opacc_ray.lake.examples import BadItem, Plan, Shard
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import HEADER, Run, checked_weights, header_of, located
from opacc_ray.runs.run_documents import RunHeader
from opacc_ray.runs.series import features_before, known_features, names_of_runs, run_beside
from opacc_ray.samplers.base import Report
from opacc_ray.spec import PoolSpec, Spec

log = logging.getLogger(__name__)


class Resolved(NamedTuple):
    """A spec with its plan and its run."""

    spec: Spec  # with absolute paths and the digest of its weights
    plan: Plan  # of the pool
    compared: Plan | None  # of the reference, if a feature is compared with one
    header: RunHeader
    uri: str  # of the run


def resolve(spec: Spec) -> Resolved:
    """Return the run for a spec with its present pool, reference, weights and code; writes nothing.

    Raises StorageError, DataError or SpecError if pool, reference or weights are not usable.
    """
    spec = located(spec)
    plan = check_pool(spec)
    if spec.sample.models:
        check_models(spec, plan)
    spec = checked_weights(spec)
    return _resolved(spec, plan, reference.plan(spec), code_of(spec))


def settle(spec: Spec, *, trial: bool) -> Resolved:
    """Return the run for a spec, such that features that are stored fit its code; raises as :func:`resolve`.

    With ``trial``, some stored examples are extracted again and compared; otherwise stored features are trusted.
    """
    resolved = resolve(spec)
    if resolved.header.code is None:
        return resolved
    doubt, fitting = "", None
    while True:
        fault, newer = _fault(resolved, trial=trial), _next(resolved)
        fitting = resolved if fault is None else fitting
        if fitting and (trial or not _is_stored(newer)):
            break
        doubt, resolved = fault or doubt, newer
    if _is_stored(fitting):
        files = {name for each in records(_folder(fitting)) for name in each.files}
        weights = "code, weights" if spec.model.sha256 or spec.model.weights else "code"
        log.info("features reused: %s and %s unchanged", weights, counted(len(files), "file"))
    elif reason := doubt or _changed(fitting):
        log.warning("%s: extracting again", reason)
    return fitting


def _fault(resolved: Resolved, *, trial: bool) -> str | None:
    """Describe why stored features do not fit today's code; None if they do, or none are stored."""
    seconds = resolved.spec.extract.shard_timeout
    for source, plan, folder in _stored(resolved):
        what = outdated(folder, os.getcwd())
        if what is None and finished_shards(folder) and not has_records(folder):
            what = "the record of the code was lost"
        if what is not None:
            return f"{what} since the features in {folder.uri} were extracted"
        found = call(difference, resolved.spec, source, plan, folder, seconds=seconds) if trial else None
        if found is not None:
            return f"{found}; no source file has changed, so data or settings of the model have"
    return None


def _resolved(spec: Spec, plan: Plan, compared: Plan | None, code: Code | None) -> Resolved:
    link = feature_set.plan_set(spec, plan, compared, code)
    header = header_of(spec, plan, compared, link, code)
    uri = join(spec.output, f"{spec.name}-{(header.digest or '')[:8]}")
    stored = open_store(uri).read_if_there(HEADER)
    if stored is None:
        before = features_before(spec, plan, link, code)
    else:
        before = RunHeader.from_bytes(stored, join(uri, HEADER)).grown_from
    return Resolved(spec, plan, compared, header.model_copy(update={"grown_from": before}), uri)


def _next(resolved: Resolved) -> Resolved:
    """Return the run with the next edition of its features."""
    code = resolved.header.code
    assert code is not None
    newer = code.model_copy(update={"edition": code.edition + 1})
    return _resolved(resolved.spec, resolved.plan, resolved.compared, newer)


def _stored(resolved: Resolved) -> Iterator[tuple[PoolSpec, Plan, Store]]:
    """Yield pool and reference with their plans and folders of features, and what the pool takes from a run before it.

    The shards of that plan are those that take something.
    """
    spec, store, header = resolved.spec, open_store(resolved.uri), resolved.header
    known = store.read_if_there(HEADER)
    link = RunHeader.from_bytes(known, store.uri_of(HEADER)).features if known else header.features
    yield spec.pool, resolved.plan, feature_set.feature_set(store, link).folder
    before = run_beside(open_store(spec.output), header.grown_from)
    if before is not None:
        shards = [shard for shard in feature_set.locate(before.features, resolved.plan.shards) if shard.carried]
        yield spec.pool, resolved.plan._replace(shards=tuple(shards)), before.features
    if resolved.compared is not None and spec.reference is not None:
        digest = reference.digest(spec, resolved.compared, header.code)
        yield spec.reference, resolved.compared, reference.folder_of(spec, digest, store)


def _folder(resolved: Resolved) -> Store:
    """Return the folder of the pool's features."""
    _, _, folder = next(_stored(resolved))
    return folder


def _is_stored(resolved: Resolved) -> bool:
    """Whether any shard of the pool has features."""
    return bool(finished_shards(_folder(resolved)) & {shard.name for shard in resolved.plan.shards})


def _changed(resolved: Resolved) -> str | None:
    """Describe how the code changed after an earlier extraction of the same data; None if there was none."""
    now, home = resolved.header, open_store(resolved.spec.output)
    names = names_of_runs(home)
    if resolved.uri.rpartition("/")[2] in names:
        return None
    found = []
    for run in names:
        with suppress(DataError):
            key = f"{run}/{HEADER}"
            other = RunHeader.from_bytes(home.read(key), home.uri_of(key))
            what = changes(other.code, now.code) if other.code and now.code else None
            folder = feature_set.feature_set(home.store(run), other.features).folder
            same = _decided(other, resolved.plan) == _decided(now, resolved.plan)
            if what and same and finished_shards(folder):
                found.append((other.created, run, other, what))
    if not found:
        return None
    _, run, other, what = max(found, key=lambda item: item[0])
    place = f"{feature_set.HOME}/{other.features.digest}" if other.features else f"{run}/{feature_set.HOME}"
    kept = f" for {run}, which keeps them with its rounds and labels" if other.spec.name == now.spec.name else ""
    return f"{what} since the features in {place} were extracted{kept}"


def _decided(header: RunHeader, plan: Plan) -> tuple[str, dict[str, object]]:
    """Return everything that decides the features of a run, apart from its code."""
    return header.pool.digest, feature_set.decided_by(header.spec, header.spec.pool, plan, None)


# -- extraction ------------------------------------------------------------------------------------------------

READ_WHOLE = 4 << 30
"""Bytes of features that are read again to find damage when a complete run is repeated."""


class Found(NamedTuple):
    """Shards of a stage that are missing or done."""

    missing: list[Shard]  # without sound features
    reports: dict[int, ShardReport]  # of sound files without an index, by number


class Stage(NamedTuple):
    """One folder of features with its shards."""

    job: Extraction
    plan: Plan


def stages_of(run: Run, spec: Spec, plan: Plan, compared: Plan | None) -> list[Stage]:
    """Return the stages of a run: the reference if a feature is compared with it, the pool, and each kind of surprise.

    Surprise is computed from the hidden layers that the stages before have stored.
    """
    code, own, link = run.header.code, run.feature_set, run.header.features
    ranges = "ranges" in spec.compares_with()
    folder, stages = None, []
    if compared and spec.reference:
        folder = reference.folder_of(spec, reference.digest(spec, compared, code), run.store)
        job = Extraction(spec, spec.reference, reference.names(spec), folder, ranges=ranges, code=code)
        stages.append(Stage(job, compared))
    names = spec.extracted() if link is None else tuple(link.features)
    covered = folder if "coverage" in names and ranges else None
    stages.append(
        Stage(Extraction(spec, spec.pool, names, own.folder, covered, code=code, known=known_features(run)), plan)
    )
    if link is not None:
        feature_set.write_description(own.folder, feature_set.describe(spec, plan, compared, link.features, code))
    for name, place in own.added.items():
        stages.append(Stage(Extraction(spec, spec.pool, (name,), place, folder, hidden=own.folder, code=code), plan))
    return stages


RESTARTS = 3
"""Times that another local Ray is started after one was lost and had not finished a single shard."""


def extract(stages: Sequence[Stage], progress: Report) -> None:
    """Extract every missing or damaged shard, stage after stage, and write the index of each complete stage.

    ``progress(done, total)`` counts shards; for an added feature only those that are extracted separately. A local Ray
    that loses a process is replaced by another one.
    """
    made = list[int]()
    left = RESTARTS
    while True:
        before = len(made)
        try:
            return _extract(stages, progress, made)
        except LostRayError as error:
            left = RESTARTS if len(made) > before else left - 1
            if left < 0:
                raise
            log.warning("%s; another one is started", str(error).partition(". ")[0])


def _extract(stages: Sequence[Stage], progress: Report, made: list[int]) -> None:
    """Extract once what is missing; adds the number of each finished shard to ``made``."""
    todo = [unfinished(job, plan) for job, plan in stages]
    for place, (stage, found) in enumerate(zip(stages, todo, strict=True)):
        if stage.job.known is not None and found.missing:
            todo[place] = found._replace(missing=_located(stage.job.known, found.missing))
    total = sum(len(stage.plan.shards) for stage in stages)
    kept = total - sum(len(found.missing) for found in todo)
    progress(kept, total)
    finished = iter(range(kept + 1, total + 1))
    needs_actors = any(
        stage.job.needs_model(shard) for stage, found in zip(stages, todo, strict=True) for shard in found.missing
    )
    with _connected(stages) if needs_actors else nullcontext():
        for stage, (shards, known) in zip(stages, todo, strict=True):
            new = _work_on(stage.job, shards, lambda: progress(next(finished), total), made) if shards else {}
            _complete(stage, known | new)


def _located(known: Store, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards with the known features of their parts, and log how many those are."""
    found = feature_set.locate(known, shards)
    taken, total = sum(len(shard.carried) for shard in found), sum(len(shard.parts) for shard in found)
    log.info(
        "features of %d of %s are those of %s",
        taken,
        counted(total, "part of the pool", "parts of the pool"),
        known.uri,
    )
    return found


@contextmanager
def _connected(stages: Sequence[Stage]) -> Iterator[None]:
    """Connect to a cluster; refuses nodes that lack a local file, or have other software than this process."""
    from opacc_ray.cluster import session

    with session.connected() as is_ours:
        from opacc_ray.cluster.tasks import refuse_unfit  # imports Ray, which reads its token mode then

        if not is_ours:
            refuse_unfit(_paths(stages))
        yield


def _paths(stages: Sequence[Stage]) -> dict[str, str]:
    """Return the local paths that workers need, by their keys in the spec."""
    spec = stages[-1].job.spec
    output = stages[-1].job.target.uri.rpartition("/")[0]  # a folder that exists
    files = {"model.weights": spec.model.weights, "model.program": spec.model.program}
    named = {"pool.uri": spec.pool.uri, **files, "output": output}
    if spec.reference is not None and any(stage.job.source != stages[-1].job.source for stage in stages):
        named["reference.uri"] = spec.reference.uri
    return {key: uri for key, uri in named.items() if uri is not None and "://" not in uri}


def _work_on(
    job: Extraction, shards: Sequence[Shard], tick: Callable[[], None], made: list[int]
) -> dict[int, ShardReport]:
    """Extract some shards and return their reports by number; calls ``tick`` after each."""
    reports: dict[int, ShardReport] = {}

    def on_done(shard: Shard, report: ShardReport) -> None:
        if not reports:  # before more are computed with other code than this machine's
            confirm(job.target, job.modules)
        reports[shard.number] = report
        made.append(shard.number)
        tick()

    if job.known is not None:
        copy_records(job.known, job.target)
    extract_shards(job, [shard for shard in shards if not job.needs_model(shard)], on_done)
    if rest := [shard for shard in shards if job.needs_model(shard)]:
        from opacc_ray.cluster import actor_pool

        actor_pool.extract_shards(job, rest, on_done)
    return reports


def _complete(stage: Stage, reports: Mapping[int, ShardReport]) -> None:
    """Write the index of a complete folder, and report examples that are left out."""
    job = stage.job
    index = feature_set.read_index(job.target)
    if index is None:
        if what := outdated(job.target, job.modules):
            log.warning("%s since extraction began: the features are those of before, and a rerun extracts again", what)
        others = reference.merge_ranges(job.target) if job.ranges else {}
        index = index_features(job, stage.plan, reports, others)
    if index.bad:
        first = BadItem(index.bad[0].id, index.bad[0].reason)
        if job.spec.extract.on_bad_item == "error":  # the run that extracted them left them out
            raise refusal(job.spec, job.source, first)
        if job.hidden is None:
            log.warning(
                "%d examples of %s are left out, such as %s: %s", len(index.bad), job.source.uri, first.id, first.reason
            )


def index_features(
    job: Extraction,
    plan: Plan,
    reports: Mapping[int, ShardReport] | None = None,
    others: Mapping[str, bytes] | None = None,
) -> feature_set.Index:
    """Write the index that completes extraction, from the reports of the shards by number.

    For a shard without a report, its file is read and compared with the plan. No feature is read. Ids from the pool
    must be unique over all shards. ``others`` are further files of the folder. Raises DataError if a shard has other
    examples than the plan, an id is not unique, no example is left, or the model predicts a class without a name in the
    spec.
    """
    known = dict(reports or {})
    sizes = {entry.key: entry.size for entry in job.target.list()} if len(known) < len(plan.shards) else {}
    before = [shard for shard in plan.shards if shard.number not in known]
    found = in_order(lambda shard: read_report(job.target, shard.file, sizes[shard.file]), before, threads=16)
    for shard, report in zip(before, found, strict=True):
        check_plan(job.target, job.source.format, shard, report)
        known[shard.number] = report
    ordered = [known[shard.number] for shard in plan.shards]
    index = feature_set.make_index([shard.file for shard in plan.shards], ordered, others)
    if not index.num_examples and not index.bad:
        raise left_nothing(job.source)
    if not index.num_examples:
        raise DataError(
            f"none of the {len(index.bad)} examples of {job.source.uri} could be read, so the pool is empty"
        )
    _refuse_repeated(job, index, ordered)
    feature_store.refuse_nameless(job.spec, index, job.source.uri)
    if len(index.machines) > 1:
        made = Counter(shard.machine for shard in index.shards)
        log.warning(
            "%s: %d kinds of machine, or of opacc, made the shards, and their features may differ: %s",
            job.target.uri,
            len(index.machines),
            "; ".join(f"{made[i]} by {machine}" for i, machine in enumerate(index.machines)),
        )
    feature_set.write_index(job.target, index)
    return index


def _refuse_repeated(job: Extraction, index: feature_set.Index, reports: Sequence[ShardReport]) -> None:
    """Raise DataError if an id from the pool is not unique."""
    if not any(report.own_ids for report in reports):
        return
    features = Features.of(job.target, index.files)
    held = [report.hashes for report in reports if report.num_examples]
    hashes = in_order(
        lambda part: hashes_of(features.ids(part)) if held[part] is None else held[part], range(len(held)), threads=2
    )
    repeated = find_repeated([own for own in hashes if own is not None], features.ids)
    if repeated is not None:
        raise DataError(f"the id {repeated!r} appears twice in {job.source.uri}; ids must be unique")


# -- what is there already -----------------------------------------------------------------------------------


def unfinished(job: Extraction, plan: Plan) -> Found:
    """Find the shards of the plan without sound features.

    Deletes damaged files, and the index if it does not cover the others.
    """
    index = _sound_index(job, plan)
    sizes = {entry.key: entry.size for entry in job.target.list()}
    there = [shard for shard in plan.shards if shard.file in sizes]
    whole = sum(sizes[shard.file] for shard in there) <= READ_WHOLE
    base = None
    with suppress(DataError):  # it will be replaced
        base = feature_set.read_index(job.hidden) if job.hidden else None
    shards, base_ids = _by_file(index), {shard.file: shard.ids for shard in _by_file(base).values()}

    def check(shard: Shard) -> ShardReport | str | None:
        """Check the file of a shard; returns its report if no index has it, or the damage as text."""
        size, own, report = sizes[shard.file], shards.get(shard.file), None
        try:
            if index and own:
                table = feature_set.check_shard(job.target, index, own, size, whole=whole)
                check_decided(table, job.spec, job.source, job.target.uri_of(shard.file))
                ids = own.ids
            else:
                report = read_report(job.target, shard.file, size, whole=whole)
                check_plan(job.target, job.source.format, shard, report)
                ids = report.ids
                if job.ranges and report.num_examples:
                    reference.check_ranges(job.target, shard)
        except DataError as error:
            return str(error)
        if base_ids.get(shard.file, ids) != ids:
            return f"{job.target.uri_of(shard.file)} has other rows than its feature set"
        return report

    found = dict(zip(there, in_order(check, there, threads=4), strict=True))
    missing = [shard for shard in plan.shards if isinstance(found.get(shard, "it is missing"), str)]
    for shard, fault in found.items():
        if isinstance(fault, str):
            log.warning("%s; extracting it again", fault.partition("; ")[0])
            job.target.delete(shard.file)
    kept, total = len(plan.shards) - len(missing), len(plan.shards)
    if kept:
        done = f"{counted(total, 'shard')} {'was' if total == 1 else 'were'}"
        log.info("%d of %s done before: %s", kept, done, job.target.uri)
    if index and missing:
        log.warning("%s lacks %d of its shards; extracting them again", job.target.uri, len(missing))
        job.target.delete(feature_set.INDEX)
    reports = {shard.number: answer for shard, answer in found.items() if isinstance(answer, ShardReport)}
    return Found(missing, reports)


def _by_file(index: feature_set.Index | None) -> dict[str, feature_set.IndexedShard]:
    return {shard.file: shard for shard in index.shards} if index else {}


def _sound_index(job: Extraction, plan: Plan) -> feature_set.Index | None:
    """Read the index of a folder; deletes it and returns None if it is damaged or belongs to another plan."""
    try:
        index = feature_set.read_index(job.target)
        if index and [shard.file for shard in index.shards] != [shard.file for shard in plan.shards]:
            raise DataError(f"{job.target.uri_of(feature_set.INDEX)} lists other shards than the plan")
        if index and job.ranges:
            reference.read_ranges(job.target)
    except DataError as error:
        log.warning("%s; writing it again", error)
        job.target.delete(feature_set.INDEX)
        return None
    return index
