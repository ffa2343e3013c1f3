"""Evaluation of a filter: which rows of a table it keeps, and which parts of a table may have such rows.

Numbers are compared exactly with whole numbers and decimals. They are rounded to the type of floating-point columns,
where NaN is greater than every number. Comparisons with a null follow the three-valued logic of SQL, also for nulls in
a folder's name or a column that a file lacks. A row is left out if its condition is unknown.

The language of filters is in :mod:`opacc_ray.lake.filter_parser`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import reduce
from math import floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.columns import DIGITS, column_at, id_texts, is_text
from opacc_ray.lake.filter_parser import ALL, Combined, Comparison, Condition, Typed, Value
from opacc_ray.lake.parquet_io import pa, pc, to_numpy

_OPERATORS = {
    "==": ("equal", False),
    "!=": ("equal", True),
    "<": ("less", False),
    ">=": ("less", True),
    "<=": ("less_equal", False),
    ">": ("less_equal", True),
}
"""Arrow's function for each operator, and whether its result is negated."""


_LAST = "\U0010ffff"  # no text is greater than one that ends with it, after the same beginning


class Bounds(NamedTuple):
    """What is known of a column in each of N parts of a table, such as row groups or files."""

    least: Any  # Arrow array (N,): no value is less; null if unknown, or if there is no value
    most: Any  # the same: no value is greater
    may_be_null: NDArray[np.bool_]  # (N,) whether a row may be null
    may_have_values: NDArray[np.bool_]  # (N,) whether a row may be another value
    may_be_nan: bool = True  # whether floating-point columns may have NaN, which bounds leave out


def check_filter(condition: Condition, schema: Any) -> None:
    """Raise DataError if a condition has a column that a schema lacks, or a value of another type."""
    if condition != ALL:  # an empty table imports pandas
        rows_kept(condition, schema.empty_table())


def rows_kept(condition: Condition, table: Any) -> NDArray[np.bool_]:
    """Return which rows of a table a condition keeps, (N,): it is true for them, neither false nor unknown.

    Raises DataError if the table lacks a column, or a value has another type.
    """
    if condition == ALL:
        return np.ones(len(table), dtype=bool)
    return to_numpy(pc.fill_null(_truth(condition, table), False))


def may_keep(condition: Condition, bounds: Mapping[str, Bounds], num_parts: int) -> NDArray[np.bool_]:
    """Return which parts of a table may have rows that a condition keeps, (N,); columns without bounds may be anything.

    Raises DataError as :func:`rows_kept`.
    """
    if isinstance(condition, Combined):
        found = [may_keep(part, bounds, num_parts) for part in condition.parts]
        if condition.word == "and":
            return np.logical_and.reduce([np.ones(num_parts, dtype=bool), *found])
        return np.logical_or.reduce(found)
    own = bounds.get(condition.column)
    if own is None:
        return np.ones(num_parts, dtype=bool)
    if condition.operator == "null":
        return own.may_be_null
    if condition.operator == "not null" or condition.cast:
        return own.may_have_values
    return own.may_have_values & _in_range(condition, own)


def _in_range(condition: Comparison, own: Bounds) -> NDArray[np.bool_]:
    """Return where a value between the bounds may meet a comparison."""
    name, operator, value, _ = condition

    def may(column: Any, sign: str, limit: Value = value) -> NDArray[np.bool_]:
        return to_numpy(pc.fill_null(_compared(_comparable(column), sign, limit, name), True))

    is_floating = pa.types.is_floating(own.least.type) and own.may_be_nan
    if operator == "like":
        assert isinstance(value, str)
        beginning = value.partition("%")[0].partition("_")[0].partition("\\")[0]
        return may(own.most, ">=", beginning) & may(own.least, "<=", beginning + _LAST)
    if operator == "==":
        return may(own.least, "<=") & may(own.most, ">=")
    if operator in ("<", "<="):
        return may(own.least, operator)
    if operator == "not like" or is_floating:
        return np.ones(len(own.least), dtype=bool)
    return may(own.most, operator) if operator in (">", ">=") else may(own.least, "!=") | may(own.most, "!=")


def _truth(condition: Condition, table: Any) -> Any:
    """Return true, false or null (unknown) for each row, by the three-valued logic of SQL."""
    if isinstance(condition, Combined):
        parts = (_truth(part, table) for part in condition.parts)
        return reduce(pc.and_kleene if condition.word == "and" else pc.or_kleene, parts)
    name, operator, value, cast = condition
    column = column_at(table, name)
    if column is None:
        there = shortened(", ".join(table.column_names))
        raise DataError(f"pool.filter has the column {name!r}, and the pool has only {there}")
    if operator.endswith("null"):
        return (pc.is_null if operator == "null" else pc.is_valid)(column)
    column = _comparable(column)
    return _compared(column if cast is None else _cast(column, cast, name), operator, value, name)


