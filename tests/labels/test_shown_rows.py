"""What annotators see of a row: the columns of manifest.show, alike on the page, in tools and in manifests."""

import csv
import datetime
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from shown_pool import EVIL, png, spec_of, table, text_run, truth_of
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.audit.checks import check
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.labelling.labelling_tasks import write_tasks
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.shown_examples import ExampleFiles, _texts, has_pictures, long_columns, rows_to_show
from opacc_ray.lake.store_uris import open_store

SHOW = ["subject", "text", "age", "score"]
HIDDEN = ("never shown", "pred", "conf", '"0.95"')


def cells(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_manifests_have_the_shown_columns_and_nothing_else_of_the_row(tmp_path: Path) -> None:
    run = text_run(tmp_path, SHOW)
    folder = run.folder(1)
    rows, lines = cells(folder.read("manifest.csv")), folder.read("manifest.jsonl").decode().splitlines()
    pool = {row["id"]: row for row in table().to_pylist()}
    assert len(rows) == len(lines) == 12
    for row, line in zip(rows, map(json.loads, lines), strict=True):
        own = pool[row["id"]]
        assert row["text"] == own["text"]
        assert row["age"] == str(own["age"])
        assert row["subject"] == ("'" * (own["subject"] == EVIL)) + own["subject"]  # no spreadsheet runs it
        assert list(line["shown"]) == SHOW
        assert line["shown"]["subject"] == own["subject"]
    for name in ("manifest.csv", "manifest.jsonl"):
        text = folder.read(name).decode()
        assert not [hidden for hidden in HIDDEN if hidden in text]


def test_label_studio_shows_texts_and_a_table_and_keeps_one_config(tmp_path: Path) -> None:
    run = text_run(tmp_path, SHOW)
    written = write_tasks(run, "label-studio", str(tmp_path / "tasks"))
    assert (written.images, written.columns) == (None, SHOW)
    store = open_store(str(tmp_path / "tasks"))
    items, config = json.loads(store.read("tasks-1.json")), ElementTree.fromstring(store.read("config-1.xml"))
    pool = {row["id"]: row for row in table().to_pylist()}
    for item in items:
        own = pool[item["data"]["opacc_id"]]
        assert item["data"]["text_2"] == own["text"]
        assert item["data"]["row"] == {
            "subject": own["subject"],
            "age": str(own["age"]),
            "score": str(np.float32(own["score"])),
        }
        assert set(item["data"]) == {"text_2", "row", "opacc_id", "opacc_run", "opacc_round", "opacc_order"}
    shown = [(item.tag, item.get("value")) for item in config if item.tag in ("Text", "Table", "Header", "Image")]
    assert shown == [("Header", "Which class is it?"), ("Header", "text"), ("Text", "$text_2"), ("Table", "$row")]
    assert config.find("Choices").get("toName") == "text_2"  # type: ignore[union-attr]
    for item in items:
        result = {"from_name": "label", "to_name": "text_2", "type": "choices"}
        label = truth_of(item["data"]["opacc_id"])
        item["annotations"] = [{"completed_by": 1, "result": [result | {"value": {"choices": [label]}}]}]
    assert import_labels(run, "export.json", json.dumps(items).encode()).labelled == 12


def test_ground_truth_gets_texts_and_cvat_refuses_them(tmp_path: Path) -> None:
    run = text_run(tmp_path, ["text"])
    write_tasks(run, "ground-truth", str(tmp_path / "gt"))
    lines = open_store(str(tmp_path / "gt")).read("input-1.manifest").decode().splitlines()
    assert all(json.loads(line)["source"].startswith(("text: ham", "text: spam")) for line in lines)
    answered = [json.loads(line) | {"job": 0, "job-metadata": {"class-name": "ham"}} for line in lines]
    assert import_labels(run, "out.manifest", "\n".join(map(json.dumps, answered)).encode()).labelled == 12
    with pytest.raises(SpecError, match=r"CVAT has no task for texts and rows"):
        write_tasks(run, "cvat", str(tmp_path / "cvat"))
    with pytest.raises(SpecError, match=r"--images thumbnails: the rows of .* are no pictures"):
        write_tasks(run, "label-studio", str(tmp_path / "ls"), images="thumbnails")


def test_what_cannot_be_shown_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no column 'txt' \(did you mean 'text'\?\)"):
        text_run(tmp_path, ["txt"])
    with pytest.raises(SpecError, match=r"manifest.show names 'pred', which is pool.columns.prediction"):
        spec_of(tmp_path, ["pred"])
    with pytest.raises(SpecError, match="'text' twice"):
        spec_of(tmp_path, ["text", "text"])
    images = {"uri": "x", "format": "images"}
    with pytest.raises(SpecError, match=r"manifest.show names columns, and pool.format images has none"):
        spec_of(tmp_path, ["text"], pool=images, model={"factory": "a:b"})
    found, _ = check(spec_of(tmp_path, ["text", "age"]), "mails.yaml")
    assert ("shown", "text, age") in [(item.name, item.found) for item in found.checks]
    store = open_store(str(tmp_path / "pool"))
    store.write("mails.parquet", parquet(table().append_column("raw", [[b"x"] * 60])))
    with pytest.raises(SpecError, match=r"manifest.show names 'raw', which holds bytes"):
        text_run(tmp_path, ["raw"])


def test_a_pool_that_grew_is_shown_and_one_that_changed_is_not(tmp_path: Path) -> None:
    run = text_run(tmp_path, ["text"])
    store = open_store(str(tmp_path / "pool"))
    store.write("more.parquet", parquet(table().slice(0, 0)))
    assert len(rows_to_show(run, [1])[0]) == 12
    store.write("mails.parquet", parquet(table().slice(1)))
    with pytest.raises(DataError, match=r"cannot be shown: .*mails.parquet changed since the pool was listed"):
        rows_to_show(run, [1])


def test_values_become_texts_as_people_write_them() -> None:
    chat = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
    columns = {
        "float": pa.array([0.1, None], pa.float32()),
        "truth": pa.array([True, None]),
        "day": pa.array([datetime.date(2026, 1, 31), None]),
        "names": pa.array([["a", "ü"], None]),
        "chat": pa.array([chat, None]),
        "kind": pa.array(["x", None]).dictionary_encode(),
        "control": pa.array(["a\x00\x1b[31m\tb\r\nc", None]),
    }
    found = {name: _texts(column, name) for name, column in columns.items()}
    assert found == {
        "float": ["0.1", ""],
        "truth": ["true", ""],
        "day": ["2026-01-31", ""],
        "names": ['["a", "ü"]', ""],
        "chat": ["user: Why?\n\nassistant: Because.", ""],
        "kind": ["x", ""],
        "control": ["a��[31m\tb\nc", ""],
    }
    assert long_columns([{"a": "short", "b": "two\nlines", "c": "x" * 61}]) == {"b", "c"}


def test_rows_with_pictures_show_both(tmp_path: Path) -> None:
    own = table().set_column(0, "id", [[f"{i}" for i in range(60)]])
    uris = [f"pictures/{i}.png" for i in range(60)]
    store = open_store(str(tmp_path / "pool"))
    store.write("mails.parquet", parquet(own.append_column("file", [uris])))
    store.write_many((f"pictures/{i}.png", png(i)) for i in range(60))
    columns = {"id": "id", "prediction": "pred", "confidence": "conf", "uri": "file"}
    pool = {"uri": str(tmp_path / "pool"), "format": "features", "columns": columns}
    run = verbs.first_round(spec_of(tmp_path, ["subject"], pool=pool))
    assert has_pictures(run)
    files = ExampleFiles(run, [1])
    assert {files.picture(id).width for id in files.uris} == {30}
    write_tasks(run, "cvat", str(tmp_path / "cvat"))
    assert len(open_store(str(tmp_path / "cvat")).list("images/")) == 12
    written = write_tasks(run, "label-studio", str(tmp_path / "ls"))
    assert written.images == "thumbnails"
    data = json.loads(open_store(str(tmp_path / "ls")).read("tasks-1.json"))[0]["data"]
    assert data["image"].startswith("data:image/png")
    assert list(data["row"]) == ["subject"]
