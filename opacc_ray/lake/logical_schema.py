"""The columns of a pool by one schema, and those of a file in it.

A table format knows its own schema. Plain files have a common one: each column has the type that holds the values of
all files exactly, or as floating-point numbers if some file has those. Columns are found in a file by number or
physical name if the table gives them, else by name. Each batch is converted to the common schema. A column that a file
lacks is null, or has the default of its table.

A column has its name, ``struct.field`` if it is nested.
"""

from collections.abc import Callable, Iterable, Sequence
from decimal import Context
from typing import Any, NamedTuple

import numpy as np

from opacc_ray.errors import DataError, meant, shortened
from opacc_ray.lake.parquet_io import is_list, numbers, pa, pc, texts, to_numpy

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


FIELD_ID = b"PARQUET:field_id"
PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_DEFAULT = b"default"

_UNITS = ("s", "ms", "us", "ns")


class Placed(NamedTuple):
    """A column of a table in a file."""

    name: str  # as the spec has it
    wanted: Any  # its field by the table, or in the whole pool
    path: tuple[str, ...] = ()  # in the file, or of the struct that lacks it; empty: the file lacks it
    own: Any = None  # its field by the file, or that of the struct


Layout = tuple[Placed, ...]
"""The columns that are read of a file."""


def place(name: str, chain: Sequence[Any], schema: Any) -> Placed:
    """Find a column in a file's schema by its fields in the table, from the top level down to itself."""
    path: list[str] = []
    own: Any = None
    for wanted in chain:
        found = _found(wanted, schema) if own is None or _is_struct(own.type) else None
        if found is None:
            is_default = wanted is chain[-1] and own is not None and default_of(wanted) is not None
            return Placed(name, wanted, tuple(path), own) if is_default else Placed(name, chain[-1])
        path.append(found.name)
        own, schema = found, found.type
    return Placed(name, chain[-1], tuple(path), own)


def with_default(field: Any, value: Any) -> Any:
    """Return a field with the Arrow scalar that it is in files that lack it."""
    batch = pa.RecordBatch.from_arrays([pa.repeat(value, 1)], ["value"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return field.with_metadata({**(field.metadata or {}), _DEFAULT: sink.getvalue().to_pybytes()})


def default_of(field: Any) -> Any:
    """Return the Arrow scalar that a field is in files that lack it; None for null."""
    data = (getattr(field, "metadata", None) or {}).get(_DEFAULT)
    return None if data is None else pa.ipc.open_stream(pa.py_buffer(data)).read_next_batch().column(0)[0]


def lacking(num_rows: int, wanted: Any) -> Any:
    """Return a field of files that lack it: its default, or nulls of its type, which may be an extension type."""
    value, kind = default_of(wanted), wanted.type
    if value is not None:
        return pa.repeat(value, num_rows)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(num_rows, kind.storage_type))
    return pa.nulls(num_rows, kind)


def plain(kind: Any) -> Any:
    """Return a type without the numbers of its fields, which have no meaning outside of a table."""
    if _is_struct(kind):
        return pa.struct([pa.field(own.name, plain(own.type), own.nullable) for own in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), plain(kind.item_type))
    if is_list(kind) and not pa.types.is_fixed_size_list(kind):
        make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
        return make(pa.field(kind.value_field.name, plain(kind.value_type), kind.value_field.nullable))
    return kind


def rebuilt(fields: Iterable[Any], change: Callable[[Any, str], Any], prefix: str = "") -> list[Any]:
    """Return fields, and those of their structs at any depth, each as ``change(field, path)`` returns it."""
    found = []
    for field in fields:
        path = prefix + field.name
        if _is_struct(field.type):
            field = field.with_type(pa.struct(rebuilt(field.type, change, f"{path}.")))
        found.append(change(field, path))
    return found


def numbered(field: Any, number: Any) -> Any:
    """Return a field with the number of its column; without one, the field itself."""
    metadata = field.metadata or {}
    return field if number is None else field.with_metadata({**metadata, FIELD_ID: number})


def _found(wanted: Any, schema: Any) -> Any:
    """Return the field of a schema, or of a struct, that is the wanted one; None if there is none."""
    metadata = wanted.metadata or {}
    if FIELD_ID in metadata:
        number = metadata[FIELD_ID]
        return next((own for own in schema if (own.metadata or {}).get(FIELD_ID) == number), None)
    name = physical_name(wanted)
    return schema.field(schema.names.index(name)) if name in schema.names else None


def physical_name(field: Any) -> str:
    """Return the name of a column in files that have field names of their own."""
    name: bytes = (field.metadata or {}).get(PHYSICAL_NAME, field.name.encode())
    return name.decode()


def common_type(first: Any, second: Any) -> Any:
    """Return the type that holds the values of two; None if there is none."""
    types = pa.types
    if first == second or types.is_null(second):
        return first
    if types.is_null(first):
        return second
    if any(types.is_dictionary(kind) for kind in (first, second)):
        return common_type(*(kind.value_type if types.is_dictionary(kind) else kind for kind in (first, second)))
    both = (first, second)
    if any(map(is_text, both)):
        return pa.string() if all(map(_has_text, both)) else None
    if all(map(types.is_map, both)):
        parts = (common_type(*own) for own in zip(*((kind.key_type, kind.item_type) for kind in both), strict=True))
        return None if None in (found := tuple(parts)) else pa.map_(*found)
    if all(map(is_list, both)):
        inner = common_type(first.value_type, second.value_type)
        sizes = {kind.list_size if types.is_fixed_size_list(kind) else -1 for kind in both}
        return None if inner is None else pa.list_(inner, sizes.pop() if len(sizes) == 1 else -1)
    if all(map(_is_struct, both)):
        return _common_struct(first, second)
    if any(types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) for kind in both):
        return None
    if any(map(types.is_boolean, both)) and any(map(is_number, both)):
        return common_type(*(pa.int8() if types.is_boolean(kind) else kind for kind in both))
    if any(map(types.is_uint64, both)) and any(map(types.is_signed_integer, both)):
        return pa.decimal128(20, 0)
    if all(types.is_timestamp(kind) or types.is_date32(kind) for kind in both):
        zones = [kind.tz for kind in both if types.is_timestamp(kind) and kind.tz]
        return pa.timestamp(_finer(*both), "UTC" if zones else None)
    schemas = [pa.schema([pa.field("", kind)]) for kind in both]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return None


