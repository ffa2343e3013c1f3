"""Extraction of one shard of the pool into one file of features: the work of an actor, without Ray.

A shard's file is written atomically, so it is also the checkpoint: a file that exists is finished.
"""

import os
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extract import reference
from opacc_ray.extract.carried import Known, left_of, merged, read_carried
from opacc_ray.extract.content_digest import Code, check_unchanged
from opacc_ray.extract.inference import columns_of, load_model, run_model, run_that_fits
from opacc_ray.extract.inputs import Batch, load_transform, transformed
from opacc_ray.extract.machine import yield_to_others
from opacc_ray.extract.shards import (
    Columns,
    FeatureShard,
    ShardReport,
    check_plan,
    encode_shard,
    joined,
    not_finite,
    read_report,
    read_table,
    report_on,
)
from opacc_ray.lake.examples import BadItem, Shard, source_of
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.pools import read_numbered
from opacc_ray.lake.store_uris import Store
from opacc_ray.neurons.criteria import Ranges
from opacc_ray.parts.loops import NextAhead
from opacc_ray.spec import SURPRISE, PoolSpec, Spec, open_pool, rules_of, see_modules

if TYPE_CHECKING:
    from opacc_ray.extract.inference import FunctionModel
    from opacc_ray.extract.inputs import Activations
    from opacc_ray.extract.torch_model import Device, Model

_COVERED = "covered layers"  # a column that is never written: NaN if a value of these layers is not finite


class Interrupted(OpaccError):
    """Extraction was ended on purpose between two batches, and nothing was written."""

    exit_code = 4


