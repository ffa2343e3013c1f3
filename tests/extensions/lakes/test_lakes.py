"""Audits of one pool wherever it lies, on a real S3 server: the same features, selection and accuracy."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy_model
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from encoded_files import tar
from extracting_here import extracting_here
from local_s3 import LocalS3
from scipy.special import softmax
from small_pictures import picture, pixels, to_input
from small_spec import small_spec
from tables import parquet
from versioned_tables import TABLES, VERSION

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import DataError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report.answers import changed
from opacc_ray.runs.run import Run, find_changed
from opacc_ray.spec import parse_spec

N, PER_FILE = 120, 10
MODEL = {"function": "numpy_model:random"}


def pictures(start: int, stop: int) -> pa.Table:
    rows = range(start, stop)
    return pa.table({"id": [f"{i:03d}.png" for i in rows], "image": [picture(i) for i in rows], "i": [*rows]})


def write_parquet(store: Store) -> dict[str, Any]:
    """One file of which each row group is a shard, and one more day that the filter leaves out."""
    store.write("day=1/pool.parquet", parquet(pictures(0, N), row_group_size=PER_FILE))
    store.write("day=2/pool.parquet", parquet(pictures(0, N)))
    return {"format": "parquet", "columns": {"id": "id", "image": "image"}, "filter": "day = 1 and i >= 0"}


def write_webdataset(store: Store) -> dict[str, Any]:
    for start in range(0, N, PER_FILE):
        pairs = ((i, pair) for i in range(start, start + PER_FILE) for pair in (("json", b"{}"), ("png", picture(i))))
        store.write(f"{start:03d}.tar", tar(*((f"{i:03d}.{suffix}", content) for i, (suffix, content) in pairs)))
    return {"format": "webdataset"}


def label(run: Run, wrong: int = 4) -> None:
    """Labels for the newest round, the first few of which say that the model is wrong."""
    chosen = run.read_chosen(run.rounds()[-1])
    rows = [
        f"{name},{(said + (i < wrong)) % 4}"
        for i, (name, said) in enumerate(zip(chosen.ids, chosen.predictions, strict=True))
    ]
    label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *rows]).encode())


def features_of(run: Run) -> pa.Table:
    names = sorted(run.finished_shards())
    return pa.concat_tables(pq.read_table(io.BytesIO(run.features.read(f"{name}.parquet"))) for name in names)


@pytest.fixture(scope="module")
def of_images(scans: str, s3: LocalS3) -> Run:
    """The run of the same pictures as image files."""
    with extracting_here():
        return verbs.first_round(parse_spec(small_spec(scans, s3.create_bucket("of-images"), model=MODEL), "spec"))


@pytest.mark.parametrize("write", [write_parquet, write_webdataset])
def test_a_pool_is_audited_where_it_lies(
    write: Callable[[Store], dict[str, Any]], of_images: Run, spec: Callable[..., dict[str, Any]], bucket: str
) -> None:
    pool = {"uri": f"{bucket}/pool", **write(open_store(f"{bucket}/pool"))}
    with extracting_here():
        run = verbs.first_round(parse_spec(spec(pool=pool, model=MODEL), "spec"), trial=True)
    features, expected = features_of(run), features_of(of_images)
    for name in ("hidden", "output", "prediction", "confidence"):
        assert features[name].equals(expected[name]), name
    assert run.read_selection(1).index.tolist() == of_images.read_selection(1).index.tolist()


@pytest.fixture
def outputs() -> dict[str, np.ndarray]:
    """What the model says of the pictures, as another framework may have stored it."""
    found = numpy_model.random(np.stack([to_input(pixels(i)) for i in range(N)]))
    share = softmax(found["output"].astype(np.float64), axis=1)
    return found | {"prediction": found["output"].argmax(1), "confidence": share.max(1)}


def of_features(home: str, columns: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "name": "stored",
        "seed": 3,
        "pool": {"uri": f"{home}/pool", "format": "features", "columns": {"id": "key", **columns}},
        "extract": {"shard_size": 50},
        "sample": {"method": "ces", "budget": 40, "candidates": 20},
        "output": home,
    } | sections


def write_features(home: str, outputs: dict[str, np.ndarray], **more: Any) -> None:
    store = open_store(f"{home}/pool")
    for start in range(0, N, 40):
        rows = slice(start, start + 40)
        table = pa.table(
            {
                "key": [f"{i:03d}" for i in range(start, start + 40)],
                "embedding": outputs["hidden"][rows].tolist(),
                "logits": outputs["output"][rows].tolist(),
                "answer": [f"class {c}" for c in outputs["prediction"][rows]],
                "score": outputs["confidence"][rows],
            }
            | {name: values[rows] for name, values in more.items()}
        )
        store.write(f"{start}.parquet", parquet(table, row_group_size=20))


def test_stored_outputs_are_audited_by_commands(
    bucket: str, outputs: dict[str, np.ndarray], tmp_path: Path, told: Callable[..., tuple[int, str, str]]
) -> None:
    write_features(bucket, outputs)
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(of_features(bucket, {"hidden": "embedding", "output": "logits"})))
    said = {}
    for command in ("check", "run"):
        code, out, err = told(command, str(path), "--json")
        assert code == 0, err
        said[command] = json.loads(out)
    assert "3 files in 3 shards, 120 examples" in [item["found"] for item in said["check"]["checks"]]
    assert said["check"]["checks"][-1]["found"].startswith(
        "example '000' has hidden 6, output 4, prediction, confidence; no model is run; of 20 examples predicted: "
    )
    assert sum(said["run"]["predicted"]["classes"].values()) == 120
    run = Run.open(said["run"]["run"])
    features = features_of(run)
    assert features["id"].to_pylist() == [f"{i:03d}" for i in np.r_[0:40, 40:80, 80:120]]
    assert np.array_equal(np.stack(features["hidden"].to_pylist()), outputs["hidden"])
    assert features["prediction"].to_pylist() == outputs["prediction"].tolist()
    assert np.allclose(features["confidence"].to_numpy(), outputs["confidence"], rtol=1e-12)
    label(run)
    estimate = accuracy.estimate(run)
    assert estimate.low < estimate.value < estimate.high
    assert len(verbs.next_round(run, 10)) == 10


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A place without a server, which tests of features need not."""
    return str(tmp_path)