def _common_struct(first: Any, second: Any) -> Any:
    fields: dict[str, Any] = {}
    for own in (*first, *second):
        known = fields.get(own.name, own.type)
        fields[own.name] = common_type(known, own.type)
    return None if None in fields.values() else pa.struct([*fields.items()])


def conformed(column: Any, own: Any, wanted: Any) -> Any:
    """Convert an Arrow array of a file's field to the type of the table's field; raises pyarrow.ArrowInvalid."""
    types, kind = pa.types, wanted.type
    if column.type == kind and not _has_fields(kind):
        return column
    if isinstance(kind, pa.UuidType) and is_binary(column.type):
        return pa.ExtensionArray.from_storage(kind, column.cast(pa.binary(16)))
    if isinstance(column.type, pa.UuidType) and is_binary(kind):
        return column.storage.cast(kind)
    if _is_struct(kind) and _is_struct(column.type):
        return _conformed_struct(column, own, kind)
    if _is_struct(column.type) and (default := default_of(wanted)) is not None:  # of a field that the struct lacks
        return pc.if_else(column.is_valid(), default, pa.scalar(None, kind))
    if types.is_map(kind) or (types.is_list(kind) and _has_fields(kind.value_type)):
        return _conformed_list(column, own, kind)
    if is_text(kind) and not is_text(column.type):
        column = _as_text(column)
    are_times = types.is_timestamp(kind) and types.is_timestamp(column.type)
    is_coarser = are_times and _finer(kind, column.type) != kind.unit
    return column.cast(kind, safe=not (types.is_floating(kind) or is_coarser))


def _conformed_struct(column: Any, own: Any, kind: Any) -> Any:
    inner = dict(zip(column.type.names, column.flatten(), strict=True))
    parts = []
    for wanted in kind:
        there = _found(wanted, own.type)
        parts.append(lacking(len(column), wanted) if there is None else conformed(inner[there.name], there, wanted))
    return pa.StructArray.from_arrays(parts, fields=[*kind], mask=column.is_null())


def _conformed_list(column: Any, own: Any, kind: Any) -> Any:
    """Convert lists, or maps, which are lists of entries; raises pyarrow.ArrowNotImplementedError for other types."""
    inner = own.type.field(0)
    plain = column if pa.types.is_list(column.type) else column.cast(pa.list_(inner))
    first, last = plain.offsets[0].as_py(), plain.offsets[-1].as_py()
    values = conformed(plain.values.slice(first, last - first), inner, kind.field(0))
    offsets = plain.offsets if first == 0 else numbers(to_numpy(plain.offsets) - np.int32(first))
    mask = plain.is_null() if plain.null_count else None
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(offsets, *values.flatten(), type=kind, mask=mask)
    return pa.ListArray.from_arrays(offsets, values, type=kind, mask=mask)


def _as_text(column: Any) -> Any:
    """Convert a column to texts as DuckDB has them, but times and decimals as those of ids; bytes are UTF-8."""
    kind = column.type
    if pa.types.is_floating(kind):
        if not pa.types.is_float64(kind):  # with the shortest digits that are the same in their own type
            column = column.cast(pa.float32()).cast(pa.string()).cast(pa.float64())
        return texts([None if value is None else repr(value) for value in column.to_pylist()])
    found = None if is_binary(kind) else id_texts(column)
    return column if found is None else found


def _has_fields(kind: Any) -> bool:
    """Return whether a type has fields with names, at any depth."""
    return _is_struct(kind) or pa.types.is_map(kind) or (is_list(kind) and _has_fields(kind.value_type))


def _is_struct(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind))


def is_number(kind: Any) -> bool:
    """Return whether a type is one of numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _has_text(kind: Any) -> bool:
    """Return whether the values of a type have one text each."""
    types = pa.types
    is_plain = types.is_boolean(kind) or types.is_temporal(kind) or isinstance(kind, pa.UuidType)
    return bool(is_plain or is_number(kind) or is_text(kind) or is_binary(kind))


def _finer(first: Any, second: Any) -> str:
    """Return the finer unit of times; that of a date is a second."""
    return max((getattr(kind, "unit", "s") for kind in (first, second)), key=_UNITS.index)
