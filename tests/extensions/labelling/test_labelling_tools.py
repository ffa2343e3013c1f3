"""CVAT, Ground Truth and FiftyOne: labels of people come back by example, and what is exported gives the estimate."""

import json
from pathlib import Path

import numpy as np
import pytest
from audited_run import CLASSES, CONFIDENCE, KEYS, PREDICTION, TRUTH, label, write_features, write_pool
from awkward_ids import random_ids
from reading_labels import read, refusal
from shown_pool import text_run

from opacc_ray.audit import verbs
from opacc_ray.audit.accuracy import estimate
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extensions.labelling.labelling_tools import CVAT, GROUND_TRUTH, export_to_fiftyone
from opacc_ray.labels.formats import Context, LabelFile, Task, parse
from opacc_ray.labels.joining import ids_of_names
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs.run import Run

EXPORTS = Path(__file__).parents[2] / "labels" / "exports"

EXPORT = """<?xml version="1.0" encoding="utf-8"?>
<annotations>
  <version>1.1</version>
  <meta>
    <job><id>3</id><size>5</size><labels>
      <label><name>cat</name><color>#fa3253</color><type>tag</type><attributes></attributes></label>
      <label><name>value</name><type>tag</type><attributes><attribute><name>value</name><mutable>False</mutable>
        <input_type>text</input_type><default_value></default_value><values></values></attribute></attributes></label>
    </labels></job>
    <dumped>2026-11-22 01:00:00.000000+00:00</dumped>
  </meta>
  <image id="0" name="0~2Fa~20b.jpg" width="640" height="480">
    <tag label="cat" source="manual">
    </tag>
  </image>
  <image id="1" name="some/folder/~C3~A9.jpg" width="640" height="480">
    <tag label="can&apos;t tell" source="manual"></tag>
  </image>
  <image id="2" name="~2Ehidden.png" width="640" height="480">
  </image>
  <image id="3" name="d.png" width="640" height="480">
    <tag label="value" source="manual">
      <attribute name="value">12.5</attribute>
    </tag>
  </image>
  <image id="4" name="rows.npy~3A7~.png" width="28" height="28">
    <tag label="value" source="manual"><attribute name="value">&lt;b&gt;</attribute></tag>
  </image>
</annotations>
"""


def test_tags_of_images_are_the_labels_of_their_examples() -> None:
    assert [(label.id, label.status, label.label) for label in read(EXPORT, "annotations.xml")] == [
        ("0~2Fa~20b.jpg", "labelled", "cat"),
        ("some/folder/~C3~A9.jpg", "unsure", None),
        ("~2Ehidden.png", "blank", None),
        ("d.png", "labelled", "12.5"),
        ("rows.npy~3A7~.png", "labelled", "<b>"),
    ]


def test_attributes_of_boxes_and_of_tags_that_are_classes_are_no_answers() -> None:
    text = """<annotations><image name="a.png">
      <tag label="cat" source="manual"><attribute name="value">dog</attribute></tag>
      <box label="dog" source="manual"><attribute name="value">dog</attribute></box>
    </image><image name="b.png">
      <tag label="value" source="manual"><attribute name="value">7</attribute></tag>
      <box label="dog" source="manual"><attribute name="value">8</attribute></box>
    </image></annotations>"""
    assert [(label.id, label.label) for label in read(text, "annotations.xml")] == [("a.png", "cat"), ("b.png", "7")]


def test_what_the_library_of_its_formats_wrote_is_read() -> None:
    data = (EXPORTS / "cvat-classification.xml").read_bytes()
    found = [*parse(LabelFile("default.xml", data))]
    ids = ["0/a b.png", "é.png", ".hidden.png", "rows.npy:7"]
    names = ids_of_names([label.id for label in found], ids, lambda ids: ())
    assert [(names[label.id], label.status, label.label) for label in found] == [
        ("0/a b.png", "labelled", "cat"),
        ("é.png", "labelled", "dog"),
        (".hidden.png", "blank", None),
        ("rows.npy:7", "unsure", None),
    ]


def test_label_definitions_are_tags() -> None:
    labels = json.loads(CVAT.write([], Context(("cat", "skipped")))["labels.json"])
    assert [(item["name"], item["type"]) for item in labels] == [("cat", "tag"), ("1", "tag"), ("can't tell", "tag")]
    number, unsure = json.loads(CVAT.write([], Context(None, "regression"))["labels.json"])
    assert (number["attributes"][0]["name"], unsure["name"]) == ("value", "can't tell")


IMAGE = '<annotations>\n<image name="a.png">{}</image></annotations>'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (IMAGE.format('<tag label="cat"/><tag label="dog"/>'), "image 1: 'a.png' has 2 tags, 'cat' and 'dog'"),
        (IMAGE.format('<tag label="cat" source="auto"/>'), "image 1 has a tag of 'a.png' that a model gave"),
        (IMAGE.format("")[:-3], "is not valid XML"),
        ("<annotations></annotations>", "has no image"),
        ('<!DOCTYPE x [<!ENTITY e "aaaaaaaa">]>' + IMAGE.format("&e;"), "declares a document type"),
        ('<annotations><image name=""></image></annotations>', "has no id"),
    ],
)
def test_what_is_no_export_is_refused(text: str, words: str) -> None:
    assert words in refusal(text, "annotations.xml")


