"""One shard of the pool → one file of features. What an actor does, without Ray.

A shard's file is written once and whole, so it is the checkpoint of its work: what exists is done.
"""

import os
import threading
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError
from opacc_ray.extract import reference
from opacc_ray.extract.code import Code, check_unchanged
from opacc_ray.extract.inference import check_hidden, in_halves, load_model, run_model
from opacc_ray.extract.inputs import Batch, load_transform, transformed
from opacc_ray.extract.machine import yield_to_others
from opacc_ray.extract.outputs import read_output
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
from opacc_ray.extract.source import open_pool, rules_of
from opacc_ray.lake.ahead import NextAhead
from opacc_ray.lake.arrow import to_numpy
from opacc_ray.lake.examples import BadItem, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.storage import Store
from opacc_ray.neurons.coverage import Ranges
from opacc_ray.spec import SURPRISE, PoolSpec, Spec, see_modules

if TYPE_CHECKING:
    from opacc_ray.extract.inference import Activations, FunctionModel
    from opacc_ray.extract.model import Device, Model

_COVERED = "covered layers"  # a column that is never written: NaN where a value of these layers is not finite


class Interrupted(OpaccError):
    """Work that was ended on purpose between two batches, and wrote nothing."""

    exit_code = 4


class Base(NamedTuple):
    """Features that are there, of the same shards."""

    folder: Store
    names: tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """What to extract, from where and where to: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of what the features compare with
    ranges: bool = False  # extract ranges of the covered neurons, too
    beside: tuple[tuple[str, Store], ...] = ()  # further features, made in the same pass, each in a folder of its own
    base: Base | None = None  # the one named feature is added to these, for the examples that they have
    modules: str = field(default_factory=os.getcwd)  # the driver's folder, where the user's modules may lie
    code: Code | None = None  # that the features are named after

    @property
    def made(self) -> tuple[str, ...]:
        """All features that are made."""
        return (*self.names, *(name for name, _ in self.beside))

    @property
    def needs_model(self) -> bool:
        """Whether the model runs; surprise is computed from the hidden layer where that is stored."""
        held = self.base.names if self.base else ()
        return self.base is None or not ("hidden" in held and set(self.names) <= set(SURPRISE))


class Extractor:
    """Holds the model, and what features compare with; turns shards into files of features.

    ``extract`` may be called from two threads at a time. While one computes a batch of its shard, the next one is read
    and decoded on a further thread; the other writes the shard before, reads the first batch of the one after, and
    computes when the first has to wait. The transform is called by one thread at a time, the model too. Of each shard,
    one decoded example, what was read ahead and the inputs of a batch are in memory, and those of a second batch of
    the one that computes. Images are decoded by ``readers`` threads ahead.
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
        self._computed: dict[int, Batch] = {}  # and the one that the model is given

    def interrupt(self) -> None:
        """End shards after the batch that is being computed, and begin no other: they raise Interrupted."""
        self._interrupted.set()

    @property
    def places(self) -> dict[int, tuple[str, str]]:
        """First and last id of the batch that each shard in work has come to, by the shard's number."""
        return {number: batch.span for number, batch in (self._reading | self._computed).items()}

    def prepare(self) -> "Device | FunctionModel":
        """Load the model, if it is to run, and the reference, once: their errors come before any shard is read."""
        if self._device is not None:  # what writes a shard asks, and need not wait for one that computes
            return self._device
        with self._computing:
            if self._device is None:
                device = self._load()
                if self._job.reference is not None:
                    self._reference = reference.load(self._job.reference, self._job.spec, device.arrays)
                self._device = device
            return self._device

    def _load(self) -> "Device | FunctionModel":
        job, extract = self._job, self._job.spec.extract
        if not job.needs_model:
            from opacc_ray.extract.model import Device

            return Device(self._device_name, extract.threads_per_actor)
        see_modules(job.modules)
        if job.code is not None:
            check_unchanged(job.code, job.spec, job.modules)
        load_transform(job.spec)
        covered = extract.coverage if job.ranges or "coverage" in job.made else None
        return load_model(job.spec, self._device_name, covered)

    def extract(self, shard: Shard) -> ShardReport:
        """Read, compute and write one shard; raises DataError naming the example that is at fault."""
        job = self._job
        if job.base is not None:
            return self._write(job.target, shard, self._added(job.names[0], self._on_base(shard, job.base)))
        found, ranges = self._compute(shard)
        if ranges:
            reference.write_ranges(job.target, shard, ranges)
        if not job.beside:
            return self._write(job.target, shard, kept_rows(job, self._reference, found))
        own = {name: found.columns[name] for name in job.names if name in found.columns}
        whole = kept_rows(job, self._reference, found._replace(columns=own))
        base = _rows_of(found, whole.ids, whole.bad)
        for name, folder in job.beside:
            self._write(folder, shard, self._added(name, base))
        return self._write(job.target, shard, whole)

    def _write(self, folder: Store, shard: Shard, features: FeatureShard) -> ShardReport:
        """Write a shard on a thread that gives way to the one that computes."""
        with ThreadPoolExecutor(1, "opacc-write", yield_to_others) as behind:
            return behind.submit(self._write_now, folder, shard, features).result()

    def _write_now(self, folder: Store, shard: Shard, features: FeatureShard) -> ShardReport:
        data = encode_shard(features, self.prepare().machine)
        report = report_on(features, data, folder.uri_of(shard.file))
        check_plan(folder, self._job.source.format, shard, report)
        folder.write(shard.file, data)
        self._reading.pop(shard.number, None)
        return report

    def _on_base(self, shard: Shard, base: Base) -> FeatureShard:
        """The examples that the base has of a shard, with what the feature is made of."""
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
        """One feature of the examples of a base, whose columns are what it is made of."""
        columns = dict(base.columns) if base.ids else {}
        with self._computing:
            self.prepare()
            columns |= surprise_of(self._job, self._reference, columns, [name])
        wanted = (name, _COVERED, *(("prediction",) if name in SURPRISE else ()))
        own = {key: values for key, values in columns.items() if key in wanted}
        return kept_rows(self._job, self._reference, base._replace(columns=own), [name])

    def _compute(self, shard: Shard) -> tuple[FeatureShard, list[Ranges]]:
        """All columns of a shard, and ranges of the covered neurons batch by batch."""
        uris: list[str] = []
        found = FeatureShard([], uris, {}, [], own_ids=False)
        parts: list[Columns] = []
        ranges: list[Ranges] = []
        with closing(self._batches_in_turn(shard, found.bad)) as batches:
            for batch in batches:
                self._refuse_interrupted(shard)
                with self._at(shard, batch):
                    columns_of_batch, activations = self.compute(batch)
                parts.append(columns_of_batch)
                if self._job.ranges:
                    ranges += _ranges_of(columns_of_batch, activations)
                found.ids.extend(batch.ids)
                uris.extend(batch.uris)
                found = found._replace(own_ids=batch.own_ids)
        columns = joined(parts)
        if self._job.base is None and self._reference.traces is not None:
            with self._computing:
                columns |= surprise_of(self._job, self._reference, columns)
        return found._replace(columns=columns), ranges

    def _batches_in_turn(self, shard: Shard, bad: list[BadItem]) -> Generator[Batch, None, None]:
        """Batches of inputs, read one ahead; no other shard computes until one of this shard has to be waited for."""
        with NextAhead(self.read_batches(shard, bad), yield_to_others) as ahead:
            while (batch := ahead.take()) is not None:
                with self._computing:
                    while batch is not None:
                        yield batch
                        batch.release()  # the inputs of the next one are in memory
                        batch = ahead.take() if ahead.is_there else None

    @contextmanager
    def _at(self, shard: Shard, batch: Batch) -> Iterator[None]:
        """Note what the model is given while it computes."""
        self._computed[shard.number] = batch
        try:
            yield
        finally:
            del self._computed[shard.number]

    def _refuse_interrupted(self, shard: Shard) -> None:
        if self._interrupted.is_set():
            raise Interrupted(f"shard {shard.name} was interrupted; run the same command again")

    def compute(self, batch: "Batch") -> tuple[Columns, "Activations"]:
        """Columns of a batch, and what the model made of it; one thread at a time."""
        with self._computing:
            activations = self._run(batch.inputs)
            return self._measure(activations), activations

    def read_batches(self, shard: Shard, bad: list[BadItem]) -> Generator["Batch", None, None]:
        """Batches of inputs, cut by position among the sound examples and so always the same; others go to ``bad``."""
        spec, source = self._job.spec, self._job.source
        rules = rules_of(source)._replace(readers=self._readers)
        transform = load_transform(spec)
        batch = Batch(spec.extract.batch_size)
        for item in read_examples(self._source, source.format, shard, rules):
            if isinstance(item, BadItem):
                check_bad(self._job, [item])
                bad.append(item)
                continue
            batch.coming = item.id
            if not batch.ids:
                self._reading[shard.number] = batch
            with self._transforming:
                batch.add(item, transformed(transform, item))
            if batch.is_full:
                yield batch
                batch = Batch(spec.extract.batch_size)
        if batch.ids:
            yield batch

    def _run(self, batch: NDArray[np.float32]) -> "Activations":
        """Run a batch; on a GPU whose memory runs out, in halves of it."""
        model = cast("Model | FunctionModel", self.prepare())
        if self._device_name == "cpu":
            return run_model(model, batch)
        return in_halves(lambda part: run_model(model, part), batch)

    def _measure(self, activations: "Activations") -> Columns:
        """Columns of a batch: the named ones, and those that tell of surprise and of NaN in covered layers."""
        job, spec = self._job, self._job.spec
        check_hidden(job.names, activations)
        columns: Columns = {} if activations.hidden is None else {"hidden": activations.hidden}
        columns |= read_output(
            activations.output,
            task=spec.model.task,
            kind=spec.model.output,
            threshold=spec.model.threshold,
            precision=spec.extract.precision,
        )
        if activations.layers:
            sound = np.all([np.isfinite(values).all(axis=1) for values in activations.layers], axis=0)  # (B,)
            columns[_COVERED] = np.where(sound, 0.0, np.nan)
        if "coverage" in job.made:
            columns["coverage"] = spec.extract.coverage.rule.bits(activations.layers, self._reference.ranges)
        wanted = {*job.made, _COVERED} | ({"hidden", "prediction"} if self._reference.traces else set())
        return {name: values for name, values in columns.items() if name in wanted}


