"""The audit on a real S3 server and a real Ray: what it writes, that it repeats, and what it refuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_model import network, picture
from small_spec import small_spec

from opacc_ray.audit import feature_store, goals, labels, results, several_models, steps
from opacc_ray.audit.run import Run
from opacc_ray.audit.status import status
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.errors import ClusterError, DataError, LabelError, OpaccError, SpecError, StorageError
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.usefixtures("ray_cluster")


def run_spec(content: dict) -> Run:
    return steps.run(parse_spec(content, "spec"))


@pytest.fixture(scope="module")
def finished(ray_cluster: None, scans: str, s3: LocalS3) -> Run:
    """A run that waits for its labels. Not to be changed: `run` is a copy to work on."""
    return run_spec(small_spec(scans, s3.create_bucket("finished")))


@pytest.fixture
def run(finished: Run, bucket: str) -> Run:
    home = open_store(finished.spec.output)
    keys = [entry.key for entry in home.list()]
    open_store(bucket).write_many(zip(keys, home.read_many(keys), strict=True))
    return Run.open(f"{bucket}/{finished.name}")


def features_of(run: Run) -> dict[str, bytes]:
    """The files of a run's set but the one that says what model it is of."""
    keys = [entry.key for entry in run.features.list() if entry.key != "set.json"]
    return {key: run.features.read(key) for key in keys}


def labels_for(run: Run, wrong: int = 4) -> bytes:
    """What a careful annotator returns: the model is wrong on the first ``wrong`` chosen examples."""
    chosen = run.read_chosen(1)
    rows = [
        f"{name},{(prediction + (i < wrong)) % 4}"
        for i, (name, prediction) in enumerate(zip(chosen.ids, chosen.predictions, strict=True))
    ]
    return "\n".join(["id,label", *rows]).encode()


def test_from_images_to_an_interval(run: Run) -> None:
    assert status(run).to_dict()["waits_for"] == "40 labels"
    assert labels.import_labels(run, "labels.csv", labels_for(run)).to_dict() == {
        "format": "opacc-import/1",
        "file": "labels.csv",
        "rows": 40,
        "again": False,
        "annotator": None,
        "renamed": [],
        "conflict": "error",
        "not_used": [],
        "votes": [{"annotator": None, "file": "labels.csv", "labels": 40}],
        "overruled": [],
        "num_overruled": 0,
        "round": 1,
        "method": "ces",
        "budget": 40,
        "labelled": 40,
        "missing": 0,
        "unsure": 0,
        "given_up": 0,
    }
    stated = results.estimate(run)
    result = stated.to_dict()
    assert result["value"] == pytest.approx(0.9)
    assert result["low"] < 0.9 < result["high"]
    assert (result["n"], result["pool_size"], result["excluded"], result["design_based"]) == (40, 120, 0, False)
    assert status(run).estimate == stated
    assert status(run).to_dict()["waits_for"] == "nothing"


def test_run_prefix_reads_with_pyarrow_and_json_alone(run: Run) -> None:
    labels.import_labels(run, "labels.csv", labels_for(run))
    results.estimate(run)
    keys = {entry.key for entry in run.store.list()}
    plain = {"spec.json", "estimate.json", "rounds/1/selection.json"}
    assert plain | {"rounds/1/manifest.jsonl", "rounds/1/manifest.csv", "rounds/1/predictions.parquet"} <= keys
    for key in plain:
        assert json.loads(run.store.read(key))
    link = json.loads(run.store.read("spec.json"))["features"]["folder"]
    features = open_store(f"{run.uri.rpartition('/')[0]}/{link.removeprefix('../')}")
    assert json.loads(features.read("index.json"))["num_examples"] == 120
    assert json.loads(features.read("set.json"))["pool"] == run.spec.pool.uri.rstrip("/")
    table = pq.read_table(io.BytesIO(features.read("part-000003.parquet")))
    assert table.column_names == ["id", "uri", "hidden", "output", "confidence", "prediction"]
    assert table["id"][0].as_py() == "030.png"
    assert len(table["hidden"][0].as_py()) == 6
    assert table["confidence"][0].as_py() == pytest.approx(_softmax(table["output"][0].as_py()).max())
    header = json.loads(run.store.read("spec.json"))
    assert len(header["model"]["sha256"]) == len(header["pool"]["digest"]) == 64
    assert header["versions"]["ray"] != "not installed"


def _softmax(logits: list[float]) -> np.ndarray:
    exponential = np.exp(logits - np.max(logits))
    return exponential / exponential.sum()