class Base(NamedTuple):
    """Existing features of the same shards."""

    folder: Store
    names: tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """What to extract, its source and its target: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of the reference
    ranges: bool = False  # also extract ranges of the covered neurons
    beside: tuple[tuple[str, Store], ...] = ()  # further features of the same pass, each with its folder
    base: Base | None = None  # the one named feature is added to these, for their examples
    modules: str = field(default_factory=os.getcwd)  # the driver's folder, which may contain the user's modules
    code: Code | None = None  # that is part of the features' digest
    known: Known | None = None  # features of an earlier listing of the pool

    @property
    def made(self) -> tuple[str, ...]:
        """All features that are extracted."""
        return (*self.names, *(name for name, _ in self.beside))

    @property
    def needs_model(self) -> bool:
        """Whether the model runs; surprise is computed from a stored hidden layer."""
        held = self.base.names if self.base else ()
        return self.base is None or not ("hidden" in held and set(self.names) <= set(SURPRISE))


class Extractor:
    """Extracts shards into files of features, with the model and the reference in memory.

    Two threads may call ``extract``. While one computes a batch, a further thread reads and decodes the next one, on
    ``readers`` threads. The second thread writes the shard before, reads the first batch of the shard after, and
    computes when the first one waits. Transform and model are called by one thread at a time. Memory holds, for each
    shard, one decoded example, the examples that were read ahead and the inputs of one batch; for the shard that
    computes, of two.
    """

    def __init__(self, job: Extraction, device: str = "cpu", readers: int = 1) -> None:
        self._job = job
        self._device_name = device
        self._readers = readers
        self._source = open_pool(job.source)
        self._device: Device | FunctionModel | None = None
        self._reference = reference.NONE
        self._computing = threading.RLock()
        self._transforming = threading.Lock()
        self._interrupted = threading.Event()
        self._reading: dict[int, Batch] = {}  # number of a shard in work -> the batch that is read
        self._computed: dict[int, Batch] = {}  # and the one that the model computes

    def interrupt(self) -> None:
        """End all shards after the current batch, with Interrupted, and begin no other."""
        self._interrupted.set()

    def places(self) -> dict[int, tuple[str, str]]:
        """Return the first and last id of the current batch of each shard in work, by the shard's number."""
        return {number: batch.span for number, batch in (self._reading | self._computed).items()}

    def prepare(self) -> "Device | FunctionModel":
        """Load the model, if it is needed, and the reference, once, before any shard is read."""
        if self._device is not None:  # a thread that writes need not wait for one that computes
            return self._device
        with self._computing:
            if self._device is None:
                device = self._load(self._job)
                if self._job.reference is not None:
                    self._reference = reference.load(self._job.reference, self._job.spec, device.arrays)
                self._device = device
            return self._device

    def _load(self, job: Extraction) -> "Device | FunctionModel":
        if not job.needs_model:
            from opacc_ray.extract.torch_model import Device

            return Device(self._device_name, job.spec.extract.threads_per_actor)
        see_modules(job.modules)
        if job.code is not None:
            check_unchanged(job.code, job.spec, job.modules)
        load_transform(job.spec)
        covered = job.spec.extract.coverage if job.ranges or "coverage" in job.made else None
        return load_model(job.spec, self._device_name, covered)

    def extract(self, shard: Shard) -> ShardReport:
        """Read, compute and write one shard; raises DataError with the id of a faulty example."""
        job = self._job
        if job.base is not None:
            return self._write(job.target, shard, self._added(job.names[0], self._on_base(shard, job.base)))
        found, ranges = self._carried_and_computed(shard) if shard.carried else self._compute(shard)
        if ranges:
            reference.write_ranges(job.target, shard, ranges)
        own = found.columns
        if job.beside:
            own = {name: found.columns[name] for name in job.names if name in found.columns}
        whole = kept_rows(job, self._reference, found._replace(columns=own), job.names)
        base = _rows_of(found, whole.ids, whole.bad) if job.beside else whole
        for name, folder in job.beside:
            self._write(folder, shard, self._added(name, base))
        return self._write(job.target, shard, whole)

    def _carried_and_computed(self, shard: Shard) -> tuple[FeatureShard, list[Ranges]]:
        """Return all columns of a shard: known ones of the parts that have some, computed ones of the others."""
        job, rest = self._job, left_of(shard)
        known = read_carried(job, shard)
        known.columns[_COVERED] = np.zeros(len(known.ids))
        if not rest:
            return merged(shard, [known]), []
        found, ranges = self._compute(shard.only(rest))
        if found.ids:
            with self._computing:
                surprise = surprise_of(job, self._reference, found.columns, [name for name, _ in job.beside])
            found = found._replace(columns=found.columns | surprise)
        return merged(shard, [known, found]), ranges

    def try_shard(self, shard: Shard) -> None:
        """Compute a shard, or part of one, and write nothing."""
        self._compute(shard)

    def _write(self, folder: Store, shard: Shard, features: FeatureShard) -> ShardReport:
        """Write a shard on a thread with lower priority than the one that computes."""
        with ThreadPoolExecutor(1, "opacc-write", yield_to_others) as writer:
            return writer.submit(self._write_now, folder, shard, features).result()

    def _write_now(self, folder: Store, shard: Shard, features: FeatureShard) -> ShardReport:
        data = encode_shard(features, self.prepare().machine)
        report = report_on(features, data, folder.uri_of(shard.file))
        check_plan(folder, self._job.source.format, shard, report)
        folder.write(shard.file, data)
        self._reading.pop(shard.number, None)
        return report

    def _on_base(self, shard: Shard, base: Base) -> FeatureShard:
        """Return the base's examples of a shard, with the columns that the new feature is computed from."""
        self._refuse_interrupted(shard)
        size = base.folder.size(shard.file)
        report = read_report(base.folder, shard.file, size)
        stored = [name for name in ("hidden", "prediction") if name in base.names and not self._job.needs_model]
        names = ["id", *(stored if report.num_examples else [])]
        table = read_table(base.folder, shard.file, names, size, report.footer_size)
        ids = table["id"].to_pylist()
        if self._job.needs_model and ids:
            return _rows_of(self._compute(shard)[0], ids, report.bad)
        return FeatureShard(ids, None, {name: to_numpy(table[name]) for name in names[1:]}, report.bad, own_ids=False)

    def _added(self, name: str, base: FeatureShard) -> FeatureShard:
        columns = base.columns if base.ids else {}
        with self._computing:
            self.prepare()
            columns = columns | surprise_of(self._job, self._reference, columns, [name])
        wanted = (name, _COVERED, *(("prediction",) if name in SURPRISE else ()))
        own = {key: values for key, values in columns.items() if key in wanted}
        return kept_rows(self._job, self._reference, base._replace(columns=own), [name])

    def _compute(self, shard: Shard) -> tuple[FeatureShard, list[Ranges]]:
        """Return all columns of a shard, and the ranges of the covered neurons in each batch."""
        uris: list[str] = []
        sources: list[int] = []
        found = FeatureShard([], uris, {}, [], own_ids=False, sources=sources)
        parts: list[Columns] = []
        ranges: list[Ranges] = []
        with closing(self._batches_exclusively(shard, found.bad)) as batches:
            for batch in batches:
                self._refuse_interrupted(shard)
                self._computed[shard.number] = batch
                try:
                    columns_of_batch, activations = self.compute(batch)
                finally:
                    del self._computed[shard.number]
                parts.append(columns_of_batch)
                if self._job.ranges:
                    sound = np.delete(np.arange(len(batch.ids)), list(not_finite(columns_of_batch)))
                    ranges += [Ranges.of([values[sound] for values in activations.layers])] if len(sound) else []
                found.ids.extend(batch.ids)
                uris.extend(batch.uris)
                sources.extend(batch.sources)
                found = found._replace(own_ids=batch.own_ids)
        columns = joined(parts)
        if self._job.base is None and self._reference.traces is not None:
            with self._computing:
                columns |= surprise_of(self._job, self._reference, columns, self._job.names)
        return found._replace(columns=columns), ranges

    def _batches_exclusively(self, shard: Shard, bad: list[BadItem]) -> Generator[Batch, None, None]:
        """Yield batches of inputs, read one ahead; other shards compute only while this one waits."""
        with NextAhead(self.read_batches(shard, bad), yield_to_others) as ahead:
            while (batch := ahead.take()) is not None:
                with self._computing:
                    while batch is not None:
                        yield batch
                        batch.release()  # the inputs of the next one are in memory
                        batch = ahead.take() if ahead.is_there else None

    def _refuse_interrupted(self, shard: Shard) -> None:
        if self._interrupted.is_set():
            raise Interrupted(f"shard {shard.name} was interrupted; run the same command again")

    def compute(self, batch: Batch) -> tuple[Columns, "Activations"]:
        """Return the columns and the activations of a batch; one thread at a time.

        If the memory of a GPU runs out, the batch runs in halves.
        """
        with self._computing:
            model = cast("Model | FunctionModel", self.prepare())
            if self._device_name == "cpu":
                activations = run_model(model, batch.inputs)
            else:
                activations = run_that_fits(lambda part: run_model(model, part), batch.inputs)
            return self._measure(activations), activations

    def read_batches(self, shard: Shard, bad: list[BadItem]) -> Generator[Batch, None, None]:
        """Yield batches of inputs, always cut at the same examples; unusable ones are appended to ``bad``."""
        spec, source = self._job.spec, self._job.source
        rules = rules_of(source)._replace(readers=self._readers)
        transform = load_transform(spec)
        batch = Batch(spec.extract.batch_size)
        digests = [source_of(part) for part in shard.parts]
        for number, item in read_numbered(self._source, source.format, shard, rules):
            if isinstance(item, BadItem):
                check_bad(spec, source, [item])
                bad.append(item._replace(source=digests[number]))
                continue
            batch.coming = item.id
            if not batch.ids:
                self._reading[shard.number] = batch
            with self._transforming:
                batch.add(item, transformed(transform, item), digests[number])
            if batch.is_full:
                yield batch
                batch = Batch(spec.extract.batch_size)
        if batch.ids:
            yield batch

    def _measure(self, activations: "Activations") -> Columns:
        """Return the columns of a batch: the named ones, and those for surprise and for NaN in covered layers."""
        job, spec = self._job, self._job.spec
        columns = columns_of(spec, activations, job.names)
        if activations.layers:
            sound = np.all([np.isfinite(values).all(axis=1) for values in activations.layers], axis=0)  # (B,)
            columns[_COVERED] = np.where(sound, 0.0, np.nan)
        if "coverage" in job.made:
            columns["coverage"] = spec.extract.coverage.rule.bits(activations.layers, self._reference.ranges)
        wanted = {*job.made, _COVERED} | ({"hidden", "prediction"} if self._reference.traces else set())
        return {name: values for name, values in columns.items() if name in wanted}


