"""A run whose features are given arrays: what the model says is known, how it lies is real."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opacc_ray.audit.stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, encode_shard, report_on
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.identity import header_of
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
    run = Run.create(uri, header_of(spec, plan, None))
    rows = np.array_split(np.arange(len(columns["prediction"])), len(plan.shards))
    reports = {}
    for shard, own in zip(plan.shards, rows, strict=True):
        ids = [f"{row:06d}.png" if images is None else f"rows.npy:{row}" for row in own]
        held = {key: np.asarray(values)[own] for key, values in columns.items()}
        made = FeatureShard(ids, [f"{home}/pool/{id}" for id in ids], held, [], False)
        data = encode_shard(made)
        run.features.write(shard.file, data)
        reports[shard.number] = report_on(made, data, shard.file)
    index_features(Extraction(run.spec, run.spec.pool, run.spec.features(), run.features), plan, reports)
    return run
