"""A run with all that a run has, over a pool of small objects: written by hand, so that no cluster is needed."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from stored_run import answers, classifier

from opacc_ray.audit.extraction_stages import Stage, index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, ShardReport, encode_shard
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.run import Run, header_of, write_listing
from opacc_ray.spec import parse_spec

N, PER_SHARD, CLASSES = 90, 30, ["cat", "dog", "owl"]
RNG = np.random.default_rng(5)
TRUTH, CONFIDENCE, PREDICTION = classifier(RNG, N)
KEYS = [f"{i:03d}.png" for i in range(N)]


def write_pool(home: str) -> None:
    store = open_store(join(home, "pool"))
    store.write_many((key, f"picture {key}".encode()) for key in KEYS)


def write_features(home: str, name: str = "audit", extract: bool = True) -> tuple[Run, Stage]:
    """A run of the pool at ``home``, and the stage that extracted it."""
    content: dict[str, Any] = {
        "name": name,
        "pool": {"uri": join(home, "pool"), "format": "images"},
        "model": {"factory": "user:network", "classes": CLASSES},
        "extract": {"shard_size": PER_SHARD},
        "sample": {"method": "srs", "budget": 20},
        "output": home,
    }
    spec = parse_spec(content, name)
    plan = plan_shards(open_store(spec.pool.uri), "images", PER_SHARD)
    run = Run.create(join(home, name), header_of(spec, plan, None))
    write_listing(run, plan)
    stage = Stage(Extraction(spec, spec.pool, spec.features(), run.features), plan)
    for shard in plan.shards if extract else ():
        extract_by_hand(stage.job, shard)
    if extract:
        index_features(stage.job, stage.plan)
    return run, stage


def extract_by_hand(job: Extraction, shard: Shard) -> ShardReport | None:
    rows = [KEYS.index(key) for key in shard.keys]
    columns = {"hidden": np.outer(CONFIDENCE[rows], np.arange(5)).astype(np.float32)}
    columns |= answers(PREDICTION[rows], CONFIDENCE[rows], job.spec.model)
    uris = [f"{open_store(job.source.uri).uri}/{key}" for key in shard.keys]
    job.target.write(shard.file, encode_shard(FeatureShard(list(shard.keys), uris, columns, [], own_ids=False)))
    return None


def label(run: Run, ids: Sequence[str], name: str = "labels.csv") -> None:
    rows = "".join(f"{key},{CLASSES[TRUTH[KEYS.index(key)]]}\n" for key in ids)
    import_labels(run, name, f"id,label\n{rows}".encode())