def test_manifest_names_what_to_label_and_hides_the_prediction(spec) -> None:
    run = run_spec(spec(sample={"method": "css", "budget": 20}))
    rows = [json.loads(line) for line in run.store.read("rounds/1/manifest.jsonl").splitlines()]
    selection = run.read_selection(1)
    assert [row["id"] for row in rows] == list(selection.ids)
    assert [row["order"] for row in rows] == list(range(1, 21))
    assert {row["run"] for row in rows} == {run.name}
    assert all(row["uri"].endswith(f"/pool/{row['id']}") for row in rows)
    assert set(rows[0]) == {"id", "uri", "run", "round", "order", "label"}


def test_same_seed_same_bytes_with_one_actor_or_two(spec, finished: Run) -> None:
    again = run_spec(spec(extract={"batch_size": 8, "shard_size": 10, "actors": 1}))
    assert again.name == finished.name
    keys, other = (
        # the spec says when and where, and claims say which writer agreed to a draw
        {entry.key for entry in found.store.list() if entry.key != "spec.json" and ".claims/" not in entry.key}
        for found in (finished, again)
    )
    assert keys == other
    assert all(again.store.read(key) == finished.store.read(key) for key in keys)


def test_view_in_actors_selects_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = run.read_selection(1)
    monkeypatch.setattr(feature_store, "MEMORY_LIMIT", 0)
    again = steps.select(run, "ces", 40, {"candidates": 20})
    assert again.to_dict() == chosen.to_dict()


def test_long_selections_report_their_progress(run: Run) -> None:
    seen: list[tuple[int, int | None]] = []
    steps.select(run, "ces", 60, {"candidates": 10}, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (60, 60)
    assert len(seen) > 1
    labels.import_labels(run, "one.csv", answer(run, 1))
    seen.clear()
    steps.next_round(run, 40, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)


def test_another_selection_extracts_nothing_and_keeps_the_first(run: Run) -> None:
    first, features = run.read_selection(1), features_of(run)
    second = steps.select(run, "srs", 25, {})
    assert features_of(run) == features
    assert run.read_selection(1).to_dict() == second.to_dict()
    draws = [entry.key for entry in run.store.list("rounds/1/draws/") if entry.key.endswith("selection.json")]
    kept = [json.loads(run.store.read(key))["ids"] for key in draws]
    assert sorted(kept) == sorted([list(first.ids), list(second.ids)])


def test_another_selection_does_not_orphan_labels(run: Run) -> None:
    labels.import_labels(run, "labels.csv", labels_for(run))
    with pytest.raises(SpecError, match=r"round 1 of .* has labels already"):
        steps.select(run, "srs", 25, {})
    assert run.read_selection(1).method == "ces"


# -- what dies comes back --------------------------------------------------------------------------------


def slow(spec) -> dict:
    content = spec()
    return content | {"model": content["model"] | {"factory": "small_model:slow_network"}}


def test_killed_actor_changes_nothing(spec, finished: Run, tmp_path: Path) -> None:
    from opacc_ray.cluster import extraction

    class Victim(extraction.Worker):
        def extract(self, shard):
            if shard.number == 5 and not marker.exists():
                marker.write_text("died")
                os.kill(os.getpid(), signal.SIGKILL)
            return super().extract(shard)

    marker = tmp_path / "died"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extraction, "Worker", Victim)
        run = run_spec(spec())
    assert marker.exists()
    assert features_of(run) == features_of(finished)


def test_shard_that_always_kills_its_actor_fails_by_name(spec) -> None:
    content = spec()
    content["model"] |= {"factory": "small_model:dying_network"}
    with pytest.raises(ClusterError, match=r"shard part-000005 \(050\.png \.\. 059\.png\) failed 3 times"):
        run_spec(content)
    run = Run.open(steps.start(parse_spec(content, "spec"))[0].uri)
    assert run.read_index() is None
    assert run.rounds() == []


def test_killed_driver_resumes_with_the_missing_shards_only(spec, finished: Run, tmp_path: Path) -> None:
    content = slow(spec) | {"name": "resumed"}
    run, _ = steps.start(parse_spec(content, "spec"))
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(content))
    command = [sys.executable, "-m", "opacc_ray", "run", str(path)]
    driver = subprocess.Popen(command, cwd=Path(__file__).parent, stderr=(tmp_path / "log").open("w"))
    try:
        deadline = time.monotonic() + 60
        while len(run.finished_shards()) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    before = len(run.finished_shards())
    assert 3 <= before < 12, (tmp_path / "log").read_text()
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    told = re.search(r"(\d+) of 12 shards were done before and are kept", done.stderr)
    assert told, done.stderr
    assert before <= int(told[1]) < 12  # an actor may finish the shard it had in hand after its driver's death
    assert features_of(run) == features_of(finished)


