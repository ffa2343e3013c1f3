"""The catalog of a run's features: its index, views of it for samplers, and the rows that were chosen."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from opacc_ray import features
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extraction import Extraction
from opacc_ray.run import Chosen, Run
from opacc_ray.selection import Selection
from opacc_ray.sources import Plan
from opacc_ray.view import LocalParts, View

MEMORY_LIMIT = 2 << 30
"""Bytes of features above which they are held by actors instead of this process."""


def index_features(job: Extraction, plan: Plan) -> dict[str, Any]:
    """Read every shard once, check that ids are unique over all, and write the index that completes extraction."""
    files = [f"{shard.name}.parquet" for shard in plan.shards]
    shards: list[dict[str, Any]] = []
    bad: list[dict[str, str]] = []
    width: dict[str, int] = {}
    seen: set[str] = set()
    for file, data in zip(files, job.target.read_many(files), strict=True):
        shard = features.decode(data, job.names, job.target.uri_of(file))
        repeated = next((name for name in shard.ids if name in seen), None)
        if repeated is not None:
            raise DataError(f"the id {repeated!r} stands twice in {job.source.uri}; ids must be unique")
        seen.update(shard.ids)
        bad += [item._asdict() for item in shard.bad]
        width |= {name: int(np.prod(values.shape[1:])) for name, values in shard.columns.items()}
        shards.append({"file": file, "examples": len(shard.ids)})
    if not seen:
        raise DataError(f"none of the {len(bad)} examples of {job.source.uri} could be used, so none is left")
    index = {"shards": shards, "num_examples": len(seen), "features": width, "bad": bad}
    features.write_index(job.target, index)
    return index


@contextmanager
def open_view(
    run: Run, names: Sequence[str], welcome: Sequence[str] = (), instead: Mapping[str, str] | None = None
) -> Iterator[View]:
    """The named features as a sampler sees them: in this process if they fit, else in actors.

    ``welcome`` ones are there if the run has them; ``instead`` says how to go without some.
    """
    index = _index_of(run)
    missing = [name for name in names if name not in index["features"]]
    if missing:
        there = ", ".join(index["features"])
        ways = [run.spec.remedy(missing[0]), *(way for name, way in (instead or {}).items() if name == missing[0])]
        raise SpecError(f"{run.uri} holds {there}, not {missing[0]}; {', or '.join(ways)}")
    files, sizes = _held(index)
    optional = [name for name in welcome if name in index["features"]]
    wanted = tuple(dict.fromkeys([*names, *optional, "prediction"]))
    per_example = sum(index["features"][name] * (1 if name == "coverage" else 4) for name in wanted)
    num_bytes = index["num_examples"] * per_example
    if num_bytes <= MEMORY_LIMIT:
        yield View(LocalParts(features.read_pools(run.features, files, wanted)))
        return
    from opacc_ray import cluster

    with cluster.connected(), cluster.shelves(run.features, files, sizes, wanted) as parts:
        yield View(parts)


def find_chosen(run: Run, selection: Selection) -> Chosen:
    """Ids, places and predictions of the chosen examples, from the shards that hold them."""
    files, sizes = _held(_index_of(run))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    home = np.searchsorted(starts, selection.index, side="right") - 1  # (n,) shard of each
    concerned = np.unique(home)
    found: dict[int, tuple[str, str, Any]] = {}  # place in the selection -> row
    contents = run.features.read_many([files[part] for part in concerned])
    for part, data in zip(concerned, contents, strict=True):
        shard = features.decode(data, ["prediction"], files[part])
        for place in np.flatnonzero(home == part):
            row = int(selection.index[place] - starts[part])
            found[int(place)] = shard.ids[row], shard.uris[row], shard.columns["prediction"][row].item()
    return Chosen(*(list(column) for column in zip(*(found[i] for i in range(len(selection))), strict=True)))


def _index_of(run: Run) -> dict[str, Any]:
    index = run.read_index()
    if index is None:
        raise DataError(f"the features of {run.uri} are not complete; run its spec again, finished shards are kept")
    return index


def _held(index: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Files and sizes of the shards that hold examples, in the order of the pool."""
    held = [shard for shard in index["shards"] if shard["examples"]]
    return [shard["file"] for shard in held], [shard["examples"] for shard in held]
