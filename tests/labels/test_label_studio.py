"""Label Studio: tasks have our id and no prediction; real exports in JSON are read."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from awkward_ids import random_ids
from reading_labels import refusal

from opacc_ray.labels.formats import Context, Label, LabelFile, Task, parse
from opacc_ray.labels.label_studio import LABEL_STUDIO, config

EXPORTS = Path(__file__).parent / "exports"


def read_export(name: str) -> list[Label]:
    return list(parse(LabelFile(name, (EXPORTS / name).read_bytes())))


def rows_of(labels: list[Label]) -> set[tuple[str, str, str | None, str | None]]:
    return {(label.id, label.status, label.label, label.annotator) for label in labels}


CLASSES = {
    ("0/a b.jpg", "labelled", "cat", "1"),
    ("0/b.jpg", "labelled", "dog", "1"),
    ("0/b.jpg", "labelled", "owl", "2"),
    ("=c.jpg", "unsure", None, "2"),
    ("d.jpg", "labelled", "3", "2"),
    ("e.jpg", "blank", None, None),
}
"""What was answered in the project of the exports; "3" is the alias of the class called "unsure"."""

NUMBERS = {
    ("0/a b.jpg", "labelled", "12.5", "1"),
    ("0/a b.jpg", "labelled", "-0.5", "2"),
    ("0/b.jpg", "labelled", "7", "1"),
    ("=c.jpg", "unsure", None, "2"),
    ("d.jpg", "blank", None, None),
    ("e.jpg", "blank", None, None),
}

SKIPPED = {("é/ü.jpg", "unsure", None, "1")}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("label-studio-classification.json", CLASSES | SKIPPED),
        ("label-studio-regression.json", NUMBERS | SKIPPED),
    ],
)
def test_the_labels_of_a_real_export_are_read(name: str, expected: set[object]) -> None:
    labels = read_export(name)
    assert rows_of(labels) == expected
    assert {label.run for label in labels} == {"digits-7"}
    assert all(label.labelled_at for label in labels if label.status == "labelled")


def test_tasks_hold_the_id_in_their_data_and_nothing_of_the_model() -> None:
    tasks = [Task(id, "https://x/1", "r", 2, order) for order, id in enumerate(random_ids(200, seed=3), start=1)]
    items = json.loads(LABEL_STUDIO.write(tasks, Context(("cat", "dog")))["tasks.json"])
    assert [item["data"]["opacc_id"] for item in items] == [task.id for task in tasks]
    assert {key for item in items for key in item} == {"data"}
    assert {key for item in items for key in item["data"]} == {
        *("image", "opacc_id", "opacc_run", "opacc_round", "opacc_order")
    }


def test_unannotated_tasks_come_back_blank_with_their_ids() -> None:
    tasks = [Task(id, "https://x/1", "r", 2, 1) for id in random_ids(500, seed=4)]
    labels = list(parse(LabelFile("tasks.json", LABEL_STUDIO.write(tasks, Context(("cat",)))["tasks.json"])))
    assert [(label.id, label.status) for label in labels] == [(task.id, "blank") for task in tasks]


def choices(context: Context) -> dict[str, str | None]:
    tree = ElementTree.fromstring(config(context))
    return {item.attrib["value"]: item.attrib.get("alias") for item in tree.iter("Choice")}


def test_config_asks_the_question_and_says_how_to_write_counts() -> None:
    context = Context(None, "counts", counts=("hits", "missed"), question='Worth "$5" & more?')
    tree = ElementTree.fromstring(config(context))
    assert tree[0].attrib["value"] == 'Worth "＄5" & more?'
    [field] = tree.iter("TextArea")
    assert field.attrib["placeholder"] == "hits, missed, such as 3 0; ? if you can't tell"


def test_config_of_a_regression_asks_for_a_number() -> None:
    context = Context(None, "regression")
    assert [item.attrib["name"] for item in ElementTree.fromstring(config(context)).iter("Number")] == ["label"]
    assert choices(context) == {"can't tell": None}


def task(**fields: object) -> dict[str, object]:
    return {"data": {"opacc_id": "a"}, "annotations": [{"result": []} | fields]}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([1], "back.json task 1 is no JSON object"),
        ([{"data": {"image": "x"}, "annotations": []}], "task 1 has no opacc_id in its data"),
        ([{"annotation_id": 3, "id": 1, "label": "cat"}], "task 1 has no annotations"),
        ([{"data": {"opacc_id": "a"}, "annotations": 3}], "task 1 has no list of annotations"),
        ([task(result=[{"value": {"choices": ["cat", "dog"]}}])], "task 1 has 2 answers, 'cat' and 'dog'"),
        ([task(result=[{"value": {"number": 1}}, {"value": {"choices": ["can't tell"]}}])], "task 1 has 2 answers"),
        ([task(result=[{"type": "choices"}])], "task 1 has a result without a value"),
        ([task(result=[{"value": {"number": {"x": 1}}}])], "task 1 has a dict as its answer"),
        ([{"result": [], "task": 7}, {"opacc_id": 1}], "task 1 has no opacc_id"),
    ],
)
def test_what_is_no_answer_is_refused_by_its_task(content: object, words: str) -> None:
    assert words in refusal(json.dumps(content), "back.json")


def test_damaged_json_is_refused_in_a_sentence() -> None:
    assert refusal('[{"data": {"opacc_id": "a"', "back.json").startswith("back.json is not valid JSON (")
    assert refusal(b'[{"data": {"opacc_id": "\xff"}}]', "back.json") == "back.json is not UTF-8: export it again"
    assert "not valid JSON" in refusal("[" * 200_000, "back.json")


@pytest.mark.parametrize("name", ["label-studio-classification-min.json", "label-studio-classification.csv"])
def test_exports_without_skipped_tasks_are_refused_with_what_to_export(name: str) -> None:
    assert "leaves out skipped tasks" in (said := refusal((EXPORTS / name).read_bytes(), name))
    assert "export the project as JSON" in said
