"""Where a run comes from: the digest of all that decides its result, and the versions that made it."""

import hashlib
import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from opacc_ray.errors import SpecError
from opacc_ray.extract import reference
from opacc_ray.extract.code import Code
from opacc_ray.extract.feature_set import FeatureLink
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.lake.examples import Plan
from opacc_ray.lake.store_uris import absolute, read_uri
from opacc_ray.runs.documents import IgnoredFiles, ModelDigest, PoolListing, ReferenceListing, RunHeader
from opacc_ray.spec import Spec

PACKAGES = ("opacc_ray", "numpy", "torch", "ray", "pyarrow", "boto3")


def header_of(
    spec: Spec, plan: Plan, compared: Plan | None, features: FeatureLink | None = None, code: Code | None = None
) -> RunHeader:
    """The header of a spec's run, whose digest names all that decides the result.

    Parameters
    ----------
    spec : with the digest of its weights
    plan : the shards of the pool
    compared : the shards of the reference, if a feature compares with one
    features : the set that holds the features; None for the run's own prefix
    code : that makes the features; None if they are the pool's
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
            ignored=[IgnoredFiles(kind=kind, num_files=num, first=list(first)) for kind, num, first in plan.ignored],
        ),
        reference=None if compared is None else ReferenceListing(digest=reference.digest(spec, compared, code)),
        features=features,
        code=code,
        model=ModelDigest(sha256=spec.model.sha256),
        versions=versions(),
        git_commit=_git_commit(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def located(spec: Spec) -> Spec:
    """The spec with absolute paths, so that they mean the same to this process and to workers elsewhere."""
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
    """The spec with the digest of its weights, checked here once, before any actor starts.

    Raises
    ------
    SpecError
        The spec expects another digest.
    """
    file = spec.model.weights or spec.model.program
    if file is None:
        return spec
    digest = hashlib.sha256(read_uri(file)).hexdigest()
    if spec.model.sha256 not in (None, digest):
        raise SpecError(
            f"model.sha256: {file} has digest {digest}, and the spec expects {spec.model.sha256}; "
            "audit the weights you meant, or correct the spec"
        )
    return spec.model_copy(update={"model": spec.model.model_copy(update={"sha256": digest})})


def versions() -> dict[str, str]:
    """Version of Python and of each package that matters."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a working directory that was shipped, not installed
            found[name] = "not installed"
    return found


def _git_commit() -> str | None:
    """The commit of the user's working directory, if it is one."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
