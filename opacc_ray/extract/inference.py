"""The path of an example through the transform and the model of a spec, and the form of the model's output.

    decode        lake.pools.read_numbered: a shard's examples, or bad items that say why one cannot be used
    transform     the user's function, or the default one, from a decoded example to the model's input
    stack         a `Batch`, always cut at the same examples of a shard
    run           the model, on a device: a torch module, or a function of the user's in any framework
    columns       output, prediction, confidence and hidden layer of each example

Extraction, the trial before it and the check of stored features all use it.

``model.function`` names such a function. It gets the inputs of a batch, (B, ...) float32, and ``model.arguments``. It
returns a mapping with ``output`` (B, C) and, where a method needs it, ``hidden`` (B, m); or a pair of both, hidden
first; or the output alone. State between batches, such as a session or a client, is its own. Each actor calls it in one
process, one batch at a time, whose memory is used again after. Torch is not imported for it.

What the user's code raises becomes one sentence with its file and line. The traceback travels with the error, across
processes as well, as its ``details``; the command line writes it to a file.

Predictions and confidence follow from the output, which must have the form that the spec states:

    model.output     the last layer returns                     prediction                confidence
    logits           C >= 2 scores                              the largest               its softmax
    probabilities    C >= 2 shares that sum to 1                the largest               it
    logit            one score z of class 1 (a binary model)    1 where σ(z) >= threshold    σ(z) or 1 - σ(z)
    probability      one share p of class 1                     1 where p >= threshold       p or 1 - p
    (a regression)   one value                                  it                        none

A binary model's output is stored with one column per class, (0, z) or (1 - p, p). A wrong ``model.output`` would give
meaningless confidences, so row sums are checked: shares must sum to 1, and scores must not.

Legend: B examples of a batch, C classes, m neurons, σ the logistic function.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, counted
from opacc_ray.extract.machine import HOST, Arrays, cpu_name, in_halves
from opacc_ray.extract.shards import REMEDY, Columns, Machine, joined, not_finite
from opacc_ray.extract.user_code import Activations, Running, split_answer, user_code
from opacc_ray.lake.examples import BadItem, Example, Shard, source_of
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.pools import read_numbered
from opacc_ray.registry import require
from opacc_ray.spec import SURPRISE, CoverageSpec, ModelSpec, PoolSpec, Spec, load_function, open_pool, rules_of

if TYPE_CHECKING:
    from opacc_ray.extract.torch_model import Model


Output = NDArray[np.float32]
Memory = Callable[[int], Any]  # returns a buffer of some bytes

_FIRST_BYTES = 1 << 30  # of a batch, reserved at first, which take no memory before they are written; then it grows
_ROUNDING = 1e-9  # of a recomputed confidence: another processor's exponential may differ in its last bits
_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 5e-3}  # allowed distance of a sum from 1


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


class Inputs:
    """The transform of a spec, and the batches of inputs that the examples of one source make.

    Several threads may read; the transform is called by one at a time. Raises SpecError if it cannot be loaded.
    """

    def __init__(self, spec: Spec, source: PoolSpec) -> None:
        self._spec, self._source = spec, source
        self._store, self._rules = open_pool(source), rules_of(source)
        self._transform = load_transform(spec)
        self._transforming = threading.Lock()

    def read(
        self,
        shard: Shard,
        bad: list[BadItem],
        digests: Sequence[int] = (),
        memory: Memory | None = None,
        packed: Sequence[tuple[int, Any]] = (),
    ) -> Generator["Batch", None, None]:
        """Yield the batches of a shard; examples that cannot be used are appended to ``bad``, or are errors.

        ``digests`` are those of the parts of the shard, if they are parts of others. ``memory`` reserves the inputs.
        ``packed`` examples of the shard have been read.
        """
        size, digests = self._spec.extract.batch_size, digests or [source_of(part) for part in shard.parts]
        batch = Batch(size, memory)
        for number, item in read_numbered(self._store, self._source.format, shard, self._rules, packed):
            if isinstance(item, BadItem):
                check_bad(self._spec, self._source, [item])
                bad.append(item._replace(source=digests[number]))
                continue
            with self._transforming:
                batch.add(item, transformed(self._transform, item), digests[number])
            if batch.is_full:
                yield batch
                batch = Batch(size, memory)
        if batch.ids:
            yield batch

    def batch(self, examples: Sequence[Example]) -> "Batch":
        """Return decoded examples as one batch."""
        batch = Batch(max(1, len(examples)))
        for example in examples:
            batch.add(example, transformed(self._transform, example))
        return batch


class Feed(Inputs):
    """The transform and the model of a spec, and the path of the examples of one source through both.

    Raises SpecError or DataError if transform or model cannot be loaded.
    """

    def __init__(self, spec: Spec, source: PoolSpec, device: str = "cpu", coverage: CoverageSpec | None = None) -> None:
        super().__init__(spec, source)
        self._device = device
        self.model = load_model(spec, device, coverage)

    def run(self, batch: "Batch") -> Activations:
        """Run the model on a batch; on its halves, if the memory of a GPU runs out."""
        found, _ = self.start(batch)()
        return found

    def start(self, batch: "Batch") -> Running:
        """Begin to run the model on a batch, whose memory is free after. Only a GPU goes on computing then."""
        inputs, since = batch.inputs, time.monotonic()
        if self._device == "cpu" or isinstance(self.model, FunctionModel):
            found = run_model(self.model, inputs)
        else:
            with suppress(MemoryError):
                return _started(self.model, inputs)
            found = run_that_fits(lambda part: run_model(self.model, part), inputs)
        seconds = time.monotonic() - since
        return lambda: (found, seconds)

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

    The thread or process that reads copies each input to its place, while another thread computes. Stacking them later
    would make the two wait for each other at every copy, since NumPy releases Python's lock.
    """

    def __init__(self, most: int, memory: Memory | None = None) -> None:
        self.ids: list[str] = []
        self.uris: list[str] = []
        self.sources: list[int] = []  # digests of the parts of the shard that the examples are from
        self.turned: Counter[int] = Counter()  # image files that state an orientation, by that digest
        self.own_ids = False
        self.largest = 0  # bytes of the largest decoded example
        self._most = most
        self._memory = memory
        self._array = np.empty(0, dtype=np.float32)
        self._shape: tuple[int, ...] = ()
        self._free: Callable[[], object] | None = None

    @property
    def is_full(self) -> bool:
        return len(self.ids) == self._most

    @property
    def inputs(self) -> NDArray[np.float32]:
        """(B, ...), with the memory layout of ``np.stack``."""
        return self._array[: len(self.ids)]

    def add(self, example: Example, value: NDArray[np.float32], source: int = 0) -> None:
        self._put(value, example.id, example.own_id)
        self.uris.append(example.uri)
        self.sources.append(source)
        if example.is_turned:
            self.turned[source] += 1
        if example.array.nbytes > self.largest:
            self.largest = example.array.nbytes

    def move(self, other: "Batch", row: int) -> None:
        """Add a row of another batch; its first row brings what is counted over all of them."""
        self._put(other.inputs[row], other.ids[row], other.own_ids)
        self.uris.append(other.uris[row])
        self.sources.append(other.sources[row])
        self.turned += other.turned if row == 0 else Counter()

    def _put(self, value: NDArray[np.float32], id: str, own_id: bool) -> None:
        place = len(self.ids)
        if place == len(self._array) or value.shape != self._shape:
            self._reserve(value, id, own_id)
        self._array[place] = value
        self.ids.append(id)

    def _reserve(self, value: NDArray[np.float32], id: str, own_id: bool) -> None:
        """Reserve memory for the first value, or for more of its shape; raises DataError for another shape."""
        if not self.ids:
            num = min(self._most, _FIRST_BYTES // max(value.nbytes, 1) + 1)
            self._array, self._shape, self.own_ids = self._empty(value, num), value.shape, own_id
        elif value.shape != self._shape:
            raise DataError(
                f"example {id!r} has shape {value.shape} and {self.ids[0]!r} {self._shape}; "
                "set transform to a function that returns one shape"
            )
        else:
            more = self._empty(value, min(self._most, 2 * len(self._array)))
            more[: len(self._array)] = self._array
            self._array = more

    def _empty(self, value: NDArray[np.float32], num: int) -> NDArray[np.float32]:
        """Return an array for ``num`` inputs like ``value``, with the memory layout of ``np.stack``."""
        strides = np.stack([value, value]).strides[1:]
        order = sorted(range(value.ndim), key=lambda axis: -strides[axis])
        shape = (num, *(value.shape[axis] for axis in order))
        buffer = self._memory(4 * prod(shape)) if self._memory else None
        room = np.ndarray(shape, np.float32, buffer)
        return room.transpose(0, *(1 + order.index(axis) for axis in range(value.ndim)))

    def detach(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Leave the inputs in their memory, and return their shape and strides."""
        layout = self.inputs.shape, self.inputs.strides
        self._array, self._memory = np.empty(0, dtype=np.float32), None
        return layout

    def attach(self, inputs: NDArray[np.float32], free: Callable[[], object]) -> None:
        """Take the inputs from memory that another process has filled; ``free`` is called when they are released."""
        self._array, self._free = inputs, free

    def release(self) -> None:
        """Free the memory of the inputs."""
        self._array = np.empty(0, dtype=np.float32)
        if self._free is not None:
            self._free()
            self._free = None


# -- model -----------------------------------------------------------------------------------------------------


def run_model(model: "Model | FunctionModel", batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...); raises DataError if the user's model fails."""
    with _model_code(batch.shape):
        return model(batch)


def _started(model: "Model", batch: NDArray[np.float32]) -> Running:
    """Begin to run a batch (B, ...) on a GPU, whose faults show when it is waited for."""
    with _model_code(batch.shape):
        wait = model.start(batch)

    def finish(shape: tuple[int, ...] = batch.shape) -> tuple[Activations, float]:
        with _model_code(shape):
            return wait()

    return finish


def _model_code(shape: tuple[int, ...]) -> AbstractContextManager[None]:
    remedy = "set transform to a function that makes the input it was trained on"
    return user_code(f"the model, given a batch of shape {shape},", remedy)


def run_that_fits(run: Callable[[NDArray[np.float32]], Activations], batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...), or recursively its halves; raises MemoryError if memory runs out for a single example."""
    remark = "%s; the batch of %d runs in halves: lower extract.batch_size"
    parts = in_halves(lambda rows: run(batch[rows]), slice(0, len(batch)), remark)
    hidden = [part.hidden for part in parts if part.hidden is not None]
    output = np.concatenate([part.output for part in parts])
    layers = tuple(map(np.concatenate, zip(*(part.layers for part in parts), strict=True)))
    return Activations(np.concatenate(hidden) if hidden else None, output, layers)


def load_model(spec: Spec, device: str, coverage: CoverageSpec | None) -> "Model | FunctionModel":
    """Load the spec's model; raises SpecError or DataError if it cannot be loaded."""
    if spec.model.function is not None:
        return FunctionModel(spec.model)
    require("a torch model", "torch")
    from opacc_ray.extract.torch_model import Model

    own = spec.extract
    return Model(spec.model, device, own.precision, own.threads_per_actor, coverage)


class FunctionModel:
    """The user's function as a model; raises SpecError if it cannot be imported."""

    arrays: Arrays = HOST  # the place to search neighbours

    def __init__(self, spec: ModelSpec) -> None:
        assert spec.function is not None
        self._name = f"model.function {spec.function!r}"
        self._arguments = spec.arguments
        self._function = load_function(spec.function, "model.function")

    def __call__(self, batch: NDArray[np.float32]) -> Activations:
        """Run one batch (B, ...)."""
        with user_code(f"{self._name}, given a batch of shape {batch.shape},"):
            returned = self._function(batch, **self._arguments)
        hidden, output = split_answer(returned)
        if isinstance(output, Mapping):
            if "output" not in output:
                raise DataError(
                    f"{self._name} returned a mapping with {', '.join(map(str, output))}; give it an 'output'"
                )
            output = output["output"]
        layer = None if hidden is None else _rows(hidden, len(batch), f"hidden of {self._name}")
        return Activations(layer, _rows(output, len(batch), f"output of {self._name}"), ())

    @property
    def machine(self) -> Machine:
        """Kind of the machine that computes."""
        return Machine(processor=cpu_name(), capability="not known", torch="not used")


def _rows(value: Any, length: int, what: str) -> NDArray[np.float32]:
    """Convert an array of numbers to (B, width)."""
    try:
        found = np.asarray(value, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{what} is a {type(value).__name__}, not an array of numbers") from None
    if found.ndim == 0 or len(found) != length:
        raise DataError(
            f"{what} has shape {found.shape} for a batch of {length}: return one row per example, in its order"
        )
    return np.array(found.reshape(length, -1), order="C")  # a copy: the memory of the batch is used again


# -- output ----------------------------------------------------------------------------------------------------


def columns_of(spec: Spec, activations: Activations, required: Sequence[str] = ()) -> Columns:
    """Return the columns of a batch: hidden, if it is returned, output, prediction and, for classes, confidence.

    Raises DataError if a required feature needs the hidden layer, and the model returns its output alone.
    """
    if activations.hidden is None and {"hidden", *SURPRISE} & set(required):
        raise DataError(
            "the hidden layer is required, and the model returns its output alone; return both, hidden first, or "
            "leave hidden out: extract.features: [output, confidence], with a method that does not use it"
        )
    hidden = {} if activations.hidden is None else {"hidden": activations.hidden}
    return hidden | read_output(activations.output, spec.model, spec.extract.precision)


def read_output(output: Output, model: ModelSpec, precision: str) -> dict[str, NDArray[Any]]:
    """Return columns of a batch: output (B, C) float32, prediction (B,) and, for classes, confidence (B,) float64.

    Raises DataError if the output does not have the form that the spec states.
    """
    kind, tolerance = model.output, _TOLERANCE[precision]
    if model.task == "regression":
        _check_width(output, output.shape[1] == 1, "a regression needs one value per example; return only that")
    elif kind in ("logit", "probability"):
        plural = "logits" if kind == "logit" else "probabilities"
        remedy = f"model.output: {kind} is one value per example; for one per class, set model.output: {plural}"
        _check_width(output, output.shape[1] == 1, remedy)
        output = _binary(output, kind, tolerance)
    else:
        several = "for a binary model with one value per example, set model.output: logit, or probability"
        _check_width(output, output.shape[1] >= 2, several)
        _check_sums(output, kind, tolerance)
    return {"output": output, **decided_by_output(output, model)}


def decided_by_output(output: Output, model: ModelSpec) -> dict[str, NDArray[Any]]:
    """Return prediction and, for classes, confidence of examples by their output (B, C) as it is stored."""
    if model.task == "regression":
        return {"prediction": output[:, 0].astype(np.float64)}
    if model.output in ("logit", "probability"):
        share = output[:, 1].astype(np.float64)
        if model.output == "logit":
            share = 1 / (1 + np.exp(-np.clip(share, -700, 700)))
        prediction = (share >= model.threshold).astype(np.int64)
        return {"prediction": prediction, "confidence": np.where(prediction == 1, share, 1 - share)}
    prediction = output.argmax(axis=1)
    largest = output[np.arange(len(output)), prediction]
    confidence = largest.astype(np.float64)
    if model.output == "logits":  # the softmax of the largest
        confidence = np.asarray(1.0 / np.exp(output.astype(np.float64) - largest[:, None]).sum(axis=1))
    return {"prediction": prediction.astype(np.int64), "confidence": confidence}


def check_decided(table: Any, spec: Spec, source: PoolSpec, file: str) -> None:
    """Raise DataError if predictions or confidences of a table of features are not those of the output in it.

    Those that the pool itself has, in columns, are its own.
    """
    model, own = spec.model, source.columns.features if source.holds_features else {}
    if "output" not in table.column_names or not len(table) or model.task not in ("classification", "regression"):
        return
    for name, expected in decided_by_output(to_numpy(table["output"]), model).items():
        if name not in table.column_names or name in own:
            continue
        stored = to_numpy(table[name])
        wrong = np.flatnonzero(~(np.abs(stored - expected) <= _ROUNDING))
        if len(wrong):
            row = wrong[0]
            raise DataError(
                f"{file}: the {name} of {len(wrong)} of its {counted(len(table), 'example')} is not that of their "
                f"stored output, such as {stored[row]:.6g} instead of {expected[row]:.6g} for "
                f"{table['id'][int(row)].as_py()!r}; {REMEDY}"
            )


def _check_width(output: Output, fits: bool, remedy: str) -> None:
    if not fits:
        raise DataError(f"the model's output has shape {output.shape}; {remedy}")


def _binary(output: Output, kind: str, tolerance: float) -> Output:
    """Return one column per class, (B, 2), of one value per example."""
    value = output[:, 0].astype(np.float64)
    known = output[np.isfinite(output)]
    bad = known[(known < -tolerance) | (known > 1 + tolerance)]
    if kind == "probability" and len(bad):
        raise DataError(
            f"the model's output holds {bad[0]:g}, which is no probability; set model.output: logit, "
            "or return its sigmoid"
        )
    return np.stack([np.zeros_like(value) if kind == "logit" else 1 - value, value], axis=1).astype(np.float32)


def _check_sums(output: Output, kind: str, tolerance: float) -> None:
    """Raise DataError for scores that the spec calls probabilities, and the reverse; NaN is checked elsewhere."""
    if kind == "logits" and len(output) and np.isfinite(output[0]).all() and not _are_shares(output[:1], tolerance)[0]:
        return  # one row of scores is enough, in nearly every batch
    rows = output[np.isfinite(output).all(axis=1)]
    is_share = _are_shares(rows, tolerance)
    if kind == "probabilities" and not is_share.all():
        first = rows[~is_share][0]
        remedy = (
            "sigmoids, the scores of several labels per example, are neither probabilities nor logits of one class: "
            "return the model's scores before the sigmoid and set model.output: logits, or audit one label as a binary "
            "model, with model.output: probability"
            if rows.min() >= 0 and rows.max() <= 1
            else "set model.output: logits, or return the softmax"
        )
        raise DataError(
            f"model.output is probabilities, and a row of the model's output sums to {first.sum(dtype=float):.4g}, "
            f"with values from {first.min():.4g} to {first.max():.4g}; {remedy}"
        )
    if kind == "logits" and len(rows) and is_share.all():
        raise DataError(
            "model.output is logits, and every row of the model's output holds shares that sum to 1; "
            "set model.output: probabilities, or return the model's scores without softmax"
        )


def _are_shares(rows: Output, tolerance: float) -> NDArray[np.bool_]:
    """Return whether each row (C,) of finite values consists of shares of 1, (B,)."""
    values = rows.astype(np.float64)
    inside = ((values >= -tolerance) & (values <= 1 + tolerance)).all(axis=1)
    return np.asarray(inside & (np.abs(values.sum(axis=1) - 1) <= tolerance))
