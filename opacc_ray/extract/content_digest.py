"""All that decides the content of features: data, model, code and batches. Folders of features are named by its digest.

The digest covers the SHA-256 of the user's source files and the versions of the libraries that build and run the model.
A file counts if import statements lead to it from a function in the spec. Other influences do not count: data that the
code reads, environment variables, modules imported by a computed name, other libraries. For these, stored examples are
extracted again (:mod:`opacc_ray.extract.spot_check`); if they differ, all are extracted again, as the next ``edition``.

None of the code is imported, so the digest does not depend on the machine.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from opacc_ray.documents import Part
from opacc_ray.errors import DataError, counted
from opacc_ray.extract.feature_set import FORWARD, HOME, FeatureLink, FeatureSetDescription, read_index
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.spec import PLACEMENT, SURPRISE, PoolSpec, Spec, modules_of, sources_of

LIBRARIES = ("flax", "jax", "keras", "onnxruntime", "tensorflow", "timm", "torch", "torchvision", "transformers")
"""Libraries that build or run models; they count if the user's files import them."""

LIBRARY_OF = {"timm": "timm", "hf": "transformers"}  # package by kind of library's model, which names our extra

_OF_MODEL = {"factory", "arguments", "sha256", "hidden_layer", "task"}
_NOT_OF_MODEL = {"name", "weights", "classes", "error_scale"}
_OF_EXTRACT = {"batch_size", "shard_size", "shard_bytes", "precision", "threads_per_actor"}
_NOT_OF_EXTRACT = {"features", "coverage", "on_bad_item", *PLACEMENT}


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

    A set with more features of the forward pass is used if it is complete and excludes no example.

    The spec has the digest of its weights; ``planned`` and ``compared`` are the shards of pool and reference.
    """
    if spec.model.weights is None:
        return None
    wanted = set(spec.features())
    default = {name for name in FORWARD if name != "confidence" or spec.model.task == "classification"}
    links = [
        _link(spec, planned, compared, code, [name for name in FORWARD if name in each])
        for each in (wanted | default, wanted)
    ]
    if links[0] != links[1]:
        index = read_index(open_store(join(spec.output, HOME, links[0].digest)))
        if index is None or index.bad:
            return links[1]
    return links[0]


def _link(spec: Spec, planned: Plan, compared: Plan | None, code: Code | None, features: list[str]) -> FeatureLink:
    own = describe(spec, planned, features, code).model_dump(exclude={"format", "sha256"})
    added = {name: _added(spec, compared, code, name) for name in spec.features() if name not in FORWARD}
    whole = {"features": sorted(spec.features()), "added": added}
    return FeatureLink(
        folder=f"../{HOME}/{digest_of(own)[:16]}",
        features=features,
        added={name: f"{name}-{digest_of(content)[:16]}" for name, content in added.items()},
        whole=f"all-{digest_of(whole)[:16]}",
    )


def describe(spec: Spec, planned: Plan, features: list[str], code: Code | None = None) -> FeatureSetDescription:
    """Describe all that determines the forward features of a pool."""
    content = decided_by(spec, spec.pool, planned, code)
    return FeatureSetDescription(pool=spec.pool.uri.rstrip("/"), features=features, decided_by=content)


def _added(spec: Spec, compared: Plan | None, code: Code | None, name: str) -> dict[str, Any]:
    """Return what determines an added feature, in addition to its set."""
    coverage, source = spec.extract.coverage, spec.reference
    ranges = name == "coverage" and coverage.rule.needs_ranges
    compares = compared is not None and source is not None and (name in SURPRISE or ranges)
    return {
        "feature": name,
        "reference": decided_by(spec, source, compared, code) if compares and source and compared else None,
        "coverage": coverage.model_dump() if name == "coverage" else None,
    }
