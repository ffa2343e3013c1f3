"""Runs of a table of predictions with slices: which label each example has is known."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from opacc_ray.audit import verbs
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run
from opacc_ray.spec import Spec, parse_spec

N, CLASSES = 400, ["defect", "fine", "scratch"]
RNG = np.random.default_rng(3)
TRUTH = RNG.choice(3, N, p=[0.1, 0.7, 0.2])
CONFIDENCE = np.clip(RNG.beta(6, 1, N), 0.4, 1).round(3)
PREDICTION = np.where(RNG.random(N) < CONFIDENCE, TRUTH, (TRUTH + 1) % 3)
CAMERA = RNG.choice(["north", "south", "shed"], N, p=[0.7, 0.29, 0.01])
IDS = [f"e{i}" for i in range(N)]


def write_table(folder: Path) -> Path:
    """The pool, as a file of predictions."""
    path = folder / "pool.parquet"
    said = [CLASSES[c] for c in PREDICTION]
    pq.write_table(pa.table({"id": IDS, "said": said, "sure": CONFIDENCE, "camera": CAMERA}), path)
    return path


def spec_of(table: Path, home: Path, method: str = "neyman", **sections: object) -> Spec:
    columns = {"id": "id", "prediction": "said", "confidence": "sure"}
    content = {
        "name": "parts",
        "pool": {"uri": str(table), "format": "features", "columns": columns, "slices": ["camera"]},
        "model": {"classes": CLASSES},
        "sample": {"method": method, "budget": 60},
        "output": str(home),
    }
    return parse_spec(content | sections, "spec")


def labelled(spec: Spec) -> Run:
    run = verbs.first_round(spec)
    label(run)
    return run


def label(run: Run) -> None:
    number = run.rounds()[-1]
    rows = "".join(f"{name},{CLASSES[TRUTH[int(name[1:])]]}\n" for name in run.read_selection(number).ids)
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + rows).encode())
