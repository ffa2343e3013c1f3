"""Documents: what is written as JSON, for people, other tools and later versions; each with the version of its form.

A document is a pydantic model whose first key, ``format``, names it and its version, such as ``opacc-estimate/2``. It
is checked when it is made and when it is read: exact types, no unknown key, no NaN or infinity. The same content gives
the same bytes. A document that an earlier version wrote is brought up to date, version by version, when it is read; a
file that existed before its versions had names counts as version 1.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from types import UnionType
from typing import Any, ClassVar, NoReturn, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opacc_ray.errors import DataError, shortened, shown

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""The content of a document of one version -> that of the next one."""


class Part(BaseModel):
    """A part of a document: these keys and no others, with exactly these types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Document(Part):
    """A whole document; each kind declares ``format`` as the `Literal` of its name and version, with that default."""

    upgrades: ClassVar[Mapping[str | None, Upgrade]] = {}
    """How the content of an older format becomes that of the next, by format; None: it names no format."""

    remedy: ClassVar[str] = "restore it"
    """What to do about a file that cannot be read."""

    format: str

    def to_dict(self) -> dict[str, Any]:
        """JSON types, in the order in which the fields are declared."""
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        """The bytes of a file: the same for the same content."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Self:
        """Read what :meth:`to_bytes` of this or an earlier version wrote; ``source`` names the file in errors.

        Raises
        ------
        DataError
            One sentence with the file, the key and the value that cannot be read, and what to do.
        """
        try:
            content = json.loads(data, parse_constant=_refuse_constant)
        except RecursionError:
            raise DataError(f"{source} is nested too deeply to be read; {cls.remedy}") from None
        except ValueError as error:
            raise DataError(f"{source} is not JSON ({error}); {cls.remedy}") from None
        return cls.from_dict(content, source)

    @classmethod
    def from_dict(cls, content: Any, source: str) -> Self:
        """Read JSON that has been parsed, as :meth:`from_bytes` does."""
        if not isinstance(content, dict):
            raise DataError(f"{source} holds a {type(content).__name__}, not a JSON object; {cls.remedy}")
        try:
            return cls.model_validate(cls._up_to_date(content, source))
        except ValidationError as error:
            raise DataError(f"{source}: {first_problem(cls, error)}; {cls.remedy}") from None

    @classmethod
    def _up_to_date(cls, content: dict[str, Any], source: str) -> dict[str, Any]:
        current = cls.model_fields["format"].default
        while (found := content.get("format")) != current:
            if not (found is None or isinstance(found, str)) or found not in cls.upgrades:
                raise DataError(f"{source} has format {shown(found)}; this version reads {shown(current)}")
            content = cls.upgrades[found](content)
        return content


class SealedDocument(Document):
    """A document that is kept, with a digest of itself: a value that was changed since is noticed when it is read."""

    sha256: str | None = Field(default=None, description="SHA-256 of all other keys, as sorted compact JSON")

    def to_dict(self) -> dict[str, Any]:
        return sealed(super().to_dict())

    @classmethod
    def _up_to_date(cls, content: dict[str, Any], source: str) -> dict[str, Any]:
        if content.get("format") == cls.model_fields["format"].default:
            check_seal(content, source, cls.remedy)
        return super()._up_to_date(content, source) | {"sha256": None}  # it is made anew of what is written


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """JSON types with their digest under ``sha256``."""
    return {**content, "sha256": _seal(content)}


def check_seal(content: Mapping[str, Any], source: str, remedy: str) -> None:
    """Raise DataError if JSON is not what :func:`sealed` gave."""
    if content.get("sha256") != _seal(content):
        raise DataError(f"{source} was changed since it was written: it does not fit its sha256; {remedy}")


def _seal(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def first_problem(kind: type[BaseModel], error: ValidationError) -> str:
    """The most telling problem of an error, in one sentence: the key, the value and what to give instead."""
    problem = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")  # a typo explains more
    location = problem["loc"]
    place = shortened(".".join(str(part) for part in location if not _names_a_type(part)), 80)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {place!r} (value {shown(problem['input'])}){_nearest(kind, location)}"
    if problem["type"] == "missing":
        return f"key {place!r} is missing; add it"
    message = shortened(problem["msg"].removeprefix("Value error, "), 400)
    if problem["type"] == "string_type" and isinstance(problem["input"], int | float | date):
        message += "; put it in quotes"
    return f"{place}: {message} (value {shown(problem['input'])})" if place else message


def _names_a_type(part: Any) -> bool:
    """Whether a part of a location is no key, but the member of a union that was tried."""
    return isinstance(part, str) and bool(re.fullmatch(r"int|float|str|bool|(literal|dict|list)\[.*\]", part))


def _nearest(kind: type[BaseModel], location: Sequence[int | str]) -> str:
    """Which key was meant, or which there are, if that can be told."""
    known = _keys_at(kind, location[:-1])
    near = get_close_matches(str(location[-1]), known, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known are {', '.join(known)}" if known else ""


def _keys_at(kind: Any, location: Sequence[int | str]) -> list[str]:
    for part in location:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(part))
            kind = None if field is None else field.annotation
        else:  # a place in a list, or a key of a mapping
            kind = next(iter(get_args(kind)[-1:]), None)
        if get_origin(kind) in (Union, UnionType):
            kind = next(option for option in get_args(kind) if option is not type(None))
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")
