"""The work on shards of a pool, by the process of an actor or by this one.

An executor gives shards to an :class:`Extractor` and passes their reports on: :func:`extract_here` in one process,
:func:`opacc_ray.cluster.actor_pool.extract_shards` in actors. Both write the same bytes. A shard's file is written
atomically, so it is also the checkpoint: a file that exists is finished.
"""

import math
import os
import platform
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from opacc_ray.errors import OpaccError
from opacc_ray.extract import model_code, reference
from opacc_ray.extract.extraction import Extraction, OnDone
from opacc_ray.extract.inference import Batch, Feed, FunctionModel, columns_of
from opacc_ray.extract.machine import HOST, software, yield_to_others
from opacc_ray.extract.model_code import watched
from opacc_ray.extract.readers import Reader, Readers, num_readers, shards_in_flight
from opacc_ray.extract.reference import StoredSurprise
from opacc_ray.extract.shards import (
    Columns,
    FeatureShard,
    Machine,
    ShardReport,
    Spent,
    check_plan,
    encode_shard,
    not_finite,
    read_report,
    report_on,
    stacked,
)
from opacc_ray.extract.table_columns import THREADS, read_parts
from opacc_ray.extract.user_code import Activations, Running, stream
from opacc_ray.lake.examples import BadItem, Shard
from opacc_ray.lake.store import in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.neurons.requirements import Ranges
from opacc_ray.parts.loops import NextAhead
from opacc_ray.registry import has_package, require

if TYPE_CHECKING:
    from opacc_ray.extract.torch_model import Device

_COVERED = "covered layers"  # a column that is never written: NaN if a value of these layers is not finite


class Interrupted(OpaccError):
    """Extraction was ended on purpose between two batches, and nothing was written."""

    exit_code = 4


