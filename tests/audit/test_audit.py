"""The audit on a real S3 server: what it writes, and that it repeats, on actors and wherever the pool lies."""

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from extracting_here import extracting_here
from picture_audits import answer, labels_for, run_spec
from small_pictures import picture

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def test_from_images_to_an_interval(run: Run) -> None:
    assert status(run).to_dict()["waits_for"] == "40 labels"
    done = label_actions.import_labels(run, "labels.csv", labels_for(run))
    assert (done.rows, done.labels, done.answers, done.notes) == (40, 40, {1: 40}, [])
    counts = {"round": 1, "method": "ces", "budget": 40, "labelled": 40, "missing": 0, "unsure": 0, "given_up": 0}
    assert [item.model_dump() for item in done.rounds] == [counts]
    assert counts.items() <= done.to_dict().items()
    stated = accuracy.estimate(run)
    result = stated.to_dict()
    assert result["value"] == pytest.approx(0.9)
    assert result["low"] < 0.9 < result["high"]
    assert (result["n"], result["pool_size"], result["excluded"], result["design_based"]) == (40, 120, 0, False)
    assert status(run).estimate == stated
    assert status(run).to_dict()["waits_for"] == "nothing"


def test_run_prefix_reads_with_pyarrow_and_json_alone(run: Run) -> None:
    label_actions.import_labels(run, "labels.csv", labels_for(run))
    accuracy.estimate(run)
    keys = {entry.key for entry in run.store.list()}
    drawn = run.folder(1).uri.removeprefix(f"{run.uri}/")
    plain = {"spec.json", "estimate.json", f"{drawn}/selection.json"}
    assert plain | {f"{drawn}/{name}" for name in ("manifest.jsonl", "manifest.csv", "predictions.parquet")} <= keys
    for key in plain:
        assert json.loads(run.store.read(key))
    link = json.loads(run.store.read("spec.json"))["features"]["folder"]
    features = open_store(f"{run.uri.rpartition('/')[0]}/{link.removeprefix('../')}")
    assert json.loads(features.read("index.json"))["num_examples"] == 120
    assert json.loads(features.read("set.json"))["pool"] == run.spec.pool.uri.rstrip("/")
    table = pq.read_table(io.BytesIO(features.read("part-000003.parquet")))
    assert table.column_names == ["id", "uri", "source", "hidden", "output", "confidence", "prediction"]
    assert table["id"][0].as_py() == "030.png"
    assert len(table["hidden"][0].as_py()) == 6
    assert table["confidence"][0].as_py() == pytest.approx(_softmax(table["output"][0].as_py()).max())
    header = json.loads(run.store.read("spec.json"))
    assert len(header["model"]["sha256"]) == len(header["pool"]["digest"]) == 64
    assert header["versions"]["ray"] != "not installed"


def _softmax(logits: list[float]) -> np.ndarray:
    exponential = np.exp(logits - np.max(logits))
    return exponential / exponential.sum()


def test_manifest_names_what_to_label_and_hides_the_prediction(run: Run) -> None:
    rows = [json.loads(line) for line in run.folder(1).read("manifest.jsonl").splitlines()]
    selection = run.read_selection(1)
    assert [row["id"] for row in rows] == list(selection.ids)
    assert [row["order"] for row in rows] == list(range(1, 41))
    assert {row["run"] for row in rows} == {run.name}
    assert all(row["uri"].endswith(f"/pool/{row['id']}") for row in rows)
    assert set(rows[0]) == {"id", "uri", "run", "round", "order", "label"}


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("actors", [1, 2])
def test_same_seed_same_bytes_with_one_actor_or_two(spec, finished: Run, actors: int) -> None:
    again = run_spec(spec(extract={"batch_size": 8, "shard_size": 10, "actors": actors}))
    assert again.name == finished.name
    # these say when and where it ran, and how long
    when = ("spec.json", "log/", "extraction.json")
    keys, other = (
        {entry.key for entry in found.store.list() if not entry.key.startswith(when)} for found in (finished, again)
    )
    assert keys == other
    assert [key for key in keys if again.store.read(key) != finished.store.read(key)] == []
    said, also = ([(commit.files, commit.content) for commit in found.commits] for found in (finished, again))
    assert len(said) == 1
    assert said == also


@pytest.mark.usefixtures("ray_cluster")
def test_view_in_actors_selects_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = run.read_selection(1)
    monkeypatch.setattr(run_module, "MEMORY_LIMIT", 0)
    again = verbs.select(run, "ces", 40, {"candidates": 20})
    assert again.to_dict() == chosen.to_dict()


def test_long_selections_report_their_progress(spec) -> None:
    seen: list[tuple[int, int | None]] = []
    asked = parse_spec(spec(sample={"method": "ces", "budget": 60, "candidates": 10}), "spec")
    with extracting_here():
        run = verbs.first_round(asked, selecting=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60, 60)
    assert len(seen) > 1
    label_actions.import_labels(run, "one.csv", answer(run, 1))
    seen.clear()
    verbs.next_round(run, 40, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)


def test_array_files_give_the_same_features_as_images(spec, finished: Run, tmp_path: Path) -> None:
    """To the last bits: an array file is a shard, so the batches are cut elsewhere, and a product may round otherwise.

    That is some 1e-7 here, in values up to 1; the smallest may be near 0, hence an absolute tolerance. One grey level
    of one pixel is 5e-4, at the largest weight. Predictions are exact, as the largest output leads by more than 0.03.
    """
    from PIL import Image

    rows = np.stack([np.asarray(Image.open(io.BytesIO(picture(i)))) for i in range(120)])
    (tmp_path / "pool").mkdir()
    np.save(tmp_path / "pool" / "a.npy", rows[:70])
    np.savez(tmp_path / "pool" / "b.npz", x=rows[70:], ids=[f"late-{i}" for i in range(50)])
    with extracting_here():
        arrays = run_spec(spec(pool={"uri": str(tmp_path / "pool"), "format": "npy"}))
    names = ["hidden", "output", "confidence", "prediction"]
    with run_module.open_view(arrays, names) as mine, run_module.open_view(finished, names) as theirs:
        assert mine.identify(np.array([69, 70])) == ["a.npy:69", "late-0"]
        for name in names:
            found, expected = (np.concatenate(view.map(getattr, name)) for view in (mine, theirs))
            np.testing.assert_allclose(found, expected, rtol=0, atol=0 if name == "prediction" else 1e-5)
