"""Access to the features of a run: index, views for samplers, and rows of chosen examples."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.extractor import Extraction, refusal
from opacc_ray.extract.feature_set import Complete, Index, make_index, write_index
from opacc_ray.extract.features import Features, StoredParts, TooLarge
from opacc_ray.extract.shards import ShardReport, check_plan, find_repeated, hashes_of, read_report
from opacc_ray.extract.trial import left_nothing
from opacc_ray.lake.examples import BadItem, Plan
from opacc_ray.lake.read_ahead import in_order
from opacc_ray.parts.view import Call, Parts, View
from opacc_ray.pool import COLUMNS
from opacc_ray.runs.draws import Chosen
from opacc_ray.runs.pool_objects import find_objects
from opacc_ray.runs.run import Run
from opacc_ray.selection import Selection
from opacc_ray.spec import Spec

log = logging.getLogger(__name__)

MEMORY_LIMIT = 2 << 30
"""Bytes of layers and coverage above which actors hold them instead of this process."""

SAMPLE = 1 << 24
"""Maximum of examples that are read to summarize a column."""


def index_features(
    job: Extraction,
    plan: Plan,
    reports: Mapping[int, ShardReport] | None = None,
    others: Mapping[str, bytes] | None = None,
) -> Index:
    """Write the index that completes extraction, from the reports of the shards by number.

    For a shard without a report, its file is read and compared with the plan. No feature is read. Ids from the pool
    must be unique over all shards. ``others`` are further files of the folder.

    Raises
    ------
    DataError
        A shard has other examples than the plan, an id is not unique, no example is left, or the model predicts a
        class without a name in the spec.
    """
    known = dict(reports or {})
    sizes = {entry.key: entry.size for entry in job.target.list()} if len(known) < len(plan.shards) else {}
    before = [shard for shard in plan.shards if shard.number not in known]
    found = in_order(lambda shard: read_report(job.target, shard.file, sizes[shard.file]), before, threads=16)
    for shard, report in zip(before, found, strict=True):
        check_plan(job.target, job.source.format, shard, report)
        known[shard.number] = report
    ordered = [known[shard.number] for shard in plan.shards]
    index = make_index([shard.file for shard in plan.shards], ordered, others)
    if not index.num_examples and not index.bad:
        raise left_nothing(job.source)
    if not index.num_examples:
        raise DataError(
            f"none of the {len(index.bad)} examples of {job.source.uri} could be read, so the pool is empty"
        )
    _refuse_repeated(job, index, ordered)
    _refuse_nameless(job.spec, index, job.source.uri)
    _warn_of_machines(job, index)
    write_index(job.target, index)
    return index


@contextmanager
def open_view(
    run: Run, names: Sequence[str], optional: Sequence[str] = (), instead: Mapping[str, str] | None = None
) -> Iterator[View]:
    """Open a view of the named features for a sampler, in this process if they fit, otherwise in actors.

    Each feature is read at its first use, and ids only for chosen rows.

    Parameters
    ----------
    names : features that must exist
    optional : features that are included if the run has them
    instead : how to avoid a feature, by its name, for the error if it is missing
    """
    there = _features_of(run)
    features, index = there.features.holding(), there.index
    _refuse_missing(run, index, names, instead or {})
    asked = list(dict.fromkeys([*names, *(name for name in optional if name in index.features)]))
    wanted = tuple(dict.fromkeys([*asked, "prediction"]))
    elsewhere = [name for name in wanted if name not in COLUMNS]
    layers = sum(_bytes_of(index, name) for name in elsewhere)
    memory = features.derived
    if layers <= MEMORY_LIMIT:
        yield View(StoredParts(features, wanted), memory)
        return
    with ExitStack() as actors:
        yield View(_LateActors(features, wanted, elsewhere, actors), memory)


def _bytes_of(index: Index, name: str) -> int:
    """Return the memory of a layer or the coverage in bytes."""
    per_value = 1 if name == "coverage" else 4
    return index.num_examples * index.features[name] * per_value


class _LateActors(StoredParts):
    """Parts that move to actors once a function needs features that are too large for this process.

    Results that were kept here are lost then: see :mod:`opacc_ray.parts.cache`.
    """

    def __init__(self, features: Features, names: Sequence[str], elsewhere: Sequence[str], actors: ExitStack) -> None:
        super().__init__(features, names, elsewhere)
        self._actors = actors
        self._held: Parts | None = None

    def call(self, calls: Sequence[Call]) -> list[Any]:
        found: list[Any] = self._ask("call", calls)
        return found

    def total(self, calls: Sequence[Call]) -> Any:
        return self._ask("total", calls)

    def _ask(self, verb: str, calls: Sequence[Call]) -> Any:
        if self._held is None:
            with suppress(TooLarge):
                return getattr(super(), verb)(calls)
        return getattr(self._hold(), verb)(calls)

    def _hold(self) -> Parts:
        if self._held is None:
            from opacc_ray.cluster.session import connected

            self._actors.enter_context(connected())
            from opacc_ray.cluster.parts import hold  # imports Ray, which reads its token mode then

            self._held = self._actors.enter_context(hold(self._features, self._names))
        return self._held


def find_chosen(run: Run, selection: Selection) -> Chosen:
    """Return ids, places and predictions of the chosen examples, from the shards that contain them."""
    uris, predictions = _features_of(run).features.take(["uri", "prediction"], selection.index)
    return Chosen(list(selection.ids), uris, predictions, *find_objects(run, uris))


def find_rows(run: Run, index: NDArray[np.int64]) -> tuple[list[str], list[Any]]:
    """Return ids and predictions of the examples at ``index`` (n,)."""
    ids, predictions = _features_of(run).features.take(["id", "prediction"], index)
    return ids, predictions


def check_drawn_from(run: Run, numbers: Sequence[int]) -> None:
    """Raise DataError if the rounds of a run were drawn from the features of another model.

    Features that were extracted again may differ in their last bits; then only the chosen examples are compared.
    """
    if run.drawn_from(numbers[-1]) == _features_of(run).digest:
        return
    for number in numbers:
        check_chosen(run, run.read_selection(number))
    log.warning("the features of %s were extracted again after round %d was drawn from them", run.uri, numbers[-1])


def check_chosen(run: Run, selection: Selection) -> None:
    """Compare ids and predictions of a round with the features; raises DataError if they differ."""
    chosen = run.read_chosen(selection.round)
    ids, predictions = find_rows(run, selection.index)
    rows = zip(selection.ids, chosen.ids, chosen.predictions, ids, predictions, strict=True)
    for name, here, said, found, own in rows:
        if (name, name, said) != (here, found, own):
            raise DataError(
                f"round {selection.round} of {run.title} has {name!r} with the prediction {said!r} where its features "
                f"have {found!r} with {own!r}; restore the round, or the features"
            )


def read_rows(run: Run, names: Sequence[str], index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Return the named features that the run has, (k, ...) each, of the examples at ``index`` (k,)."""
    there = _features_of(run)
    return there.features.rows([name for name in names if name in there.index.features], index)


