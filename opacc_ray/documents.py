"""Versioned JSON documents: what opacc writes for people, for other tools and for later versions.

A document is a pydantic model. Its first key, ``format``, has the name and the version of its kind, such as
``opacc-estimate/2``. Documents are validated when they are created and when they are read: exact types, no unknown key,
no NaN or infinity. Equal content gives equal bytes. What a key means, also of a spec, is the comment at its
field; only keys whose meaning is read at run time have a description.

From version 0.3.0 on documents stay readable: a new key gets a default, and any other change gets a new format, whose
class reads the old one as well.

A spec, which a person writes, is a :class:`Section` of sections: numbers may be written in any form of YAML.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from types import UnionType
from typing import Any, ClassVar, NoReturn, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from opacc_ray.errors import DataError, meant, shortened, shown


class Part(BaseModel):
    """Part of a document: exactly these keys, with exactly these types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Section(BaseModel):
    """A section of a spec: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse true and false as numbers, which pydantic would read as 1 and 0."""
        if any(isinstance(item, bool) for item in _items(value)):
            kinds = _kinds(cls.model_fields[info.field_name or ""].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise ValueError("numbers are meant; YAML reads yes, no, on and off as true and false")
        return value


def _items(value: Any) -> Iterable[Any]:
    """Return the values of a mapping, the items of a list, or the value itself."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else (value,)


def _kinds(annotation: Any) -> set[type]:
    found: set[type] = {annotation} if isinstance(annotation, type) else set()
    return found.union(*map(_kinds, get_args(annotation)))


class Document(Part):
    """A whole document; each kind declares ``format`` as the `Literal` of its name and version, with that default."""

    remedy: ClassVar[str] = "restore it"
    """What to do about a file that cannot be read."""

    format: str  # name and version of this form

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, in the order in which the fields are declared."""
        return self.model_dump(mode="json")

    def to_bytes(self) -> bytes:
        """Return the bytes of a file, which are the same for the same content."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes, source: str) -> Self:
        """Read the bytes of :meth:`to_bytes`; ``source`` names the file in errors.

        Raises
        ------
        DataError
            One sentence with the file, the key, the value that cannot be read, and what to do.
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
        """Read parsed JSON, as :meth:`from_bytes` does."""
        if not isinstance(content, dict):
            raise DataError(f"{source} holds a {type(content).__name__}, not a JSON object; {cls.remedy}")
        found, current = content.get("format"), cls.model_fields["format"].default
        if found != current:
            raise DataError(f"{source} has format {shown(found)}; this version reads {shown(current)}")
        try:
            return cls.model_validate(cls._checked(content, source))
        except ValidationError as error:
            problem = first_problem(cls, error).removesuffix("; add it")
            otherwise = " If not, " if problem.endswith("?") else "; "
            raise DataError(f"{source}: {problem}{otherwise}{cls.remedy}") from None

    @classmethod
    def _checked(cls, content: dict[str, Any], source: str) -> dict[str, Any]:
        return content


class SealedDocument(Document):
    """A stored document with a digest of itself, so that a value that was changed is detected."""

    sha256: str | None = None  # SHA-256 of all other keys, as sorted compact JSON

    def to_dict(self) -> dict[str, Any]:
        return sealed(super().to_dict())

    @classmethod
    def _checked(cls, content: dict[str, Any], source: str) -> dict[str, Any]:
        if content.get("sha256") != _seal(content):
            raise DataError(f"{source} was changed since it was written: its sha256 does not match; {cls.remedy}")
        return content | {"sha256": None}  # computed again when the document is written


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return JSON types with their digest under ``sha256``."""
    return {**content, "sha256": _seal(content)}


def _seal(content: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in content.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def first_problem(kind: type[BaseModel], error: ValidationError) -> str:
    """Return the most useful problem of an error, in one sentence: the key, the value and the fix."""
    problem = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")  # a typo is the likelier cause
    location = problem["loc"]
    place = shortened(".".join(str(part) for part in location if not _names_a_type(part)), 80)
    if problem["type"] == "extra_forbidden":
        known = _keys_at(kind, location[:-1])
        hint = "; " + meant(location[-1], known, f"known are {', '.join(known)}") if known else ""
        return f"unknown key {place!r} (value {shown(problem['input'])}){hint}"
    if problem["type"] == "missing":
        return f"key {place!r} is missing; add it"
    message = shortened(problem["msg"].removeprefix("Value error, "), 400)
    is_null = problem["input"] is None and isinstance(location[-1], int)  # in a list it is a name
    if problem["type"] == "string_type" and (is_null or isinstance(problem["input"], int | float | date)):
        message += "; put it in quotes"
    return f"{place}: {message} (value {shown(problem['input'])})" if place else message


def _names_a_type(part: Any) -> bool:
    """Whether a part of a location is the member of a union and no key."""
    return isinstance(part, str) and bool(
        re.fullmatch(r"int|float|str|bool|constrained-\w+|(literal|dict|list)\[.*\]", part)
    )


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
