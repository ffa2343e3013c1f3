"""Running the model of a spec, batch after batch: a torch module, or a function of the user's in any framework.

``model.function`` names such a function. It gets the inputs of a batch, (B, ...) float32, and ``model.arguments``. It
returns a mapping with ``output`` (B, C) and, where a method needs it, ``hidden`` (B, m); or a pair of both, hidden
first; or the output alone. State between batches, such as a session or a client, is its own. Each actor calls it in one
process, one batch at a time. Torch is not imported for it.

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

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.inputs import Activations, Batch, load_transform, transformed, user_code
from opacc_ray.extract.machine import Machine, cpu_name, in_halves
from opacc_ray.extract.neighbours import HOST, Arrays
from opacc_ray.extract.shards import Columns, joined, not_finite
from opacc_ray.lake.examples import Example
from opacc_ray.spec import SURPRISE, CoverageSpec, ModelSpec, Spec, load_function

if TYPE_CHECKING:
    from opacc_ray.extract.torch_model import Model

Output = NDArray[np.float32]

_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 5e-3}  # allowed distance of a sum from 1


def load_model(spec: Spec, device: str, coverage: CoverageSpec | None) -> "Model | FunctionModel":
    """Load the spec's model; raises SpecError or DataError if it cannot be loaded."""
    if spec.model.function is not None:
        return FunctionModel(spec.model)
    from opacc_ray.extract.torch_model import Model

    own = spec.extract
    return Model(spec.model, device, own.precision, own.threads_per_actor, coverage, channels_last=own.channels_last)


def run_model(model: "Model | FunctionModel", batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...); raises DataError if the user's model fails."""
    remedy = "set transform to a function that makes the input it was trained on"
    with user_code(f"the model, given a batch of shape {batch.shape},", remedy):
        return model(batch)


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


def run_that_fits(run: Callable[[NDArray[np.float32]], Activations], batch: NDArray[np.float32]) -> Activations:
    """Run a batch (B, ...), or recursively its halves; raises MemoryError if memory runs out for a single example."""
    remark = "%s; the batch of %d runs in halves: lower extract.batch_size"
    parts = in_halves(lambda rows: run(batch[rows]), slice(0, len(batch)), remark)
    hidden = [part.hidden for part in parts if part.hidden is not None]
    output = np.concatenate([part.output for part in parts])
    layers = tuple(map(np.concatenate, zip(*(part.layers for part in parts), strict=True)))
    return Activations(np.concatenate(hidden) if hidden else None, output, layers)


def run_here(spec: Spec, examples: Sequence[Example], name: str) -> Columns:
    """Run a spec's transform and model on decoded examples in this process, on the CPU, batch after batch.

    Raises the errors of extraction; ``name`` is the model's in the error for NaN or infinity.
    """
    transform, model = load_transform(spec), load_model(spec, "cpu", None)
    size, parts = spec.extract.batch_size, []
    for start in range(0, len(examples), size):
        batch = Batch(size)
        for example in examples[start : start + size]:
            batch.add(example, transformed(transform, example))
        columns = columns_of(spec, run_model(model, batch.inputs))
        for row, column in not_finite(columns).items():
            raise DataError(f"{name} gives NaN or infinity in {column} for example {batch.ids[row]!r}; mend the model")
        parts.append(columns)
    return joined(parts)


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
        hidden: Any = None
        output = returned
        if isinstance(returned, Mapping):
            if "output" not in returned:
                found = ", ".join(map(str, returned))
                raise DataError(f"{self._name} returned a mapping with {found}; give it an 'output'")
            hidden, output = returned.get("hidden"), returned["output"]
        elif isinstance(returned, tuple | list) and len(returned) == 2:
            hidden, output = returned
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
    return np.ascontiguousarray(found.reshape(length, -1))


def read_output(output: Output, model: ModelSpec, precision: str) -> dict[str, NDArray[Any]]:
    """Return columns of a batch: output (B, C) float32, prediction (B,) and, for classes, confidence (B,) float64.

    Raises DataError if the output does not have the form that the spec states.
    """
    kind, tolerance = model.output, _TOLERANCE[precision]
    if model.task == "regression":
        _check_width(output, output.shape[1] == 1, "a regression needs one value per example; return only that")
        return {"output": output, "prediction": output[:, 0].astype(np.float64)}
    if kind in ("logit", "probability"):
        plural = "logits" if kind == "logit" else "probabilities"
        remedy = f"model.output: {kind} is one value per example; for one per class, set model.output: {plural}"
        _check_width(output, output.shape[1] == 1, remedy)
        return _binary(output, kind, model.threshold, tolerance)
    several = "for a binary model with one value per example, set model.output: logit, or probability"
    _check_width(output, output.shape[1] >= 2, several)
    _check_sums(output, kind, tolerance)
    prediction = output.argmax(axis=1)
    largest = output[np.arange(len(output)), prediction]
    confidence = largest.astype(np.float64)
    if kind == "logits":  # the softmax of the largest
        confidence = np.asarray(1.0 / np.exp(output.astype(np.float64) - largest[:, None]).sum(axis=1))
    return {"output": output, "prediction": prediction.astype(np.int64), "confidence": confidence}


def _check_width(output: Output, fits: bool, remedy: str) -> None:
    if not fits:
        raise DataError(f"the model's output has shape {output.shape}; {remedy}")


def _binary(output: Output, kind: str, threshold: float, tolerance: float) -> dict[str, NDArray[Any]]:
    value = output[:, 0].astype(np.float64)
    if kind == "logit":
        share = 1 / (1 + np.exp(-np.clip(value, -700, 700)))
        columns = np.stack([np.zeros_like(value), value], axis=1)
    else:
        known = output[np.isfinite(output)]
        bad = known[(known < -tolerance) | (known > 1 + tolerance)]
        if len(bad):
            raise DataError(
                f"the model's output holds {bad[0]:g}, which is no probability; set model.output: logit, "
                "or return its sigmoid"
            )
        share = value
        columns = np.stack([1 - value, value], axis=1)
    prediction = (share >= threshold).astype(np.int64)
    confidence = np.where(prediction == 1, share, 1 - share)
    return {"output": columns.astype(np.float32), "prediction": prediction, "confidence": confidence}


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
