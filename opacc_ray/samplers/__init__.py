"""The registry of sampling methods: a method is a module of this package and one line below.

Each module offers the names of :class:`Sampler`. ``CONTRIBUTING.md`` walks through adding one.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, get_args, get_origin

from opacc_ray.errors import SpecError, meant, shortened
from opacc_ray.registry import Registry
from opacc_ray.samplers.base import Draw, Previous, Sampler, Task

METHODS: Mapping[str, Sampler] = Registry(
    "methods",
    {
        name: f"{__name__}.{name}"
        for name in ("srs", "css", "ces", "deepest", "neyman", "deepreduce", "sups", "rhcs", "ssrs", "gbs", "two_ups")
    },
)
"""Name of each method, and of its module in this package; then the methods of extensions."""

__all__ = ["METHODS", "Draw", "Previous", "Sampler", "Task", "find_method", "parse_parameters"]

PRESET = "preset"
"""Parameter of every method that names a published setting of its parameters."""

_COMMON = ("method", "budget", "models", PRESET)  # keys of every method


def find_method(method: str, others: Iterable[str] = ()) -> Sampler:
    """Return the module of a method; raises SpecError with the nearest name, of methods and ``others``."""
    if method not in METHODS:
        names = [*METHODS, *others]
        hint = meant(method, names, f"choose one of {', '.join(names)}")
        raise SpecError(f"there is no method {shortened(repr(method), 60)}; {hint}")
    return METHODS[method]


def parse_parameters(method: str, given: Mapping[str, Any]) -> Any:
    """Return the validated Parameters of a method; raises SpecError for an unknown name, with the nearest one."""
    kind: Any = find_method(method).Parameters
    given = _with_preset(method, kind.presets, given)
    known = {item.name: item for item in fields(kind)}
    for name, value in given.items():
        if name not in known:
            hint = meant(name, [*known, *_COMMON], f"it takes {', '.join(known) or 'none'}")
            raise SpecError(f"method {method!r} has no parameter {shortened(repr(name), 60)}; {hint}")
        default, may_be_list = known[name].default, get_origin(known[name].type) is tuple
        may_be_list |= any(get_origin(part) is tuple for part in get_args(known[name].type))
        if isinstance(value, list | tuple) and may_be_list:
            for item in value:
                _check_type(method, name, item, default[0] if isinstance(default, tuple) else default)
        else:
            _check_type(method, name, value, default)
    return kind(**given)


def _with_preset(method: str, presets: Mapping[str, Mapping[str, Any]], given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of the preset that is named, replaced by those that are given next to it."""
    if PRESET not in given:
        return given
    name, own = given[PRESET], {key: value for key, value in given.items() if key != PRESET}
    if name not in presets:
        known = f"choose one of {', '.join(presets)}" if presets else "it has none; remove preset"
        raise SpecError(f"method {method!r} has no preset {shortened(repr(name), 60)}; {known}")
    return {**presets[name], **own}


def _check_type(method: str, name: str, value: Any, default: Any) -> None:
    """Raise SpecError unless a value has the type of the default; an int is accepted as a float, a list as a tuple."""
    accepted: dict[type, tuple[type, ...]] = {float: (float, int), tuple: (tuple, list)}
    kinds = accepted.get(type(default), (type(default),))
    is_bool_as_number = isinstance(value, bool) and bool not in kinds
    finite = not isinstance(value, float) or math.isfinite(value)
    if default is not None and (not isinstance(value, kinds) or is_bool_as_number or not finite):
        wanted = {int: "a whole number", float: "a number", str: "a name", bool: "true or false"}
        given = f"{name}={shortened(repr(value), 60)} of method {method!r}"
        raise SpecError(f"{given}: give {wanted.get(kinds[0], 'a list')}, such as {default!r}")
