"""Features of examples as columns: what comes with the forward pass, and which rows of it are not finite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""By feature: one number per example (B,), or one row of them (B, width)."""


def compute_columns(
    hidden: NDArray[np.float32], output: NDArray[np.float32], *, task: str, output_kind: str
) -> Columns:
    """The features that come with the forward pass: hidden (B, m) and output (B, C) to columns of B rows."""
    columns: Columns = {"hidden": hidden, "output": output}
    if task == "regression":
        columns["prediction"] = output[:, 0].astype(np.float64)
    else:
        columns["prediction"] = output.argmax(axis=1).astype(np.int64)
        columns["confidence"] = confidence(output, output_kind)
    return columns


def confidence(output: NDArray[np.float32], kind: str = "logits") -> NDArray[np.float64]:
    """Largest softmax probability: (B, C) -> (B,)."""
    if kind == "probabilities":
        return output.max(axis=1).astype(np.float64)
    shifted = output.astype(np.float64) - output.max(axis=1, keepdims=True)
    return 1.0 / np.exp(shifted).sum(axis=1)


def not_finite(columns: Columns) -> dict[int, str]:
    """Rows that hold NaN or infinity, in their order, each with the first feature that does."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            found = dict.fromkeys(bad.tolist(), name) | found
    return dict(sorted(found.items()))
