"""The filter of a table: its language, the rows that it keeps, and the row groups of a file that may have such rows.

Numbers are compared exactly with whole numbers and decimals. They are rounded to the type of floating-point columns,
where NaN is greater than every number. Comparisons with a null follow the three-valued logic of SQL, also for nulls in
a folder's name or a column that a file lacks. A row is left out if its condition is unknown.

A filter is a condition on columns, which is parsed, never run as code:

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = operand ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | operand [ "not" ] "in" "(" value { "," value } ")"
               | operand [ "not" ] "between" value "and" value
               | operand [ "not" ] "like" text
               | operand "is" [ "not" ] "null"
    operand    = column | "cast" "(" column "as" type ")"
    column     = part { "." part },  part = name | `any name`
    type       = bigint | double | varchar | date | timestamp
    value      = number | text | true | false | date text | timestamp text
    text       = 'text' | "text"

Words may be in capitals. A quote inside a text is doubled. A part after a dot is a field of a struct. Dates and times
are texts such as '2026-01-31', which are converted to the column's type. A time without a zone is in UTC.

    split = 'test' and (score >= 0.5 or score is null) and meta.country not in ('NL', 'BE')
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import time
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import reduce
from math import floor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, SpecError, shortened
from opacc_ray.lake.examples import Batch, Rules
from opacc_ray.lake.logical_schema import DIGITS, chain_of, column_at, id_texts, is_text, no_column, selected
from opacc_ray.lake.parquet_io import pa, pc, taken, to_numpy
from opacc_ray.lake.store import Entry


class Typed(NamedTuple):
    """A date or a timestamp that is written with its type."""

    kind: str
    text: str


Value = str | Decimal | bool | Typed

Fields = dict[str, Any]
"""Columns by their names, as fields of an Arrow schema."""

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>(?:[^\W\d]\w*|`[^`]+`)(?:\.(?:[^\W\d]\w*|`[^`]+`))*)|(?P<sign><=|>=|==|!=|<>|[=<>(),]))"
)
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_SIGNS = {"=": "==", "<>": "!="}
_OPPOSITE = {"==": "!=", "<": ">=", ">": "<=", "in": "not in", "null": "not null", "like": "not like"}
_OPPOSITE |= dict(zip(_OPPOSITE.values(), _OPPOSITE, strict=True))
_TYPES = {"bigint": "bigint", "int": "bigint", "integer": "bigint", "long": "bigint", "double": "double"}
_TYPES |= {"float": "double", "varchar": "varchar", "string": "varchar", "text": "varchar"}
_TYPES |= {"date": "date", "timestamp": "timestamp"}

_MAX_DEPTH = 50
_LONG = 20  # values of a list from which its ends say enough of a row group
_MAX_DIGITS = 400  # before or after the point: more than any column has


class Comparison(NamedTuple):
    """``column operator value``; the operator is a sign, or "in", "like", "null", or "not" and one of these."""

    column: str
    operator: str
    value: Value = ""
    cast: str | None = None  # the type that the column is converted to
    values: tuple[Value, ...] = ()  # of "in"

    def each(self) -> "Combined":
        """Return "in", or "not in", as comparisons with each value."""
        word, sign = ("or", "==") if self.operator == "in" else ("and", "!=")
        return Combined(word, tuple(self._replace(operator=sign, value=value, values=()) for value in self.values))

    @property
    def lists_texts(self) -> bool:
        """Whether the column itself is compared with a list of texts."""
        return bool(self.values) and self.cast is None and all(type(value) is str for value in self.values)


class Combined(NamedTuple):
    """Conditions joined by "and" or "or"."""

    word: str
    parts: tuple["Condition", ...]


Condition = Comparison | Combined

ALL = Combined("and", ())  # the condition that every row meets


def parse_filter(text: str | None, key: str = "pool.filter") -> Condition:
    """Parse a filter, or return ``ALL`` if there is none; raises SpecError with the place of a mistake."""
    return _Parser(text, key).whole() if text else ALL


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Return the columns of a condition, each once."""
    if isinstance(condition, Comparison):
        return (condition.column,)
    return tuple(dict.fromkeys(name for part in condition.parts for name in columns_of(part)))


def negated(condition: Condition) -> Condition:
    """Return the condition that is true where this one is false, and unknown where it is unknown."""
    if isinstance(condition, Comparison):
        return condition._replace(operator=_OPPOSITE[condition.operator])
    return Combined("or" if condition.word == "and" else "and", tuple(map(negated, condition.parts)))


