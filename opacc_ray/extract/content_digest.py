"""All that decides the content of features: data, model, code and batches. Folders of features are named by its digest.

The digest covers the SHA-256 of the user's source files and the versions of the libraries that build and run the model.
A file counts if import statements lead to it from a function in the spec. None of the code is imported, so a run has
its name before any of it runs, also where it cannot run.

What else Python loaded is recorded next to the features, and compared before they are reused
(:mod:`opacc_ray.extract.loaded_code`). Then stored examples are extracted again (:mod:`opacc_ray.extract.trial`).
If either differs, all are extracted again, as the next ``edition``.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from pydantic import BaseModel, Field

from opacc_ray.documents import Part
from opacc_ray.errors import DataError, counted
from opacc_ray.extract.feature_set import ALL, HOME, FeatureLink, FeatureSetDescription, read_index
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.spec import PLACEMENT, PoolSpec, Spec, modules_of, sources_of
from opacc_ray.spec.user_modules import read_code

LIBRARIES = ("flax", "jax", "keras", "onnxruntime", "tensorflow", "timm", "torch", "torchvision", "transformers")
"""Libraries that build or run models; they count if the user's files import them."""

ABSENT = "not there"
"""In place of the digest of a file that cannot be read, and of the version of a library that is not installed."""

LIBRARY_OF = {"timm": "timm", "hf": "transformers"}  # package by kind of library's model, which names our extra

_OF_MODEL = {"factory", "arguments", "sha256", "hidden_layer", "task"}
_NOT_OF_MODEL = {"name", "weights", "classes"}
_OF_EXTRACT = {"batch_size", "shard_size", "precision", "threads_per_actor"}
_NOT_OF_EXTRACT = {"features", "coverage", "on_bad_item", *PLACEMENT}


class CodeContent(Part):
    """Files and libraries of code."""

    files: dict[str, str] = Field(default={}, description="source file of the user's -> SHA-256")
    libraries: dict[str, str] = Field(default={}, description="library that builds or runs the model -> version")


class Code(CodeContent):
    """The code that determines features, in addition to the spec and the data."""

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
    return Code(files=_digests(found.files), libraries={name: library_version(name) for name in sorted(libraries)})


def check_unchanged(code: Code, spec: Spec, folder: str) -> None:
    """Raise DataError if a file or a library of the code differs on this machine.

    Modules that are not installed are in ``folder``.
    """
    there = sources_of(modules_of(spec), folder).files
    now = _digests({name: file for name, file in there.items() if name in code.files})
    other = next((name for name, found in now.items() if found != code.files[name]), None)
    if other is not None:
        raise DataError(
            f"{there[other]} on {platform.node()} is not the {other} that this run began with; give all workers "
            "the same files, and run the same command again"
        )
    for name, known in code.libraries.items():
        if (found := library_version(name)) != known:
            raise DataError(
                f"{name} on {platform.node()} is {found}, and {known} where this run began; install one version on all "
                "nodes, and run the same command again"
            )


def changes(before: CodeContent, now: CodeContent) -> str | None:
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
    return {inside: digest_of_file(file) for inside, file in sorted(files.items())}


def digest_of_file(file: Path) -> str:
    """Return the SHA-256 of a file, which may be in a zip on the module path; ``ABSENT`` if it cannot be read."""
    try:
        if file.is_file():  # of any size
            with file.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        if not file.exists():  # a folder or a pipe does
            return hashlib.sha256(read_code(file)).hexdigest()
    except (OSError, KeyError, BadZipFile):
        pass
    return ABSENT


Places = tuple[tuple[Path, int], ...]  # folders of modules, and when they last changed


def owners_of_modules() -> dict[str, set[str]]:
    """Return the distributions of each installed top-level module."""
    owners: dict[str, set[str]] = {}
    for folder, changed in _places():
        for module, names in _owners(folder, changed).items():
            owners.setdefault(module, set()).update(names)
    return owners


def library_version(name: str) -> str:
    """Return the version of an installed library, by the name of its module; ``ABSENT`` without one."""
    places = _places()
    owners = {owner for folder, changed in places for owner in _owners(folder, changed).get(name, ())}
    return ", ".join(_release(owner, places) for owner in sorted(owners)) or ABSENT


def _places() -> Places:
    folders = map(Path, dict.fromkeys(sys.path))
    return tuple((folder, folder.stat().st_mtime_ns) for folder in folders if folder.exists())


