"""Runs of any size whose features are made up: what they hold is random, how they lie is real."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from opacc_ray.audit.extraction_stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, ShardReport, encode_shard, report_on
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.store import Entry
from opacc_ray.runs.run import Run, header_of
from opacc_ray.spec import parse_spec

CLASSES = 10


def write_synthetic(uri: str, size: int, width: int, shard_size: int, *, own_ids: bool = False) -> Run:
    """A run of ``size`` examples with a hidden layer of ``width``, an output layer of 10, predictions, confidences."""
    run, plan, reports = open_synthetic(uri, size, width, shard_size, own_ids=own_ids)
    index_features(extraction_of(run), plan, dict(enumerate(reports)))
    return run


def open_synthetic(
    uri: str, size: int, width: int, shard_size: int, *, own_ids: bool = False
) -> tuple[Run, Plan, Iterator[ShardReport]]:
    """The same without its index: the reports come as the shards are written."""
    home, _, name = uri.rpartition("/")
    content: dict[str, Any] = {
        "name": name.partition("-")[0],
        "pool": {"uri": f"{home}/pool", "format": "npy" if own_ids else "images"},
        "model": {"factory": "user:network"},
        "sample": {"method": "css", "budget": 100},
        "output": home,
    }
    starts = range(0, size, shard_size)
    files = [(Entry(f"{number}.npy", 1, ""),) if own_ids else () for number in range(len(starts))]  # no image is listed
    plan = Plan(tuple(Shard(number, entries) for number, entries in enumerate(files)), "")
    run = Run.create(uri, header_of(parse_spec(content, name), plan, None))

    def written() -> Iterator[ShardReport]:
        for shard, start in zip(plan.shards, starts, strict=True):
            made = _shard(home, range(start, min(start + shard_size, size)), width, own_ids)
            data = encode_shard(made)
            run.features.write(shard.file, data)
            yield report_on(made, data, shard.file)

    return run, plan, written()


def extraction_of(run: Run) -> Extraction:
    return Extraction(run.spec, run.spec.pool, run.spec.features(), run.features)


def _shard(home: str, rows: range, width: int, own_ids: bool) -> FeatureShard:
    rng = np.random.default_rng(rows.start)
    num = len(rows)
    columns = {
        "hidden": rng.standard_normal((num, width), dtype=np.float32),
        "output": rng.standard_normal((num, CLASSES), dtype=np.float32),
        "confidence": rng.beta(6, 1, num),
        "prediction": rng.integers(0, CLASSES, num),
    }
    ids = [f"{row:09d}.png" for row in rows]
    return FeatureShard(ids, [f"{home}/pool/{name}" for name in ids], columns, [], own_ids)
