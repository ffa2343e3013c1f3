"""Access to the features of a run and to the objects of its pool.

A sampler gets a view of features; a chosen example gets its place, its prediction, and the object that holds it. The
model processed the objects as they were listed; annotators see those of today. If the tag of an object (its ETag, or
its time and size) has changed, the label belongs to another picture than the prediction.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, SpecError, shortened
from opacc_ray.extract.feature_files import Features, StoredParts, TooLarge
from opacc_ray.extract.feature_set import Complete, Index
from opacc_ray.extract.inference import refusal
from opacc_ray.extract.table_columns import with_slices
from opacc_ray.lake.examples import BadItem, Plan
from opacc_ray.lake.parquet_io import encode, numbers, read_bytes, texts, to_numpy
from opacc_ray.lake.pools import beyond_content, digest_of, newest_version
from opacc_ray.lake.store import Entry, in_order
from opacc_ray.parts.view import Call, Parts, View
from opacc_ray.pool import COLUMNS
from opacc_ray.runs.estimate_documents import ChangedObjects
from opacc_ray.runs.run import Chosen, Run
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec, open_pool, plan_pool, rules_of

log = logging.getLogger(__name__)

MEMORY_LIMIT = 2 << 30
"""Bytes of layers and coverage above which actors hold them instead of this process."""

SAMPLE = 1 << 24
"""Maximum of examples that are read to summarize a column."""

LISTING = "listing.parquet"
BEYOND = b"beyond_content"  # key of its metadata: what the table says of the files, as JSON

LISTED_AT_ONCE = 40
"""Objects listed in the time of one request: a page of 1,000 takes as long as 25 parallel requests."""

NAMED = 5
"""Number of objects that are named; the others are counted."""


# -- views -----------------------------------------------------------------------------------------------------


def unchanged_plan(run: Run) -> Plan:
    """List the pool of a run as extraction read it; raises DataError if it has changed since."""
    pool = run.spec.pool
    plan = plan_pool(pool, run.spec.extract)
    if plan.digest != run.header.pool.digest:
        raise DataError(
            f"the pool {pool.uri} has changed since it was listed for the run; run the spec again, or restore its files"
        )
    return plan


@contextmanager
def open_view(
    run: Run, names: Sequence[str], optional: Sequence[str] = (), instead: Mapping[str, str] | None = None
) -> Iterator[View]:
    """Open a view of the named features for a sampler, in this process if they fit, otherwise in actors.

    Each feature is read at its first use, and ids only for chosen rows. Parts have the slices of the spec.

    Parameters
    ----------
    names : features that must exist
    optional : features that are included if the run has them
    instead : how to avoid a feature, by its name, for the error if it is missing
    """
    complete = _features_of(run)
    columns = with_slices(run.spec.pool, complete) if run.spec.pool.slice_rules else complete.features
    features, index = columns.holding(), complete.index
    _refuse_missing(run, index, names, instead or {})
    held = [name for name in optional if name in index.features]
    wanted = tuple(dict.fromkeys([*names, *held, "prediction"]))
    layers = [name for name in wanted if name not in COLUMNS]
    width = sum(index.features[name] * (1 if name == "coverage" else 4) for name in layers)  # bytes per example
    if index.num_examples * width <= MEMORY_LIMIT:
        yield View(StoredParts(features, wanted), features.derived)
        return
    with ExitStack() as actors:
        yield View(_LateActors(features, wanted, layers, actors), features.derived)


class _LateActors(StoredParts):
    """Parts that move to actors once a function needs features that are too large for this process.

    Results that were kept here are lost then: see :mod:`opacc_ray.parts.view`.
    """

    def __init__(self, features: Features, names: Sequence[str], layers: Sequence[str], actors: ExitStack) -> None:
        super().__init__(features, names, layers)
        self._actors = actors
        self._held: Parts | None = None

    def call(self, calls: Sequence[Call]) -> list[Any]:
        if self._held is None:
            with suppress(TooLarge):
                return super().call(calls)
        return self._hold().call(calls)

    def total(self, calls: Sequence[Call]) -> Any:
        if self._held is None:
            with suppress(TooLarge):
                return super().total(calls)
        return self._hold().total(calls)

    def _hold(self) -> Parts:
        if self._held is None:
            from opacc_ray.cluster.session import connected

            self._actors.enter_context(connected())
            from opacc_ray.cluster.tasks import hold  # imports Ray, which reads its token mode then

            self._held = self._actors.enter_context(hold(self._features, self._names))
        return self._held


# -- rows and columns ------------------------------------------------------------------------------------------


def find_chosen(run: Run, selection: Selection, labelled: Collection[str]) -> Chosen:
    """Return what is stored of the chosen examples, from the shards that contain them, given the labelled ids."""
    table = _features_of(run).features.take(["uri", "prediction"], selection.index)
    uris, predictions = table["uri"].to_pylist(), table["prediction"].to_pylist()
    listing, root = read_listing(run), f"{open_pool(run.spec.pool).uri}/"
    places = [uri.removeprefix(root) for uri in uris]  # KEY, or KEY#row=7 for a row of an array file
    entries = [listing.get(place) or listing.get(place.rpartition("#")[0]) for place in places]
    keys, tags = [entry and entry.key for entry in entries], [entry and entry.tag for entry in entries]
    return Chosen(list(selection.ids), uris, predictions, keys, tags, [name in labelled for name in selection.ids])


def find_rows(run: Run, index: NDArray[np.int64]) -> tuple[list[str], list[Any]]:
    """Return ids and predictions of the examples at ``index`` (n,)."""
    table = _features_of(run).features.take(["id", "prediction"], index)
    return table["id"].to_pylist(), table["prediction"].to_pylist()


def check_drawn_from(run: Run, numbers: Sequence[int]) -> None:
    """Raise DataError if the rounds of a run were drawn from the features of another model.

    Features that were extracted again may differ in their last bits; then only the chosen examples are compared.
    """
    if run.draw_of(numbers[-1]).features == _features_of(run).digest:
        return
    for number in numbers:
        check_chosen(run, run.read_selection(number))
    log.warning("the features of %s were extracted again after round %d was drawn from them", run.uri, numbers[-1])


def check_chosen(run: Run, selection: Selection) -> None:
    """Compare ids and predictions of a round with the features; raises DataError if they differ."""
    chosen = run.read_chosen(selection.round)
    rows = zip(selection.ids, chosen.ids, chosen.predictions, *find_rows(run, selection.index), strict=True)
    for name, here, said, found, own in rows:
        if (name, name, said) != (here, found, own):
            raise DataError(
                f"round {selection.round} of {run.uri} has {name!r} with the prediction {said!r} where its features "
                f"have {found!r} with {own!r}; restore the round, or the features"
            )


def read_rows(run: Run, names: Sequence[str], index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the named features that the run has, (k, ...) each, of the examples at ``index`` (k,)."""
    complete = _features_of(run)
    table = complete.features.take([name for name in names if name in complete.index.features], index)
    return {name: to_numpy(table[name]) for name in table.column_names}


