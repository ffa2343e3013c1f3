"""A pool that grew since an earlier run of its audit: which features of that run still hold, and what has changed."""

from collections.abc import Sequence
from typing import Any

from opacc_ray.errors import DataError
from opacc_ray.extract.content_digest import Code, decided_by
from opacc_ray.extract.extraction import Known
from opacc_ray.extract.feature_set import FeatureLink, Index, read_index
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store import Entry
from opacc_ray.lake.store_uris import Store
from opacc_ray.runs.feature_store import read_listing
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import PoolChanges, changes_since, grown_from, output_of, run_beside, runs_of
from opacc_ray.spec import Spec


def features_before(spec: Spec, plan: Plan, link: FeatureLink | None, code: Code | None) -> str | None:
    """Return the name of the newest earlier run with features of the same model and code; None without one.

    Models without weights in the spec may differ from run to run, so nothing is taken for them.
    """
    if link is None and (not spec.pool.holds_features or spec.compares_with()):
        return None
    wanted = set(link.features) if link else set(spec.features())
    for run in grown_from(runs_of(spec.output, spec.name)[0][::-1], spec, plan.digest):
        same = run.header.code == code and _deciding(run.spec, plan) == _deciding(spec, plan)
        index = _sound_index(run.features) if same else None
        if index is not None and wanted <= index.features.keys():
            return run.name
    return None


def _deciding(spec: Spec, plan: Plan) -> dict[str, Any]:
    """Return all that decides features of a listing, apart from the code."""
    return decided_by(spec, spec.pool, plan, None)


def _sound_index(folder: Store) -> Index | None:
    try:
        return read_index(folder)
    except DataError:
        return None


def known_features(run: Run) -> Known | None:
    """Return the features of the run that a run has grown from; None if there are none, or they were removed."""
    before = run_beside(output_of(run), run.header.grown_from)
    index = _sound_index(before.features) if before else None
    if before is None or index is None:
        return None
    added = []
    for name, folder in before.feature_set.added.items():
        own, there = run.feature_set.added.get(name), _sound_index(folder)
        same = own is not None and own.uri.rpartition("/")[2] == folder.uri.rpartition("/")[2]
        if same and there is not None and there.num_examples == index.num_examples:
            added.append((name, folder))
    return Known(before.features, tuple(added))


def pool_changes(run: Run, entries: Sequence[Entry] | None = None) -> PoolChanges | None:
    """Return how the pool of a run differs from that of the run that it has grown from; None if it has not.

    ``entries`` are the pool's objects; None: those of the run's listing.
    """
    before = run_beside(output_of(run), run.header.grown_from)
    if before is None:
        return None
    try:
        return changes_since(before, [*read_listing(run).values()] if entries is None else entries)
    except DataError:
        return None
