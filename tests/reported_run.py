"""Runs over pools of real pictures or arrays, written by hand: what the model says and what is so are known."""

import functools
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from stored_run import answers, classifier, store_run

from opacc_ray.audit import verbs
from opacc_ray.extract.shards import FeatureShard
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.run import Run, write_listing
from opacc_ray.spec import parse_spec

N, CLASSES = 240, ["cat", "dog", "owl"]
RNG = np.random.default_rng(11)
TRUTH, CONFIDENCE, PREDICTION = classifier(RNG, N)
KEYS = [f"{i:03d}.png" for i in range(N)]
VALUE = RNG.normal(10, 3, N)
ESTIMATE = VALUE + RNG.normal(0, 0.4, N)


@functools.cache
def picture(i: int) -> bytes:
    """A small grey PNG, another one for each i."""
    sink = io.BytesIO()
    Image.fromarray(np.full((8, 12), i % 256, np.uint8)).save(sink, "PNG")
    return sink.getvalue()


def write_run(
    home: Path | str,
    *,
    keys: Sequence[str] = KEYS,
    classes: Sequence[str] | None = CLASSES,
    form: str = "images",
    task: str = "classification",
    rows: np.ndarray | None = None,
    features: Sequence[str] = ("hidden", "output", "prediction", "confidence"),
    **sections: Any,
) -> Run:
    """A run whose features are there, without a round; an array pool is one file of ``rows``."""
    pool = open_store(join(str(home), "pool"))
    if form == "images":
        pool.write_many((key, picture(i)) for i, key in enumerate(keys))
    else:
        sink = io.BytesIO()
        np.save(sink, np.zeros((N, 7), np.float32) if rows is None else rows)
        pool.write("rows.npy", sink.getvalue())
        keys = [f"rows.npy:{i}" for i in range(N)]
    model: dict[str, Any] = {"factory": "user:network", "task": task}
    if classes is not None and task == "classification":
        model["classes"] = list(classes)
    content: dict[str, Any] = {
        "name": "weekly",
        "pool": {"uri": pool.uri, "format": form},
        "model": model,
        "sample": {"method": "srs", "budget": 40},
        "output": str(home),
    }
    spec = parse_spec(content | sections, "spec")
    plan = plan_shards(pool, form, N)
    columns: dict[str, Any] = {"hidden": np.outer(CONFIDENCE, np.arange(5)).astype(np.float32)}
    columns |= {"prediction": ESTIMATE} if task == "regression" else answers(PREDICTION, CONFIDENCE)
    kept = {name: values for name, values in columns.items() if name in features}
    order = sorted(range(N), key=lambda i: keys[i]) if form == "images" else list(range(N))
    named = [keys[i] for i in order]
    uris = [
        f"{pool.uri}/{key}" if form == "images" else f"{pool.uri}/rows.npy#row={i}"
        for i, key in zip(order, named, strict=True)
    ]
    held = {name: np.asarray(values)[order] for name, values in kept.items()}
    shard = FeatureShard(named, uris, held, [], own_ids=form != "images")
    run = store_run(join(str(home), "weekly-1"), spec, plan, [shard])
    write_listing(run, plan)
    return run


def labelled_run(home: Path | str, *budgets: int, method: str = "srs", **options: Any) -> Run:
    """A run of `write_run` with a round of each budget, all of them answered."""
    run = write_run(home, **options)
    for budget in budgets:
        drawn = verbs.next_round(run, budget) if run.rounds() else verbs.select(run, method, budget, {})
        label(run, drawn.ids, options.get("keys", KEYS))
    return run


def label(run: Run, ids: Sequence[str], keys: Sequence[str] = KEYS, name: str = "labels.jsonl") -> None:
    """Answer as it is."""
    if run.spec.pool.format == "npy":
        keys = [f"rows.npy:{i}" for i in range(N)]
    classes = run.spec.model.classes

    def truth(i: int) -> str:
        if run.spec.model.task == "regression":
            return str(VALUE[i])
        return classes[TRUTH[i]] if classes else str(TRUTH[i])

    rows = [{"id": id, "label": truth(list(keys).index(id))} for id in dict.fromkeys(ids)]
    import_labels(run, name, "".join(json.dumps(row) + "\n" for row in rows).encode())