def find_predictions(run: Run, ids: Sequence[str]) -> list[Any]:
    """Return a run's predictions for some examples, found by id.

    Raises
    ------
    DataError
        An example is not in the pool; the message names the first.
    """
    found = _features_of(run).features.search(ids, "prediction")
    absent = [name for name in dict.fromkeys(ids) if name not in found]
    if absent:
        raise DataError(
            f"{run.uri} lacks {len(absent)} of {len(set(ids))} labelled examples, the first {absent[0]!r}; "
            "give a run on the same pool, with the same ids"
        )
    return [found[name] for name in ids]


def read_column(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (N,), in the order of the pool; reads no other feature."""
    there = _features_of(run)
    _refuse_missing(run, there.index, [name], {})
    return there.features.column(name)


def read_sample(run: Run, name: str) -> NDArray[Any]:
    """Return one number per example, (k,): of the whole pool, or of evenly spread files of a very large pool."""
    there = _features_of(run)
    files = there.features.files
    step = -(-sum(file.num_examples for file in files) // SAMPLE)
    return there.features.column(name) if step <= 1 else there.features.part(files[::step]).column(name)


def read_tables(run: Run) -> Iterator[Any]:
    """Yield ids, places and all features of the pool, file by file, as Arrow tables."""
    there = _features_of(run)
    return there.features.tables(["id", "uri", *there.index.features])


def predicted_classes(run: Run) -> dict[int, int] | None:
    """Return the number of predictions of each class in the pool; None if the index lacks it."""
    return _features_of(run).index.predicted


def _refuse_repeated(job: Extraction, index: Index, reports: Sequence[ShardReport]) -> None:
    if not any(report.own_ids for report in reports):
        return
    features = Features.of(job.target, index)
    held = [report.hashes for report in reports if report.num_examples]
    hashes = in_order(
        lambda part: hashes_of(features.ids(part)) if held[part] is None else held[part], range(len(held)), threads=2
    )
    repeated = find_repeated([own for own in hashes if own is not None], features.ids)
    if repeated is not None:
        raise DataError(f"the id {repeated!r} appears twice in {job.source.uri}; ids must be unique")


def check_fit(spec: Spec, index: Index) -> None:
    """Raise DataError if complete features do not fit a spec.

    The spec names fewer classes than the model predicts, or does not allow examples that were left out.
    """
    _refuse_nameless(spec, index, spec.pool.uri)
    if index.bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, spec.pool, BadItem(index.bad[0].id, index.bad[0].reason))


def _refuse_nameless(spec: Spec, index: Index, uri: str) -> None:
    classes = spec.model.classes
    if classes is not None and index.predicted and max(index.predicted) >= len(classes):
        raise DataError(
            f"the model predicts class {max(index.predicted)} in {uri}, and model.classes names "
            f"{len(classes)} classes, 0 to {len(classes) - 1}; name all classes, in the order of the model"
        )


def _warn_of_machines(job: Extraction, index: Index) -> None:
    if len(index.machines) > 1:
        made = Counter(shard.machine for shard in index.shards)
        kinds = "; ".join(f"{made[i]} by {machine}" for i, machine in enumerate(index.machines))
        log.warning(
            "%s: %d kinds of machine made the shards, and their features differ in the last bits: %s",
            job.target.uri,
            len(index.machines),
            kinds,
        )


def _refuse_missing(run: Run, index: Index, names: Sequence[str], instead: Mapping[str, str]) -> None:
    missing = [name for name in names if name not in index.features]
    if missing:
        there = ", ".join(index.features)
        ways = [run.spec.remedy(missing[0]), *(way for name, way in instead.items() if name == missing[0])]
        raise SpecError(f"{run.uri} has {there}, not {missing[0]}; {', or '.join(ways)}")


def _features_of(run: Run) -> Complete:
    found = run.complete_features()
    check_fit(run.spec, found.index)
    return found
