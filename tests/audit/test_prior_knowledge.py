"""What a run knows before its first label: from a labelled reference, earlier audits, a column of the pool's table.

Most runs here are written by hand (`written_run.py`) or are of stored features; one is extracted from S3.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from extracting_here import extracting_here
from local_s3 import LocalS3
from small_model import trained
from small_pictures import picture
from small_spec import small_spec
from written_run import CLASSES, CONFIDENCE, IDS, OTHER, PREDICTION, TRUTH, N, label, write_run

import opacc_ray as opacc
from opacc_ray.audit import accuracy, history, verbs
from opacc_ray.audit.checks import check
from opacc_ray.audit.history import read_history, read_record
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers.select import select
from opacc_ray.spec import parse_spec

NEYMAN = {"method": "neyman", "budget": 40}
WEIGHTS = {"sha256": "a" * 64, "classes": CLASSES}
POOL = opacc.Pool(ids=IDS, hidden=np.ones((N, 5)), confidence=CONFIDENCE.astype(np.float32), prediction=PREDICTION)


@pytest.fixture
def earlier(tmp_path: Path) -> Run:
    """An audit of the same weights, with 60 labels."""
    run = write_run(tmp_path, "before", PREDICTION, listing="z", **WEIGHTS)
    label(run, verbs.select(run, "srs", 60, {}, seed=9).ids)
    return run


@pytest.mark.slow
def test_an_audit_starts_from_earlier_ones_of_the_same_weights(tmp_path: Path, earlier: Run) -> None:
    another = write_run(tmp_path, "another", OTHER, **(WEIGHTS | {"sha256": "b" * 64}))
    label(another, verbs.select(another, "srs", 30, {}).ids)
    unlabelled = write_run(tmp_path, "unlabelled", PREDICTION, **WEIGHTS)
    run = write_run(tmp_path, "now", PREDICTION, sections={"sample": NEYMAN, "history": "auto"}, **WEIGHTS)
    first = verbs.select(run, "neyman", 40, {})
    kept = read_record(run)
    assert kept is not None
    assert [(source.kind, source.uri, source.examples) for source in kept.sources] == [("audit", earlier.uri, 60)]
    index = np.sort(earlier.read_selection(1).index)
    known = opacc.Pool(hidden=POOL.hidden[index], confidence=POOL.confidence[index], prediction=PREDICTION[index])
    told = opacc.History(labelled=[{"pool": known, "outcomes": (PREDICTION == TRUTH)[index].astype(float)}])
    assert first.index.tolist() == opacc.select(POOL, "neyman", 40, history=told).index.tolist()
    assert first.index.tolist() != opacc.select(POOL, "neyman", 40).index.tolist()
    label(run, first.ids)
    label(unlabelled, verbs.select(unlabelled, "srs", 50, {}).ids)  # what comes later changes nothing
    found = accuracy.estimate(run)
    outcome = (PREDICTION == TRUTH)[first.index].astype(float)
    assert found.value == pytest.approx(estimate_outcomes(first, outcome, pool=POOL, history=told).value)
    assert verbs.next_round(run, 30).index.tolist() == (
        select(POOL, "neyman", 30, previous=[(first, outcome)], history=told).index.tolist()
    )
    assert not any("/history/" in fault.file for fault in verify(run.uri).faults)


def test_an_earlier_audit_with_other_classes_teaches_nothing(
    tmp_path: Path, earlier: Run, caplog: pytest.LogCaptureFixture
) -> None:
    shifted = WEIGHTS | {"classes": [*CLASSES[1:], CLASSES[0]]}
    other = write_run(tmp_path, "other", PREDICTION, **shifted)
    label(other, verbs.select(other, "srs", 60, {}, seed=9).ids)
    run = write_run(tmp_path, "now", PREDICTION, sections={"sample": NEYMAN, "history": "auto"}, **WEIGHTS)
    verbs.select(run, "neyman", 40, {})
    kept = read_record(run)
    assert kept is not None
    assert [source.uri for source in kept.sources] == [earlier.uri]
    assert f"{other.uri} is left out: it has other classes or another task" in caplog.text


def test_named_audits_must_be_there_and_found_ones_need_not(tmp_path: Path, earlier: Run) -> None:
    bare = write_run(tmp_path, "bare", PREDICTION, **WEIGHTS)
    named = write_run(tmp_path, "named", PREDICTION, sections={"sample": NEYMAN, "history": [bare.uri]}, **WEIGHTS)
    with pytest.raises(DataError, match=r"no example of .*bare has a label yet"):
        verbs.select(named, "neyman", 40, {})
    (tmp_path / "before" / "log" / "00000001.json").write_text("{}")
    found = write_run(tmp_path, "found", PREDICTION, sections={"sample": NEYMAN, "history": "auto"}, **WEIGHTS)
    verbs.select(found, "neyman", 40, {})
    kept = read_record(found)
    assert kept is not None
    assert kept.sources == []


def test_labels_of_another_models_audit_on_the_same_pool_say_how_this_model_did(tmp_path: Path) -> None:
    other = write_run(tmp_path, "other", OTHER, **(WEIGHTS | {"sha256": "b" * 64}))
    chosen = verbs.select(other, "srs", 60, {}, seed=9)
    label(other, chosen.ids)
    for listing, said in (("a", PREDICTION), ("b", OTHER)):  # the same pool; one that was listed otherwise
        sections = {"sample": NEYMAN, "history": [other.uri]}
        run = write_run(tmp_path, f"now-{listing}", PREDICTION, listing=listing, sections=sections, **WEIGHTS)
        [(known, failure)] = read_history(run).failures()
        index = np.sort(chosen.index)
        assert failure.tolist() == (said != TRUTH)[index].astype(float).tolist()
        assert known.prediction is not None
        assert known.prediction.tolist() == said[index].tolist()


@pytest.mark.parametrize("fault", ["lost", "changed", "record lost", "record changed"])
def test_a_history_that_rounds_were_drawn_by_is_never_replaced(fault: str, tmp_path: Path, earlier: Run) -> None:
    run = write_run(tmp_path, "now", PREDICTION, sections={"sample": NEYMAN, "history": [earlier.uri]}, **WEIGHTS)
    label(run, verbs.select(run, "neyman", 40, {}).ids)
    kept = read_record(run)
    assert kept is not None
    record, file = (
        tmp_path / "now" / "history" / name for name in ("history.json", f"{kept.folder}/labelled-1.parquet")
    )
    if "record" in fault:
        content = record.read_text()
        record.unlink() if "lost" in fault else record.write_text(content.replace(earlier.uri, "elsewhere"))
    else:
        data = file.read_bytes()
        file.unlink() if fault == "lost" else file.write_bytes(data[:-20] + bytes(20))
    for act in (lambda: accuracy.estimate(run), lambda: verbs.next_round(run, 20), lambda: read_history(run)):
        with pytest.raises(DataError, match="restore"):
            act()
    assert any("/history/" in fault.file for fault in verify(run.uri).faults)


def features_pool(folder: Path, **columns: Any) -> None:
    folder.mkdir()
    for part, rows in enumerate(np.array_split(np.arange(N), 2)):
        stored = {"id": [IDS[i] for i in rows], "said": PREDICTION[rows], "sure": CONFIDENCE[rows]}
        own = {name: values[rows] for name, values in columns.items()}
        pq.write_table(pa.table(stored | own), folder / f"part-{part}.parquet", row_group_size=60)


def features_spec(tmp_path: Path, **sections: Any) -> dict[str, Any]:
    columns = {"id": "id", "prediction": "said", "confidence": "sure", "judges": "judge"}
    return {
        "name": "judged",
        "pool": {"uri": str(tmp_path / "pool"), "format": "features", "columns": columns},
        "model": {"classes": CLASSES},
        "sample": NEYMAN,
        "output": str(tmp_path / "audits"),
    } | sections


def test_a_column_of_the_pool_judges_every_example(tmp_path: Path) -> None:
    judge = np.random.default_rng(2).random(N) * np.where(PREDICTION == TRUTH, 1, 0.5)
    features_pool(tmp_path / "pool", judge=judge)
    spec = parse_spec(features_spec(tmp_path), "spec.yaml")
    checks, failure = check(spec, "spec.yaml")
    assert failure is None
    assert "judge (300 of the first 300 rows)" in {item.name: item.found for item in checks.checks}["history"]
    run = verbs.first_round(spec)
    assert read_history(run).judges["judge"] == pytest.approx(judge)
    pool = opacc.Pool(prediction=PREDICTION, confidence=CONFIDENCE)
    expected = opacc.select(pool, "neyman", 40, history=opacc.History(judges={"judge": judge}))
    assert run.read_selection(1).index.tolist() == expected.index.tolist()
    assert verify(run.uri).sound
    plain = json.loads(json.dumps(features_spec(tmp_path)))
    del plain["pool"]["columns"]["judges"]
    without = verbs.first_round(parse_spec(plain, "spec.yaml"))
    assert without.uri != run.uri
    assert read_record(without) is None


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({}, "has no column 'judge'; it has id, said, sure"),
        ({"judge": np.where(np.arange(N) == 7, 17, 1.0)}, "judge 'judge' says \"17.0\"; give a score from 0 to 1"),
        ({"judge": np.array(["bad"] * N)}, "judge 'judge' says \"bad\""),
    ],
)
def test_a_column_that_is_no_judge_is_refused_before_anything_is_written(
    column: dict[str, Any], message: str, tmp_path: Path
) -> None:
    features_pool(tmp_path / "pool", **column)
    with pytest.raises((DataError, SpecError), match=message):
        verbs.start(parse_spec(features_spec(tmp_path), "spec.yaml"))
    assert not (tmp_path / "audits").exists()


def test_a_history_is_refused_where_nothing_learns_from_it(tmp_path: Path) -> None:
    content = {"name": "x", "pool": {"uri": "p", "format": "images"}, "model": {"factory": "user:net"}, "output": "o"}
    for sections, message in (
        (
            {"history": "auto", "sample": {"method": "css", "budget": 5}},
            "history is only supported for neyman, and sample.method is 'css'",
        ),
        ({"reference": {"uri": "r", "labls": "x.csv"}}, "did you mean 'labels'"),
    ):
        with pytest.raises(SpecError, match=message):
            parse_spec(content | sections, "spec.yaml")
    with pytest.raises(SpecError, match="this spec has none; list the runs"):
        history.check_history(parse_spec(content | {"history": "auto"}, "spec.yaml"), None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("id", r"labels.csv has the id '300.png', which is no example of .*/train; use the ids .*, such as '000.png'"),
        ("class", r"'000.png' has the label 'cow', which is none of the 4 classes: .*labels.csv line 2"),
        ("no label", r"labels.csv has no label; remove the key, or fill the file"),
        ("audit", r"history: no example of .*/bare has a label yet; import some, or remove it"),
        ("twice", r"history names .*/before twice; give each run once"),
        ("none", None),
    ],
)
def test_a_history_without_what_it_names_is_found_before_anything_is_extracted(
    fault: str, message: str | None, tmp_path: Path, earlier: Run
) -> None:
    for folder in ("pool", "train"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "000.png").write_bytes(picture(0))
    row = {"id": "300.png,1", "no label": "000.png,", "class": "000.png,cow"}.get(fault, "000.png,1")
    (tmp_path / "labels.csv").write_text(f"id,label\n{row}\n")
    named = write_run(tmp_path, "bare", PREDICTION, **WEIGHTS) if fault == "audit" else earlier
    content = small_spec(str(tmp_path), f"{tmp_path}/audits", sample=NEYMAN | {"budget": 1}, history=[named.uri])
    content["history"] += [f"{named.uri}/"] * (fault == "twice")
    content |= {"reference": {"uri": f"{tmp_path}/train", "labels": f"{tmp_path}/labels.csv"}}
    content["model"] = {"factory": "small_model:network", "classes": ["0", "1", "2", "3"]}
    spec = parse_spec(content, "spec.yaml")
    made, failure = check(spec, "spec.yaml")
    if message is None:
        assert failure is None
        assert {item.name: item.found for item in made.checks}["history"] == "1 label of the reference; labels of 1 run"
        return
    assert [item.name for item in made.checks if not item.ok] == ["history"]
    with pytest.raises(OpaccError, match=message):
        raise failure or AssertionError
    with pytest.raises(OpaccError, match=message):
        verbs.start(spec)
    assert not (tmp_path / "audits").exists()


def test_a_labelled_reference_in_s3_is_learned_from(s3: LocalS3) -> None:
    """60 training pictures, of which 50 have a label: the model fails where it says 1."""
    from safetensors.torch import save

    store = open_store(s3.create_bucket("history"))
    store.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(120))
    store.write_many((f"train/{i:03d}.png", picture(i)) for i in range(200, 260))
    store.write("model.safetensors", save(trained().state_dict()))
    rows = [f"{i:03d}.png,{2 if i % 4 == 1 else i % 4}" for i in range(200, 250)]
    store.write("train.csv", "\n".join(["id,label", *rows]).encode())
    reference = {"uri": f"{store.uri}/train", "labels": f"{store.uri}/train.csv"}
    content = small_spec(store.uri, f"{store.uri}/audits", reference=reference, sample=NEYMAN)
    with extracting_here():
        run = verbs.first_round(parse_spec(content, "spec.yaml"))
    kept = read_record(run)
    assert kept is not None
    assert [(item.kind, item.uri, item.examples) for item in kept.sources] == [("reference", f"{store.uri}/train", 50)]
    [(known, failure)] = read_history(run).failures()
    outcome = 1 - failure
    assert known.fields == {"hidden", "confidence", "prediction"}
    assert outcome.tolist() == [float(i % 4 != 1) for i in range(200, 250)]
    design = run.read_selection(1).design
    fails = run.read_selection(1).index % 4 == 1
    assert design.predicted_failure[fails].min() > 2 * design.predicted_failure[~fails].max()
    assert verify(run.uri).sound
    table = pq.read_table(io.BytesIO(open_store(run.uri).read(f"history/{kept.folder}/labelled-1.parquet")))
    assert table.num_rows == 50
    labelled = [f"{name},{2 if int(name[:3]) % 4 == 1 else int(name[:3]) % 4}" for name in run.read_selection(1).ids]
    label_actions.import_labels(run, "1.csv", "\n".join(["id,label", *labelled]).encode())
    other = verbs.start(parse_spec(content | {"name": "other"}, "spec.yaml"))[0]
    store.write("train.csv", b"id,label\n300.png,1\n")
    with pytest.raises(DataError, match=r"has the id '300.png', which is no example of .*train"):
        verbs.select(other, "neyman", 10, {})
