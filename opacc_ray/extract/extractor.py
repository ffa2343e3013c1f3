"""One shard of the pool → one file of features. What an actor does, without Ray.

A shard's file is written once and whole, so it is the checkpoint of its work: what exists is done.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract import reference
from opacc_ray.extract.columns import Columns, not_finite
from opacc_ray.extract.outputs import read_output
from opacc_ray.extract.shards import FeatureShard, ShardReport, encode_shard, report_on
from opacc_ray.extract.user_code import user_code
from opacc_ray.lake.examples import BadItem, Examples, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.neurons.coverage import Ranges
from opacc_ray.spec import SURPRISE, PoolSpec, Spec, load_function

if TYPE_CHECKING:
    from opacc_ray.extract.model import Activations, Model


_COVERED = "covered layers"  # a column that is never written: NaN where a value of these layers is not finite


@dataclass(frozen=True)
class Extraction:
    """What to extract, from where and where to: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of what the features compare with
    ranges: bool = False  # extract ranges of the covered neurons, too


class Extractor:
    """Holds the model, and what features compare with; turns shards into files of features.

    ``extract`` may be called from two threads at a time: the second reads its examples while the first computes.
    """

    def __init__(self, job: Extraction, device: str = "cpu") -> None:
        self._job = job
        self._device = device
        self._source = open_store(job.source.uri)
        self._model: Model | None = None
        self._reference = reference.NONE
        self._computing = threading.RLock()

    def prepare(self) -> "Model":
        """Load model and reference, once. Called first, so that their errors come before any shard is read."""
        from opacc_ray.extract.model import Model

        job, extract = self._job, self._job.spec.extract
        with self._computing:
            if self._model is None:
                load_transform(job.spec)
                covered = extract.coverage if job.ranges or "coverage" in job.names else None
                model = Model(job.spec.model, self._device, extract.precision, extract.threads_per_actor, covered)
                if job.reference is not None:
                    self._reference = reference.load(job.reference, job.spec, model.arrays)
                self._model = model
            return self._model

    def extract(self, shard: Shard) -> ShardReport:
        """Read, compute and write one shard; raises DataError naming the example that is at fault."""
        job = self._job
        examples = read_examples(self._source, job.source.format, shard)
        self._check(examples.bad)
        with self._computing:
            columns, ranges = self._compute(examples)
        whole = self._without_bad_rows(FeatureShard(*examples[:2], columns, examples.bad, examples.own_ids))
        if ranges:
            reference.write_ranges(job.target, shard, ranges)
        data = encode_shard(whole, self.prepare().machine)
        job.target.write(shard.file, data)
        return report_on(whole, data, job.target.uri_of(shard.file))

    def _compute(self, examples: Examples) -> tuple[Columns, list[Ranges]]:
        """Columns of a shard, and ranges of the covered neurons batch by batch."""
        spec = self._job.spec
        parts: list[Columns] = []
        ranges: list[Ranges] = []
        for batch in _batches(examples, load_transform(spec), spec.extract.batch_size):
            activations = self._run(batch)
            parts.append(self._measure(activations))
            sound = np.delete(np.arange(len(batch)), list(not_finite(parts[-1])))
            if self._job.ranges and len(sound):
                ranges.append(Ranges.of([values[sound] for values in activations.layers]))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
        return columns | self._compare(columns), ranges

    def _run(self, batch: NDArray[np.float32]) -> "Activations":
        return run_model(self.prepare(), batch)

    def _measure(self, activations: "Activations") -> Columns:
        """Columns of a batch: the named ones, and those that tell of surprise and of NaN in covered layers."""
        job, spec = self._job, self._job.spec
        columns: Columns = {"hidden": activations.hidden}
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
        if "coverage" in job.names:
            columns["coverage"] = spec.extract.coverage.rule.bits(activations.layers, self._reference.ranges)
        wanted = {*job.names, _COVERED} | ({"hidden", "prediction"} if self._reference.traces else set())
        return {name: values for name, values in columns.items() if name in wanted}

    def _compare(self, columns: Columns) -> Columns:
        """Surprise of a shard's examples."""
        traces = self._reference.traces
        if traces is None or not columns:
            return {}
        predicted = None if self._job.spec.model.task == "regression" else columns["prediction"]
        measures = {"dsa": traces.dsa, "lsa": traces.lsa}
        return {name: measures[name](columns["hidden"], predicted) for name in SURPRISE if name in self._job.names}

    def _without_bad_rows(self, shard: FeatureShard) -> FeatureShard:
        """The named columns. NaN or infinity in any is an error, or a bad item if the spec excludes those."""
        found = not_finite(shard.columns)
        bad = [BadItem(shard.ids[row], self._reason(name, shard.columns, row)) for row, name in found.items()]
        self._check(bad)
        kept = [row for row in range(len(shard.ids)) if row not in found]
        return FeatureShard(
            [shard.ids[row] for row in kept],
            [shard.uris[row] for row in kept],
            {name: shard.columns[name][kept] for name in self._job.names if name in shard.columns},
            [*shard.bad, *bad],
            shard.own_ids,
        )

    def _reason(self, name: str, columns: Columns, row: int) -> str:
        if name not in SURPRISE or np.isnan(columns[name][row]) or self._reference.traces is None:
            return f"NaN or infinity in {name}"
        predicted = columns["prediction"][row]
        if predicted in self._reference.traces.classes:
            return "the nearest reference trace of its predicted class is one of another class, too, so dsa is infinite"
        return f"no example of the reference is predicted as its class, {predicted}, so it has no {name}"

    def _check(self, bad: list[BadItem]) -> None:
        if bad and self._job.spec.extract.on_bad_item == "error":
            raise refusal(self._job, bad[0])