def _ranges_of(columns: Columns, activations: "Activations") -> list[Ranges]:
    """Ranges of the covered neurons over the examples of a batch that are finite; none where no example is."""
    sound = np.delete(np.arange(len(activations.output)), list(not_finite(columns)))
    return [Ranges.of([values[sound] for values in activations.layers])] if len(sound) else []


def surprise_of(
    job: Extraction, loaded: reference.Loaded, columns: Columns, names: Sequence[str] | None = None
) -> Columns:
    """Surprise of a shard's examples beside the reference, as far as it is named; by the job unless ``names`` are."""
    if loaded.traces is None or not columns:
        return {}
    predicted = None if job.spec.model.task == "regression" else columns["prediction"]
    measures = {"dsa": loaded.traces.dsa, "lsa": loaded.traces.lsa}
    missing = [name for name in SURPRISE if name in (job.names if names is None else names) and name not in columns]
    return {name: measures[name](columns["hidden"], predicted) for name in missing}


def kept_rows(
    job: Extraction, loaded: reference.Loaded, shard: FeatureShard, names: Sequence[str] | None = None
) -> FeatureShard:
    """The named columns, by the job unless ``names`` are given.

    NaN or infinity in any is an error, or a bad item if the spec excludes those.
    """
    found = not_finite(shard.columns)
    bad = [BadItem(shard.ids[row], _reason(loaded, name, shard.columns, row)) for row, name in found.items()]
    check_bad(job, [*shard.bad, *bad])
    wanted = job.names if names is None else names
    if not found:
        return shard._replace(columns={name: shard.columns[name] for name in wanted if name in shard.columns})
    kept = [row for row in range(len(shard.ids)) if row not in found]
    return _take(shard, kept, wanted)._replace(bad=[*shard.bad, *bad])