class Extractor:
    """Extracts shards into files of features, with the model and the reference in memory, if they are needed.

    In a pool of features no model runs: any number of threads read its tables. Otherwise several threads may call
    ``extract``. While one computes a batch, its next one is read: by ``readers`` processes, or without any by a further
    thread. The other threads write the shard before, read the shard after, and compute when the first one waits.
    Transform and model are called by one thread of a process at a time. Memory holds the batches of the readers, or for
    each shard one decoded example, the examples that were read ahead and the inputs of one batch; for the shard that
    computes, of two.

    ``seconds``: time for a batch after which a reader counts as hung. :meth:`close` ends the readers.
    """

    def __init__(self, job: Extraction, device: str = "cpu", readers: int = 0, seconds: float | None = None) -> None:
        self._job = job
        self._device_name = device
        self._num_readers, self._seconds = readers, seconds
        self._readers: Readers | None = None
        self._readers_elsewhere: Sequence[Reader] = ()
        self._device: Device | FunctionModel | None = None
        self._feed: Feed | None = None
        self._ranges: Ranges | None = None  # of the reference
        self._surprise: StoredSurprise | None = None
        self._computing = threading.RLock()
        self._interrupted = threading.Event()
        self._begun: float | None = None  # monotonic seconds when its first batch was there
        self._counting = threading.Lock()
        self._busy = 0.0  # seconds on the device
        self._asked, self._ready = 0, 0  # how often a batch was asked for, and how many had been read then, in all
        self._recording = threading.Lock()
        self._recorded: tuple[int, int] | None = None  # state of the process when its code was recorded
        self._code: model_code.LoadedCode | None = None  # that was recorded

    def interrupt(self) -> None:
        """End all shards after the current batch, with Interrupted, and begin no other."""
        self._interrupted.set()

    def close(self) -> None:
        """End the readers."""
        if self._readers is not None:
            self._readers.close()

    def prepare(self) -> "Device | FunctionModel":
        """Load the model, or the device that compares with the reference, and the reference, once."""
        if self._device is not None:  # a thread that writes need not wait for one that computes
            return self._device
        with self._computing:
            if self._device is None:
                job = self._job
                device = self._load(job)
                if job.hidden is None and job.reference is not None:
                    self._ranges = reference.read_ranges(job.reference)
                self._device = device
            return self._device

    @property
    def feed(self) -> Feed:
        """The path of examples through transform and model, which are loaded."""
        self.prepare()
        assert self._feed is not None  # not for surprise
        return self._feed

    def _compared(self, hidden: Store) -> StoredSurprise:
        """Return the reference that hidden layers are compared with, which is read once."""
        with self._computing:
            if self._surprise is None:
                arrays = HOST if self._job.source.holds_features else self.prepare().arrays
                self._surprise = StoredSurprise(self._job, hidden, arrays)
            return self._surprise

    @cached_property
    def maker(self) -> Machine:
        """Kind of the machine that makes the features, with its software, which is the driver's.

        The reference is read as well, so that no shard waits for it.
        """
        own = software()
        if self._job.hidden is not None:
            self._compared(self._job.hidden)
        return self.prepare().machine.model_copy(update={"opacc": own["opacc"], "python": own["Python"]})

    @watched()
    def _load(self, job: Extraction) -> "Device | FunctionModel":
        if job.hidden is not None:
            require("a comparison with a reference", "torch")
            from opacc_ray.extract.torch_model import Device

            return Device(self._device_name, job.spec.extract.threads_per_actor)
        job.see_code()
        if self._num_readers or self._readers_elsewhere:  # which start meanwhile
            self._readers = Readers(job, self._num_readers, self._seconds, self._readers_elsewhere)
        covered = job.spec.extract.coverage if job.ranges or "coverage" in job.names else None
        self._feed = Feed(job.spec, job.source, self._device_name, covered)
        return self._feed.model

    def extract(self, shard: Shard) -> ShardReport:
        """Read, compute and write one shard, unless another process has; returns its report.

        Raises DataError with the id of a faulty example, or if a column has another form than the spec states.
        """
        self._refuse_interrupted(shard)
        if (entry := self._job.target.entry(shard.file)) is not None:
            report = read_report(self._job.target, shard.file, entry.size)
            check_plan(self._job.target, self._job.source.format, shard, report)
            return report
        features = self._features(shard)
        with ThreadPoolExecutor(1, "opacc-write", yield_to_others) as writer:  # of lower priority than the model
            return writer.submit(self._write, shard, features).result()

    def _features(self, shard: Shard) -> FeatureShard:
        """Return the features of a shard: compared with a reference, read from a table, or computed by the model."""
        job = self._job
        if job.hidden is None:
            compute = partial(read_parts, job) if job.source.holds_features else self._computed_part
            return job.features_of(shard, compute)
        compared = self._compared(job.hidden)
        stored = compared.read(shard)
        with nullcontext() if job.source.holds_features else self._computing:
            return compared.compute(stored)

    def _computed_part(self, shard: Shard) -> FeatureShard:
        """Compute the parts of a shard that have no features; write the ranges, which are there before the features."""
        features, ranges = self._compute(shard)
        if ranges:
            reference.write_ranges(self._job.target, shard, ranges)
        return features

    def try_shard(self, shard: Shard) -> None:
        """Compute a shard, or part of one, and write nothing."""
        self._compute(shard)

    def _write(self, shard: Shard, features: FeatureShard) -> ShardReport:
        needs_model = self._job.needs_model(shard)
        folder, data = self._job.target, encode_shard(features, self.maker if needs_model else None)
        report = report_on(features, data, folder.uri_of(shard.file))
        check_plan(folder, self._job.source.format, shard, report)
        if needs_model and self._job.hidden is None:
            self._record_code()
        folder.write(shard.file, data)
        if self._begun is None:
            return report
        worker, elapsed = f"{platform.node()}:{os.getpid()}", time.monotonic() - self._begun
        ready, readers = self._ready / self._asked, self._num_readers + len(self._readers_elsewhere)
        return report._replace(spent=Spent(worker, readers, self._busy, elapsed, ready))

    def _record_code(self) -> None:
        """Write what this process has loaded, unless that has been written."""
        with self._recording:
            if self._recorded != (now := model_code.state()):
                self._code = model_code.record(self._job.target, self._job.modules, self._code)
                self._recorded = now

    @watched()
    def _compute(self, shard: Shard) -> tuple[FeatureShard, list[Ranges]]:
        """Return all columns of a shard, and the ranges of the covered neurons in each batch."""
        parts: list[FeatureShard] = []
        bad: list[BadItem] = []
        ranges: list[Ranges] = []
        with closing(self._batches_exclusively(shard, bad)) as batches:
            for batch, activations in self._run(shard, batches):
                columns = self.measure(activations)
                parts.append(
                    FeatureShard(batch.ids, batch.uris, columns, [], batch.own_ids, batch.sources, batch.turned)
                )
                if self._job.ranges:
                    sound = np.delete(np.arange(len(batch.ids)), list(not_finite(columns)))
                    ranges += [Ranges.of([values[sound] for values in activations.layers])] if len(sound) else []
        return stacked(parts)._replace(bad=bad), ranges

    def _run(self, shard: Shard, batches: Iterator[Batch]) -> "Iterator[tuple[Batch, Activations]]":
        """Yield each batch with its activations once the next one has begun, which a GPU computes meanwhile."""
        before: tuple[Batch, Running] | None = None
        for batch in batches:
            self._refuse_interrupted(shard)
            self._begun = self._begun or time.monotonic()
            running = self.feed.start(batch)
            if before is not None:
                yield self._finished(*before)
            before = batch, running
        if before is not None:
            yield self._finished(*before)

    def _finished(self, batch: Batch, running: "Running") -> "tuple[Batch, Activations]":
        activations, seconds = running()
        with self._counting:
            self._busy += seconds
        return batch, activations

    def _batches_exclusively(self, shard: Shard, bad: list[BadItem]) -> Generator[Batch, None, None]:
        """Yield batches of inputs, read one ahead; other shards compute only while this one waits."""
        feed = self.feed
        with closing((self._readers or feed).read(shard, bad)) as batches, NextAhead(batches) as ahead:
            while (batch := self._take(ahead)) is not None:
                with self._computing:
                    while batch is not None:
                        yield batch
                        batch.release()  # the inputs of the next one are in memory
                        batch = self._take(ahead) if ahead.is_there else None

    def _take(self, ahead: NextAhead[Batch]) -> Batch | None:
        """Return the next batch, and note how many have been read."""
        ready = self._readers.num_ready if self._readers else int(ahead.is_there)
        with self._counting:
            self._asked += 1
            self._ready += ready
        return ahead.take()

    def _refuse_interrupted(self, shard: Shard) -> None:
        if self._interrupted.is_set():
            raise Interrupted(f"shard {shard.name} was interrupted; run the same command again")

    def measure(self, activations: "Activations") -> Columns:
        """Return the named columns of a batch, and the one for NaN in covered layers."""
        job, spec = self._job, self._job.spec
        columns = columns_of(spec, activations, job.names)
        if activations.layers:
            sound = np.all([np.isfinite(values).all(axis=1) for values in activations.layers], axis=0)  # (B,)
            columns[_COVERED] = np.where(sound, 0.0, np.nan)
        if "coverage" in job.names:
            columns["coverage"] = spec.extract.coverage.rule.bits(activations.layers, self._ranges)
        return {name: values for name, values in columns.items() if name in (*job.names, _COVERED)}