def run_model(model: "Model", batch: NDArray[np.float32]) -> "Activations":
    """Run a batch (B, ...); raises DataError in one sentence if the user's model cannot."""
    remedy = "set transform to a function that makes the input it was trained on"
    with user_code(f"the model, given a batch of shape {batch.shape},", remedy):
        return model(batch)


def load_transform(spec: Spec) -> Callable[[NDArray[Any]], Any]:
    """The spec's transform, or the default one."""
    return load_function(spec.transform, "transform") if spec.transform else default_transform


def default_transform(example: NDArray[Any]) -> NDArray[np.float32]:
    """uint8 and uint16 images to [0, 1] with the channel first, (H, W[, channels]) -> (channels, H, W).

    Other types are taken as they are.
    """
    if example.dtype not in (np.uint8, np.uint16):
        return example.astype(np.float32)
    scaled = np.divide(example, np.iinfo(example.dtype).max, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]


def _batches(examples: Examples, transform: Callable[[NDArray[Any]], Any], size: int) -> Iterator[NDArray[np.float32]]:
    """Batches of inputs (B, ...); cut by position in the shard, so always the same."""
    for start in range(0, len(examples.arrays), size):
        stop = min(start + size, len(examples.arrays))
        inputs = [transformed(transform, examples.ids[row], examples.arrays[row]) for row in range(start, stop)]
        odd = next((i for i, item in enumerate(inputs) if item.shape != inputs[0].shape), None)
        if odd is not None:
            raise DataError(
                f"example {examples.ids[start + odd]!r} has shape {inputs[odd].shape} and "
                f"{examples.ids[start]!r} {inputs[0].shape}; set transform to a function that makes them alike"
            )
        yield np.stack(inputs)


def transformed(transform: Callable[[NDArray[Any]], Any], name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    """The model's input of one example."""
    with user_code(f"transform, given example {name!r} of shape {array.shape} and type {array.dtype},"):
        return np.asarray(transform(array), dtype=np.float32)


def refusal(job: Extraction, item: BadItem) -> DataError:
    """The error that a bad item is unless the spec excludes those."""
    aim = "state the accuracy of" if job.source == job.spec.pool else "compare with"
    return DataError(
        f"example {item.id!r} of {job.source.uri}: {item.reason}; "
        f"repair or remove it, or set extract.on_bad_item: exclude to {aim} the rest"
    )