def surprise_of(job: Extraction, loaded: reference.Loaded, columns: Columns, names: Sequence[str]) -> Columns:
    """Return the surprise of a shard's examples, as far as ``names`` has it and the columns lack it."""
    if loaded.traces is None or not columns:
        return {}
    predicted = columns["prediction"] if job.spec.model.has_classes else None
    measures = {"dsa": loaded.traces.dsa, "lsa": loaded.traces.lsa}
    missing = [name for name in SURPRISE if name in names and name not in columns]
    return {name: measures[name](columns["hidden"], predicted) for name in missing}


def kept_rows(job: Extraction, loaded: reference.Loaded, shard: FeatureShard, names: Sequence[str]) -> FeatureShard:
    """Return the columns in ``names``; NaN or infinity in any is an error, or a bad item if the spec excludes those."""
    found = not_finite(shard.columns)
    bad = [
        BadItem(
            shard.ids[row],
            _reason(loaded, name, shard.columns, row),
            None if shard.sources is None else shard.sources[row],
        )
        for row, name in found.items()
    ]
    check_bad(job.spec, job.source, [*shard.bad, *bad])
    if not found:
        return shard._replace(columns={name: shard.columns[name] for name in names if name in shard.columns})
    kept = [row for row in range(len(shard.ids)) if row not in found]
    return take_rows(shard, kept, names)._replace(bad=[*shard.bad, *bad])


