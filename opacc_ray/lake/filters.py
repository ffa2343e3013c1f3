"""The filter of a pool of tables: a condition on its columns, in words that are parsed and never run.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = column ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | column [ "not" ] "in" "(" value { "," value } ")"
               | column "is" [ "not" ] "null"
    column     = name | `any name`
    value      = number | 'text' | "text" | true | false

Words may be in capitals. A quote inside of a text is written twice. Dates and times are texts such as '2026-01-31',
which are read as the column's type. A row for which the condition is unknown, since a value is null, is left out.

    split = 'test' and (score >= 0.5 or score is null) and country not in ('NL', 'BE')
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from opacc_ray.errors import DataError, SpecError, shortened

Value = str | int | float | bool

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>[^\W\d]\w*|`[^`]+`)|(?P<sign><=|>=|==|!=|<>|[=<>(),]))"
)
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_SIGNS = {"=": "==", "<>": "!="}
_MAX_DEPTH = 50


class Comparison(NamedTuple):
    """``column operator values``; the operator is a sign, "in" or "null"."""

    column: str
    operator: str
    values: tuple[Value, ...]


class Both(NamedTuple):
    """All of some conditions, or any of them."""

    word: str  # "and" or "or"
    parts: tuple["Condition", ...]


class Not(NamedTuple):
    """A condition that must not hold."""

    part: "Condition"


Condition = Comparison | Both | Not


def parse_filter(text: str, key: str = "pool.filter") -> Condition:
    """Parse a filter; raises SpecError naming the place where it cannot be read."""
    return _Parser(text, key).whole()


def columns_of(condition: Condition) -> tuple[str, ...]:
    """Columns that a condition reads, each once."""
    if isinstance(condition, Comparison):
        return (condition.column,)
    parts = (condition.part,) if isinstance(condition, Not) else condition.parts
    return tuple(dict.fromkeys(name for part in parts for name in columns_of(part)))


def needed_of(condition: Condition) -> tuple[Condition, ...]:
    """Conditions that must all hold for this one to."""
    if isinstance(condition, Both) and condition.word == "and":
        return tuple(inner for part in condition.parts for inner in needed_of(part))
    return (condition,)


def expression_of(condition: Condition, schema: Any) -> Any:
    """Return the condition as an expression of Arrow for columns of a schema.

    Raises
    ------
    DataError
        A column is not there, or a value does not fit its type.
    """
    if isinstance(condition, Not):
        return ~expression_of(condition.part, schema)
    if isinstance(condition, Both):
        parts = [expression_of(part, schema) for part in condition.parts]
        return reduce(and_ if condition.word == "and" else or_, parts)
    return _compared(condition, schema)


def keeps(condition: Condition, constants: Mapping[str, Any]) -> bool:
    """Whether a condition on constants alone holds for them."""
    import pyarrow as pa

    row = pa.table({name: pa.array([value]) for name, value in constants.items()})
    return bool(len(row.filter(expression_of(condition, row.schema))))


def _compared(comparison: Comparison, schema: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    name, operator, values = comparison
    if name not in schema.names:
        raise DataError(f"pool.filter names the column {name!r}, and the pool has {shortened(', '.join(schema.names))}")
    kind = schema.field(name).type
    column = pc.field(name)
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        column = column.cast(kind)
    if operator == "null":
        return column.is_null()
    if pa.types.is_null(kind):  # a partition without a value
        return pc.scalar(False)
    fitting = [_fitting(value, kind, name) for value in values]
    if operator == "in":
        return reduce(or_, [column == value for value in fitting])  # unknown for a null, as in SQL, which isin is not
    signs: dict[str, Callable[[Any, Any], Any]] = {
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    return signs[operator](column, fitting[0])


def _fitting(value: Value, kind: Any, name: str) -> Any:
    """A value as an Arrow scalar that a column of some type can be compared with."""
    import pyarrow as pa

    types = pa.types
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    text_like = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    fits = {
        "number": types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind),
        "true or false": types.is_boolean(kind),
        "text": text_like or types.is_temporal(kind),
    }["number" if is_number else "true or false" if isinstance(value, bool) else "text"]
    try:
        if not fits:
            raise pa.ArrowInvalid("another type")
        return pa.scalar(value) if is_number else pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"pool.filter compares {name}, which is {kind}, with {value!r}; give a value of that type"
        ) from None


class _Parser:
    """Recursive descent over the tokens of one filter."""

    def __init__(self, text: str, key: str) -> None:
        self._key = key
        self._text = text
        self._tokens = self._split(text)
        self._place = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._any()
        if self._place < len(self._tokens):
            raise self._error("and, or, or the end")
        return found

    def _split(self, text: str) -> list[tuple[str, str, int]]:
        """(kind, text, first character) of each token."""
        tokens, place = [], 0
        while text[place:].strip():
            match = _TOKEN.match(text, place)
            if match is None:
                raise SpecError(f"{self._key}: cannot read {shortened(text[place:], 30)!r} in {shortened(text, 80)!r}")
            kind = match.lastgroup or ""
            word, start = match[kind], match.start(kind)
            if kind == "name" and word.lower() in _WORDS:
                kind, word = "word", word.lower()
            tokens.append((kind, word, start))
            place = match.end()
        return tokens

    def _error(self, wanted: str) -> SpecError:
        there = "it ends" if self._place == len(self._tokens) else f"{shortened(self._tokens[self._place][1], 30)!r}"
        after = self._text[: self._tokens[self._place][2]] if self._place < len(self._tokens) else self._text
        return SpecError(f"{self._key}: {wanted} should follow {shortened(after.strip(), 80)!r}, and {there} does")

    def _take(self, kind: str, *words: str) -> str | None:
        """The next token if it is of a kind, and one of the words."""
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
        parts: Sequence[Condition] = [part()]
        while self._take("word", word):
            parts = [*parts, part()]
        return parts[0] if len(parts) == 1 else Both(word, tuple(parts))

    def _one(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise SpecError(f"{self._key} is nested more than {_MAX_DEPTH} deep; write less")
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
        if self._take("word", "is"):
            negated = self._take("word", "not")
            self._need("null", "word", "null")
            found: Condition = Comparison(column, "null", ())
            return Not(found) if negated else found
        negated = self._take("word", "not")
        if self._take("word", "in"):
            found = Comparison(column, "in", self._values())
            return Not(found) if negated else found
        if negated:
            raise self._error("in")
        sign = self._need("one of = != < <= > >=, in, or is null", "sign", "=", "==", "!=", "<>", "<", "<=", ">", ">=")
        return Comparison(column, _SIGNS.get(sign, sign), (self._value(),))

    def _values(self) -> tuple[Value, ...]:
        self._need("'('", "sign", "(")
        found = [self._value()]
        while self._take("sign", ","):
            found.append(self._value())
        self._need("',' or ')'", "sign", ")")
        return tuple(found)

    def _value(self) -> Value:
        if (number := self._take("number")) is not None:
            return float(number) if re.search(r"[.eE]", number) else int(number)
        if (text := self._take("text")) is not None:
            return text[1:-1].replace(text[0] * 2, text[0])
        return self._need("a number, a text in quotes, true or false", "word", "true", "false") == "true"