class _Parser:
    """Recursive-descent parser of one filter."""

    def __init__(self, text: str, key: str) -> None:
        self._key, self._text = key, text
        self._tokens = [*self._split(), ("", "", len(text))]  # kind, text and first character of each, and the end
        self._place = self._depth = 0

    def whole(self) -> Condition:
        found = self._any()
        if self._take("") is None:
            raise self._error("and, or, or the end")
        return found

    def _split(self) -> Iterator[tuple[str, str, int]]:
        place, text = 0, self._text
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise SpecError(f"{self._key}: cannot parse {shortened(text[place:], 30)!r} in {shortened(text, 80)!r}")
            kind = match.lastgroup or ""
            word, start, place = match[kind], match.start(kind), match.end()
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            yield kind, word, start

    def _error(self, wanted: str) -> SpecError:
        _, word, start = self._tokens[self._place]
        found = f"{shortened(word, 30)!r}" if word else "its end"
        before = shortened(self._text[:start].strip(), 80)
        return SpecError(f"{self._key}: expected {wanted} after {before!r}, found {found}")

    def _take(self, kind: str, *words: str, before: str = "") -> str | None:
        """Take the next token if it has the kind, is one of the words and stands ``before`` a kind or sign.

        Names match in any case. Returns None if the token is another one.
        """
        own_kind, word, _ = self._tokens[self._place]
        word = word.lower() if words and kind == "name" else word
        if own_kind != kind or (words and word not in words):
            return None
        if before and before not in self._tokens[self._place + 1][:2]:
            return None
        self._place += 1
        return word

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
            found = negated(self._one())
        elif self._take("sign", "("):
            found = self._any()
            self._need("')'", "sign", ")")
        else:
            found = self._comparison()
        self._depth -= 1
        return found

    def _comparison(self) -> Condition:
        left = self._operand()
        is_null = self._take("word", "is")
        is_negated = self._take("word", "not")
        if is_null:
            self._need("null", "word", "null")
            found: Condition = left._replace(operator="null")
        elif self._take("word", "in"):
            found = left._replace(operator="in", values=self._values())
        elif self._take("name", "between"):
            least, _, most = self._value(), self._need("and", "word", "and"), self._value()
            found = Combined("and", (left._replace(operator=">=", value=least), left._replace(value=most)))
        elif self._take("name", "like"):
            pattern = self._text_of("a text in quotes").replace("\\", "\\\\")  # which stands for itself
            found = left._replace(operator="like", value=pattern)
        elif is_negated:
            raise self._error("in, between or like")
        else:
            wanted = "one of = != < <= > >=, in, between, like, or is null"
            sign = self._need(wanted, "sign", *_SIGNS, *_OPPOSITE)
            return left._replace(operator=_SIGNS.get(sign, sign), value=self._value())
        return negated(found) if is_negated else found

    def _operand(self) -> Comparison:
        """Return a column, with the operator that :meth:`_comparison` replaces."""
        if not self._take("name", "cast", before="("):
            return Comparison(self._column(), "<=")
        self._need("'('", "sign", "(")
        column = self._column()
        self._need("as", "name", "as")
        kind = _TYPES[self._need("a type: bigint, double, varchar, date or timestamp", "name", *_TYPES)]
        self._need("')'", "sign", ")")
        return Comparison(column, "<=", cast=kind)

    def _column(self) -> str:
        return self._need("a column", "name").replace("`", "")

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
        if (kind := self._take("name", "date", "timestamp", before="text")) is not None:
            return Typed(kind, self._text_of("text"))
        wanted = "a number, a text in quotes, true or false"
        if self._tokens[self._place][0] == "text":
            return self._text_of(wanted)
        return self._need(wanted, "word", "true", "false") == "true"

    def _text_of(self, what: str) -> str:
        text = self._need(what, "text")
        return text[1:-1].replace(text[0] * 2, text[0])


_OPERATORS = {
    "==": ("equal", False),
    "!=": ("equal", True),
    "<": ("less", False),
    ">=": ("less", True),
    "<=": ("less_equal", False),
    ">": ("less_equal", True),
}
"""Arrow's function for each operator, and whether its result is negated."""


class Bounds(NamedTuple):
    """What is known of a column in each of N parts of a table, such as row groups."""

    least: Any  # Arrow array (N,): no value is less; null if unknown, or if there is no value
    most: Any  # the same: no value is greater
    may_be_null: NDArray[np.bool_]  # (N,) whether a row may be null
    may_have_values: NDArray[np.bool_]  # (N,) whether a row may be another value


def rows_kept(condition: Condition, table: Any) -> NDArray[np.bool_]:
    """Return which rows of a table a condition keeps, (N,): it is true for them, neither false nor unknown.

    Raises DataError if the table lacks a column, or a value has another type.
    """
    if condition == ALL:
        return np.ones(len(table), dtype=bool)
    return to_numpy(pc.fill_null(_truth(condition, table), False))


