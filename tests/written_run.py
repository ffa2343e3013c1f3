"""Runs written by hand, shard by shard: every prediction and truth is known, and no cluster is needed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, encode_shard
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.runs.identity import header_of
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

N, CLASSES = 300, ["cat", "dog", "owl"]
IDS = [f"{i:03d}.png" for i in range(N)]
RNG = np.random.default_rng(0)
TRUTH = RNG.integers(0, 3, N)
CONFIDENCE = RNG.uniform(0.4, 1, N)
PREDICTION = np.where(RNG.random(N) < CONFIDENCE, TRUTH, (TRUTH + 1) % 3)
OTHER = np.where(RNG.random(N) < 0.6, TRUTH, (TRUTH + 2) % 3)


def write_run(
    home: Path,
    name: str,
    prediction: NDArray[Any],
    ids: Sequence[str] = IDS,
    listing: str = "a",
    sections: dict[str, Any] | None = None,
    **model: Any,
) -> Run:
    """A run whose features are there, in three shards; ``sections`` replace those of its spec."""
    content = {
        "name": name,
        "pool": {"uri": "nowhere", "format": "images"},
        "model": {"factory": "user:network"} | model,
        "sample": {"method": "srs", "budget": 40},
        "output": str(home),
    }
    plan = Plan(tuple(Shard(number, ()) for number in range(3)), listing)
    run = Run.create(str(home / name), header_of(parse_spec(content | (sections or {}), name), plan, None))
    for shard, rows in zip(plan.shards, np.array_split(np.arange(len(ids)), 3), strict=True):
        columns = {"hidden": np.ones((len(rows), 5), np.float32), "prediction": prediction[rows]}
        if run.spec.model.task == "classification":
            columns["output"], columns["confidence"] = np.ones((len(rows), 3), np.float32), CONFIDENCE[rows]
        named = [ids[row] for row in rows]
        run.features.write(f"{shard.name}.parquet", encode_shard(FeatureShard(named, named, columns, [])))
    index_features(Extraction(run.spec, run.spec.pool, run.spec.features(), run.features), plan)
    return run
