"""CVAT: labels come back by the name of the image, from "CVAT for images 1.1" alone."""

import json
from pathlib import Path

import pytest
from reading_labels import read, refusal

from opacc_ray.errors import SpecError
from opacc_ray.extensions.labelling.cvat import write
from opacc_ray.labels.formats import parse
from opacc_ray.labels.joining import ids_of_names
from opacc_ray.labels.label_rows import Context, LabelFile

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
    data = (Path(__file__).parent / "exports" / "cvat-classification.xml").read_bytes()
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
    labels = json.loads(write([], Context(("cat", "skipped")))["labels.json"])
    assert [(item["name"], item["type"]) for item in labels] == [("cat", "tag"), ("1", "tag"), ("can't tell", "tag")]
    number, unsure = json.loads(write([], Context(None, "regression"))["labels.json"])
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
        write([], context)