def find_known(run: Run, ids: Sequence[str], name: str) -> dict[str, Any]:
    """Return one number by id, of those examples that are in the pool of a run."""
    features = _features_of(run).features
    places = features.places(ids)
    values = features.take([name], np.array(list(places.values()), dtype=np.int64))[name].to_pylist()
    return dict(zip(places, values, strict=True))


def find_predictions(run: Run, ids: Sequence[str]) -> list[Any]:
    """Return a run's predictions for some examples, found by id.

    Raises DataError if an example is not in the pool; the message names the first.
    """
    predictions = find_known(run, ids, "prediction")
    absent = [name for name in dict.fromkeys(ids) if name not in predictions]
    if absent:
        raise DataError(
            f"{run.uri} lacks {len(absent)} of {len(set(ids))} labelled examples, the first {absent[0]!r}; "
            "give a run on the same pool, with the same ids"
        )
    return [predictions[name] for name in ids]


def read_column(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (N,), in the order of the pool; reads no other feature."""
    complete = _features_of(run)
    _refuse_missing(run, complete.index, [name], {})
    return complete.features.column(name)


def read_sample(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (k,): of the whole pool, or of evenly spread files of a very large pool."""
    features = _features_of(run).features
    step = -(-sum(features.sizes) // SAMPLE)
    return features.column(name) if step <= 1 else features.part(features.files[::step]).column(name)


def read_tables(run: Run) -> Iterator[Any]:
    """Yield ids, places and all features of the pool, file by file, as Arrow tables."""
    complete = _features_of(run)
    return complete.features.tables(["id", "uri", *complete.index.features])


def predicted_classes(run: Run) -> dict[int, int] | None:
    """Return the number of predictions of each class in the pool; None if the index lacks it."""
    return _features_of(run).index.predicted


def check_fit(spec: Spec, index: Index) -> None:
    """Raise DataError if complete features do not fit a spec.

    The spec names fewer classes than the model predicts, or does not allow examples that were left out.
    """
    refuse_nameless(spec, index, spec.pool.uri)
    if index.bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, spec.pool, BadItem(index.bad[0].id, index.bad[0].reason))


def refuse_nameless(spec: Spec, index: Index, uri: str) -> None:
    """Raise DataError if the model predicts a class of the data at ``uri`` that the spec does not name."""
    classes = spec.model.classes
    if classes is not None and index.predicted and max(index.predicted) >= len(classes):
        raise DataError(
            f"the model predicts class {max(index.predicted)} in {uri}, and model.classes names "
            f"{len(classes)} classes, 0 to {len(classes) - 1}; name all classes, in the order of the model"
        )


def _refuse_missing(run: Run, index: Index, names: Sequence[str], instead: Mapping[str, str]) -> None:
    missing = next((name for name in names if name not in index.features), None)
    if missing is not None:
        ways = [run.spec.remedy(missing), *([instead[missing]] if missing in instead else [])]
        raise SpecError(f"{run.uri} has {', '.join(index.features)}, not {missing}; {', or '.join(ways)}")


def _features_of(run: Run) -> Complete:
    complete = run.complete_features()
    check_fit(run.spec, complete.index)
    return complete


# -- objects of the pool ---------------------------------------------------------------------------------------


def write_listing(run: Run, plan: Plan) -> None:
    """Write the listing of the run's digest, unless it is stored and undamaged."""
    import pyarrow as pa

    entries = plan.entries
    if not entries or plan.digest != run.header.pool.digest:
        return
    try:
        if run.store.exists(LISTING):
            read_listing(run)
            return
    except DataError as error:
        log.warning("%s; it is written again", str(error).partition("; ")[0])
    keys, sizes, tags = zip(*entries, strict=True)
    columns = {"key": texts(keys), "size": numbers(np.array(sizes)), "tag": texts(tags)}
    beyond = beyond_content(plan)
    table = pa.table(columns, metadata={BEYOND: json.dumps(beyond)} if beyond else None)
    run.store.write(LISTING, encode(table, compression="zstd", write_page_checksum=True))


def read_listing(run: Run) -> dict[str, Entry]:
    """Read the listing by key, empty if none is stored; raises DataError unless it fits the run's digest."""
    import pyarrow as pa

    if not run.store.exists(LISTING):
        return {}
    source = run.store.uri_of(LISTING)
    try:
        table = read_bytes(run.store.read(LISTING))
        entries = [Entry(*row) for row in zip(*(table[name].to_pylist() for name in Entry._fields), strict=True)]
        beyond = json.loads((table.schema.metadata or {}).get(BEYOND, b"[]"))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        reason = shortened(str(error))
        raise DataError(f"{source} is no listing ({reason}); run the spec again, which writes it anew") from None
    if digest_of(entries, beyond) != run.header.pool.digest:
        raise DataError(
            f"{source} is not the listing that the run was made of; run the spec again, which writes it anew"
        )
    return {entry.key: entry for entry in entries}


def compare_objects(run: Run, rounds: Sequence[Chosen]) -> tuple[ChangedObjects, dict[str, str]]:
    """Find objects of chosen examples that changed or vanished after the pool was listed.

    Uses one listing of the pool, or one request per object, whichever is faster. An unreachable pool raises no error:
    the result then has the reason why nothing was compared.

    Returns the objects in numbers, and by the key of each such object ``"changed"`` or ``"lost"``.
    """
    tags = {key: tag for chosen in rounds for key, tag in zip(chosen.objects, chosen.tags, strict=True) if key and tag}
    unknown = len({name for chosen in rounds for name, tag in zip(chosen.ids, chosen.tags, strict=True) if not tag})
    try:
        now = _tags(run, tags.keys()) if tags else {}
        version = _newer_version(run)
    except OpaccError as error:
        return ChangedObjects(changed=0, lost=0, unknown=len(tags) + unknown, first=[], reason=str(error)), {}
    states = {key: "changed" if key in now else "lost" for key, tag in tags.items() if now.get(key) != tag}
    lost = sum(state == "lost" for state in states.values())
    first = sorted(states)[:NAMED]
    objects = ChangedObjects(changed=len(states) - lost, lost=lost, unknown=unknown, first=first, version=version)
    return objects, states


def find_changed(run: Run, numbers: Sequence[int] | None = None) -> ChangedObjects:
    """Count changed and lost objects of the chosen examples of a run, in the given rounds or in all of them."""
    return compare_objects(run, list(map(run.read_chosen, run.rounds() if numbers is None else numbers)))[0]


def _newer_version(run: Run) -> str | None:
    """Return the current version of the pool's table if it differs from the run's and the spec pins none."""
    pool = run.spec.pool
    if run.header.pool.version is None or isinstance(pool.version, int) or pool.timestamp:
        return None
    newest = newest_version(open_pool(pool), pool.format, rules_of(pool))
    return None if newest == run.header.pool.version else newest


def _tags(run: Run, keys: Collection[str]) -> dict[str, str]:
    """Return the tag of each object that exists."""
    store = open_pool(run.spec.pool)
    num_files = run.header.pool.num_files
    if num_files is not None and num_files <= LISTED_AT_ONCE * len(keys):
        return {entry.key: entry.tag for entry in store.list() if entry.key in keys}
    return {entry.key: entry.tag for entry in in_order(store.entry, list(keys)) if entry}
