"""The keys of a spec and the methods with their parameters, as they are declared; and a commented spec."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.samplers import METHODS, find_method
from opacc_ray.spec import Spec

_EXAMPLES: dict[str, Any] = {
    "name": "digits-weekly",
    "pool.uri": "s3://lake/digits/",
    "pool.format": "images",
    "model.factory": "mypkg.models:net",
    "model.weights": "s3://models/net.safetensors",
    "model.hidden_layer": "fc2",
    "model.classes": ["cat", "dog"],
    "transform": "mypkg.models:transform",
    "reference.uri": "s3://lake/digits-train/",
    "reference.format": "images",
    "sample.budget": 100,
    "output": "s3://audits/",
}
"""Values of keys that have no default, or null."""

_ALWAYS = ("model", "model.factory", "sample", "sample.method", "sample.budget")
"""Optional keys that a template gives."""

_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null"}
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


class SpecTemplate(Document):
    """A spec to start from."""

    format: Literal["opacc-template/1"] = format_field("opacc-template/1")
    yaml: str = Field(description="the spec, with comments")


class Key(NamedTuple):
    """One key, or a section of keys."""

    path: str  # dotted
    type: str
    required: bool
    default: Any
    meaning: str
    is_section: bool

    @property
    def depth(self) -> int:
        return self.path.count(".")


def keys_of(kind: type[BaseModel] = Spec, prefix: str = "") -> Iterator[Key]:
    """Yield every key, each section before its keys, in the order of declaration."""
    for name, info in kind.model_fields.items():
        section = _section_of(info.annotation)
        default = None if info.is_required() or section else _default(info)
        sections = "list of sections" if get_origin(info.annotation) is list else "section"
        written = sections if section else type_text(info.annotation) + _bounds(info)
        yield Key(f"{prefix}{name}", written, info.is_required(), default, info.description or "", bool(section))
        if section:
            yield from keys_of(section, f"{prefix}{name}.")


def type_text(kind: Any) -> str:
    """Return a type in words: what may be written in YAML."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        kinds = [part for part in inner if part is not NoneType and not (part is int and float in inner)]
        return " or ".join(map(type_text, kinds))
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin is Annotated:
        return type_text(inner[0])
    if origin in (list, tuple):
        return f"list of {type_text(inner[0])}"
    if origin is dict or (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return "mapping"
    return _NAMES.get(kind, str(kind))


def template_for(method: str) -> str:
    """Return a spec for a method: required keys, and all others as comments; it parses as it is.

    Raises SpecError if there is no such method.
    """
    keys = [*keys_of()]
    parameters: Any = find_method(method).Parameters()
    lines = [
        "# yaml-language-server: $schema=opacc-spec.json",
        "# `opacc schemas .` writes that schema, by which editors complete keys. Lines that begin with # are defaults,",
        "# or examples where there is none.",
        "",
    ]
    for key in keys:
        name, is_commented = key.path.rpartition(".")[2], not _is_live(key, keys)
        value = method if key.path == "sample.method" else key.default
        text = "" if key.is_section else _yaml(_EXAMPLES.get(key.path) if value is None else value)
        if key.is_section and not key.depth:
            lines.append("")
        lines.append(_line(name, text, key.depth, key.meaning, commented=is_commented))
        if key.path == "sample.replicates":
            for item in fields(parameters):
                lines.append(_line(item.name, _yaml(item.default), 1, item.metadata["help"], commented=True))
    return "\n".join(lines) + "\n"


def _is_live(key: Key, keys: list[Key]) -> bool:
    """Return whether a template gives a key: it and its section are required."""
    if key.path in _ALWAYS:
        return True
    section = key.path.rpartition(".")[0]
    return key.required and all(_is_live(other, keys) for other in keys if other.path == section)


def _line(name: str, value: str, depth: int, meaning: str, *, commented: bool) -> str:
    key = f"{'  ' * depth}{name}:{f' {value}' if value else ''}"
    return f"{'# ' if commented else ''}{key:{38 if commented else 40}}  # {meaning}".rstrip()


def _yaml(value: Any) -> str:
    """Return a value on one line, as YAML."""
    if isinstance(value, tuple):
        value = list(value)
    return value if isinstance(value, str) and ":" not in value else json.dumps(value, ensure_ascii=False)


def _section_of(kind: Any) -> type[BaseModel] | None:
    """Return the model of a section, also of an optional one; None for a key that may be a plain value."""
    kinds = [part for part in (get_args(kind) or (kind,)) if part is not NoneType]
    only = kinds[0] if len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _default(info: FieldInfo) -> Any:
    value = info.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _bounds(info: FieldInfo) -> str:
    """Return the bounds of a number, such as ``≥ 1``."""
    found = [
        f"{sign} {getattr(item, name):g}"
        for item in info.metadata
        for name, sign in _BOUNDS.items()
        if abs(getattr(item, name, None) or 0) < 2**53 and getattr(item, name, None) is not None
    ]
    return f", {' and '.join(found)}" if found else ""


# -- methods ---------------------------------------------------------------------------------------------


class MethodParameter(Part):
    """A parameter of a method: a key of ``sample`` next to the method and its budget."""

    name: str = Field(description="the key")
    type: str = Field(description="what may be written")
    default: Any = Field(description="what it is unless given")
    meaning: str = Field(description="what it does")


class MethodEntry(Part):
    """A method."""

    name: str = Field(description="what `sample.method` and `--method` name")
    title: str = Field(description="what it is")
    needs: list[str] = Field(description="features that it reads, with its default parameters")
    optional: list[str] = Field(description="features that it reads where they are there")
    stops_itself: bool = Field(description="whether it may go without a budget, with its default parameters")
    parameters: list[MethodParameter] = Field(description="its own parameters")
    presets: dict[str, dict[str, Any]] = Field(
        default={}, description="published settings by name, which the parameter `preset` sets"
    )


class MethodList(Document):
    """Methods and their parameters."""

    format: Literal["opacc-methods/1"] = format_field("opacc-methods/1")
    methods: list[MethodEntry] = Field(description="the methods, in the order of the registry")


def list_methods(names: list[str] | None = None) -> MethodList:
    """Return some methods, or all; raise SpecError with the nearest name for an unknown one."""
    return MethodList(methods=[_entry(name) for name in (METHODS if names is None else names)])


def as_text(document: MethodList) -> str:
    """Return one line per method, and of a single method one line per parameter."""
    width = max(len(item.name) for item in document.methods)
    lines = [
        f"{item.name:{width}}  {item.title} (needs {', '.join(item.needs) or 'nothing'})" for item in document.methods
    ]
    if len(document.methods) == 1:
        own = [
            f"  {it.name}: {json.dumps(it.default)}  {it.meaning} ({it.type})" for it in document.methods[0].parameters
        ]
        lines += own or ["  no parameters"]
        lines += [f"  preset={name}: {_stated(own)}" for name, own in document.methods[0].presets.items()]
    return "\n".join(lines)


def _stated(preset: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in preset.items()) or "the defaults"


def _entry(name: str) -> MethodEntry:
    sampler: Any = find_method(name)
    parameters = sampler.Parameters()
    return MethodEntry(
        name=name,
        title=" ".join(sampler.__doc__.strip().split("\n\n")[0].split()).rstrip("."),
        needs=list(sampler.needs(parameters)),
        optional=list(parameters.optional_features),
        stops_itself=parameters.stops_itself,
        parameters=[
            MethodParameter(
                name=item.name,
                type=type_text(item.type),
                default=list(item.default) if isinstance(item.default, tuple) else item.default,
                meaning=item.metadata["help"],
            )
            for item in fields(parameters)
        ],
        presets={name: dict(own) for name, own in parameters.presets.items()},
    )
