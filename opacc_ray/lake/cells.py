"""Columns of an Arrow table as NumPy arrays, one row per example."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.lake.arrow import to_numpy


def numbers_of(column: Any, name: str) -> NDArray[Any] | None:
    """Numbers of a column without nulls, (k,), or of lists of equal lengths, nested to any depth, (k, ...).

    Returns
    -------
    None
        The lists differ in length.

    Raises
    ------
    DataError
        The column holds something else than numbers.
    """
    import pyarrow as pa

    kind = column.type
    if isinstance(kind, pa.FixedShapeTensorType):
        return np.asarray(column.to_numpy_ndarray())
    if isinstance(kind, pa.BaseExtensionType):  # of a library that is imported here; else Arrow sees what it is made of
        return numbers_of(column.storage, name)
    if is_list(kind):
        inner = numbers_of(column.flatten(), name)
        lengths = to_numpy(column.value_lengths())
        if inner is None or (lengths != lengths[:1]).any():
            return None
        return inner.reshape(len(column), -1 if len(inner) else 0, *inner.shape[1:])
    if pa.types.is_null(kind):  # of no row, since nulls are none
        return np.empty(0)
    check_number(kind, name)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    return to_numpy(column)


def is_list(kind: Any) -> bool:
    """Whether a type is one of lists."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def check_number(kind: Any, name: str) -> None:
    """Raise DataError if a type is neither of numbers nor of lists of them."""
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    while is_list(kind):
        kind = kind.value_type
    fits = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    if not fits:
        raise DataError(f"the column {name!r} is {kind}, not numbers or lists of them; name another one")