def _comparable(column: Any) -> Any:
    """Convert dictionaries, views of texts, half floats and UUIDs, which Arrow does not compare."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    if isinstance(column.type, pa.UuidType):
        return id_texts(column)
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _cast(column: Any, cast: str, name: str) -> Any:
    """Convert a column; only where each value has one meaning in the other type."""
    types, kind = pa.types, column.type
    if types.is_null(kind):
        return column
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    wanted, fits = {
        "bigint": (pa.int64(), types.is_integer(kind) or types.is_boolean(kind)),
        "double": (pa.float64(), is_number),
        "varchar": (pa.large_string(), types.is_integer(kind) or types.is_date(kind)),
        "date": (pa.date32(), types.is_date(kind) or types.is_timestamp(kind)),
        "timestamp": (pa.timestamp("us"), types.is_date(kind) or types.is_timestamp(kind)),
    }[cast]
    if not (fits or is_text(kind)):
        raise DataError(f"pool.filter casts {name}, which is {kind}, to {cast}, which is not supported; leave it out")
    if types.is_timestamp(kind):
        column = column.cast(pa.timestamp(kind.unit), safe=False)  # drops the zone: the time is in UTC
    try:
        return column.cast(wanted, safe=types.is_integer(wanted))
    except pa.ArrowInvalid as error:
        raise DataError(f"pool.filter casts {name} to {cast}: {shortened(str(error), 120)}; correct the data") from None


def _compared(column: Any, operator: str, value: Value, name: str) -> Any:
    """Compare each row with a value, exactly; NaN equals itself and is greater than every number, as in SQL."""
    types, kind = pa.types, column.type
    if types.is_null(kind):  # the file lacks the column
        return pa.nulls(len(column), pa.bool_())
    if operator.endswith("like"):
        if not is_text(kind):
            raise DataError(f"pool.filter compares {name}, which is {kind}, by like; only texts have patterns")
        found = pc.match_like(column, str(value))
        return found if operator == "like" else pc.invert(found)
    function, is_negated = _OPERATORS[operator]
    is_exact = types.is_integer(kind) or types.is_decimal(kind)
    if types.is_boolean(kind) and isinstance(value, bool):
        column, value, is_exact = column.cast(pa.uint8()), Decimal(int(value)), True
    if isinstance(value, str) and (is_exact or types.is_floating(kind)):
        with suppress(InvalidOperation):  # '2' is a number, as in SQL; the error below names other texts
            number = Decimal(value)
            value = number if number.is_finite() and (not types.is_integer(kind) or number == int(number)) else value
    if isinstance(value, Decimal) and is_exact:
        found = _compared_exactly(column, function, value)
    else:
        if types.is_date(kind) and isinstance(value, Typed) and value.kind == "timestamp":
            column = column.cast(pa.timestamp("us"))
        found = getattr(pc, function)(column, _literal(value, column.type, name))
    return pc.invert(found) if is_negated else found


def _compared_exactly(column: Any, function: str, value: Decimal) -> Any:
    kind = column.type
    if pa.types.is_decimal(kind):
        scale, most = kind.scale, 10**kind.precision - 1
        least = -most
    else:
        unsigned = pa.types.is_unsigned_integer(kind)
        scale, most = 0, 2 ** (kind.bit_width - (not unsigned)) - 1
        least = 0 if unsigned else -most - 1
    exact = Fraction(value) * Fraction(10) ** scale  # in units of the last digit
    below = min(floor(exact), most)
    if below < least or (function == "equal" and below != exact):
        return pc.not_equal(column, column)  # false, or null for a null
    units = Decimal(below).scaleb(-scale, DIGITS)
    scalar = pa.scalar(units if pa.types.is_decimal(kind) else below, kind)
    return getattr(pc, function if below == exact else "less_equal")(column, scalar)


def _literal(value: Value, kind: Any, name: str) -> Any:
    """Convert a value to an Arrow scalar that a column's type compares with; raises DataError if there is none."""
    types = pa.types
    text = value.text if isinstance(value, Typed) else value
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        if isinstance(value, Decimal) and types.is_floating(kind):
            return pa.scalar(float(value), kind)
        if isinstance(text, str) and types.is_timestamp(kind):
            return _time(text, kind)
        if isinstance(value, str) and types.is_time(kind):
            return pa.scalar(time.fromisoformat(value), kind)
        if isinstance(text, str) and types.is_date(kind):
            return pa.scalar(text).cast(kind)
        if isinstance(value, str) and (is_text(kind) or types.is_duration(kind)):
            return pa.scalar(value).cast(kind)
    wanted = "give a value of that type"
    if types.is_timestamp(kind):
        zoned = ", in UTC, or '2026-01-31T12:00:00+01:00'" if kind.tz else ", without a zone"
        wanted = f"write a time such as '2026-01-31 12:00:00'{zoned}"
    elif types.is_date(kind):
        wanted = "write a date such as '2026-01-31'"
    said = f"{value.kind} {value.text!r}" if isinstance(value, Typed) else repr(value)
    shown = said if isinstance(value, str | Typed) else str(value).lower()
    raise DataError(f"pool.filter compares {name}, which is {kind}, with {shown}; {wanted}")


def _time(text: str, kind: Any) -> Any:
    """Return a time as a timestamp of a type, or a finer one; without a zone it is in UTC.

    Another zone has no meaning for a column without one; raises ValueError, or pyarrow.ArrowInvalid.
    """
    if kind.tz is None:
        text = re.sub(r"(?<=\d)(Z|[+-]00:00)$", "", text)
    for unit in ("us", "ns"):
        for zone in (kind.tz, None):
            with suppress(pa.ArrowInvalid):
                found = pa.scalar(text).cast(pa.timestamp(unit, zone)).cast(pa.timestamp(unit, kind.tz))
                with suppress(pa.ArrowInvalid):
                    return found.cast(kind)
                return found
    raise ValueError(text)