# -- what is refused -------------------------------------------------------------------------------------


def refused(content: dict, error: type[OpaccError], message: str) -> None:
    """The run fails with one sentence, and leaves no index, selection or half of a file."""
    with pytest.raises(error, match=message) as caught:
        run_spec(content)
    assert "\n" not in str(caught.value)
    keys = [entry.key for entry in open_store(content["output"]).list()] if "nowhere" not in content["output"] else []
    assert not [key for key in keys if "index.json" in key or "rounds/" in key]


def test_missing_bucket(spec) -> None:
    refused(spec(pool={"uri": "s3://nowhere/pool", "format": "images"}), StorageError, "nowhere")


def test_empty_pool(spec, bucket: str) -> None:
    refused(spec(pool={"uri": f"{bucket}/void", "format": "images"}), DataError, r"void holds no \.png")


def test_wrong_credentials(spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StorageError, match=r"credentials|key|signature"):
        run_spec(spec())


def test_wrong_digest(spec) -> None:
    content = spec()
    content["model"] |= {"sha256": "0" * 64}
    refused(content, SpecError, "has digest [0-9a-f]{64}, and the spec expects 0000")


def test_wrong_layer_lists_the_ones_there_are(spec) -> None:
    content = spec()
    content["model"] |= {"hidden_layer": "fc9"}
    refused(content, DataError, "no layer 'fc9'; it has first, last")


def test_budget_above_the_pool(spec) -> None:
    refused(spec(sample={"method": "srs", "budget": 121}), SpecError, "budget=121 .* 120 examples")


def test_more_actors_than_the_cluster_has(spec) -> None:
    refused(spec(extract={"actors": 7, "shard_size": 10}), ClusterError, "asks for 7 actors, .* 2 CPU in all")
    refused(spec(extract={"gpus_per_actor": 1}), ClusterError, "with 1 GPU .* has 0 GPU")


def test_actor_that_never_starts_is_told(spec) -> None:
    extract = {"gpus_per_actor": 1, "autoscaling": True, "start_timeout": 1}
    refused(spec(extract=extract), ClusterError, "no actor with 1 GPU .* within 1 s")


@pytest.fixture
def damaged(bucket: str) -> str:
    store = open_store(f"{bucket}/damaged")
    store.write_many((f"{i:03d}.png", picture(i)) for i in range(60))
    store.write("031.png", b"\x89PNG no more")
    return store.uri


def test_image_that_does_not_decode_is_named(spec, damaged: str) -> None:
    refused(spec(pool={"uri": damaged, "format": "images"}), DataError, r"'031\.png'.*are no image.*on_bad_item")


def test_image_that_does_not_decode_is_excluded_and_counted(spec, damaged: str) -> None:
    extract = {"shard_size": 10, "on_bad_item": "exclude"}
    run = run_spec(spec(pool={"uri": damaged, "format": "images"}, extract=extract))
    index = run.read_index()
    assert index is not None
    assert index.num_examples == 59
    assert [item.id for item in index.bad] == ["031.png"]
    labels.import_labels(run, "labels.csv", labels_for(run))
    result = results.estimate(run).to_dict()
    assert (result["pool_size"], result["excluded"]) == (59, 1)


def test_nan_in_the_features_is_named(spec) -> None:
    content = spec()
    content["model"] |= {"factory": "small_model:broken_network"}
    refused(content, DataError, r"example '033\.png' .* NaN or infinity in output")


def test_nan_in_the_features_can_be_excluded(spec) -> None:
    content = spec(extract={"shard_size": 10, "on_bad_item": "exclude"})
    content["model"] |= {"factory": "small_model:broken_network"}
    index = run_spec(content).read_index()
    assert index is not None
    assert [item.id for item in index.bad] == ["033.png"]


def test_labels_of_another_run_or_with_an_unknown_id_change_nothing(run: Run) -> None:
    foreign = b'{"id": "000.png", "label": "1", "run": "other-12345678"}\n'
    with pytest.raises(LabelError, match="other-12345678"):
        labels.import_labels(run, "foreign.jsonl", foreign)
    with pytest.raises(LabelError, match=r"no\.png"):
        labels.import_labels(run, "unknown.csv", labels_for(run) + b"\nno.png,1")
    assert run.read_labels(1) == []


