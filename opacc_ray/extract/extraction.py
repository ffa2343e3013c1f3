"""What to extract, from where and to where, and the path of an example through an actor, from the pool to outputs.

    decode        lake.pools.read_numbered: a shard's examples, or bad items that say why one cannot be used
    transform     the user's function, or the default one, from a decoded example to the model's input
    stack         a `Batch`, always cut at the same examples of a shard
    run           the model, on a device
    columns       output, prediction, confidence and hidden layer of each example

Extraction, the trial before it and the check of stored features all use it.
"""

import os
import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.content_digest import Code
from opacc_ray.extract.feature_set import left_of, merged, read_carried
from opacc_ray.extract.inference import columns_of, load_model
from opacc_ray.extract.machine import in_halves
from opacc_ray.extract.shards import Columns, FeatureShard, joined, not_finite
from opacc_ray.extract.user_code import Activations, user_code
from opacc_ray.lake.examples import BadItem, Example, Shard, source_of
from opacc_ray.lake.pools import read_numbered
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import CoverageSpec, PoolSpec, Spec, load_function, open_pool, rules_of

if TYPE_CHECKING:
    from opacc_ray.extract.inference import FunctionModel
    from opacc_ray.extract.torch_model import Model


@dataclass(frozen=True)
class Extraction:
    """What to extract, its source and its target: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of the reference
    ranges: bool = False  # also extract ranges of the covered neurons
    hidden: Store | None = None  # folder of the hidden layer that dsa or lsa is computed from; None: the model runs
    modules: str = field(default_factory=os.getcwd)  # the driver's folder, which may contain the user's modules
    code: Code | None = None  # that is part of the features' digest
    known: Store | None = None  # complete features of an earlier listing of the pool

    def features_of(self, shard: Shard, compute: Callable[[Shard], FeatureShard]) -> FeatureShard:
        """Return a shard's features: the known ones of its parts, and what ``compute`` returns of the others.

        NaN or infinity in a computed one is an error, or a bad item if the spec excludes those.
        """
        left = left_of(shard)
        parts = [] if self.known is None or not shard.carried else [read_carried(self.known, self.names, shard)]
        if left or not parts:
            parts.append(self.usable(compute(shard.only(left))))
        return merged(shard, parts)

    def usable(self, shard: FeatureShard) -> FeatureShard:
        """Return the named columns of the examples without NaN or infinity in any column."""
        unfit = not_finite(shard.columns)
        bad = [
            BadItem(shard.ids[row], f"NaN or infinity in {name}", None if shard.sources is None else shard.sources[row])
            for row, name in unfit.items()
        ]
        check_bad(self.spec, self.source, [*shard.bad, *bad])
        rows = [row for row in range(len(shard.ids)) if row not in unfit]
        return shard.take(rows, self.names)._replace(bad=[*shard.bad, *bad])


def check_bad(spec: Spec, source: PoolSpec, bad: Sequence[BadItem]) -> None:
    """Raise DataError for the first example that could not be used, unless the spec excludes those."""
    if bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, source, bad[0])


def refusal(spec: Spec, source: PoolSpec, item: BadItem) -> DataError:
    """Return the error for a bad item that the spec does not exclude."""
    aim = "state the accuracy of" if source == spec.pool else "compare with"
    return DataError(
        f"example {item.id!r} of {source.uri}: {item.reason}; "
        f"repair or remove it, or set extract.on_bad_item: exclude to {aim} the rest"
    )


_FIRST_BYTES = 1 << 30  # of a batch, reserved at first, which take no memory before they are written; then it grows


class Feed:
    """The transform and the model of a spec, and the path of the examples of one source through both.

    ``readers`` threads decode; the transform is called by one thread at a time. Raises SpecError or DataError if
    transform or model cannot be loaded.
    """

    def __init__(
        self,
        spec: Spec,
        source: PoolSpec,
        device: str = "cpu",
        coverage: CoverageSpec | None = None,
        readers: int = 1,
    ) -> None:
        self._spec, self._source, self._readers, self._device = spec, source, readers, device
        self._store = open_pool(source)
        self._transform = load_transform(spec)
        self._transforming = threading.Lock()
        self.model = load_model(spec, device, coverage)

    def read(self, shard: Shard, bad: list[BadItem]) -> Generator["Batch", None, None]:
        """Yield the batches of a shard; examples that cannot be used are appended to ``bad``, or are errors."""
        size, digests = self._spec.extract.batch_size, [source_of(part) for part in shard.parts]
        rules = rules_of(self._source)._replace(readers=self._readers)
        batch = Batch(size)
        for number, item in read_numbered(self._store, self._source.format, shard, rules):
            if isinstance(item, BadItem):
                check_bad(self._spec, self._source, [item])
                bad.append(item._replace(source=digests[number]))
                continue
            with self._transforming:
                batch.add(item, transformed(self._transform, item), digests[number])
            if batch.is_full:
                yield batch
                batch = Batch(size)
        if batch.ids:
            yield batch

    def batch(self, examples: Sequence[Example]) -> "Batch":
        """Return decoded examples as one batch."""
        batch = Batch(max(1, len(examples)))
        for example in examples:
            batch.add(example, transformed(self._transform, example))
        return batch

    def run(self, batch: "Batch") -> Activations:
        """Run the model on a batch; on its halves, if the memory of a GPU runs out."""
        if self._device == "cpu":
            return run_model(self.model, batch.inputs)
        return run_that_fits(lambda part: run_model(self.model, part), batch.inputs)

    def columns(self, batch: "Batch", required: Sequence[str] = ()) -> Columns:
        """Run the model on a batch and return its columns; raises as :func:`columns_of`."""
        return columns_of(self._spec, self.run(batch), required)


def run_here(spec: Spec, examples: Sequence[Example], name: str) -> Columns:
    """Run a spec's transform and model on decoded examples in this process, on the CPU, batch after batch.

    Raises the errors of extraction; ``name`` is the model's in the error for NaN or infinity.
    """
    feed, size, parts = Feed(spec, spec.pool), spec.extract.batch_size, []
    for start in range(0, len(examples), size):
        batch = feed.batch(examples[start : start + size])
        columns = feed.columns(batch)
        for row, column in not_finite(columns).items():
            raise DataError(f"{name} gives NaN or infinity in {column} for example {batch.ids[row]!r}; mend the model")
        parts.append(columns)
    return joined(parts)


# -- transform -------------------------------------------------------------------------------------------------


def load_transform(spec: Spec) -> Callable[[NDArray[Any]], Any]:
    """Return the spec's transform, or the default one."""
    return load_function(spec.transform, "transform") if spec.transform else default_transform


