"""One shard of the pool → one file of features. What an actor does, without Ray.

A shard's file is written once and whole, so it is the checkpoint of its work: what exists is done.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray import features
from opacc_ray.errors import DataError
from opacc_ray.sources import BadItem, Examples, Shard, read_examples
from opacc_ray.spec import Spec, load_function
from opacc_ray.storage import Store, open_store

if TYPE_CHECKING:
    from opacc_ray.model import Activations, Model


@dataclass(frozen=True)
class Extraction:
    """What to extract, and where to: small enough to send to every actor."""

    spec: Spec
    names: tuple[str, ...]
    target: Store  # the run's folder of features


class ShardReport(NamedTuple):
    """What the driver learns of a finished shard."""

    number: int
    num_examples: int
    num_bad: int


class Extractor:
    """Holds the model; turns shards into files of features.

    ``extract`` may be called from two threads at a time: the second reads its examples while the first computes.
    """

    def __init__(self, job: Extraction, device: str = "cpu") -> None:
        self._job = job
        self._device = device
        self._source = open_store(job.spec.pool.uri)
        self._model: Model | None = None
        self._computing = threading.RLock()

    def prepare(self) -> "Model":
        """Load the model, once. Called first, so that its errors come before any shard is read."""
        from opacc_ray.model import Model

        spec = self._job.spec
        with self._computing:
            if self._model is None:
                load_transform(spec)
                extract = spec.extract
                self._model = Model(spec.model, self._device, extract.precision, extract.threads_per_actor)
            return self._model

    def extract(self, shard: Shard) -> ShardReport:
        """Read, compute and write one shard; raises DataError naming the example that is at fault."""
        spec = self._job.spec
        examples = read_examples(self._source, spec.pool.format, shard)
        if examples.bad and spec.extract.on_bad_item == "error":
            raise _bad_item(spec, examples.bad[0])
        with self._computing:
            columns = self._compute(examples)
        whole = features.FeatureShard(examples.ids, examples.uris, columns, examples.bad)
        whole = self._without_bad_rows(whole)
        self._job.target.write(f"{shard.name}.parquet", features.encode(whole))
        return ShardReport(shard.number, len(whole.ids), len(whole.bad))

    def _compute(self, examples: Examples) -> features.Columns:
        spec = self._job.spec
        batches = [
            features.compute_columns(
                self._job.names, *self._run(batch), task=spec.model.task, output_kind=spec.model.output
            )
            for batch in _batches(examples, load_transform(spec), spec.extract.batch_size)
        ]
        if not batches:
            return {}
        return {name: np.concatenate([batch[name] for batch in batches]) for name in self._job.names}

    def _run(self, batch: NDArray[np.float32]) -> "Activations":
        try:
            return self.prepare()(batch)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:300]
            raise DataError(
                f"the model does not take a batch of shape {batch.shape} ({reason}); "
                "set transform to a function that makes the input it was trained on"
            ) from None

    def _without_bad_rows(self, shard: features.FeatureShard) -> features.FeatureShard:
        """NaN or infinity in a feature is an error, or a bad item if the spec excludes those."""
        while (found := features.first_not_finite(shard.columns)) is not None:
            name, row = found
            item = BadItem(shard.ids[row], f"NaN or infinity in {name}")
            if self._job.spec.extract.on_bad_item == "error":
                raise _bad_item(self._job.spec, item)
            shard = features.FeatureShard(
                shard.ids[:row] + shard.ids[row + 1 :],
                shard.uris[:row] + shard.uris[row + 1 :],
                {key: np.delete(values, row, axis=0) for key, values in shard.columns.items()},
                [*shard.bad, item],
            )
        return shard


def load_transform(spec: Spec) -> Callable[[NDArray[Any]], Any]:
    """The spec's transform, or the default one."""
    return load_function(spec.transform, "transform") if spec.transform else default_transform


def default_transform(example: NDArray[Any]) -> NDArray[np.float32]:
    """uint8 images to [0, 1] with the channel first, (H, W[, channels]) -> (channels, H, W); others as they are."""
    if example.dtype != np.uint8:
        return example.astype(np.float32)
    scaled = np.divide(example, 255, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]


def _batches(examples: Examples, transform: Callable[[NDArray[Any]], Any], size: int) -> Iterator[NDArray[np.float32]]:
    """Batches of inputs (B, ...); cut by position in the shard, so always the same."""
    for start in range(0, len(examples.arrays), size):
        inputs = [np.asarray(transform(array), dtype=np.float32) for array in examples.arrays[start : start + size]]
        odd = next((i for i, item in enumerate(inputs) if item.shape != inputs[0].shape), None)
        if odd is not None:
            raise DataError(
                f"example {examples.ids[start + odd]!r} has shape {inputs[odd].shape} and "
                f"{examples.ids[start]!r} {inputs[0].shape}; set transform to a function that makes them alike"
            )
        yield np.stack(inputs)


def _bad_item(spec: Spec, item: BadItem) -> DataError:
    return DataError(
        f"example {item.id!r} of {spec.pool.uri}: {item.reason}; "
        "mend or remove it, or set extract.on_bad_item: exclude to state the accuracy of the rest"
    )
