"""The filter of a table: a condition on its columns, which is parsed, never run as code.

    condition  = all { "or" all }
    all        = one { "and" one }
    one        = "not" one | "(" condition ")" | comparison
    comparison = operand ("=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=") value
               | operand [ "not" ] "in" "(" value { "," value } ")"
               | operand [ "not" ] "between" value "and" value
               | operand [ "not" ] "like" text [ "escape" text ]
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
from collections.abc import Callable
from decimal import Decimal
from typing import NamedTuple, cast

from opacc_ray.errors import SpecError, shortened


class Typed(NamedTuple):
    """A date or a timestamp that is written with its type."""

    kind: str
    text: str


Value = str | Decimal | bool | Typed

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    r"|(?P<name>(?:[^\W\d]\w*|`[^`]+`)(?:\.(?:[^\W\d]\w*|`[^`]+`))*)|(?P<sign><=|>=|==|!=|<>|[=<>(),]))"
)
_WORDS = ("and", "or", "not", "in", "is", "null", "true", "false")
_SIGNS = {"=": "==", "<>": "!="}
_OPPOSITE = {"==": "!=", "<": ">=", ">": "<=", "null": "not null", "like": "not like"}
_OPPOSITE |= dict(zip(_OPPOSITE.values(), _OPPOSITE, strict=True))
_TYPES = {"bigint": "bigint", "int": "bigint", "integer": "bigint", "long": "bigint", "double": "double"}
_TYPES |= {"float": "double", "varchar": "varchar", "string": "varchar", "text": "varchar"}
_TYPES |= {"date": "date", "timestamp": "timestamp"}

_MAX_DEPTH = 50
_MAX_DIGITS = 400  # before or after the point: more than any column has


class Comparison(NamedTuple):
    """A comparison ``column operator value``; the operator is a sign, "like", "null", or "not" with one of these."""

    column: str
    operator: str
    value: Value = ""
    cast: str | None = None  # the type that the column is converted to


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


def needed_of(condition: Condition) -> tuple[Condition, ...]:
    """Return the conditions that are joined by "and" at the top level."""
    if isinstance(condition, Combined) and condition.word == "and":
        return tuple(inner for part in condition.parts for inner in needed_of(part))
    return (condition,)


def negated(condition: Condition) -> Condition:
    """Return the condition that is true where this one is false, and unknown where it is unknown."""
    if isinstance(condition, Comparison):
        return condition._replace(operator=_OPPOSITE[condition.operator])
    return Combined("or" if condition.word == "and" else "and", tuple(map(negated, condition.parts)))


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

    def _take(self, kind: str, *words: str, before: str = "") -> str | None:
        """Take the next token if it has the kind, is one of the words and stands ``before`` a kind or sign.

        Names match in any case. Returns None if the token is another one.
        """
        following = [*self._tokens[self._place : self._place + 2], ("", "", 0), ("", "", 0)]
        (found, word, _), (next_kind, next_word, _) = following[:2]
        word = word.lower() if words and kind == "name" else word
        if found != kind or (words and word not in words) or (before and before not in (next_kind, next_word)):
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
            parts = tuple(left._replace(operator="==", value=value) for value in self._values())
            found = Combined("or", parts)
        elif self._take("name", "between"):
            least, _, most = self._value(), self._need("and", "word", "and"), self._value()
            found = Combined("and", (left._replace(operator=">=", value=least), left._replace(value=most)))
        elif self._take("name", "like"):
            found = left._replace(operator="like", value=self._pattern())
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
        if self._tokens[self._place : self._place + 1] and self._tokens[self._place][0] == "text":
            return self._text_of(wanted)
        return self._need(wanted, "word", "true", "false") == "true"

    def _text_of(self, what: str) -> str:
        text = self._need(what, "text")
        return text[1:-1].replace(text[0] * 2, text[0])

    def _pattern(self) -> str:
        r"""Return a pattern of "like" in which a backslash precedes each %, _ and \ that stands for itself."""
        pattern = self._text_of("a text in quotes").replace("\\", "\\\\")
        if self._take("name", "escape"):
            mark = self._text_of("one character in quotes")
            mark = mark.replace("\\", "\\\\")
            pattern = re.sub(re.escape(mark) + r"(\\\\|.)", _escaped, pattern, flags=re.DOTALL) if mark else pattern
        return pattern


def _escaped(match: re.Match[str]) -> str:
    own = cast(str, match[1])
    return f"\\{own}" if own in ("%", "_") else own
