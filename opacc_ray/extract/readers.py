"""Processes that read, decode and transform for the one that computes, and hand over batches in shared memory.

A shard is cut into units, such as the files of one batch. Each reader takes the next unit, and writes its inputs into
one of its SLOTS: memory in files without a name, which both processes inherit. So nothing stays in a file system,
whichever process dies. The batches come in the order of the shard, and hold what they would hold without readers: where
a unit is shorter than a batch, its rows are copied into the next one. A tar file can only be read from its beginning:
the process that computes does that, and units are members that are not decoded.

A reader is a process as that of :mod:`opacc_ray.extract.user_code`, so it does not run the main module again, and a
crash names the line of code. After a crash another one starts with the next unit.
"""

import math
import mmap
import os
import tempfile
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import islice
from math import prod
from queue import SimpleQueue
from threading import Event
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.errors import OpaccError, SpecError
from opacc_ray.extract import model_code
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.inference import Batch, Inputs
from opacc_ray.extract.model_code import watched
from opacc_ray.extract.user_code import Child, EndedError
from opacc_ray.lake.examples import BadItem, Shard, source_of
from opacc_ray.lake.formats import find_format
from opacc_ray.lake.pools import read_packed
from opacc_ray.spec import ExtractSpec, PoolSpec, open_pool, rules_of

SLOTS = 3
"""Batches of a reader in memory: one that computes, one that waits for its turn, one that is filled."""

MAX_READERS, MAX_CPU_READERS = 64, 4
"""Most readers of an actor with a GPU, and of one without: a CPU computes more slowly than a few of them read."""

SMALL_WORK = 1.0
"""Seconds of work for one process below which readers take longer to start than they save."""


def most_ready(readers: int) -> int:
    """Return how many batches may have been read when the model takes one."""
    return max(1, SLOTS * readers)


def num_readers(extract: ExtractSpec, cpus: float, *, has_gpu: bool, work: float = math.inf) -> int:
    """Return the readers of an actor that has so many CPUs: by default one for each on which it does not compute.

    ``work``: seconds that one process would take without readers, as a trial predicts them.
    """
    if extract.readers != "auto":
        return extract.readers
    if work < SMALL_WORK:
        return 0
    return max(0, min(MAX_READERS if has_gpu else MAX_CPU_READERS, int(cpus) - extract.threads_per_actor))


