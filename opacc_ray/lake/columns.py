"""Columns of Arrow tables by their names, ``struct.field`` for nested ones, and the one text of each id."""

from collections.abc import Callable, Sequence
from decimal import Context
from typing import Any

from opacc_ray.errors import DataError, meant, shortened
from opacc_ray.lake.parquet_io import pa, pc, texts

DIGITS = Context(prec=100)  # enough for every decimal of Arrow


def chain_of(schema: Any, name: str) -> list[Any]:
    """Return the fields of a column, ``name`` or ``struct.field``, from the top level down; empty if there is none.

    A whole name comes first, so a column may have dots in its name.
    """
    first, _, rest = (name, "", "") if name in schema.names else name.partition(".")
    if first not in schema.names:
        return []
    own = schema.field(schema.names.index(first))
    inner = chain_of(own.type, rest) if rest and pa.types.is_struct(own.type) else []
    return [own, *inner] if inner or first == name else []


def no_column(source: str, name: str, there: Any) -> DataError:
    """Return the error of a file that lacks a column; ``there`` is its Arrow schema, or the names of its columns."""
    outer, _, last = name.rpartition(".")
    inner = chain_of(there, outer) if outer and hasattr(there, "names") else []
    names = list(getattr(inner[-1].type, "names", there.names) if inner else getattr(there, "names", there))
    guess = f" ({near})" if (near := meant(last if inner else name, names)) else ""
    return DataError(f"{source} has no column {name!r}{guess}; it has {shortened(', '.join(names), 200)}")


def column_along(table: Any, path: Sequence[str]) -> Any:
    """Return the column of a table or a batch at a path of names; a field of a struct that is null is null."""
    column = table.column(table.schema.names.index(path[0]))
    for name in path[1:]:
        column = pc.struct_field(column, [column.type.names.index(name)])
    return column


def column_at(table: Any, name: str) -> Any:
    """Return a column, ``name`` or ``struct.field``, of a table or a batch; None if it has none."""
    chain = chain_of(table.schema, name)
    return column_along(table, [field.name for field in chain]) if chain else None


def selected(table: Any, names: Sequence[str]) -> Any:
    """Return columns, as :func:`column_at` finds them, as a table with these names."""
    return pa.table({name: column_at(table, name) for name in names})


def roots_of(schema: Any, names: Sequence[str]) -> list[str]:
    """Return the columns at the top level that hold the named ones, each once."""
    return list(dict.fromkeys(chain[0].name for name in names if (chain := chain_of(schema, name))))


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
