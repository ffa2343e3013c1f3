"""Extraction of one shard of the pool into one file of features: the work of an actor, without Ray.

A shard's file is written atomically, so it is also the checkpoint: a file that exists is finished.
"""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, cast

import numpy as np

from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extract import reference
from opacc_ray.extract.carried import left_of, merged, read_carried
from opacc_ray.extract.content_digest import check_unchanged
from opacc_ray.extract.extraction import Base, Extraction, check_bad, kept_rows, surprise_of
from opacc_ray.extract.inference import columns_of, load_model, run_model, run_that_fits
from opacc_ray.extract.inputs import Batch, load_transform, transformed
from opacc_ray.extract.machine import yield_to_others
from opacc_ray.extract.shards import (
    Columns,
    FeatureShard,
    ShardReport,
    check_plan,
    encode_shard,
    not_finite,
    read_report,
    read_table,
    report_on,
    stacked,
)
from opacc_ray.lake.examples import BadItem, Shard, source_of
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.pools import read_numbered
from opacc_ray.lake.store_uris import Store
from opacc_ray.neurons.criteria import Ranges
from opacc_ray.parts.loops import NextAhead
from opacc_ray.spec import SURPRISE, open_pool, rules_of, see_modules

if TYPE_CHECKING:
    from opacc_ray.extract.inference import FunctionModel
    from opacc_ray.extract.inputs import Activations
    from opacc_ray.extract.torch_model import Device, Model

_COVERED = "covered layers"  # a column that is never written: NaN if a value of these layers is not finite


class Interrupted(OpaccError):
    """Extraction was ended on purpose between two batches, and nothing was written."""

    exit_code = 4


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
        parts: list[FeatureShard] = []
        bad: list[BadItem] = []
        ranges: list[Ranges] = []
        with closing(self._batches_exclusively(shard, bad)) as batches:
            for batch in batches:
                self._refuse_interrupted(shard)
                self._computed[shard.number] = batch
                try:
                    columns, activations = self.compute(batch)
                finally:
                    del self._computed[shard.number]
                parts.append(FeatureShard(batch.ids, batch.uris, columns, [], batch.own_ids, batch.sources))
                if self._job.ranges:
                    sound = np.delete(np.arange(len(batch.ids)), list(not_finite(columns)))
                    ranges += [Ranges.of([values[sound] for values in activations.layers])] if len(sound) else []
        found = stacked(parts)._replace(bad=bad)
        if self._job.base is None and self._reference.traces is not None:
            with self._computing:
                found.columns.update(surprise_of(self._job, self._reference, found.columns, self._job.names))
        return found, ranges

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


def _rows_of(found: FeatureShard, ids: Sequence[str], bad: list[BadItem]) -> FeatureShard:
    """Return all columns of the examples with these ids; raises DataError if one of them could not be read."""
    places = {name: row for row, name in enumerate(found.ids)}
    if lost := [name for name in ids if name not in places]:
        raise DataError(f"example {lost[0]!r} cannot be read now, and could be before; restore it and run again")
    rows = found.take([places[name] for name in ids])
    return rows._replace(uris=None, sources=None, bad=bad, own_ids=False)
