"""What to extract, from where and to where, and which of its examples can be used."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from opacc_ray.errors import DataError
from opacc_ray.extract.content_digest import Code
from opacc_ray.extract.reference import Loaded
from opacc_ray.extract.shards import Columns, FeatureShard, not_finite
from opacc_ray.lake.examples import BadItem
from opacc_ray.lake.store_uris import Store
from opacc_ray.spec import SURPRISE, PoolSpec, Spec


@dataclass(frozen=True)
class Known:
    """Complete features of an earlier listing of a pool."""

    folder: Store  # of the forward pass
    added: tuple[tuple[str, Store], ...] = ()  # further features of the same examples


class Base(NamedTuple):
    """Existing features of the same shards."""

    folder: Store
    names: tuple[str, ...]


@dataclass(frozen=True)
class Extraction:
    """What to extract, its source and its target: small enough to send to every actor."""

    spec: Spec
    source: PoolSpec
    names: tuple[str, ...]
    target: Store  # folder of features
    reference: Store | None = None  # folder of the reference
    ranges: bool = False  # also extract ranges of the covered neurons
    beside: tuple[tuple[str, Store], ...] = ()  # further features of the same pass, each with its folder
    base: Base | None = None  # the one named feature is added to these, for their examples
    modules: str = field(default_factory=os.getcwd)  # the driver's folder, which may contain the user's modules
    code: Code | None = None  # that is part of the features' digest
    known: Known | None = None  # features of an earlier listing of the pool

    @property
    def made(self) -> tuple[str, ...]:
        """All features that are extracted."""
        return (*self.names, *(name for name, _ in self.beside))

    @property
    def needs_model(self) -> bool:
        """Whether the model runs; surprise is computed from a stored hidden layer."""
        held = self.base.names if self.base else ()
        return self.base is None or not ("hidden" in held and set(self.names) <= set(SURPRISE))


def surprise_of(job: Extraction, loaded: Loaded, columns: Columns, names: Sequence[str]) -> Columns:
    """Return the surprise of a shard's examples, as far as ``names`` has it and the columns lack it."""
    if loaded.traces is None or not columns:
        return {}
    predicted = columns["prediction"] if job.spec.model.has_classes else None
    measures = {"dsa": loaded.traces.dsa, "lsa": loaded.traces.lsa}
    missing = [name for name in SURPRISE if name in names and name not in columns]
    return {name: measures[name](columns["hidden"], predicted) for name in missing}


def kept_rows(job: Extraction, loaded: Loaded, shard: FeatureShard, names: Sequence[str]) -> FeatureShard:
    """Return the columns in ``names``; NaN or infinity in any is an error, or a bad item if the spec excludes those."""
    found = not_finite(shard.columns)
    bad = [
        BadItem(
            shard.ids[row],
            _reason(loaded, name, shard.columns, row),
            None if shard.sources is None else shard.sources[row],
        )
        for row, name in found.items()
    ]
    check_bad(job.spec, job.source, [*shard.bad, *bad])
    if not found:
        return shard._replace(columns={name: shard.columns[name] for name in names if name in shard.columns})
    kept = [row for row in range(len(shard.ids)) if row not in found]
    return shard.take(kept, names)._replace(bad=[*shard.bad, *bad])


def _reason(loaded: Loaded, name: str, columns: Columns, row: int) -> str:
    if name not in SURPRISE or np.isnan(columns[name][row]) or loaded.traces is None:
        return f"NaN or infinity in {name}"
    predicted = columns["prediction"][row]
    if predicted in loaded.traces.classes:
        return "the nearest reference trace of its predicted class is also one of another class, so dsa is infinite"
    return f"no example of the reference is predicted as its class, {predicted}, so it has no {name}"


def check_bad(spec: Spec, source: PoolSpec, bad: Sequence[BadItem]) -> None:
    """Raise DataError for the first example that could not be used, unless the spec excludes those."""
    if bad and spec.extract.on_bad_item == "error":
        raise refusal(spec, source, bad[0])


def refusal(spec: Spec, source: PoolSpec, item: BadItem) -> DataError:
    """Return the error for a bad item that the spec does not exclude."""
    aim = "state the accuracy of" if source == spec.pool else "compare with"
    return DataError(
        f"example {item.id!r} of {source.uri}: {item.reason}; "
        f"repair or remove it, or set extract.on_bad_item: exclude to {aim} the rest"
    )
