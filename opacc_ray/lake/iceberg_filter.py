"""The part of a filter that pyiceberg may use to skip manifests and files, also by hidden partitions."""

from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from opacc_ray.lake.filter_parser import Combined, Comparison, Condition, Typed

_PREDICATES = {
    "==": "EqualTo",
    "!=": "NotEqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}

_LONGEST = "2026-01-31 12:00:00.123456+00:00"  # a time with more digits is not one of microseconds


def iceberg_filter(condition: Condition, schema: Any, current: Any) -> Any:
    """Return an expression of pyiceberg that is true wherever a condition is.

    Parameters
    ----------
    schema : of the snapshot, which has the columns of the condition
    current : of the table; pyiceberg finds columns by its names
    """
    import pyiceberg.expressions as expressions

    if isinstance(condition, Combined):
        join = expressions.And if condition.word == "and" else expressions.Or
        parts = [iceberg_filter(part, schema, current) for part in condition.parts]
        return join(*parts) if len(parts) > 1 else (parts or [expressions.AlwaysTrue()])[0]
    with suppress(ValueError, TypeError, ArithmeticError):  # a column that is missing now, or a literal of another type
        found = _predicate(condition, schema, current)
        if found is not None:
            return found
    return expressions.AlwaysTrue()


def _predicate(condition: Comparison, schema: Any, current: Any) -> Any:
    """Return the predicate of a comparison; None if pyiceberg has another meaning of it, as for NaN."""
    import pyiceberg.expressions as expressions
    from pyiceberg.expressions.visitors import bind

    _, operator, value, cast = condition
    field = schema.find_field(condition.column)
    name, kind = current.find_column_name(field.field_id), str(field.field_type)
    if name is None or cast is not None or operator.endswith("like"):
        return None
    if operator.endswith("null"):
        return (expressions.IsNull if operator == "null" else expressions.NotNull)(name)
    literal: Any = value.text if isinstance(value, Typed) else value
    if isinstance(literal, Decimal):
        is_whole = literal == literal.to_integral_value()
        if kind in ("int", "long") and is_whole and abs(literal) < 2**31:
            literal = int(literal)
        elif kind.startswith("decimal"):
            scale = int(kind.rpartition(" ")[2].rstrip(")"))
            if literal != round(literal, scale):
                return None
            literal = round(literal, scale)
        elif kind in ("float", "double") and operator in ("==", "<", "<="):
            literal = float(np.float32(literal)) if kind == "float" else float(literal)
        else:
            return None
    elif kind in ("timestamp", "timestamptz") and isinstance(literal, str) and len(literal) <= len(_LONGEST):
        time = datetime.fromisoformat(literal)
        time = (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
        literal = time.isoformat() if kind == "timestamptz" else time.replace(tzinfo=None).isoformat()
    elif kind not in ("string", "date", "boolean"):
        return None
    found = getattr(expressions, _PREDICATES[operator])(name, literal)
    bind(current, found, case_sensitive=True)  # raises if the literal does not fit
    return found