def may_keep(condition: Condition, bounds: Mapping[str, Bounds], constants: Any, num_parts: int) -> NDArray[np.bool_]:
    """Return which parts of a table may have rows that a condition keeps, (N,).

    Parameters
    ----------
    bounds : of columns in each part; a column without bounds may have any values
    constants : table of one row, with the columns that have one value in all parts

    Raises DataError as :func:`rows_kept`.
    """
    if isinstance(condition, Combined):
        parts = [may_keep(part, bounds, constants, num_parts) for part in condition.parts]
        if condition.word == "or":
            return np.logical_or.reduce(parts)
        return np.logical_and.reduce([np.ones(num_parts, dtype=bool), *parts])
    if condition.column in constants.column_names:
        return np.repeat(rows_kept(condition, constants), num_parts)
    if condition.column not in bounds:
        return np.ones(num_parts, dtype=bool)
    own = bounds[condition.column]
    if condition.operator == "null":
        return own.may_be_null
    if condition.values:
        return may_keep(_ends(condition, own) or condition.each(), bounds, constants, num_parts)
    is_unbounded = condition.cast or condition.operator.endswith(("null", "like"))
    return own.may_have_values if is_unbounded else own.may_have_values & _in_range(condition, own)


def _ends(condition: Comparison, own: Bounds) -> Combined | None:
    """Return the comparisons with the least and the greatest of a long list: weaker than ``in``, and fast.

    None unless the column has texts, whose order is that of their bytes: '10' is no number that comes before '9'.
    """
    if condition.operator != "in" or len(condition.values) < _LONG:
        return None
    if not condition.lists_texts or not is_text(own.least.type):
        return None
    texts = list(map(str, condition.values))
    least, most = Comparison(condition.column, ">=", min(texts)), Comparison(condition.column, "<=", max(texts))
    return Combined("and", (least, most))


def _in_range(condition: Comparison, own: Bounds) -> NDArray[np.bool_]:
    """Return where a value between the bounds may meet a comparison."""

    def may(limit: Any, sign: str) -> NDArray[np.bool_]:
        return to_numpy(
            pc.fill_null(_truth(condition._replace(operator=sign), pa.table({condition.column: limit})), True)
        )

    operator = condition.operator
    if operator == "==":
        return may(own.least, "<=") & may(own.most, ">=")
    if operator in ("<", "<="):
        return may(own.least, operator)
    if pa.types.is_floating(own.most.type):  # bounds leave out NaN, which is greater than every number
        return np.ones(len(own.most), dtype=bool)
    return may(own.most, operator) if operator in (">", ">=") else may(own.least, "!=") | may(own.most, "!=")


def _truth(condition: Condition, table: Any) -> Any:
    """Return true, false or null (unknown) for each row, by the three-valued logic of SQL."""
    if isinstance(condition, Combined):
        parts = (_truth(part, table) for part in condition.parts)
        return reduce(pc.and_kleene if condition.word == "and" else pc.or_kleene, parts)
    name, operator, value, cast, values = condition
    column = column_at(table, name)
    if column is None:
        there = shortened(", ".join(table.column_names))
        raise DataError(f"pool.filter has the column {name!r}, and the pool has only {there}")
    if operator.endswith("null"):
        return (pc.is_null if operator == "null" else pc.is_valid)(column)
    column = _comparable(column)
    if condition.lists_texts and is_text(column.type):
        with suppress(ValueError):  # half of a character: refused below, like any value without a meaning
            found = pc.is_in(column, pa.array(values, column.type))
            found = pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))
            return found if operator == "in" else pc.invert(found)
    if values:
        return _truth(condition.each(), table)
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


# -- the columns and rows of a table --------------------------------------------------------------------------


def fields_in(schema: Any, names: Sequence[str], condition: Condition, source: str) -> Fields:
    """Return the field of each column in a schema; raises DataError if it lacks one, or the filter does not fit."""
    chains = {name: chain_of(schema, name) for name in names}
    missing = next((name for name, chain in chains.items() if not chain), None)
    if missing is not None:
        raise no_column(source, missing, schema)
    fields = {name: chain[-1] for name, chain in chains.items()}
    check_types(condition, fields)
    return fields


def check_types(condition: Condition, fields: Fields) -> None:
    """Raise DataError if a condition does not fit the types of its columns, each a field by its name."""
    if condition != ALL:  # an empty table imports pandas
        rows_kept(condition, pa.schema({name: fields[name].type for name in columns_of(condition)}).empty_table())


def wanted_columns(rules: Rules, condition: Condition) -> tuple[str, ...]:
    """Return all columns that are read, including those of the filter."""
    return tuple(dict.fromkeys([*rules.columns.names, *columns_of(condition)]))


def check_columns(schema: Any, rules: Rules, source: str, what: str) -> None:
    """Raise DataError unless a schema has the columns that are read; SpecError if the filter is not valid."""
    condition = parse_filter(rules.filter, f"{what}.filter")
    fields_in(schema, (*wanted_columns(rules, condition), *rules.slices), condition, source)


def kept_rows(entry: Entry, table: Any, rules: Rules, source: str, start: int = 0) -> Iterator[Batch]:
    """Yield the rows of a table in memory that the filter keeps, numbered from ``start``, with the rules' columns.

    Raises DataError unless the table has these columns; errors call it ``source``.
    """
    check_columns(table.schema, rules, source, "pool")
    rows = np.flatnonzero(rows_kept(parse_filter(rules.filter), table))
    if len(rows):
        yield Batch(entry, start + rows, taken(selected(table, rules.columns.names), rows))