@pytest.mark.parametrize("method", ["css", "neyman"])
def test_a_score_and_an_answer_are_enough(home: str, outputs: dict[str, np.ndarray], method: str) -> None:
    write_features(home, outputs)
    columns = {"prediction": "answer", "confidence": "score"}
    classes = [f"class {c}" for c in range(4)]
    content = of_features(home, columns, model={"classes": classes}, sample={"method": method, "budget": 20})
    run = verbs.first_round(parse_spec(content, "spec"))
    assert run.read_index().features == {"prediction": 1, "confidence": 1}
    assert features_of(run)["prediction"].to_pylist() == outputs["prediction"].tolist()
    assert len(run.read_selection(1)) == 20


@pytest.mark.parametrize(
    ("columns", "model", "message"),
    [
        ({"prediction": "answer"}, {}, 'holds "class 0", and model.classes is missing; name all classes'),
        ({"prediction": "answer"}, {"classes": ["class 0"]}, 'and model.classes has "class 0"; name all classes'),
        ({"prediction": "large"}, {}, "has no column 'large'; it has key, embedding, logits, answer, score"),
        ({"output": "logits", "hidden": "ragged"}, {}, "hidden ('ragged') holds lists of different lengths"),
    ],
)
def test_stored_features_that_do_not_fit_are_one_sentence(
    home: str, outputs: dict[str, np.ndarray], columns: dict[str, Any], model: dict[str, Any], message: str
) -> None:
    write_features(home, outputs, ragged=np.array([[1.0] * (i % 3) for i in range(N)], object))
    content = of_features(home, columns, model=model, sample={"method": "srs", "budget": 10})
    with pytest.raises(DataError) as caught:
        verbs.first_round(parse_spec(content, "spec"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"factory": "a:b"}}, "model.factory is not supported for a pool of stored features"),
        ({"transform": "a:b"}, "transform is not supported for a pool of stored features"),
        (
            {"sample": {"method": "deepreduce"}},
            "needs output, which the stored features lack: set pool",
        ),
        (
            {"extract": {"features": ["coverage", "hidden"]}},
            "coverage, which the stored features lack: run the model for it",
        ),
        (
            {"pool": {"uri": "home", "format": "features", "columns": {"output": "o"}}},
            "pool.columns.hidden to its column, or compare the output layer with layer=output",
        ),
        ({"sample": {"method": "deepest", "budget": 9, "auxiliary": "dsa"}}, "add reference"),
        ({"extract": {"features": ["hidden", "output"]}}, "has output, which the stored features lack: set pool"),
    ],
)
def test_specs_of_stored_features_say_what_they_lack(changes: dict[str, Any], message: str) -> None:
    content = of_features("home", {"hidden": "h", "prediction": "p"})
    with pytest.raises(SpecError, match=message):
        parse_spec(content | changes, "spec")


