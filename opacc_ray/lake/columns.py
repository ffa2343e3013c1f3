"""Columns of Arrow tables by their names, ``struct.field`` for nested ones, and the one text of each id."""

from collections.abc import Callable, Sequence
from decimal import Context
from typing import Any

from opacc_ray.lake.parquet_io import pa, pc, texts

DIGITS = Context(prec=100)  # enough for every decimal of Arrow


def field_at(schema: Any, name: str) -> Any:
    """Return the field of a column, ``name`` or ``struct.field``, of a schema or a struct; None if it has none.

    A whole name comes first, so a column may have dots in its name.
    """
    first, rest = split_name(schema.names, name)
    if first is None:
        return None
    own = schema.field(schema.names.index(first))
    if not rest:
        return own
    return field_at(own.type, rest) if pa.types.is_struct(own.type) else None


def column_at(table: Any, name: str) -> Any:
    """Return a column, ``name`` or ``struct.field``, of a table or a batch; None if it has none.

    A field of a struct that is null is null.
    """
    if field_at(table.schema, name) is None:
        return None
    first, rest = split_name(table.schema.names, name)
    return _field_of(table.column(table.schema.names.index(first)), rest)


def selected(table: Any, names: Sequence[str]) -> Any:
    """Return columns, as :func:`column_at` finds them, as a table with these names."""
    return pa.table({name: column_at(table, name) for name in names})


def roots_of(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the columns at the top level that hold the named ones, each once."""
    return list(dict.fromkeys(first for name in names if (first := split_name(schema.names, name)[0]) is not None))


def split_name(names: Sequence[str], name: str) -> tuple[str | None, str]:
    """Return the column at the top level, None if there is none, and the path of the field in it, if there is one."""
    if name in names:
        return name, ""
    first, _, rest = name.partition(".")
    return (first, rest) if rest and first in names else (None, "")


def _field_of(column: Any, path: str) -> Any:
    if not path:
        return column
    first, rest = split_name(column.type.names, path)
    return _field_of(pc.struct_field(column, [column.type.names.index(first)]), rest)


def id_texts(column: Any) -> Any:
    """Return the one text of each value, as an Arrow array; None for a type whose values have none.

    Equal values have equal texts, whatever the width, unit or scale of their type: UUIDs in lower case, bytes as
    hexadecimal digits, times in ISO 8601 and UTC, decimals without zeros at the end.
    """
    types, kind = pa.types, column.type
    if types.is_dictionary(kind):
        return id_texts(column.cast(kind.value_type))
    if types.is_null(kind) or types.is_integer(kind) or is_text(kind) or types.is_date(kind):
        return column.cast(pa.large_string())
    if types.is_timestamp(kind) or types.is_time(kind):
        in_utc = column.cast(pa.timestamp(kind.unit, "UTC")) if types.is_timestamp(kind) and kind.tz else column
        found = pc.replace_substring(in_utc.cast(pa.large_string()), " ", "T")
        without_zeros = pc.replace_substring_regex(found, r"(\.\d*?)0+(Z?)$", r"\1\2")
        return pc.replace_substring_regex(without_zeros, r"\.(Z?)$", r"\1")
    if isinstance(kind, pa.UuidType):
        return _as_texts(column, str)
    if types.is_decimal(kind):
        return _as_texts(column, lambda value: format(value.normalize(DIGITS), "f"))
    return _as_texts(column, bytes.hex) if is_binary(kind) else None


def _as_texts(column: Any, text_of: Callable[[Any], str]) -> Any:
    return texts([None if value is None else text_of(value) for value in column.to_pylist()])


def is_text(kind: Any) -> bool:
    """Return whether a type is one of texts."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_binary(kind: Any) -> bool:
    """Return whether a type is one of bytes."""
    types = pa.types
    plain = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(plain or types.is_fixed_size_binary(kind))
