"""List the methods and their parameters, as their modules declare them."""

import json
from dataclasses import fields
from typing import Any, Literal

from pydantic import Field

from opacc_ray.cli.spec_keys import type_text
from opacc_ray.documents import Document, Part
from opacc_ray.samplers import METHODS, find_method


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


class MethodList(Document):
    """Methods and their parameters."""

    format: Literal["opacc-methods/1"] = Field(default="opacc-methods/1", description="name and version of this form")
    methods: list[MethodEntry] = Field(description="the methods, in the order of the registry")


def list_methods(names: list[str] | None = None) -> MethodList:
    """Return some methods, or all; raise SpecError with the nearest name for an unknown one."""
    return MethodList(methods=[_entry(name) for name in (METHODS if names is None else names)])


def as_text(document: MethodList) -> str:
    """Return one line per method, and of a single method one line per parameter."""
    width = max(len(item.name) for item in document.methods)
    lines = [f"{item.name:{width}}  {item.title} (needs {_needs(item)})" for item in document.methods]
    if len(document.methods) == 1:
        lines += [_parameter_text(item) for item in document.methods[0].parameters] or ["  no parameters"]
    return "\n".join(lines)


def _parameter_text(item: MethodParameter) -> str:
    return f"  {item.name}: {json.dumps(item.default)}  {item.meaning} ({item.type})"


def _needs(entry: MethodEntry) -> str:
    return ", ".join(entry.needs) or "nothing"


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
    )
