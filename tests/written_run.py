"""Runs written by hand, shard by shard: every prediction and truth is known, and no cluster is needed."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stored_run import answers, classifier, store_run

from opacc_ray.extract.shards import FeatureShard
from opacc_ray.labels.label_actions import ImportedLabels, import_labels
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

N, CLASSES = 300, ["cat", "dog", "owl"]
IDS = [f"{i:03d}.png" for i in range(N)]
RNG = np.random.default_rng(0)
TRUTH, CONFIDENCE, PREDICTION = classifier(RNG, N)
OTHER = np.where(RNG.random(N) < 0.6, TRUTH, (TRUTH + 2) % 3)


def write_run(
    home: Path,
    name: str,
    prediction: NDArray[Any],
    ids: Sequence[str] = IDS,
    listing: str = "a",
    sections: dict[str, Any] | None = None,
    error_scale: float | None = None,
    **model: Any,
) -> Run:
    """A run whose features are there, in three shards; ``sections`` replace those of its spec."""
    content = {
        "name": name,
        "pool": {"uri": "nowhere", "format": "images"},
        "model": {"factory": "user:network"} | model,
        "sample": {"method": "srs", "budget": 40},
        "score": {"error_scale": error_scale},
        "output": str(home),
    }
    plan = Plan(tuple(Shard(number, ()) for number in range(3)), listing)
    spec = parse_spec(content | (sections or {}), name)

    def features(rows: NDArray[Any]) -> FeatureShard:
        columns = {"hidden": np.ones((len(rows), 5), np.float32), "prediction": prediction[rows]}
        if spec.model.task == "classification":
            columns |= answers(prediction[rows], CONFIDENCE[rows], spec.model)
        named = [ids[row] for row in rows]
        return FeatureShard(named, named, columns, [])

    return store_run(str(home / name), spec, plan, map(features, np.array_split(np.arange(len(ids)), 3)))


def label(run: Run, ids: Iterable[str], say: str | None = None) -> ImportedLabels:
    """Import the true classes of some examples, or what somebody says of all of them."""
    names = run.spec.model.classes or list(map(str, range(len(CLASSES))))
    rows = "".join(f"{id},{names[TRUTH[IDS.index(id)]] if say is None else say}\n" for id in dict.fromkeys(ids))
    return import_labels(run, "labels.csv", f"id,label\n{rows}".encode())
