"""Find the run of a spec in storage, and check that stored features still fit the spec's code.

The digest of features includes the code that makes them. So changed code gives another run with its own features, and
the earlier run keeps its features, rounds and labels. Stored features have a record of what else was loaded, which is
compared, and some stored examples are extracted again. If either differs, the same spec gives the next edition of its
run.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from opacc_ray.audit.checks import check_pool
from opacc_ray.audit.several_models import check_models
from opacc_ray.errors import DataError, counted
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import HOME, decided_by, feature_set, locate, plan_set
from opacc_ray.extract.model_code import Code, changes, code_of, has_records, outdated, records
from opacc_ray.extract.shards import finished_shards
from opacc_ray.extract.trial import difference
from opacc_ray.extract.user_code import call
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.runs.identity import checked_weights, header_of, located
from opacc_ray.runs.run import HEADER
from opacc_ray.runs.run_documents import RunHeader
from opacc_ray.runs.series import features_before, names_of_runs, run_beside
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
    link = plan_set(spec, plan, compared, code)
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
    yield spec.pool, resolved.plan, feature_set(store, link).folder
    before = run_beside(open_store(spec.output), header.grown_from)
    if before is not None:
        shards = [shard for shard in locate(before.features, resolved.plan.shards) if shard.carried]
        yield spec.pool, resolved.plan._replace(shards=tuple(shards)), before.features
    if resolved.compared is not None and spec.reference is not None:
        yield spec.reference, resolved.compared, reference.folder(spec, resolved.compared, store, header.code)


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
            folder = feature_set(home.store(run), other.features).folder
            same = _decided(other, resolved.plan) == _decided(now, resolved.plan)
            if what and same and finished_shards(folder):
                found.append((other.created, run, other, what))
    if not found:
        return None
    _, run, other, what = max(found, key=lambda item: item[0])
    place = f"{HOME}/{other.features.digest}" if other.features else f"{run}/{HOME}"
    kept = f" for {run}, which keeps them with its rounds and labels" if other.spec.name == now.spec.name else ""
    return f"{what} since the features in {place} were extracted{kept}"


def _decided(header: RunHeader, plan: Plan) -> tuple[str, dict[str, object]]:
    """Return everything that decides the features of a run, apart from its code."""
    return header.pool.digest, decided_by(header.spec, header.spec.pool, plan, None)
