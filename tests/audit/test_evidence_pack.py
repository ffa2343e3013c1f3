"""What a pack states is recomputed without opacc to 1e-12: accuracy, metrics, slices, classes; of every design."""

import importlib
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from recomputed_pack import recomputed, verify_pack
from tables import parquet

from opacc_ray.audit import accuracy, goals, pack_verifier, verbs
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = ["cat", "dog", "owl"]
SIZE = 240


def audit(home: Path, method: str, budgets: Sequence[int], kind: str = "classes", **sample: Any) -> Run:
    """A run over a table, all rounds labelled: with classes, counts or numbers."""
    rng = np.random.default_rng(3)
    truth, sure = rng.integers(0, 3, SIZE), rng.uniform(0.4, 1, SIZE)
    columns = {
        "id": [f"{i}" for i in range(SIZE)],
        "prediction": np.where(rng.random(SIZE) < sure, truth, (truth + 1) % 3),
        "confidence": sure,
        "camera": np.array(["front", "rear", "side"])[rng.choice(3, SIZE, p=[0.5, 0.45, 0.05])],
        "hidden": list(rng.normal(size=(SIZE, 4)).astype(np.float32) + sure[:, None].astype(np.float32)),
        "output": list(rng.normal(size=(SIZE, 3)).astype(np.float32)),
    }
    open_store(str(home / "pool")).write("0.parquet", parquet(pa.table(columns)))
    names = {name: name for name in columns if name != "camera"}
    if kind != "classes":
        del names["output"], names["prediction" if kind == "counts" else "confidence"]
    content: dict[str, Any] = {
        "name": method,
        "pool": {"uri": str(home / "pool"), "format": "features", "columns": names, "slices": ["camera"]},
        "sample": {"method": method, "budget": budgets[0], **sample},
        "output": str(home / "audits"),
    }
    head, answers = "id,label,annotator", [f"{CLASSES[c]},ann" for c in truth]
    if kind == "classes":
        content |= {"model": {"classes": CLASSES}, "metrics": ["f1@cat", "recall@dog", "mcc@owl", "macro_f1"]}
    elif kind == "counts":
        hits, misses = rng.poisson(3, SIZE), rng.poisson(1, SIZE)
        head, answers = "id,tp,fn", [f"{a},{b}" for a, b in zip(hits, misses, strict=True)]
        metrics = ["tp / (tp + fn)", "1 - fn / (tp + fn)", "fn / tp"]
        content |= {"model": {"task": "counts", "counts": ["tp", "fn"]}, "metrics": metrics}
    else:
        answers = [f"{own + rng.normal() * 0.2},ann" for own in columns["prediction"]]
        content |= {"model": {"task": "regression", "error_scale": 1.0}}
    run = verbs.run(parse_spec(content, "spec"))
    for number, budget in enumerate(budgets):
        chosen = verbs.next_round(run, budget) if number else run.read_selection(1)
        rows = "".join(f"{own},{answers[int(own)]}\n" for own in dict.fromkeys(chosen.ids))
        import_labels(run, f"{number}.csv", f"{head}\n{rows}".encode())
    return run


TWO_ROUNDS = ("srs", "css", "deepest", "neyman", "sups", "rhcs", "ssrs", "gbs", "two_ups")
CASES = [
    *((method, (30, 40), {}) for method in TWO_ROUNDS),
    *((method, (40,), {}) for method in ("srs", "css", "ces", "neyman", "sups", "rhcs", "deepest")),
    ("ces", (60,), {"replicates": 4, "initial": 5}),
    ("srs", (200, 40), {}),
]


@pytest.mark.parametrize(("method", "budgets", "sample"), CASES, ids=str)
def test_all_numbers_of_a_method_are_recomputed(
    method: str, budgets: Sequence[int], sample: dict[str, Any], tmp_path: Path
) -> None:
    run = audit(tmp_path, method, budgets, **sample)
    found = accuracy.estimate(run)
    text = recomputed(run, tmp_path)
    classes = len(found.by_predicted_class or {}) + len(found.by_true_class or {})
    assert f"and {3 + classes + 3} more numbers recomputed" in text  # three metrics, and three cameras
    assert re.findall("stated, not recomputed: (.*)", text)[:2] == ["macro_f1", "confusion"]


@pytest.mark.parametrize(
    ("kind", "method"), [*(("counts", own) for own in ("srs", "css", "neyman", "two_ups")), ("numbers", "srs")]
)
def test_counts_and_scores_are_recomputed(kind: str, method: str, tmp_path: Path) -> None:
    run = audit(tmp_path, method, (30, 40), kind)
    accuracy.estimate(run)
    assert f"and {3 + 3 if kind == 'counts' else 3} more numbers recomputed" in recomputed(run, tmp_path)


def test_what_else_a_number_allows_for_is_named_as_not_recomputed(tmp_path: Path) -> None:
    run = audit(tmp_path, "neyman", (120,))
    ids = run.read_selection(1).ids
    other = "".join(f"{own},{CLASSES[int(own) % 3]},bo\n" for own in ids)
    import_labels(run, "bo.csv", f"id,label,annotator\n{other}".encode(), conflict="latest")
    assert goals.next_until(run, 0.5).reached
    found = accuracy.estimate(run, metrics=["f1@cat"], by=["camera", "prediction", "truth"])
    assert found.allows_for == ["stopping", "label noise"]
    text = recomputed(run, tmp_path)
    assert "stated, not recomputed: the interval of f1@cat\n" in text
    assert "stated, not recomputed: the interval to report, which also allows for stopping, label noise\n" in text
    assert "by truth" not in text


def test_a_second_interval_is_named_as_not_recomputed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = audit(tmp_path, "srs", (40,))
    accuracy.estimate(run)
    recomputed(run, tmp_path)
    with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
        own = json.loads(archive.read("numbers/main.json"))
        document = json.loads(archive.read(own["estimate"]))
    monkeypatch.syspath_prepend(str(Path(pack_verifier.__file__).parent))
    others = importlib.import_module("pack_numbers").others
    named = "the interval of recall@dog if the confidence is right"
    assert named not in others(own, document)[1]
    document["metrics"]["recall@dog"]["if_predicted"] = {"low": 0.1, "high": 0.9}
    assert named in others(own, document)[1]


def test_a_number_that_differs_is_named(tmp_path: Path) -> None:
    run = audit(tmp_path, "css", (40,))
    accuracy.estimate(run)
    recomputed(run, tmp_path)
    with zipfile.ZipFile(tmp_path / "evidence.zip") as archive:
        files = {item: archive.read(item) for item in archive.namelist()}
    numbers = json.loads(files["numbers/main.json"])
    numbers["rounds"][0]["outcome"][0] = 1 - numbers["rounds"][0]["outcome"][0]
    files["numbers/main.json"] = json.dumps(numbers).encode()
    with zipfile.ZipFile(tmp_path / "edited.zip", "w") as archive:
        for item, data in files.items():
            archive.writestr(item, data)
    code, text = verify_pack(tmp_path / "edited.zip")
    assert (code, "accuracy by design is {'value'" in text, "outcome of" in text) == (1, True, True)
    assert verify_pack(tmp_path / "nothing.zip") == (
        2,
        f"{tmp_path}/nothing.zip is no pack that can be read; give its path: python verify.py PACK.zip "
        "[PUBLIC_KEY.pem]\n",
    )
