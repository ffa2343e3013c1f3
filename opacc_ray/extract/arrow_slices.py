"""Slices from Arrow columns: each different value is named once, so memory is one small number per example."""

import math
import re
from typing import Any

import numpy as np

from opacc_ray.errors import SpecError
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.slices import HAS_TAG, MOST, SliceRule, Slicing


def slicing_of(rule: SliceRule, column: Any) -> Slicing:
    """Return the slices of a column as it is stored, (n,), with codes of the smallest type."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if rule.cuts is not None:
        return Slicing.of(rule.name, to_numpy(whole.cast(pa.float64()).fill_null(math.nan)), rule.cuts).packed()
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if rule.levels is not None:
        values = ["/".join(value.split("/")[: rule.levels]) for value in values]
    indices = encoded.indices
    if indices.null_count:
        indices, values = indices.fill_null(len(values)), [*values, None]
    if rule.tag is not None:
        has = np.array(
            [rule.tag in map(str.strip, re.split(r"[|;,]", value or "")) for value in values], dtype=np.uint8
        )
        return Slicing(HAS_TAG, has[to_numpy(indices)])
    few = Slicing.of(rule.name, values, most=math.inf if rule.is_cluster else MOST).packed()
    return Slicing(few.names, few.codes[to_numpy(indices)])


def as_stored(column: Any) -> Any:
    """Return a column with each text once, (n,) in Arrow; numbers, booleans and times are unchanged.

    A list of texts becomes one, with | between them.
    """
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_decode()
    if _is_list(whole.type):
        whole = pa.array(["|".join(filter(None, own)) if own else None for own in whole.to_pylist()], pa.string())
    return whole.cast(pa.string()).dictionary_encode() if _is_text(whole.type) else whole


def check_type(rule: SliceRule, kind: Any) -> None:
    """Raise SpecError if a column of an Arrow type cannot make the slices of a rule."""
    import pyarrow as pa

    types = pa.types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_temporal(kind) and (rule.tag is not None or rule.cuts is not None):
        raise SpecError(
            f"pool.slices: {rule.column!r} is {kind}, and times have neither tags nor cuts; add a column of texts with "
            "the day, week or month of each example, such as 2026-W40, and name that"
        )
    if rule.tag is not None:
        if not (_is_text(kind) or _is_list(kind)):
            raise SpecError(
                f"pool.slices: {rule.column!r} is {kind}, and tags are texts, such as night|rain, or lists of texts"
            )
        return
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_null(kind)
    if rule.cuts is not None and not is_number:
        raise SpecError(f"pool.slices: {rule.column!r} is {kind}, and only numbers have cuts; remove its cuts")
    if not (is_number or _is_text(kind) or types.is_boolean(kind) or types.is_temporal(kind)):
        raise SpecError(
            f"pool.slices: {rule.column!r} is {kind}; name a column with one text, number, date or truth value per row"
        )


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool((types.is_list(kind) or types.is_large_list(kind)) and _is_text(kind.value_type))


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))