def _reason(loaded: reference.Loaded, name: str, columns: Columns, row: int) -> str:
    if name not in SURPRISE or np.isnan(columns[name][row]) or loaded.traces is None:
        return f"NaN or infinity in {name}"
    predicted = columns["prediction"][row]
    if predicted in loaded.traces.classes:
        return "the nearest reference trace of its predicted class is one of another class, too, so dsa is infinite"
    return f"no example of the reference is predicted as its class, {predicted}, so it has no {name}"


def check_bad(job: Extraction, bad: Sequence[BadItem]) -> None:
    """Raise DataError for the first example that could not be used, unless the spec excludes those."""
    if bad and job.spec.extract.on_bad_item == "error":
        raise refusal(job.spec, job.source, bad[0])


def _take(shard: FeatureShard, rows: Sequence[int], names: Sequence[str]) -> FeatureShard:
    """Some rows of some columns, as far as these are there."""
    return shard._replace(
        ids=[shard.ids[row] for row in rows],
        uris=None if shard.uris is None else [shard.uris[row] for row in rows],
        columns={name: shard.columns[name][list(rows)] for name in names if name in shard.columns},
    )


def _rows_of(found: FeatureShard, ids: Sequence[str], bad: list[BadItem]) -> FeatureShard:
    """All columns of the examples with these ids, which are those that others are not bad of.

    Raises
    ------
    DataError
        One of them could not be read.
    """
    places = {name: row for row, name in enumerate(found.ids)}
    lost = [name for name in ids if name not in places]
    if lost:
        raise DataError(f"example {lost[0]!r} cannot be read now, and could be before; restore it and run again")
    rows = _take(found, [places[name] for name in ids], list(found.columns))
    return rows._replace(uris=None, bad=bad, own_ids=False)


def refusal(spec: Spec, source: PoolSpec, item: BadItem) -> DataError:
    """The error that a bad item is unless the spec excludes those."""
    aim = "state the accuracy of" if source == spec.pool else "compare with"
    return DataError(
        f"example {item.id!r} of {source.uri}: {item.reason}; "
        f"repair or remove it, or set extract.on_bad_item: exclude to {aim} the rest"
    )
