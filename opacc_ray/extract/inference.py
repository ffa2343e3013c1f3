"""The model of a spec, a torch module or a function of the user's in any framework, and the form of its output.

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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, counted
from opacc_ray.extract.machine import Machine, cpu_name
from opacc_ray.extract.shards import REMEDY, Columns
from opacc_ray.extract.surprise import HOST, Arrays
from opacc_ray.extract.user_code import Activations, split_answer, user_code
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.packages import require
from opacc_ray.spec import SURPRISE, CoverageSpec, ModelSpec, PoolSpec, Spec, load_function

if TYPE_CHECKING:
    from opacc_ray.extract.torch_model import Model

Output = NDArray[np.float32]

_ROUNDING = 1e-9  # of a recomputed confidence: another processor's exponential may differ in its last bits

_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 5e-3}  # allowed distance of a sum from 1


def load_model(spec: Spec, device: str, coverage: CoverageSpec | None) -> "Model | FunctionModel":
    """Load the spec's model; raises SpecError or DataError if it cannot be loaded."""
    if spec.model.function is not None:
        return FunctionModel(spec.model)
    require("a torch model", "torch")
    from opacc_ray.extract.torch_model import Model

    own = spec.extract
    return Model(spec.model, device, own.precision, own.threads_per_actor, coverage)


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
    return np.ascontiguousarray(found.reshape(length, -1))


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
