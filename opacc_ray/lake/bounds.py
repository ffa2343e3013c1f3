"""Bounds of columns in parts of a table: from values of folders, from footers of Parquet files, from logs."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.lake.columns import is_text
from opacc_ray.lake.filters import Bounds
from opacc_ray.lake.logical_schema import Placed, conformed, keeps_order
from opacc_ray.lake.parquet_io import pa, to_numpy


class Statistics(NamedTuple):
    """What a footer states of a column in a row group."""

    least: Any = None  # Python value; None: unknown
    most: Any = None
    may_be_null: bool = True
    may_have_values: bool = True


def statistics_of(chunk: Any) -> Statistics:
    """Return the statistics of a column chunk of a Parquet file."""
    found = chunk.statistics if chunk.is_stats_set else None
    if found is None:
        return Statistics()
    least = most = None
    if found.has_min_max:
        with suppress(ValueError, OverflowError, NotImplementedError):  # dates beyond those of Python
            least, most = found.min, found.max
    num_nulls = found.null_count if found.has_null_count else None
    return Statistics(least, most, num_nulls != 0, num_nulls is None or num_nulls < chunk.num_values)


def bounds_of(statistics: Sequence[Statistics], column: Placed) -> Bounds | None:
    """Return the bounds of a column in each row group of a file; None if its conversion changes their order."""
    kind = getattr(column.own.type, "value_type", column.own.type)
    if not keeps_order(kind, column.wanted.type):
        return None
    own = column.own.with_type(kind)
    limits = [_array([getattr(each, name) for each in statistics], kind) for name in ("least", "most")]
    try:
        least, most = (conformed(limit, own, column.wanted) for limit in limits)
    except pa.ArrowInvalid:  # a value that the common type cannot hold: reading it says so
        return None
    nulls, values = ([getattr(each, name) for each in statistics] for name in ("may_be_null", "may_have_values"))
    return Bounds(least, most, np.array(nulls), np.array(values))


def constant_bounds(values: Sequence[Any], kind: Any) -> Bounds:
    """Return the bounds of columns with one value for each part: Arrow scalars, or None where that is unknown."""
    there = np.array([value is not None for value in values], dtype=bool)
    column = pa.concat_arrays(
        [pa.nulls(1, kind) if value is None else pa.repeat(value.cast(kind), 1) for value in values]
    )
    null = to_numpy(column.is_null())
    return Bounds(column, column, null | ~there, ~null | ~there, may_be_nan=not there.all())


def _array(values: Sequence[Any], kind: Any) -> Any:
    kind = pa.string() if is_text(kind) else kind
    return pa.concat_arrays([_one(value, kind) for value in values])


def _one(value: Any, kind: Any) -> Any:
    if value is not None:
        with suppress(pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            return pa.repeat(pa.scalar(value, kind), 1)
    return pa.nulls(1, kind)
