"""The filter of a table: a condition on its columns, which is parsed, never run as code.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column "is" [ "not" ] "null"
    column     = name | `any name`
    value      = number | 'text' | "text" | true | false

Words may be in capitals. A quote inside a text is doubled. Dates and times are texts such as '2026-01-31', which are
converted to the column's type. Numbers are compared exactly with whole numbers and decimals. They are rounded to the
type of floating-point columns, where NaN is greater than every number. Comparisons with a null follow the three-valued
logic of SQL, also for nulls in a folder's name or a column that a file lacks. A row is left out if its condition is
unknown.

    split = 'test' and (score >= 0.5 or score is null) and country not in ('NL', 'BE')
"""

import re
from collections.abc import Callable, Mapping
from datetime import time
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from math import floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, shortened
from opacc_ray.lake.parquet_io import to_numpy

Value = str | Decimal | bool

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>[^\W\d]\w*|`[^`]+`)|(?P<sign><=|>=|==|!=|<>|[=<>(),]))"
)
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_SIGNS = {"=": "==", "<>": "!="}
_OPERATORS = {
    "==": ("equal", False),
    "!=": ("equal", True),
    "<": ("less", False),
    ">=": ("less", True),
    "<=": ("less_equal", False),
    ">": ("less_equal", True),
}
"""Arrow's function for each operator, and whether its result is negated."""

_MAX_DEPTH = 50
_MAX_DIGITS = 400  # before or after the point: more than any column has
_DIGITS = Context(prec=100)  # enough for every decimal of Arrow


class Comparison(NamedTuple):
    """A comparison ``column operator values``; the operator is a sign, "in" or "null"."""

    column: str
    operator: str
    values: tuple[Value, ...]


class Combined(NamedTuple):
    """Conditions joined by "and" or "or"."""

    word: str
    parts: tuple["Condition", ...]


class Not(NamedTuple):
    """The negation of a condition."""

    part: "Condition"


Condition = Comparison | Combined | Not

ALL = Combined("and", ())  # the condition that every row meets


def parse_filter(text: str | None, key: str = "pool.filter") -> Condition:
    """Parse a filter, or return ``ALL`` if there is none; raises SpecError with the place of a mistake."""
    return _Parser(text, key).whole() if text else ALL


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the columns of a condition, each once."""
    if isinstance(condition, Comparison):
        return (condition.column,)
    parts = (condition.part,) if isinstance(condition, Not) else condition.parts
    return tuple(dict.fromkeys(name for part in parts for name in columns_of(part)))


def needed_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that are joined by "and" at the top level."""
    if isinstance(condition, Combined) and condition.word == "and":
        return tuple(inner for part in condition.parts for inner in needed_of(part))
    return (condition,)


def check_filter(condition: Condition, schema: Any) -> None:
    """Raise DataError if a condition has a column that a schema lacks, or a value of another type."""
    if condition != ALL:  # an empty table imports pandas
        rows_kept(condition, schema.empty_table())


def rows_kept(condition: Condition, table: Any) -> NDArray[np.bool_]:
    """Return which rows of a table a condition keeps, (N,): it is true for them, neither false nor unknown.

    Raises DataError if the table lacks a column, or a value has another type.
    """
    import pyarrow.compute as pc

    if condition == ALL:
        return np.ones(len(table), dtype=bool)
    return to_numpy(pc.fill_null(_truth(condition, table), False))


def keeps(condition: Condition, constants: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for constants, which are Arrow scalars."""
    import pyarrow as pa

    row = pa.table({name: pa.repeat(value, 1) for name, value in constants.items()})
    return bool(rows_kept(condition, row)[0])


def _truth(condition: Condition, table: Any) -> Any:
    """Return true, false or null (unknown) for each row, by the three-valued logic of SQL."""
    import pyarrow.compute as pc

    if isinstance(condition, Not):
        return pc.invert(_truth(condition.part, table))
    if isinstance(condition, Combined):
        parts = (_truth(part, table) for part in condition.parts)
        return reduce(pc.and_kleene if condition.word == "and" else pc.or_kleene, parts)
    name, operator, values = condition
    if name not in table.column_names:
        there = shortened(", ".join(table.column_names))
        raise DataError(f"pool.filter has the column {name!r}, and the pool has only {there}")
    column = _comparable(table[name])
    if operator == "null":
        return pc.is_null(column)
    if operator == "in":
        return reduce(pc.or_kleene, [_compared(column, "==", value, name) for value in values])
    return _compared(column, operator, values[0], name)


def _comparable(column: Any) -> Any:
    """Convert dictionaries, views of texts and half floats, which Arrow does not compare."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        return column.cast(pa.float32())
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def _compared(column: Any, operator: str, value: Value, name: str) -> Any:
    """Compare each row with a value, exactly; NaN equals itself and is greater than every number, as in SQL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):  # the file lacks the column
        return pa.nulls(len(column), pa.bool_())
    function, is_negated = _OPERATORS[operator]
    if pa.types.is_boolean(column.type) and isinstance(value, bool):
        column, value = column.cast(pa.uint8()), Decimal(int(value))
    if isinstance(value, Decimal) and (pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)):
        found = _compared_exactly(column, function, value)
    else:
        found = getattr(pc, function)(column, _literal(value, column.type, name))
    return pc.invert(found) if is_negated else found


def _compared_exactly(column: Any, function: str, value: Decimal) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

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
    units = Decimal(below).scaleb(-scale, _DIGITS)
    scalar = pa.scalar(units if pa.types.is_decimal(kind) else below, kind)
    return getattr(pc, function if below == exact else "less_equal")(column, scalar)


def _literal(value: Value, kind: Any, name: str) -> Any:
    """Convert a value to an Arrow scalar of a column's type; raises DataError if that is not possible."""
    import pyarrow as pa

    types = pa.types
    try:
        if isinstance(value, Decimal) and types.is_floating(kind):
            return pa.scalar(float(value), kind)
        if isinstance(value, str) and types.is_time(kind):
            return pa.scalar(time.fromisoformat(value), kind)
        if isinstance(value, str) and (types.is_string(kind) or types.is_large_string(kind) or types.is_temporal(kind)):
            return pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
        pass
    wanted = "give a value of that type"
    if types.is_timestamp(kind):
        zone = "Z', with its zone" if kind.tz else "', without a zone"
        wanted = f"write a time such as '2026-01-31 12:00:00{zone}"
    elif types.is_date(kind):
        wanted = "write a date such as '2026-01-31'"
    shown = repr(value) if isinstance(value, str) else str(value).lower()
    raise DataError(f"pool.filter compares {name}, which is {kind}, with {shown}; {wanted}")


class _Parser:
    """Recursive-descent parser of one filter."""

    def __init__(self, text: str, key: str) -> None:
        self._key, self._text = key, text
        self._tokens = self._split()  # kind, text and first character of each
        self._place = self._depth = 0

    def whole(self) -> Condition:
        found = self._any()
        if self._place < len(self._tokens):
            raise self._error("and, or, or the end")
        return found

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, place, text = [], 0, self._text
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise SpecError(f"{self._key}: cannot parse {shortened(text[place:], 30)!r} in {shortened(text, 80)!r}")
            kind = match.lastgroup or ""
            word, start, place = match[kind], match.start(kind), match.end()
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            tokens.append((kind, word, start))
        return tokens

    def _error(self, wanted: str) -> SpecError:
        _, word, start = ("", "", len(self._text)) if self._place == len(self._tokens) else self._tokens[self._place]
        found = f"{shortened(word, 30)!r}" if word else "its end"
        before = shortened(self._text[:start].strip(), 80)
        return SpecError(f"{self._key}: expected {wanted} after {before!r}, found {found}")

    def _take(self, kind: str, *words: str) -> str | None:
        """Take the next token if it has the kind and is one of the words; else return None."""
        if self._place < len(self._tokens):
            found, word, _ = self._tokens[self._place]
            if found == kind and (not words or word in words):
                self._place += 1
                return word
        return None

    def _need(self, what: str, kind: str, *words: str) -> str:
        found = self._take(kind, *words)
        if found is None:
            raise self._error(what)
        return found

    def _any(self) -> Condition:
        return self._joined("or", lambda: self._joined("and", self._one))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._take("word", word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else Combined(word, tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SpecError(f"{self._key} is nested more than {_MAX_DEPTH} levels deep; simplify it")
        if self._take("word", "not"):
            found: Condition = Not(self._one())
        elif self._take("sign", "("):
            found = self._any()
            self._need("')'", "sign", ")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        column = self._need("a column", "name").strip("`")
        is_null = self._take("word", "is")
        is_negated = self._take("word", "not")
        if is_null:
            self._need("null", "word", "null")
            found = Comparison(column, "null", ())
        elif self._take("word", "in"):
            found = Comparison(column, "in", self._values())
        elif is_negated:
            raise self._error("in")
        else:
            wanted = "one of = != < <= > >=, in, or is null"
            sign = self._need(wanted, "sign", *_SIGNS, *_OPERATORS)
            return Comparison(column, _SIGNS.get(sign, sign), (self._value(),))
        return Not(found) if is_negated else found

    def _values(self) -> tuple[Value, ...]:
        self._need("'('", "sign", "(")
        found = [self._value()]
        while self._take("sign", ","):
            found.append(self._value())
        self._need("',' or ')'", "sign", ")")
        return tuple(found)

    def _value(self) -> Value:
        if (number := self._take("number")) is not None:
            exponent = re.search(r"[eE][-+]?0*(\d+)", number)
            if len(number) > _MAX_DIGITS or (exponent and len(exponent[1]) > 3):
                raise SpecError(f"{self._key}: {shortened(number, 30)} has more digits than any column; use fewer")
            return Decimal(number)
        if (text := self._take("text")) is not None:
            return text[1:-1].replace(text[0] * 2, text[0])
        return self._need("a number, a text in quotes, true or false", "word", "true", "false") == "true"
