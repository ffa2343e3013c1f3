"""Features of examples as columns: batches joined, and which rows are not finite."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError

Columns = dict[str, NDArray[Any]]
"""Values by feature: one number per example (B,), or one row of them (B, width)."""


def joined(batches: Sequence[Columns]) -> Columns:
    """Join the columns of batches, one after the other; no columns of no batch.

    Raises
    ------
    DataError
        A feature has more values for some examples than for others, or none.
    """
    for name in batches[0] if batches else ():
        widths = sorted({batch[name].shape[1] for batch in batches if batch[name].ndim > 1})
        if len(widths) > 1:
            raise DataError(f"{name} has {widths[0]} values for some examples and {widths[1]} for others; {_ONE_WIDTH}")
        if widths == [0]:
            raise DataError(f"{name} has no value for any example; {_ONE_WIDTH}")
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]} if batches else {}


_ONE_WIDTH = "let the model, or the column of the pool, give as many for each, at least one"


def not_finite(columns: Columns) -> dict[int, str]:
    """Rows that hold NaN or infinity, in their order, each with the first feature that does."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            found = dict.fromkeys(bad.tolist(), name) | found
    return dict(sorted(found.items()))
