"""Extraction, folder by folder: the driver's part. Actors do the work (:mod:`opacc_ray.cluster.actor_pool`).

Ray starts only if needed. If a folder has an index, its files are compared with it: every byte, up to ``READ_WHOLE`` in
total; above, the sizes and footers, which identify a file (`opacc verify` reads everything). Without an index, files
are compared with the plan and with the digests inside them.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from typing import NamedTuple

from opacc_ray.audit.progress import Progress
from opacc_ray.audit.status import ExtractionWork
from opacc_ray.cluster import local, session
from opacc_ray.errors import DataError, LostRayError, counted
from opacc_ray.extract import feature_set, reference
from opacc_ray.extract.extraction import Executor, Extraction
from opacc_ray.extract.extractor import extract_here, extract_shards
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.inference import check_decided, refusal
from opacc_ray.extract.model_code import confirm, copy_records, outdated
from opacc_ray.extract.shards import ShardReport, Spent, check_plan, find_repeated, hashes_of, read_report
from opacc_ray.extract.trial import left_nothing
from opacc_ray.extract.user_code import EndedError
from opacc_ray.lake.examples import BadItem, Plan, Shard
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.registry import has_package
from opacc_ray.runs.run import Run, refuse_nameless
from opacc_ray.runs.series import known_features
from opacc_ray.samplers.base import Report
from opacc_ray.spec import ExtractSpec, Spec

log = logging.getLogger(__name__)

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


def stages_of(run: Run, spec: Spec, plan: Plan, compared: Plan | None, pace: float | None = None) -> list[Stage]:
    """Return the stages of a run: the reference if a feature is compared with it, the pool, and each kind of surprise.

    Surprise is computed from the hidden layers that the stages before have stored.
    """
    code, own, link = run.header.code, run.feature_set, run.header.features
    ranges = "ranges" in spec.compares_with()
    folder, stages = None, []
    if compared and spec.reference:
        folder = reference.folder_of(spec, reference.digest(spec, compared, code), run.store)
        job = Extraction(spec, spec.reference, reference.names(spec), folder, ranges=ranges, code=code, pace=pace)
        stages.append(Stage(job, compared))
    names = spec.extracted() if link is None else tuple(link.features)
    covered = folder if "coverage" in names and ranges else None
    job = Extraction(spec, spec.pool, names, own.folder, covered, code=code, known=known_features(run), pace=pace)
    stages.append(Stage(job, plan))
    if link is not None:
        feature_set.write_description(own.folder, feature_set.describe(spec, plan, compared, link.features, code))
    for name, place in own.added.items():
        stages.append(Stage(Extraction(spec, spec.pool, (name,), place, folder, hidden=own.folder, code=code), plan))
    return stages


RESTARTS = 3
"""Times that another local Ray is started after one was lost and had not finished a single shard."""


def extract(stages: Sequence[Stage], progress: Report) -> ExtractionWork | None:
    """Extract every missing or damaged shard, stage after stage, and write the index of each complete stage.

    ``progress(done, total)`` counts shards; for an added feature only those that are extracted separately. A local Ray
    that loses a process is replaced by another one. If the process that works without Ray ends, actors go on, which try
    a shard several times and look for the example that fails. Returns what was done, if a model ran.
    """
    made = list[int]()
    left = RESTARTS
    has_ended = False
    while True:
        before = len(made)
        try:
            return _extract(stages, progress, made, has_ended=has_ended)
        except EndedError as error:
            if stages[-1].job.spec.extract.executor != "auto" or has_ended or not has_package("ray"):
                raise
            has_ended = True
            log.warning("%s; actors try again", error)
        except LostRayError as error:
            left = RESTARTS if len(made) > before else left - 1
            if left < 0:
                raise
            log.warning("%s; another one is started", str(error).partition(". ")[0])


def _extract(stages: Sequence[Stage], progress: Report, made: list[int], *, has_ended: bool) -> ExtractionWork | None:
    """Extract once what is missing; adds the number of each finished shard to ``made``."""
    todo = [unfinished(stage.job, stage.plan) for stage in stages]
    for place, (stage, found) in enumerate(zip(stages, todo, strict=True)):
        if stage.job.known is not None and found.missing:
            todo[place] = found._replace(missing=_located(stage.job.known, found.missing))
    total = sum(len(stage.plan.shards) for stage in stages)
    kept = total - sum(len(found.missing) for found in todo)
    progress(kept, total)
    finished = iter(range(kept + 1, total + 1))
    left = [
        (stage, len(shards))
        for stage, (missing, _) in zip(stages, todo, strict=True)
        if (shards := [shard for shard in missing if stage.job.needs_model(shard)])
    ]
    done = list[Spent]()
    with _executor(stages, left, has_ended=has_ended) as extract_shards:
        for stage, (shards, known) in zip(stages, todo, strict=True):
            tick = partial(_tick, progress, finished, total)
            spent = dict[str, Spent]()
            new = _work_on(stage.job, shards, extract_shards, tick, made, spent) if shards else {}
            done += spent.values()
            Progress.load = ""
            _complete(stage, known | new)
    return ExtractionWork.of("local" if extract_shards is extract_here else "ray", done)


def _tick(progress: Report, finished: Iterator[int], total: int) -> None:
    progress(next(finished), total)


@contextmanager
def _executor(stages: Sequence[Stage], left: Sequence[tuple[Stage, int]], *, has_ended: bool) -> Iterator[Executor]:
    """Yield what extracts shards; ``left`` are those that need a model, by stage."""
    extract, pace = stages[-1].job.spec.extract, max((stage.job.pace or 0.0 for stage in stages), default=0.0)
    size = sum(most_examples(stage.plan, extract) * num // len(stage.plan.shards) for stage, num in left)
    if not left or not (has_ended or session.needs_ray(extract, size, pace or None)):
        local.cancel()
        yield extract_here
        return
    with _connected(stages):
        from opacc_ray.cluster import actor_pool

        yield actor_pool.extract_shards


def most_examples(plan: Plan, extract: ExtractSpec) -> int:
    """Return the examples of a plan, at most."""
    return len(plan.shards) * extract.shard_size if plan.num_examples is None else plan.num_examples


def _located(known: Store, shards: Sequence[Shard]) -> list[Shard]:
    """Return the shards with the known features of their parts, and log how many those are."""
    result = feature_set.locate(known, shards)
    taken, total = sum(len(shard.carried) for shard in result), sum(len(shard.parts) for shard in result)
    log.info(
        "features of %d of %s are those of %s",
        taken,
        counted(total, "part of the pool", "parts of the pool"),
        known.uri,
    )
    return result


@contextmanager
def _connected(stages: Sequence[Stage]) -> Iterator[None]:
    """Connect to a cluster; refuses nodes that lack a local file, or have other software than this process."""
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
    job: Extraction,
    shards: Sequence[Shard],
    executor: Executor,
    tick: Callable[[], None],
    made: list[int],
    spent: dict[str, Spent],
) -> dict[int, ShardReport]:
    """Extract some shards and return their reports by number; calls ``tick`` after each.

    What each process has ``spent`` is kept there, by its name: a summary of all reports would take ever longer.
    """
    reports: dict[int, ShardReport] = {}
    files = groupby(entry for shard in shards for entry in shard.entries)  # a file of several shards once
    num_bytes = sum(entry.size for entry, _ in files) / len(shards)

    def on_done(shard: Shard, report: ShardReport) -> None:
        if not reports:  # before more are computed with other code than this machine's
            confirm(job.target, job.modules)
        reports[shard.number] = report
        made.append(shard.number)
        if (own := report.spent) is not None:
            last = spent.get(own.worker, own)
            newest = max(last, own, key=lambda each: each.elapsed)
            spent[own.worker] = newest._replace(shards=last.shards + 1, num_bytes=last.num_bytes + num_bytes)
        if (work := ExtractionWork.of("ray", spent.values())) is not None:
            Progress.load = work.load
        tick()

    if job.known is not None:
        copy_records(job.known, job.target)
    extract_shards(job, [shard for shard in shards if not job.needs_model(shard)], on_done)
    if rest := [shard for shard in shards if job.needs_model(shard)]:
        executor(job, rest, on_done)
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
    refuse_nameless(job.spec, index, job.source.uri)
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