@pytest.mark.parametrize(
    ("context", "words"),
    [
        (Context(("ham", "spam"), has_pictures=False, columns=("text",)), "no task for texts and rows of a table"),
        (Context(("cat", "dog"), "multilabel"), "a label of several classes is not read"),
        (Context(None, "counts", counts=("hits", "missed")), "a label of several numbers is not read"),
    ],
)
def test_what_cvat_cannot_ask_is_refused_with_what_to_use_instead(context: Context, words: str) -> None:
    with pytest.raises(SpecError, match=rf"{words}.*: use --to label-studio or --to csv, or `opacc label`"):
        CVAT.write([], context)


# -- Ground Truth ------------------------------------------------------------------------------------------

OUTPUT = {
    "source-ref": "s3://bkt/pool/a.png",
    "opacc-id": "a.png",
    "opacc-run": "digits-7",
    "opacc-round": 1,
    "sport": 0,
    "sport-metadata": {
        "class-name": "football",
        "confidence": 0.8,
        "type": "groundtruth/image-classification",
        "job-name": "identify-sport",
        "human-annotated": "yes",
        "creation-date": "2018-10-18T22:18:13.527256",
    },
}


def line(**metadata: object) -> str:
    return json.dumps(OUTPUT | {"sport-metadata": OUTPUT["sport-metadata"] | metadata}) + "\n"  # type: ignore[operator]


def test_an_output_manifest_is_read_by_the_name_of_the_class() -> None:
    [label] = read(line(), "output.manifest")
    assert label[:6] == ("a.png", "football", "labelled", None, "digits-7", "2018-10-18T22:18:13.527256")


def test_unlabelled_tasks_come_back_blank() -> None:
    tasks = [Task(id, f"s3://b/{i}.png", "r", 1, i) for i, id in enumerate(random_ids(500, seed=9), start=1)]
    data = GROUND_TRUTH.write(tasks, Context())["input.manifest"]
    labels = list(parse(LabelFile("input.manifest", data)))
    assert [(label.id, label.status, label.run) for label in labels] == [(task.id, "blank", "r") for task in tasks]


def test_images_outside_of_s3_are_refused() -> None:
    with pytest.raises(DataError, match=r"Ground Truth reads images from S3; 'a' is elsewhere"):
        GROUND_TRUTH.write([Task("a", "/pool/a.png", "r", 1, 1)], Context())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line(**{"human-annotated": "no"}), "line 1 was labelled by a model"),
        (line(**{"class-name": 3}), "line 1 has no class-name"),
        (json.dumps(OUTPUT | {"opacc-id": None}), "line 1 has no opacc-id"),
        (json.dumps(OUTPUT | {"x-metadata": {}}), "line 1 has labels of 2 jobs"),
        (line() + '{"source-ref": ', "line 2 is not valid JSON"),
    ],
)
def test_what_is_no_label_of_a_person_is_refused(text: str, words: str) -> None:
    assert words in refusal(text, "output.manifest")


# -- FiftyOne ------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    verbs.select(run, "sups", 30, {})
    return run


def test_samples_are_the_labelled_examples_and_their_weights_give_the_estimate(run: Run, tmp_path: Path) -> None:
    label(run, run.read_selection(1).ids)
    verbs.next_round(run, 20)
    label(run, run.read_selection(2).ids, "second.csv")
    written = export_to_fiftyone(run, str(tmp_path / "out"))
    samples = json.loads((tmp_path / "out" / "samples.json").read_bytes())["samples"]
    chosen = {id for number in (1, 2) for id in run.read_selection(number).ids}
    assert len(samples) == len({sample["opacc_id"] for sample in samples}) == written.examples == len(chosen)
    for sample in samples:
        place = KEYS.index(sample["opacc_id"])
        assert sample["ground_truth"]["label"] == CLASSES[TRUTH[place]]
        assert sample["prediction"]["label"] == CLASSES[PREDICTION[place]]
        assert sample["prediction"]["confidence"] == pytest.approx(CONFIDENCE[place])
        assert sample["outcome"] == float(TRUTH[place] == PREDICTION[place])
        assert (tmp_path / "out" / sample["filepath"]).read_bytes() == f"picture {sample['opacc_id']}".encode()
    metadata = json.loads((tmp_path / "out" / "metadata.json").read_bytes())
    assert metadata == {"media_type": "image", "classes": {"ground_truth": CLASSES}}
    failures = np.array([1 - sample["outcome"] for sample in samples])
    weights = np.array([sample["weight"] for sample in samples])
    assert 1 - weights @ failures == pytest.approx(estimate(run).value)


def test_examples_without_pictures_are_not_exported(tmp_path: Path) -> None:
    run = text_run(tmp_path, ["text"])
    answers = "".join(f"{id},ham\n" for id in run.read_selection(1).ids)
    import_labels(run, "a.csv", f"id,label\n{answers}".encode())
    with pytest.raises(LabelError, match=r"the examples of .* are no pictures, which fiftyone shows: nothing can be"):
        export_to_fiftyone(run, str(tmp_path / "out"))


def test_without_labels_there_is_nothing_to_export(run: Run, tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="has a label yet"):
        export_to_fiftyone(run, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_another_export_in_the_folder_is_kept(run: Run, tmp_path: Path) -> None:
    label(run, run.read_selection(1).ids)
    for _ in range(2):
        export_to_fiftyone(run, str(tmp_path / "out"))
    verbs.next_round(run, 20)
    label(run, run.read_selection(2).ids, "second.csv")
    before = (tmp_path / "out" / "samples.json").read_bytes()
    with pytest.raises(LabelError, match=r"out/samples\.json already exists with other content"):
        export_to_fiftyone(run, str(tmp_path / "out"))
    assert (tmp_path / "out" / "samples.json").read_bytes() == before
