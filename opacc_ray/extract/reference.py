"""The reference: features of training data that pools are compared with, shared by the runs of an output.

    references/DIGEST/part-000000.parquet      id, uri, hidden (the trace) and prediction of a shard's examples
    references/DIGEST/part-000000.ranges.npz   ranges of the covered neurons over them
    references/DIGEST/ranges.npz               over all shards
    references/DIGEST/index.json               written last: its presence means that it is complete

DSA and LSA need traces, some coverage needs ranges, and a labelled reference needs confidence. DIGEST covers all that
determines the content: the listing of the data, the model and the transform with their code
(:mod:`opacc_ray.extract.code`), and the extraction. Without weights in the spec, the factory may return another model
each time; then the reference is in the run's own prefix, and no other run uses it.
"""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from opacc_ray.errors import DataError
from opacc_ray.extract.code import Code
from opacc_ray.extract.features import Features
from opacc_ray.extract.index import Index, read_index, read_other
from opacc_ray.extract.neighbours import Arrays
from opacc_ray.extract.shards import FEATURES_FORMAT
from opacc_ray.extract.surprise import Reference
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.neurons.coverage import Ranges
from opacc_ray.spec import PLACEMENT, PoolSpec, Spec, plan_pool

RANGES = "ranges.npz"

_OF_MODEL = {"factory", "arguments", "sha256", "hidden_layer", "task"}
_NOT_OF_MODEL = {"weights", "classes", "error_scale"}
_OF_EXTRACT = {"batch_size", "shard_size", "shard_bytes", "precision", "threads_per_actor"}
_NOT_OF_EXTRACT = {"features", "coverage", "on_bad_item", *PLACEMENT}
_OF_COVERAGE = {"layers", "channels"}


class Loaded(NamedTuple):
    """Traces and ranges of a reference."""

    traces: Reference | None
    ranges: Ranges | None


NONE = Loaded(None, None)


def plan(spec: Spec) -> Plan | None:
    """Return the shards of the reference, or None if the spec does not use it.

    Raises
    ------
    DataError
        There is no example.
    """
    source = spec.reference
    if source is None or not spec.reads_reference:
        return None
    return plan_pool(source, spec.extract, "reference")


def names(spec: Spec) -> tuple[str, ...]:
    """Return the features of the reference's examples."""
    for_labels = () if spec.reference is None or spec.reference.labels is None else ("hidden", "confidence")
    compared = ("hidden",) if "traces" in spec.compares_with() else ()
    needed = {*compared, *(name for name in for_labels if name in spec.features())}
    return (*(name for name in ("hidden", "confidence") if name in needed), "prediction")


def digest(spec: Spec, planned: Plan, code: Code | None = None) -> str:
    """Return the digest of all that determines the content."""
    content = decided_by(spec, spec.reference, planned, code) | {
        "names": names(spec),
        "ranges": spec.extract.coverage.model_dump(include=_OF_COVERAGE) if "ranges" in spec.compares_with() else None,
    }
    return digest_of(content)


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


def folder(spec: Spec, planned: Plan, run: Store, code: Code | None) -> Store:
    """Return the folder of a run's reference."""
    return folder_of(spec, digest(spec, planned, code), run)


def folder_of(spec: Spec, digest: str, run: Store) -> Store:
    """Return the folder of the reference with a digest."""
    if spec.model.weights is None:
        return run.store("reference")
    return open_store(join(spec.output, "references", digest[:16]))


def load(folder: Store, spec: Spec, arrays: Arrays) -> Loaded:
    """Load the traces and ranges that the spec needs, from a complete reference."""
    needed = spec.compares_with()
    traces = _load_traces(folder, spec, arrays) if "traces" in needed else None
    return Loaded(traces, read_ranges(folder) if "ranges" in needed else None)


def read_ranges(folder: Store) -> Ranges:
    """Return the ranges over all shards; raises DataError if the file is not the one of the index."""
    return Ranges.decode(read_other(folder, RANGES), folder.uri_of(RANGES))


def check_ranges(folder: Store, shard: Shard) -> None:
    """Raise DataError if the ranges over a shard are missing or damaged."""
    key = f"{shard.name}.{RANGES}"
    if not folder.exists(key):
        raise DataError(f"{folder.uri_of(key)} is lost; run the spec again")
    Ranges.decode(folder.read(key), folder.uri_of(key))


def complete_index(folder: Store) -> Index:
    """Return the index of a reference; raises DataError while its extraction is not complete."""
    index = read_index(folder)
    if index is None:
        raise DataError(f"the reference {folder.uri} is not complete; run the spec again, finished shards are kept")
    return index


def _load_traces(folder: Store, spec: Spec, arrays: Arrays) -> Reference:
    pools = Features.of(folder, complete_index(folder)).pools(("hidden", "prediction"))
    predicted = None if spec.model.task == "regression" else np.concatenate([pool.prediction for pool in pools])
    return Reference(np.concatenate([pool.hidden for pool in pools]), predicted, arrays)


def write_ranges(folder: Store, shard: Shard, parts: Sequence[Ranges]) -> None:
    """Write the ranges over a shard, before its features, whose presence means that the shard is finished."""
    folder.write(f"{shard.name}.{RANGES}", Ranges.merge(parts).encode())


def merge_ranges(folder: Store) -> dict[str, bytes]:
    """Merge the ranges over all shards; return their file by its name, for the index."""
    keys = [entry.key for entry in folder.list() if entry.key.endswith(f".{RANGES}")]
    parts = [Ranges.decode(data, folder.uri_of(key)) for key, data in zip(keys, folder.read_many(keys), strict=True)]
    data = Ranges.merge(parts).encode()
    folder.write(RANGES, data)
    return {RANGES: data}
