"""Predictions and confidence from a model's output, and checks that it has the form that the spec states.

    model.output     the last layer returns                     prediction                confidence
    logits           C >= 2 scores                              the largest               its softmax
    probabilities    C >= 2 shares that sum to 1                the largest               it
    logit            one score z of class 1 (a binary model)    1 where σ(z) >= threshold    σ(z) or 1 - σ(z)
    probability      one share p of class 1                     1 where p >= threshold       p or 1 - p
    (a regression)   one value                                  it                        none

A binary model's output is stored with one column per class, (0, z) or (1 - p, p). A wrong ``model.output`` would give
meaningless confidences, so row sums are checked: shares must sum to 1, and scores must not.

Legend: B examples of a batch, C classes, σ the logistic function.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.spec import ModelSpec

Output = NDArray[np.float32]

_TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2, "float16": 5e-3}
"""Allowed distance of a sum of shares from 1, by precision."""


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