def test_labels_in_pieces_twice_and_out_of_order_end_in_the_same_estimate(run: Run) -> None:
    header, *rows = labels_for(run).splitlines()
    pieces = [b"\n".join([header, *rows[25:]]), b"\n".join([header, *rows[:30][::-1]])]
    assert labels.import_labels(run, "b.csv", pieces[0]).to_dict()["missing"] == 25
    with pytest.raises(LabelError, match="25 of 40 labels are missing"):
        results.estimate(run)
    partial = results.estimate(run, partial=True).to_dict()
    assert (partial["n"], partial["missing"], partial["design_based"]) == (15, 25, False)
    for name, piece in (("a.csv", pieces[1]), ("again.csv", pieces[0])):
        labels.import_labels(run, name, piece)
    in_pieces = results.estimate(run).model_dump(exclude={"label_files"})
    for entry in run.store.list("rounds/1/labels/"):
        run.store.delete(entry.key)
    run.store.delete("estimate.json")  # which names them
    labels.import_labels(run, "all.csv", labels_for(run))
    assert results.estimate(run).model_dump(exclude={"label_files"}) == in_pieces


# -- rounds ----------------------------------------------------------------------------------------------


def answer(run: Run, number: int) -> bytes:
    """Labels of a round: the model is wrong on every picture whose number ends in 7."""
    chosen = run.read_chosen(number)
    rows = [
        f"{name},{(prediction + name.endswith('7.png')) % 4}"
        for name, prediction in dict(zip(chosen.ids, chosen.predictions, strict=True)).items()
    ]
    return "\n".join(["id,label", *rows]).encode()


def test_three_rounds_with_files_out_of_order_and_twice(run: Run) -> None:
    labels.import_labels(run, "one.csv", answer(run, 1))
    for number in (2, 3):
        chosen = steps.next_round(run, 15, method="neyman")
        assert chosen.round == number
        header, *rows = answer(run, number).splitlines()
        labels.import_labels(run, "late.csv", b"\n".join([header, *rows[6:]]))
        labels.import_labels(run, "early.csv", b"\n".join([header, *rows[:9]]))
        labels.import_labels(run, "again.csv", b"\n".join([header, *rows[6:]]))
    in_pieces = results.estimate(run).model_dump(exclude={"label_files"})
    assert in_pieces["n"] == 70
    assert [item["method"] for item in in_pieces["rounds"]] == ["ces", "neyman", "neyman"]
    labelled = [set(run.read_selection(number).ids) for number in (1, 2, 3)]
    assert not labelled[0] & labelled[1]
    assert not (labelled[0] | labelled[1]) & labelled[2]
    for entry in [entry for entry in run.store.list("rounds/") if "/labels/" in entry.key]:
        run.store.delete(entry.key)
    run.store.delete("estimate.json")  # which names them
    whole = b"\n".join([answer(run, 1), *(answer(run, number).partition(b"\n")[2] for number in (2, 3))])
    labels.import_labels(run, "all.csv", whole)
    assert results.estimate(run).model_dump(exclude={"label_files"}) == in_pieces


def test_next_round_waits_for_labels_or_closes(run: Run) -> None:
    header, *rows = answer(run, 1).splitlines()
    labels.import_labels(run, "some.csv", b"\n".join([header, *rows[:30]]))
    with pytest.raises(LabelError, match=r"round 1 of .* waits for 10 labels.*--close"):
        steps.next_round(run, 10)
    steps.next_round(run, 10, close=True)
    assert status(run).to_dict()["rounds"][0]["given_up"] == 10
    before = results.estimate(run).to_dict()
    assert (before["n"], before["missing"], before["given_up"]) == (30, 10, 10), "round 2 has no label yet"
    labels.import_labels(run, "two.csv", answer(run, 2))
    result = results.estimate(run).to_dict()
    assert (result["n"], result["given_up"]) == (40, 10)
    assert "missing at random" in result["reason"]


def test_closed_round_of_a_sequential_method_keeps_its_design(run: Run) -> None:
    steps.select(run, "srs", 20, {})
    header, *rows = answer(run, 1).splitlines()
    labels.import_labels(run, "first.csv", b"\n".join([header, *rows[:12]]))
    result = results.estimate(run, partial=True).to_dict()
    assert (result["n"], result["design_based"], result["reason"]) == (12, True, None)


def test_example_drawn_twice_is_labelled_once(run: Run) -> None:
    chosen = steps.select(run, "sups", 80, {"auxiliary": "confidence"})
    assert len(set(chosen.ids)) < 80
    manifest = run.store.read("rounds/1/manifest.jsonl").splitlines()
    assert len(manifest) == len(set(chosen.ids))
    labels.import_labels(run, "all.csv", answer(run, 1))
    assert results.estimate(run).to_dict()["n"] == 80


