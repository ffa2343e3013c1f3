"""The catalog of a run's features: its index, views of it for samplers, and the rows that were chosen."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.run import Chosen, Run
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract.extractor import Extraction
from opacc_ray.extract.shards import decode_shard, read_pools, read_shards, widths, write_index
from opacc_ray.lake.examples import Plan
from opacc_ray.parts.view import LocalParts, View
from opacc_ray.selection import Selection

MEMORY_LIMIT = 2 << 30
"""Bytes of features above which they are held by actors instead of this process."""


def index_features(job: Extraction, plan: Plan) -> dict[str, Any]:
    """Read every shard once, check that ids are unique over all, and write the index that completes extraction.

    It decodes ids and predictions only. For a classification it counts the predicted classes of the pool, which
    estimates by class agree with.

    Raises
    ------
    DataError
        If an id stands twice, no example is left, or the model predicts a class that the spec has no name for.
    """
    files = [f"{shard.name}.parquet" for shard in plan.shards]
    shards: list[dict[str, Any]] = []
    bad: list[dict[str, str]] = []
    width: dict[str, int] = {}
    seen: set[str] = set()
    counted: Counter[int] = Counter()
    for file, data in zip(files, job.target.read_many(files), strict=True):
        shard = decode_shard(data, ["prediction"], job.target.uri_of(file))
        repeated = next((name for name in shard.ids if name in seen), None)
        if repeated is not None:
            raise DataError(f"the id {repeated!r} stands twice in {job.source.uri}; ids must be unique")
        seen.update(shard.ids)
        bad += [item._asdict() for item in shard.bad]
        width |= widths(data)
        if job.spec.model.task == "classification":
            counted.update(shard.columns.get("prediction", np.empty(0)).tolist())
        shards.append({"file": file, "examples": len(shard.ids)})
    if not seen:
        raise DataError(f"none of the {len(bad)} examples of {job.source.uri} could be used, so none is left")
    index = {"shards": shards, "num_examples": len(seen), "features": width, "bad": bad}
    if job.spec.model.task == "classification":
        _refuse_nameless(counted, job)
        index["predicted"] = {str(c): counted[c] for c in sorted(counted)}
    write_index(job.target, index)
    return index


@contextmanager
def open_view(
    run: Run, names: Sequence[str], welcome: Sequence[str] = (), instead: Mapping[str, str] | None = None
) -> Iterator[View]:
    """The named features as a sampler sees them: in this process if they fit, else in actors.

    ``welcome`` ones are there if the run has them; ``instead`` says how to go without some.
    """
    index = _index_of(run)
    _refuse_missing(run, index, names, instead or {})
    files, sizes = _held(index)
    optional = [name for name in welcome if name in index["features"]]
    wanted = tuple(dict.fromkeys([*names, *optional, "prediction"]))
    per_example = sum(index["features"][name] * (1 if name == "coverage" else 4) for name in wanted)
    num_bytes = index["num_examples"] * per_example
    if num_bytes <= MEMORY_LIMIT:
        yield View(LocalParts(read_pools(run.features, files, wanted)))
        return
    from opacc_ray.cluster.parts import hold
    from opacc_ray.cluster.session import connected

    with connected(), hold(run.features, files, sizes, wanted) as parts:
        yield View(parts)


def find_chosen(run: Run, selection: Selection) -> Chosen:
    """Ids, places and predictions of the chosen examples, from the shards that hold them."""
    files, sizes = _held(_index_of(run))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    home = np.searchsorted(starts, selection.index, side="right") - 1  # (n,) shard of each
    concerned = np.unique(home)
    found: dict[int, tuple[str, str, Any]] = {}  # place in the selection -> row
    shards = read_shards(run.features, [files[part] for part in concerned], ["prediction"])
    for part, shard in zip(concerned, shards, strict=True):
        for place in np.flatnonzero(home == part):
            row = int(selection.index[place] - starts[part])
            found[int(place)] = shard.ids[row], shard.uris[row], shard.columns["prediction"][row].item()
    return Chosen(*(list(column) for column in zip(*(found[i] for i in range(len(selection))), strict=True)))


def find_predictions(run: Run, ids: Sequence[str]) -> list[Any]:
    """What a run's model says of some examples, which are found by id, wherever they lie in its pool.

    Raises
    ------
    DataError
        If an example is not in the pool; the message names the first.
    """
    wanted = set(ids)
    found: dict[str, Any] = {}
    files, _ = _held(_index_of(run))
    for shard in read_shards(run.features, files, ["prediction"]):
        rows = zip(shard.ids, shard.columns["prediction"].tolist(), strict=True)
        found |= {name: value for name, value in rows if name in wanted}
    absent = [name for name in dict.fromkeys(ids) if name not in found]
    if absent:
        raise DataError(
            f"{run.uri} lacks {len(absent)} of {len(wanted)} labelled examples, the first {absent[0]!r}; "
            "give a run on the same pool, with the same ids"
        )
    return [found[name] for name in ids]


def read_column(run: Run, name: str) -> NDArray[Any]:
    """One number per example of the pool, (N,), in its order; no other feature is decoded."""
    index = _index_of(run)
    _refuse_missing(run, index, [name], {})
    files, _ = _held(index)
    return np.concatenate([shard.columns[name] for shard in read_shards(run.features, files, [name])])


def predicted_classes(run: Run) -> dict[int, int] | None:
    """How many examples of the pool the model takes for each class; None if the index of the run does not tell."""
    counted = _index_of(run).get("predicted")
    return None if counted is None else {int(c): num for c, num in counted.items()}


def _refuse_nameless(counted: Mapping[int, int], job: Extraction) -> None:
    classes = job.spec.model.classes
    if classes is not None and max(counted) >= len(classes):
        raise DataError(
            f"the model predicts class {max(counted)} in {job.source.uri}, and model.classes names {len(classes)} "
            f"classes, 0 to {len(classes) - 1}; name all classes, in the model's order"
        )


def _refuse_missing(run: Run, index: dict[str, Any], names: Sequence[str], instead: Mapping[str, str]) -> None:
    missing = [name for name in names if name not in index["features"]]
    if missing:
        there = ", ".join(index["features"])
        ways = [run.spec.remedy(missing[0]), *(way for name, way in instead.items() if name == missing[0])]
        raise SpecError(f"{run.uri} holds {there}, not {missing[0]}; {', or '.join(ways)}")


def _index_of(run: Run) -> dict[str, Any]:
    index = run.read_index()
    if index is None:
        raise DataError(f"the features of {run.uri} are not complete; run its spec again, finished shards are kept")
    return index


def _held(index: dict[str, Any]) -> tuple[list[str], list[int]]:
    """Files and sizes of the shards that hold examples, in the order of the pool."""
    held = [shard for shard in index["shards"] if shard["examples"]]
    return [shard["file"] for shard in held], [shard["examples"] for shard in held]