def extract_shards(job: Extraction, shards: Sequence[Shard], on_done: OnDone) -> None:
    """Extract shards of features on threads; ``on_done`` is called with each one and its report, in their order."""
    for shard, report in zip(shards, in_order(Extractor(job).extract, shards, THREADS), strict=True):
        on_done(shard, report)


def extract_here(job: Extraction, shards: Sequence[Shard], on_done: OnDone) -> None:
    """Extract shards without Ray, with one model in the process of the user's code, as an actor would.

    Raises EndedError if that process dies, hangs or lacks memory, and the errors of the work.
    """
    extract, cpus = job.spec.extract, os.cpu_count() or 1
    reports = stream(_reports, job, shards, cpus, seconds=extract.shard_timeout, threads=extract.threads_per_actor)
    with closing(reports):
        for shard, report in zip(shards, reports, strict=True):
            on_done(shard, report)


def _reports(job: Extraction, shards: Sequence[Shard], cpus: int) -> Iterator[ShardReport]:
    """Extract shards and yield their reports in their order."""
    extract = job.spec.extract
    device = "cuda" if extract.gpus_per_actor != 0 and has_gpu() else "cpu"
    work = len(shards) * extract.shard_size * (job.pace or math.inf)
    readers = num_readers(extract, cpus, has_gpu=device == "cuda", work=work)
    with closing(Extractor(job, device, readers)) as extractor:
        threads = shards_in_flight(extract, readers)
        with closing(in_order(extractor.extract, shards, threads)) as reports:
            try:
                yield from reports
            finally:
                extractor.interrupt()


def has_gpu() -> bool:
    """Return whether there is a torch that can use a GPU."""
    if not has_package("torch"):
        return False
    from opacc_ray.extract.torch_model import has_gpu

    return has_gpu()
