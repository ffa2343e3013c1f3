"""The code that determines features: the user's source files, and the libraries that build and run the model.

The digest of features covers the SHA-256 of these files and the versions of these libraries. A file counts if import
statements lead to it from a function in the spec. Other influences do not count: data that the code reads, environment
variables, modules imported by a computed name, other libraries. For these, stored examples are extracted again
(:mod:`opacc_ray.extract.spot_check`); if they differ, all are extracted again, as the next ``edition``.

None of the code is imported, so the digest does not depend on the machine.
"""

import hashlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import DataError, counted
from opacc_ray.spec import Spec, modules_of, sources_of

LIBRARIES = ("flax", "jax", "keras", "onnxruntime", "tensorflow", "timm", "torch", "torchvision", "transformers")
"""Libraries that build or run models; they count if the user's files import them."""

LIBRARY_OF = {"timm": "timm", "hf": "transformers"}
"""Package of each kind of library's model; our extra has the name of the kind."""


class Code(Part):
    """The code that determines features, in addition to the spec and the data."""

    files: dict[str, str] = Field(default={}, description="source file of the user's -> SHA-256")
    libraries: dict[str, str] = Field(default={}, description="library that builds or runs the model -> version")
    edition: int = Field(
        default=1, ge=1, description="counts how often stored features differed though files and libraries did not"
    )


def code_of(spec: Spec) -> Code | None:
    """Return the current code of a spec; None if the pool holds features, so that none runs."""
    if spec.pool.holds_features:
        return None
    modules = modules_of(spec)
    found = sources_of(modules, os.getcwd())
    named = {name.partition(".")[0] for name in modules}
    libraries = {name for name in found.installed if name in LIBRARIES or name in named}
    if spec.model.function is None:
        libraries.add("torch")
    if spec.model.factory and (hub := hub_of(spec.model.factory)):
        libraries.add(LIBRARY_OF[hub[0]])
    return Code(files=_digests(found.files), libraries={name: _version(name) for name in sorted(libraries)})


def check_unchanged(code: Code, spec: Spec, folder: str) -> None:
    """Raise DataError if a file of the code differs on this machine; modules not installed are in ``folder``."""
    there = sources_of(modules_of(spec), folder).files
    now = _digests({name: file for name, file in there.items() if name in code.files})
    other = next((name for name, found in now.items() if found != code.files[name]), None)
    if other is not None:
        raise DataError(
            f"{there[other]} on {platform.node()} is not the {other} that this run began with; give all workers "
            "the same files, and run the same command again"
        )


def changes(before: Code, now: Code) -> str | None:
    """Return what has changed, as the begin of a sentence; None if nothing has."""
    files = [name for name in sorted(before.files | now.files) if before.files.get(name) != now.files.get(name)]
    if files:
        more = f" and {counted(len(files) - 1, 'other file')}" if len(files) > 1 else ""
        return f"{files[0]}{more} {'have' if more else 'has'} changed"
    other = before.libraries | now.libraries
    names = [name for name in sorted(other) if before.libraries.get(name) != now.libraries.get(name)]
    if names:
        was, is_now = (code.libraries.get(names[0], "not used") for code in (before, now))
        return f"{names[0]} has changed from {was} to {is_now}"
    return None


def hub_of(factory: str) -> tuple[str, str] | None:
    """Return the kind and the name of a library's model, or None for ``module:function``."""
    kind, _, name = factory.partition(":")
    return (kind, name) if kind in LIBRARY_OF else None


def _digests(files: Mapping[str, Path]) -> dict[str, str]:
    return {inside: hashlib.sha256(file.read_bytes()).hexdigest() for inside, file in sorted(files.items())}


def _version(name: str) -> str:
    """Return the version of an installed library, without the label of its build: a GPU build is the same code."""
    try:
        found = version(name)
    except PackageNotFoundError:  # its distribution may have another name
        known = packages_distributions().get(name)
        found = version(known[0]) if known else "not installed"
    return found.partition("+")[0]
