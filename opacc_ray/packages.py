"""Packages that only an extra of the installation brings: what lacks one says which command installs it."""

import sys
from importlib.util import find_spec

from opacc_ray.errors import SpecError

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
