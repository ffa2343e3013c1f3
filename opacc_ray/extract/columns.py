"""Features of examples as columns, and which of their rows are not finite."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]
"""Values by feature: one number per example (B,), or one row of them (B, width)."""


def not_finite(columns: Columns) -> dict[int, str]:
    """Rows that hold NaN or infinity, in their order, each with the first feature that does."""
    found: dict[int, str] = {}
    for name, values in columns.items():
        if values.dtype.kind == "f":
            bad = np.flatnonzero(~np.isfinite(values).all(axis=tuple(range(1, values.ndim))))
            found = dict.fromkeys(bad.tolist(), name) | found
    return dict(sorted(found.items()))