def default_transform(example: NDArray[Any]) -> NDArray[np.float32]:
    """Scale uint8 and uint16 images to [0, 1] with the channel first, (H, W[, channels]) -> (channels, H, W).

    Other types are only converted to float32.
    """
    if example.dtype not in (np.uint8, np.uint16):
        return example.astype(np.float32)
    scaled = np.divide(example, np.iinfo(example.dtype).max, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]


def transformed(transform: Callable[[NDArray[Any]], Any], example: Example) -> NDArray[np.float32]:
    """Return the model's input for one example."""
    array = example.array
    try:
        made = transform(array)
        if made is not None:
            return np.asarray(made, dtype=np.float32)
    except (Exception, SystemExit) as error:  # described only if it fails
        with user_code(f"transform, given {_described(example)},"):
            raise error
    raise DataError(f"transform returned None, given {_described(example)}; let it return the model's input")


def _described(example: Example) -> str:
    return f"example {example.id!r} of shape {example.array.shape} and type {example.array.dtype}"


# -- batch -----------------------------------------------------------------------------------------------------


class Batch:
    """Inputs of the model, all of one shape, with the ids of their examples; at most ``most``.

    The thread that reads copies each input to its place, while another thread computes. Stacking them later would make
    the two wait for each other at every copy, since NumPy releases Python's lock.
    """

    def __init__(self, most: int) -> None:
        self.ids: list[str] = []
        self.uris: list[str] = []
        self.sources: list[int] = []  # digests of the parts of the shard that the examples are from
        self.turned: Counter[int] = Counter()  # image files that state an orientation, by that digest
        self.own_ids = False
        self.largest = 0  # bytes of the largest decoded example
        self._most = most
        self._array = np.empty(0, dtype=np.float32)
        self._shape: tuple[int, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self.ids) == self._most

    @property
    def inputs(self) -> NDArray[np.float32]:
        """(B, ...), with the memory layout of ``np.stack``."""
        return self._array[: len(self.ids)]

    def add(self, example: Example, value: NDArray[np.float32], source: int = 0) -> None:
        place = len(self.ids)
        if place == len(self._array) or value.shape != self._shape:
            self._reserve(example, value)
        self._array[place] = value
        self.ids.append(example.id)
        self.uris.append(example.uri)
        self.sources.append(source)
        if example.is_turned:
            self.turned[source] += 1
        if example.array.nbytes > self.largest:
            self.largest = example.array.nbytes

    def _reserve(self, example: Example, value: NDArray[np.float32]) -> None:
        """Reserve memory for the first value, or for more of its shape; raises DataError for another shape."""
        if not self.ids:
            num = min(self._most, _FIRST_BYTES // max(value.nbytes, 1) + 1)
            self._array, self._shape, self.own_ids = _empty_inputs(value, num), value.shape, example.own_id
        elif value.shape != self._shape:
            raise DataError(
                f"example {example.id!r} has shape {value.shape} and {self.ids[0]!r} {self._shape}; "
                "set transform to a function that returns one shape"
            )
        else:
            more = _empty_inputs(value, min(self._most, 2 * len(self._array)))
            more[: len(self._array)] = self._array
            self._array = more

    def release(self) -> None:
        """Free the memory of the inputs."""
        self._array = self._array[:0].copy()


def _empty_inputs(value: NDArray[np.float32], num: int) -> NDArray[np.float32]:
    """Return an array for ``num`` inputs like ``value``, with the memory layout of ``np.stack``."""
    strides = np.stack([value, value]).strides[1:]
    order = sorted(range(value.ndim), key=lambda axis: -strides[axis])
    room = np.empty((num, *(value.shape[axis] for axis in order)), dtype=np.float32)
    return room.transpose(0, *(1 + order.index(axis) for axis in range(value.ndim)))


# -- model -----------------------------------------------------------------------------------------------------


def run_model(model: "Model | FunctionModel", batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...); raises DataError if the user's model fails."""
    remedy = "set transform to a function that makes the input it was trained on"
    with user_code(f"the model, given a batch of shape {batch.shape},", remedy):
        return model(batch)


def run_that_fits(run: Callable[[NDArray[np.float32]], Activations], batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...), or recursively its halves; raises MemoryError if memory runs out for a single example."""
    remark = "%s; the batch of %d runs in halves: lower extract.batch_size"
    parts = in_halves(lambda rows: run(batch[rows]), slice(0, len(batch)), remark)
    hidden = [part.hidden for part in parts if part.hidden is not None]
    output = np.concatenate([part.output for part in parts])
    layers = tuple(map(np.concatenate, zip(*(part.layers for part in parts), strict=True)))
    return Activations(np.concatenate(hidden) if hidden else None, output, layers)