@lru_cache(maxsize=64)
def _owners(folder: Path, changed: int) -> dict[str, set[str]]:
    """Return the distributions of each module that lies in one folder of ``sys.path``.

    ``importlib.metadata.packages_distributions`` reads all folders, for half a second and more, whenever one changes.
    """
    owners: dict[str, set[str]] = {}
    for found in distributions(path=[str(folder)]):
        modules = (found.read_text("top_level.txt") or "").split()
        for module in modules or _modules_in(found.read_text("RECORD") or ""):
            owners.setdefault(module, set()).add(found.name)
    return owners


def _modules_in(record: str) -> set[str]:
    """Return the top-level modules among the recorded files of a distribution: ``path,digest,size`` in each line."""
    paths = (line.rsplit(",", 2)[0].strip('"') for line in record.splitlines())
    return {path.partition("/")[0].partition(".")[0] for path in paths if path.endswith((".py", ".so", ".pyd"))} - {""}


@lru_cache(maxsize=1024)
def _release(owner: str, places: Places) -> str:
    """Return the version of a distribution, without the label of its build: a GPU build is the same code.

    One that was installed from a folder or a repository may change under its version: a digest of its files is added.
    """
    found = distribution(owner)
    number = found.version.partition("+")[0]
    if not found.read_text("direct_url.json"):
        return number
    lines = [line for line in (found.read_text("RECORD") or "").split() if "sha256" in line]
    own = sorted(line for line in lines if ".dist-info/" not in line and not line.startswith(".."))
    return f"{number} ({hashlib.sha256(json.dumps(own).encode()).hexdigest()[:8]})"


def decided_by(spec: Spec, source: PoolSpec | None, planned: Plan, code: Code | None) -> dict[str, Any]:
    """Return all that determines a forward pass over data: listing, reading rules, model, code and batches."""
    return {
        "version": FEATURES_FORMAT,
        "listing": planned.digest,
        "source": source.reading() if source else None,
        **model_of(spec),
        "extract": _deciding(spec.extract, _OF_EXTRACT, _NOT_OF_EXTRACT),
        **({"code": code.model_dump()} if code else {}),
    }


def model_of(spec: Spec) -> dict[str, Any]:
    """Return the parts of a spec that determine the model's output for an example."""
    return {"model": _deciding(spec.model, _OF_MODEL, _NOT_OF_MODEL), "transform": spec.transform}


def _deciding(section: BaseModel, always: set[str], never: set[str]) -> dict[str, Any]:
    """Return the keys of a section that determine the content; unlisted ones do if they have no default value."""
    fields = type(section).model_fields
    content = section.model_dump(mode="json", exclude=never)
    return {
        key: value for key, value in content.items() if key in always or getattr(section, key) != fields[key].default
    }


def digest_of(content: dict[str, Any]) -> str:
    """Return the SHA-256 of JSON types."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def plan_set(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None = None) -> FeatureLink | None:
    """Return the set of a new run; None if its features are in its own prefix.

    A set with more features of the model is used if it is complete and excludes no example.

    The spec has the digest of its weights; ``planned`` and ``compared`` are the shards of pool and reference.
    """
    if spec.model.weights is None:
        return None
    wanted = set(spec.extracted())
    default = {"hidden", "output", "prediction"} | ({"confidence"} if spec.model.task == "classification" else set())
    links = [
        _link(spec, planned, compared, code, [name for name in ALL if name in each])
        for each in (wanted | default, wanted)
    ]
    if links[0] != links[1]:
        index = read_index(open_store(join(spec.output, HOME, links[0].digest)))
        if index is None or index.bad:
            return links[1]
    return links[0]


def _link(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None, features: list[str]) -> FeatureLink:
    own = describe(spec, planned, compared, features, code).model_dump(exclude={"format", "sha256"})
    content = {"reference": _reference_of(spec, compared, code)}
    return FeatureLink(
        folder=f"../{HOME}/{digest_of(own)[:16]}",
        features=features,
        added={name: f"{name}-{digest_of({'feature': name} | content)[:16]}" for name in spec.surprise()},
    )


def describe(
    spec: Spec, planned: Plan, compared: Plan | None, features: list[str], code: Code | None = None
) -> FeatureSetDescription:
    """Describe all that determines the features of a model for a pool."""
    content = decided_by(spec, spec.pool, planned, code)
    if "coverage" in features:
        coverage = spec.extract.coverage
        ranges = _reference_of(spec, compared, code) if coverage.rule.needs_ranges else None
        content |= {"coverage": coverage.model_dump(), "reference": ranges}
    return FeatureSetDescription(pool=spec.pool.uri.rstrip("/"), features=features, decided_by=content)


def _reference_of(spec: Spec, compared: Plan | None, code: Code | None) -> dict[str, Any] | None:
    return None if compared is None else decided_by(spec, spec.reference, compared, code)