def test_local_folders_serve_as_well_as_buckets(spec, finished: Run, scans: str, tmp_path: Path) -> None:
    source: Store = open_store(f"{scans}/pool")
    keys = [entry.key for entry in source.list()]
    open_store(str(tmp_path / "pool")).write_many(zip(keys, source.read_many(keys), strict=True))
    content = spec(pool={"uri": str(tmp_path / "pool"), "format": "images"}, output=str(tmp_path / "audits"))
    local = run_spec(content)
    assert Path(local.uri).is_dir()
    assert local.read_selection(1).to_dict() == finished.read_selection(1).to_dict()


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
    arrays = run_spec(spec(pool={"uri": str(tmp_path / "pool"), "format": "npy"}))
    names = ["hidden", "output", "confidence", "prediction"]
    with feature_store.open_view(arrays, names) as mine, feature_store.open_view(finished, names) as theirs:
        assert mine.identify(np.array([69, 70])) == ["a.npy:69", "late-0"]
        for name in names:
            found, expected = (np.concatenate(view.map(getattr, name)) for view in (mine, theirs))
            np.testing.assert_allclose(found, expected, rtol=0, atol=0 if name == "prediction" else 1e-5)


def test_estimate_says_more_than_one_number(run: Run) -> None:
    labels.import_labels(run, "one.csv", answer(run, 1))
    result = results.estimate(run).to_dict()
    assert result["srs"]["n"] == 40
    assert result["sequence"]["low"] <= result["low"]
    assert result["high"] <= result["sequence"]["high"]
    assert set(result["by_predicted_class"]) <= {"0", "1", "2", "3"}
    pool = result["pool_by_predicted_class"]
    with feature_store.open_view(run, ["prediction"]) as view:
        assert pool == {str(c): int((view.column("prediction") == int(c)).sum()) for c in pool}
    share = np.array(result["confusion"]["share"])
    assert share.sum() == pytest.approx(1)
    most = max(pool, key=lambda c: pool[c])
    column = share[:, result["confusion"]["classes"].index(most)]
    assert column.sum() == pytest.approx(pool[most] / 120)


def test_another_model_on_the_same_pictures_in_another_order(run: Run, spec, bucket: str, tmp_path: Path) -> None:
    """The other run reads the pictures from one array file, last picture first, and has not been labelled."""
    import torch
    from PIL import Image
    from safetensors.torch import save

    net = network()
    torch.manual_seed(1)
    torch.nn.init.normal_(net.last.weight)
    open_store(bucket).write("other.safetensors", save(net.state_dict()))
    rows = np.stack([np.asarray(Image.open(io.BytesIO(picture(i)))) for i in range(119, -1, -1)])
    np.savez(tmp_path / "pool.npz", x=rows, ids=[f"{i:03d}.png" for i in range(119, -1, -1)])
    model = {"factory": "small_model:network", "weights": f"{bucket}/other.safetensors"}
    other = run_spec(spec(name="other", model=model, pool={"uri": str(tmp_path), "format": "npy"}))
    with pytest.raises(LabelError, match="40 of 40 labels are missing"):
        several_models.compare(run, other)
    labels.import_labels(run, "labels.csv", labels_for(run))
    result = several_models.compare(run, other).to_dict()
    said = net(torch.tensor(rows[:, None] / np.float32(255))).argmax(dim=1).numpy()[::-1]
    label = dict(line.decode().split(",") for line in labels_for(run).splitlines()[1:])
    right = [said[int(name[:3])] == int(text) for name, text in label.items()]
    assert 0 < np.mean(right) < 0.9
    assert result["first"]["value"] == pytest.approx(0.9)
    assert result["second"]["value"] == pytest.approx(np.mean(right))
    assert result["difference"]["value"] == pytest.approx(0.9 - np.mean(right))
    assert not result["same_listing"]


def test_labels_to_go_until_precise_enough(run: Run) -> None:
    with pytest.raises(LabelError, match="has a label yet"):
        goals.look_for_goal(run, 0.1)
    labels.import_labels(run, "one.csv", answer(run, 1))
    assert goals.look_for_goal(run, 0.9).reached
    few, many = (goals.look_for_goal(run, width).labels_to_go for width in (0.05, 0.01))
    assert 0 < few < many <= 80


def test_replicates_give_an_interval_of_their_own(run: Run) -> None:
    steps.select(run, "ces", 40, {"initial": 2, "candidates": 20}, replicates=4)
    labels.import_labels(run, "one.csv", answer(run, 1))
    result = results.estimate(run).to_dict()
    assert result["interval"] == "4 replicates"
    assert result["design_based"]