def _reason(loaded: reference.Loaded, name: str, columns: Columns, row: int) -> str:
    if name not in SURPRISE or np.isnan(columns[name][row]) or loaded.traces is None:
        return f"NaN or infinity in {name}"
    predicted = columns["prediction"][row]
    if predicted in loaded.traces.classes:
        return "the nearest reference trace of its predicted class is also one of another class, so dsa is infinite"
    return f"no example of the reference is predicted as its class, {predicted}, so it has no {name}"


def check_bad(spec: Spec, source: PoolSpec, bad: Sequence[BadItem]) -> None:
    """Raise DataError for the first example that could not be used, unless the spec excludes those."""
    if bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, source, bad[0])


def take_rows(shard: FeatureShard, rows: Sequence[int], names: Sequence[str]) -> FeatureShard:
    """Return some rows of the columns that exist."""
    return shard._replace(
        ids=[shard.ids[row] for row in rows],
        uris=None if shard.uris is None else [shard.uris[row] for row in rows],
        sources=None if shard.sources is None else [shard.sources[row] for row in rows],
        columns={name: shard.columns[name][list(rows)] for name in names if name in shard.columns},
    )


def _rows_of(found: FeatureShard, ids: Sequence[str], bad: list[BadItem]) -> FeatureShard:
    """Return all columns of the examples with these ids; raises DataError if one of them could not be read."""
    places = {name: row for row, name in enumerate(found.ids)}
    if lost := [name for name in ids if name not in places]:
        raise DataError(f"example {lost[0]!r} cannot be read now, and could be before; restore it and run again")
    rows = take_rows(found, [places[name] for name in ids], list(found.columns))
    return rows._replace(uris=None, sources=None, bad=bad, own_ids=False)


def refusal(spec: Spec, source: PoolSpec, item: BadItem) -> DataError:
    """Return the error for a bad item that the spec does not exclude."""
    aim = "state the accuracy of" if source == spec.pool else "compare with"
    return DataError(
        f"example {item.id!r} of {source.uri}: {item.reason}; "
        f"repair or remove it, or set extract.on_bad_item: exclude to {aim} the rest"
    )
