"""Identity of a run: the digest of everything that decides its result, its origin, and its population.

The same spec and data give the same run. Runs of one population are one series over time; others are kept apart. A
population is defined by the place and format of the pool, its filter, split and table, and by task and classes.
Neither the version of the data nor the model belongs to it, because they change over time. If a spec names its
population, the name replaces the keys of the pool.
"""

import hashlib
import json
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import Field

from opacc_ray.documents import Part
from opacc_ray.errors import SpecError, StorageError, shortened
from opacc_ray.extract import reference
from opacc_ray.extract.feature_set import FeatureLink
from opacc_ray.extract.model_code import Code
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import absolute, read_uri
from opacc_ray.runs.run_documents import IgnoredFiles, ModelDigest, PoolListing, ReferenceListing, RunHeader
from opacc_ray.spec import Spec
from opacc_ray.spec.model_spec import plain_name

PACKAGES = ("opacc_ray", "numpy", "torch", "ray", "pyarrow", "boto3")

POOL_KEYS = ("pool", "format", "filter", "split", "catalog", "table")
"""Keys of the pool that the name of a population replaces."""


def header_of(
    spec: Spec, plan: Plan, compared: Plan | None, features: FeatureLink | None = None, code: Code | None = None
) -> RunHeader:
    """Return the header of a spec's run, with a digest of everything that decides the result.

    Parameters
    ----------
    spec : the spec with the digest of its weights
    plan, compared : shards of the pool, and of the reference if a feature is compared with one
    features : the shared set of features; None: the run's own prefix
    code : the code that makes the features; None if the pool contains them
    """
    identity = {"spec": spec.identity(), "pool": plan.digest, "features": FEATURES_FORMAT}
    if compared is not None:
        identity["reference"] = compared.digest
    if code is not None:
        identity["code"] = code.model_dump()
    return RunHeader(
        spec=spec,
        digest=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
        pool=PoolListing(
            digest=plan.digest,
            num_files=len(plan.entries),
            num_shards=len(plan.shards),
            version=plan.version,
            data_as_of=None if plan.data_as_of is None else plan.data_as_of.isoformat(),
            ignored=[IgnoredFiles(kind=kind, num_files=num, first=list(first)) for kind, num, first in plan.ignored],
        ),
        reference=None if compared is None else ReferenceListing(digest=reference.digest(spec, compared, code)),
        features=features,
        code=code,
        model=ModelDigest(sha256=spec.model.sha256),
        versions=dict(versions()),
        git_commit=_git_commit(),
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )


def located(spec: Spec) -> Spec:
    """Return the spec with absolute paths, which workers on other machines understand as well."""
    model, reference = spec.model, spec.reference
    files = {key: getattr(model, key) for key in ("weights", "program")}
    model = model.model_copy(update={key: absolute(uri) for key, uri in files.items() if uri is not None})
    if reference is not None:
        labels = reference.labels and absolute(reference.labels)
        reference = reference.model_copy(update={"uri": absolute(reference.uri), "labels": labels})
    pool = spec.pool.model_copy(update={"uri": absolute(spec.pool.uri)})
    sample = spec.sample
    if sample.models:
        sample = sample.model_copy(update={"models": [absolute(uri) for uri in sample.models]})
    history = [absolute(uri) for uri in spec.history] if isinstance(spec.history, list) else spec.history
    update = {"history": history, "pool": pool, "model": model, "reference": reference, "sample": sample}
    return spec.model_copy(update=update | {"output": absolute(spec.output)})


def checked_weights(spec: Spec) -> Spec:
    """Return the spec with the digest of its weights; raises SpecError if it expects another one."""
    file = spec.model.weights or spec.model.program
    if file is None:
        return spec
    try:
        digest = hashlib.sha256(read_uri(file)).hexdigest()
    except StorageError as error:
        key = "weights" if spec.model.weights else "program"
        raise type(error)(f"model.{key}: {error}") from None
    if spec.model.sha256 not in (None, digest):
        raise SpecError(
            f"model.sha256: {file} has digest {digest}, and the spec expects {spec.model.sha256}; "
            "give those weights, or correct the spec"
        )
    return spec.model_copy(update={"model": spec.model.model_copy(update={"sha256": digest})})


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the main packages; not to be changed."""
    found = {"python": platform.python_version()} | dict.fromkeys(PACKAGES, "not installed")
    for name in PACKAGES:
        with suppress(PackageNotFoundError):  # imported from a working directory that was sent to a cluster
            found[name] = version(name)
    return found


def _git_commit() -> str | None:
    """Return the git commit of the working directory, if it is a repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


# -- populations ---------------------------------------------------------------------------------------------


class Population(Part):
    """The population that an accuracy is for; keys of the pool are null if the spec names the population."""

    name: str | None = Field(description="name in the spec; null: none")
    pool: str | None = Field(description="URI of the pool")
    format: str | None = Field(description="format of the pool")
    filter: str | None = Field(description="filter of the rows; null: all")
    split: str | None = Field(description="split of the dataset; null: its only one")
    catalog: str | None = Field(description="catalog of the table; null: the table is found by its URI")
    table: str | None = Field(description="name of the table in the catalog")
    task: str = Field(description="classification or regression")
    classes: list[str] | None = Field(description="names of the classes, sorted; null: no names")

    @classmethod
    def of(cls, spec: Spec) -> "Population":
        """Return the population of a spec with absolute paths, such as the spec in the header of a run."""
        keys = {key: getattr(spec.pool, key, None) for key in POOL_KEYS if key != "pool"}
        classes = spec.model.classes and sorted(map(plain_name, spec.model.classes))
        return cls.named(name=spec.population, pool=spec.pool.uri, task=spec.model.task, classes=classes, **keys)

    @classmethod
    def named(cls, *, name: str | None, pool: str, **keys: Any) -> "Population":
        """Return the population with these keys; a name replaces the keys of the pool."""
        place, folder, file = pool.rstrip("/").rpartition("/metadata/")
        is_metadata = keys["format"] == "iceberg" and folder and file.endswith(".metadata.json")
        pool = place if is_metadata else pool.rstrip("/")  # this file is one version of its table
        return cls(**{"name": name, "pool": pool} | keys | (dict.fromkeys(POOL_KEYS) if name is not None else {}))

    @property
    def digest(self) -> str:
        """Digest of the population: 16 hexadecimal digits."""
        content = self.model_dump(exclude_none=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return ", ".join(f"{key} {text}" for key, text in self._texts().items() if text is not None)

    def differs(self, other: "Population") -> str:
        """Describe the differences from another population: ``filter "score > 0.5", not none``."""
        own, theirs = self._texts(), other._texts()
        return "; ".join(
            f"{key} {own[key] or 'none'}, not {theirs[key] or 'none'}" for key in own if own[key] != theirs[key]
        )

    def _texts(self) -> dict[str, str | None]:
        found = self.model_dump()
        found["classes"] = None if self.classes is None else ", ".join(self.classes)
        for key in ("name", "filter"):
            found[key] = found[key] and f'"{found[key]}"'
        return {key: text if key == "pool" else text and shortened(text, 120) for key, text in found.items()}
