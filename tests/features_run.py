"""A run whose features are given arrays: what the model says is known, how it lies is real."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from stored_run import store_run

from opacc_ray.extract.shards import FeatureShard
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec, plan_pool


def write_features(
    uri: str,
    columns: Mapping[str, Any],
    classes: Sequence[str] | None = None,
    task: str = "classification",
    shards: int = 3,
    images: np.ndarray | None = None,
    model: Mapping[str, Any] | None = None,
) -> Run:
    """The run at ``uri`` with ``columns`` such as hidden and prediction, one row per example, and no round.

    With ``images`` (N, H, W) its pool is an array of them, in one shard.
    """
    home, _, name = uri.rpartition("/")
    network = {"function": "user:network", "task": task} | dict(model or {})  # no torch module that could be cut
    if classes is not None:
        network["classes"] = list(classes)
    content: dict[str, Any] = {
        "name": name.partition("-")[0],
        "pool": {"uri": f"{home}/pool", "format": "images" if images is None else "npy"},
        "model": network,
        "sample": {"method": "srs", "budget": 40},
        "output": home,
    }
    spec = parse_spec(content, name)
    plan = Plan(tuple(Shard(number, ()) for number in range(shards)), "")
    if images is not None:
        sink = io.BytesIO()
        np.save(sink, images)
        open_store(f"{home}/pool").write("rows.npy", sink.getvalue())
        plan = plan_pool(spec.pool, spec.extract)
    shards = []
    for rows in np.array_split(np.arange(len(columns["prediction"])), len(plan.shards)):
        ids = [f"{row:06d}.png" if images is None else f"rows.npy:{row}" for row in rows]
        held = {key: np.asarray(values)[rows] for key, values in columns.items()}
        shards.append(FeatureShard(ids, [f"{home}/pool/{id}" for id in ids], held, [], False))
    return store_run(uri, spec, plan, shards)