def shards_in_flight(extract: ExtractSpec, readers: int) -> int:
    """Return the shards that an actor has at a time: enough for its readers and the model, and one that is written."""
    return 1 + max(1, -(-(readers + 2) * extract.batch_size // extract.shard_size))


UNIT_BYTES = 16 << 20
"""Bytes of packed examples after which a unit ends."""


class Unit(NamedTuple):
    """Some examples of a shard, which one reader reads."""

    shard: Shard
    digests: tuple[int, ...]  # of the parts of the whole shard that its own are of
    packed: tuple[tuple[int, Any], ...] = ()  # examples that have been read, with the numbers of their parts


def units_of(shard: Shard, kind: str, size: int) -> list[Unit]:
    """Cut a shard of a pool of that kind: into ``size`` rows or images, row groups, or files of many examples."""
    if not shard.pieces:
        step = size if find_format(kind).TRAITS.keys_are_ids else 1
        numbers = range(len(shard.entries))
        parts = [shard.only(numbers[start : start + step]) for start in numbers[::step]]
        return [Unit(part, tuple(map(source_of, part.parts))) for part in parts]
    units = []
    for piece in shard.pieces:
        step = 1 if piece.layout else size  # which row groups have
        for start in range(piece.start, piece.stop, step):
            part = piece._replace(start=start, stop=min(start + step, piece.stop))
            units.append(Unit(Shard.of(shard.number, [part]), (source_of(piece),)))
    return units


def packed_units(source: PoolSpec, shard: Shard, size: int) -> Iterator[Unit]:
    """Read a shard, and yield it in units of ``size`` examples that are not decoded, or of UNIT_BYTES."""
    digests, part, num_bytes = tuple(map(source_of, shard.parts)), list[tuple[int, Any]](), 0
    for number, item in read_packed(open_pool(source), source.format, shard, rules_of(source)):
        part.append((number, item))
        num_bytes += 0 if isinstance(item, BadItem) else item.size
        if len(part) == size or num_bytes >= UNIT_BYTES:
            yield Unit(shard, digests, tuple(part))
            part, num_bytes = [], 0
    if part:
        yield Unit(shard, digests, tuple(part))


class Readers:
    """Some processes that read shards of one job; end them with :meth:`close`.

    ``seconds``: time for a batch after which a reader counts as hung; None: no limit. ``more``: readers elsewhere.
    """

    def __init__(self, job: Extraction, num: int, seconds: float | None = None, more: "Sequence[Reader]" = ()) -> None:
        self._job = job
        self._readers = [*(Reader(job, seconds) for _ in range(num)), *more]
        self._is_closing = False
        self._idle: SimpleQueue[Reader] = SimpleQueue()
        self._threads = ThreadPoolExecutor(len(self._readers), "opacc-readers")
        for reader in self._readers:
            self._threads.submit(self._start, reader)

    def read(self, shard: Shard, bad: list[BadItem]) -> Generator[Batch, None, None]:
        """Yield the batches of a shard as :meth:`Inputs.read`; raises EndedError if a reader dies or hangs."""
        size, source, batch = self._job.spec.extract.batch_size, self._job.source, None
        is_packed = hasattr(find_format(source.format), "packed")
        units = packed_units(source, shard, size) if is_packed else iter(units_of(shard, source.format, size))
        for block, unfit in self._blocks(units, 2 * len(self._readers) if is_packed else None):
            bad += unfit
            if batch is None and block.is_full:
                yield block
                continue
            for row in range(len(block.ids)):
                batch = batch or Batch(size)
                batch.move(block, row)
                if batch.is_full:
                    yield batch
                    batch = None
            block.release()
        if batch is not None:
            yield batch

    @property
    def num_ready(self) -> int:
        """Number of batches that have been read, and are not released."""
        return sum(SLOTS - reader.num_free - reader.is_reading for reader in self._readers)

    def close(self) -> None:
        """End the processes."""
        self._is_closing = True
        for reader in self._readers:
            reader.end()
        self._threads.shutdown(cancel_futures=True)
        for reader in self._readers:
            reader.end()  # one that was starting
            reader.forget()

    def _start(self, reader: "Reader") -> None:
        with suppress(OpaccError):  # the next unit raises it again
            if not self._is_closing:
                reader.start()
        self._idle.put(reader)

    def _blocks(self, units: Iterator[Unit], most: int | None) -> Iterator["Block"]:
        """Yield the blocks of some units in their order, those of other shards first that were asked for before.

        ``most``: units that are in memory at a time; None: they hold no examples.
        """
        stop, waiting = Event(), deque[tuple[Future[None], Stream]]()
        coming = (self._submit(unit, stop) for unit in units)
        try:
            waiting.extend(islice(coming, most))
            while waiting:
                block = waiting[0][1].get()
                if isinstance(block, BaseException):
                    raise block
                if block is None:
                    waiting.popleft()
                    waiting.extend(islice(coming, 1))
                else:
                    yield block
        finally:
            stop.set()
            for future, stream in waiting:
                _drain(future, stream)

    def _submit(self, unit: Unit, stop: Event) -> "tuple[Future[None], Stream]":
        stream: Stream = SimpleQueue()
        return self._threads.submit(self._fill, unit, stream, stop), stream

    def _fill(self, unit: Unit, stream: "Stream", stop: Event) -> None:
        reader = self._idle.get()
        try:
            reader.read(unit, stream, stop)
        except BaseException as error:
            stream.put(error)
        finally:
            stream.put(None)
            self._start(reader)


Block = tuple[Batch, list[BadItem]]
"""Examples of a unit, at most a batch, and those before them that cannot be used."""

Stream = SimpleQueue[Block | BaseException | None]
"""The blocks of a unit, or what its reader raised; ended by None."""


def _drain(future: "Future[None]", stream: Stream) -> None:
    """Free what a unit has read that is not needed any more."""
    while not future.cancel() and (block := stream.get()) is not None:
        if not isinstance(block, BaseException):
            block[0].release()


class Reader:
    """One process, and its memory."""

    def __init__(self, job: Extraction, seconds: float | None = None) -> None:
        self._job, self._seconds = job, seconds
        self._child: Child | None = None
        self.is_reading = False
        self._slots = [Slot(nameless_file()) for _ in range(SLOTS)]
        self._free: SimpleQueue[int] = SimpleQueue()
        for number in range(SLOTS):
            self._free.put(number)

    @property
    def num_free(self) -> int:
        return self._free.qsize()

    def start(self) -> Any:
        """Start the process if there is none, and load the transform there; return it."""
        if self._child is None:
            files = [slot.file for slot in self._slots]
            self._child = Child(files, self._job.spec.extract.threads_per_actor)
            try:
                self._child.call(_begin, self._job, files)
            except BaseException:
                self.end()
                raise
        return self._child

    def read(self, unit: Unit, stream: Stream, stop: Event) -> None:
        """Put the blocks of a unit into a stream, unless it is stopped."""
        asked: Unit | None = unit
        while not stop.is_set():
            slot = self._free.get()
            self.is_reading = True
            try:
                batch, layout, unfit = self.ask(asked, slot)
            except BaseException as error:
                self._free.put(slot)
                if isinstance(error, EndedError):
                    self.end()
                raise
            finally:
                self.is_reading = False
            asked = None
            free = partial(self._free.put, slot)
            if batch.ids:
                shape, strides = layout
                batch.attach(np.ndarray(shape, np.float32, self.memory(slot, 4 * prod(shape)), 0, strides), free)
            else:
                free()
            stream.put((batch, unfit))
            if not batch.ids:
                return

    def ask(self, unit: Unit | None, slot: int) -> "Answer":
        """Return what :meth:`Reading.next` returns; raises EndedError if the process is lost."""
        answer: Answer = self.start().call(_next, unit, slot, seconds=self._seconds)
        return answer

    def memory(self, slot: int, num_bytes: int) -> Any:
        """Return the memory of the inputs of an answer."""
        return self._slots[slot].memory(num_bytes)

    def end(self) -> None:
        """End the process; another one may start."""
        child, self._child = self._child, None
        if child is not None:
            child.end()

    def forget(self) -> None:
        """Let the memory go once no batch is in it."""
        for slot in self._slots:
            os.close(slot.file)


class Slot:
    """Memory that two processes share: a file without a name, of a size that grows."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._map: mmap.mmap | None = None

    def memory(self, num_bytes: int) -> mmap.mmap:
        """Return the first bytes."""
        if self._map is None or len(self._map) < num_bytes:
            if os.fstat(self.file).st_size < num_bytes:
                os.ftruncate(self.file, num_bytes)
            self._map = mmap.mmap(self.file, num_bytes)
        return self._map


def nameless_file() -> int:
    if hasattr(os, "memfd_create"):  # not limited by the size of /dev/shm, which is 64 MB in a container
        return os.memfd_create("opacc")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


# -- in the process ---------------------------------------------------------------------------------------------


class Reading:
    """What a reader's process has loaded, and the unit that it reads."""

    @watched()
    def __init__(self, job: Extraction, files: Sequence[int]) -> None:
        """``files`` are those of the slots."""
        if (job.spec.transform or "").startswith("__main__:"):
            raise SpecError(
                f"transform: {job.spec.transform!r} is only in the process that defines it; move it to a module, or "
                "set extract.readers: 0"
            )
        job.see_code()
        self._job = job
        self._slots = [Slot(file) for file in files]
        self._memory = self._slots[0].memory
        self._inputs = Inputs(job.spec, job.source)
        self._bad: list[BadItem] = []
        self._batches: Iterator[Batch] = iter(())
        self._recorded: tuple[int, int] | None = None  # state of the process when its code was recorded

    @watched()
    def next(self, unit: Unit | None, slot: int) -> "Answer":
        """Return the next batch of the unit, or the first of another one; after the last, one without examples."""
        self._memory = self._slots[slot].memory
        if unit is not None:
            self._batches = self._inputs.read(
                unit.shard, self._bad, unit.digests, lambda size: self._memory(size), unit.packed
            )
        batch = next(self._batches, None)
        bad = self._bad.copy()
        self._bad.clear()
        if batch is None and self._recorded != (now := model_code.state()):
            model_code.record(self._job.target, self._job.modules)
            self._recorded = now
        batch = batch or Batch(1)
        return batch, batch.detach(), bad


Answer = tuple[Batch, tuple[tuple[int, ...], tuple[int, ...]], list[BadItem]]
"""A batch without its inputs, their shape and strides in the slot, and the bad items before it."""

_reading: Reading | None = None  # of this process


def _begin(job: Extraction, files: Sequence[int]) -> None:
    global _reading
    _reading = Reading(job, files)


def _next(unit: Unit | None, slot: int) -> Answer:
    assert _reading is not None
    return _reading.next(unit, slot)