def test_a_null_is_refused_or_left_out_as_the_spec_says(home: str) -> None:
    table = pa.table({"key": ["a", "b", None, "d"], "p": [1, None, 0, 1], "c": [0.5, 0.5, 0.5, float("nan")]})
    open_store(f"{home}/pool").write("a.parquet", parquet(table))
    columns = {"prediction": "p", "confidence": "c"}
    content = of_features(home, columns, sample={"method": "srs", "budget": 1})
    with pytest.raises(DataError, match=r"example 'b' of .*: its prediction \(p\) is null"):
        verbs.first_round(parse_spec(content, "spec"))
    content["extract"] = {"on_bad_item": "exclude"}
    index = verbs.first_round(parse_spec(content, "spec")).read_index()
    assert [(item.id, item.reason) for item in index.bad] == [
        ("b", "its prediction (p) is null"),
        ("a.parquet#2", "its key is null"),
        ("d", "NaN or infinity in confidence"),
    ]


def test_a_file_without_any_sound_row_is_left_out(home: str) -> None:
    store, columns = open_store(f"{home}/pool"), {"hidden": "h", "prediction": "p"}
    store.write("a.parquet", parquet(pa.table({"key": ["a", "b"], "p": [1, 0], "h": [[1.0], [2.0]]})))
    nothing = pa.array([None, None], pa.list_(pa.float64()))
    store.write("b.parquet", parquet(pa.table({"key": ["c", "d"], "p": [1, 0], "h": nothing})))
    content = of_features(home, columns, sample={"method": "srs", "budget": 1}, extract={"on_bad_item": "exclude"})
    index = verbs.first_round(parse_spec(content, "spec")).read_index()
    assert (index.num_examples, [item.id for item in index.bad]) == (2, ["c", "d"])


def test_a_filter_that_leaves_nothing_is_said_before_anything_starts(home: str, outputs: dict[str, np.ndarray]) -> None:
    write_features(home, outputs)
    content = of_features(home, {"output": "logits"}, sample={"method": "srs", "budget": 10})
    content["pool"]["filter"] = "score > 2"
    for trial in (True, False):
        with pytest.raises(DataError, match=r"pool.filter 'score > 2' matches nothing in "):
            verbs.first_round(parse_spec(content, "spec"), trial=trial)


def test_a_file_that_changes_between_two_rounds_is_noticed(home: str, outputs: dict[str, np.ndarray]) -> None:
    write_features(home, outputs)
    run = verbs.first_round(
        parse_spec(of_features(home, {"output": "logits"}, sample={"method": "srs", "budget": 60}), "spec")
    )
    assert find_changed(run).changed == 0
    store = open_store(f"{home}/pool")
    store.write("40.parquet", store.read("0.parquet"))
    found = find_changed(run)
    assert (found.changed, found.lost, found.first) == (1, 0, ["40.parquet"])


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_that_goes_on_between_two_rounds_is_noticed_and_said(kind: str, home: str) -> None:
    append = TABLES[kind](open_store(f"{home}/pool"))
    first = append(pictures(0, N))
    content = of_features(home, {}, sample={"method": "srs", "budget": 10})
    content["pool"] = {"uri": f"{home}/pool", "format": kind, "columns": {"id": "id", "prediction": "i"}}
    pinned = content | {"name": "pinned", "pool": content["pool"] | {"version": first}}
    runs = {
        name: verbs.first_round(parse_spec(given, "spec")) for name, given in (("open", content), ("pinned", pinned))
    }
    assert find_changed(runs["open"]).version is None
    second = append(pictures(N, N + 20))
    now = VERSION[kind].format(second)
    assert find_changed(runs["open"]).version == now
    assert find_changed(runs["pinned"]).version is None
    [said] = changed(find_changed(runs["open"]))
    assert said.text.startswith(f"the pool's table is at {now} now; this run keeps the version")
    label(runs["open"])
    verbs.next_round(runs["open"], 10)
    assert runs["open"].read_selection(2).pool_size == N
    again = {
        name: verbs.first_round(parse_spec(given, "spec")) for name, given in (("open", content), ("pinned", pinned))
    }
    assert again["pinned"].uri == runs["pinned"].uri
    assert again["open"].read_selection(1).pool_size == N + 20
