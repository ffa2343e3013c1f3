"""The reference: features of training data that pools are compared with, shared by the runs of an output.

    references/DIGEST/part-000000.parquet      id, uri, hidden (the trace) and prediction of a shard's examples
    references/DIGEST/part-000000.ranges.npz   ranges of the covered neurons over them
    references/DIGEST/ranges.npz               over all shards
    references/DIGEST/index.json               written last: its presence means that it is complete

DSA and LSA need traces, some coverage needs ranges, and a labelled reference needs confidence. DIGEST covers all that
decides the content (:mod:`opacc_ray.extract.feature_set`). Without weights in the spec, the factory may return
another model each time; then the reference is in the run's own prefix, and no other run uses it.

The surprise of the examples of a set is computed from its hidden layer, shard by shard; no model runs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from opacc_ray.errors import DataError
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.feature_set import Index, decided_by, read_index, read_other
from opacc_ray.extract.model_code import Code, json_digest
from opacc_ray.extract.shards import FeatureShard, read_shard
from opacc_ray.extract.surprise import Arrays, Reference
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.parquet_io import to_numpy
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.neurons.requirements import Ranges
from opacc_ray.spec import Spec, plan_pool

if TYPE_CHECKING:
    from opacc_ray.extract.extraction import Extraction

RANGES = "ranges.npz"


def plan(spec: Spec) -> Plan | None:
    """Return the shards of the reference, or None if the spec does not use it; raises as :func:`plan_pool`."""
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
        "ranges": spec.extract.coverage.model_dump(include={"layers", "channels"})
        if "ranges" in spec.compares_with()
        else None,
    }
    return json_digest(content)


def folder_of(spec: Spec, digest: str, run: Store) -> Store:
    """Return the folder of the reference with a digest."""
    if spec.model.weights is None:
        return run.store("reference")
    return open_store(join(spec.output, "references", digest[:16]))


def read_traces(folder: Store, spec: Spec, arrays: Arrays) -> Reference:
    """Read the traces of a complete reference."""
    tables = list(Features.of(folder, complete_index(folder).files).tables(["hidden", "prediction"]))
    hidden, predicted = (np.concatenate([to_numpy(own[name]) for own in tables]) for name in tables[0].column_names)
    return Reference(hidden, predicted if spec.model.has_classes else None, arrays)


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


class StoredSurprise:
    """One measure of surprise of stored examples; raises DataError if the reference is not complete."""

    def __init__(self, job: "Extraction", folder: Store, arrays: Arrays) -> None:
        assert job.reference is not None
        [self.name] = job.names
        self._source, self._folder, self._has_classes = job.source, folder, job.spec.model.has_classes
        self._traces = read_traces(job.reference, job.spec, arrays)

    def read(self, shard: Shard) -> FeatureShard:
        """Return the hidden layer and the predictions of a shard's examples."""
        return read_shard(self._folder, shard.file, ["hidden", "prediction"])._replace(own_ids=False, turned={})

    def compute(self, stored: FeatureShard) -> FeatureShard:
        """Return the surprise of these examples; raises DataError, with an id, if it is undefined."""
        if not stored.ids:
            return stored
        predicted = stored.columns["prediction"]
        values = getattr(self._traces, self.name)(stored.columns["hidden"], predicted if self._has_classes else None)
        for row in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            why = "the nearest reference trace of its predicted class is also one of another class"
            if np.isnan(values[row]):
                why = "its hidden layer has too large a value"
            elif self._has_classes and predicted[row] not in self._traces.classes:
                why = f"no example of the reference is predicted as its class, {predicted[row]}"
            raise DataError(
                f"example {stored.ids[row]!r} of {self._source.uri}: {why}, so it has no {self.name}; add examples to "
                "the reference, or choose a method without it"
            )
        return stored._replace(columns={self.name: values})
