"""Find what is installed, by name: what the core, its extensions and packages of other authors offer, which is imported
when it is used, and the packages that only an extra of the installation brings.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

from opacc_ray.errors import SpecError

EXTENSIONS = "opacc_ray.extensions"
"""The package that lists the extensions; it is imported by name alone, since the core stands below it."""


class Registry(Mapping[str, Any]):
    """What the core and extensions offer of a kind, by name. It is imported when it is used.

    Parameters
    ----------
    kind : a key of ``opacc_ray.extensions.OFFERS``, and the end of the name of a group of entry points
    core : name -> module of the core
    """

    def __init__(self, kind: str, core: Mapping[str, str] = MappingProxyType({})) -> None:
        self._kind, self._core = kind, core

    def __getitem__(self, name: str) -> Any:
        own = {key: f"{EXTENSIONS}.{place}" for key, place in _listed(self._kind).items()} | dict(self._core)
        if name not in own:
            return _loaded(_others(self._kind)[name])
        module, _, attribute = own[name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found

    def __contains__(self, name: object) -> bool:
        """Ask the core first: to list what other packages offer takes some tens of milliseconds."""
        return name in self._core or name in _listed(self._kind) or name in _others(self._kind)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._core, *_listed(self._kind), *_others(self._kind)]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _listed(kind: str) -> Mapping[str, str]:
    """Return what the extensions of this package offer of a kind: name -> place below them."""
    result: Mapping[str, str] = import_module(EXTENSIONS).OFFERS.get(kind, {})
    return result


def _loaded(point: EntryPoint) -> Any:
    """Return what another package offers; raises SpecError if it cannot be imported."""
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = point.dist.name if point.dist else "unknown"
        raise SpecError(
            f"{point.name!r} of {point.group} cannot be imported ({error}): repair or remove the package {package}"
        ) from None


@cache
def _others(kind: str) -> Mapping[str, EntryPoint]:
    """Return what installed packages register, by name."""
    return {point.name: point for point in _installed().select(group=f"opacc.{kind}")}


@cache
def _installed() -> Any:  # of another type before Python 3.12
    """Return the entry points of all installed packages; to look through them takes some tens of milliseconds."""
    return entry_points()


class Lazy:
    """A module that is imported when it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


# -- packages ------------------------------------------------------------------------------------------------------


_MODULES = {
    "characterize": "sklearn",
    "delta": "deltalake",
    "evidence": "cryptography",
    "fleet": "apprise prometheus_client",
    "hf": "transformers",
    "iceberg": "pyiceberg",
    "job": "ray torch safetensors PIL",
    "lance": "lance",
    "mlflow": "mlflow",
    "notebook": "pandas",
    "page": "starlette uvicorn markdown_it",
    "timm": "timm",
}

EXTRAS = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}
"""The extra of ``pyproject.toml`` that installs each package, by the name of its module."""


def require(what: str, *modules: str) -> None:
    """Raise SpecError, with the command that installs it, if a package that ``what`` needs is missing; import none."""
    for name in modules:
        if not has_package(name):
            raise missing(what, name)


def missing(what: str, name: str) -> SpecError:
    """Return the error for a package that ``what`` needs and that is missing."""
    return SpecError(f"{what} needs {name}, which is not installed here: pip install 'opacc_ray[{EXTRAS[name]}]'")


def has_package(module: str) -> bool:
    """Return whether a package of an extra is installed, by the name of its module."""
    try:
        return bool(sys.modules.get(module)) or find_spec(module) is not None
    except ImportError:  # from something that blocks the import
        return False
