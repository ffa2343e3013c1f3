"""Digests of all that decides the content of features: data, model, code and batches.

Folders of features are named after them, so a spec finds features that were extracted for another one.
"""

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from opacc_ray.extract.code import Code
from opacc_ray.extract.feature_set import FORWARD, HOME, FeatureLink, FeatureSetDescription, read_index
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.spec import PLACEMENT, SURPRISE, PoolSpec, Spec

_OF_MODEL = {"factory", "arguments", "sha256", "hidden_layer", "task"}
_NOT_OF_MODEL = {"weights", "classes", "error_scale"}
_OF_EXTRACT = {"batch_size", "shard_size", "shard_bytes", "precision", "threads_per_actor"}
_NOT_OF_EXTRACT = {"features", "coverage", "on_bad_item", *PLACEMENT}


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
    return FeatureLink(
        folder=f"../{HOME}/{_short(own)}",
        features=features,
        added={name: f"{name}-{_short(content)}" for name, content in added.items()},
        whole=f"all-{_short({'features': sorted(spec.features()), 'added': added})}",
    )


def describe(spec: Spec, planned: Plan, features: list[str], code: Code | None = None) -> FeatureSetDescription:
    """Describe all that determines the forward features of a pool."""
    pool = spec.pool.uri.rstrip("/")
    content = decided_by(spec, spec.pool, planned, code)
    return FeatureSetDescription(pool=pool, features=features, decided_by=content)


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


def _short(content: dict[str, Any]) -> str:
    return digest_of(content)[:16]
