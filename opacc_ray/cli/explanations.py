"""A spec to start from, and the methods with their parameters as they are declared."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Field

from opacc_ray.documents import Document, Part
from opacc_ray.samplers import METHODS, find_method

_NAMES: dict[Any, str] = {str: "text", int: "whole number", float: "number", bool: "true or false", NoneType: "null"}


class SpecTemplate(Document):
    """A spec to start from, with the keys that matter most."""

    format: Literal["opacc-template/1"] = "opacc-template/1"
    # the spec, with comments
    yaml: str = Field(default_factory=Path(__file__).with_name("spec_template.yaml").read_text)


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


class MethodParameter(Part):
    """A parameter of a method: a key of ``sample`` next to the method and its budget."""

    name: str  # the key
    type: str  # what may be written
    default: Any  # what it is unless given
    meaning: str  # what it does


class MethodEntry(Part):
    """A method."""

    name: str  # what `sample.method` and `--method` name
    title: str  # what it is
    needs: list[str]  # features that it reads, with its default parameters
    optional: list[str]  # features that it reads where they are there
    stops_itself: bool  # whether it may go without a budget, with its default parameters
    parameters: list[MethodParameter]  # its own parameters
    # published settings by name, which the parameter `preset` sets
    presets: dict[str, dict[str, Any]] = Field(default={})


class MethodList(Document):
    """Methods and their parameters."""

    format: Literal["opacc-methods/1"] = "opacc-methods/1"
    methods: list[MethodEntry]  # the methods, in the order of the registry


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
