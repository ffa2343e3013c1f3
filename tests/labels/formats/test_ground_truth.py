"""Ground Truth: our id passes through unchanged, and the class is taken by its name, from people only."""

import json

import pytest
from awkward_ids import random_ids
from reading_labels import read, refusal

from opacc_ray.errors import DataError
from opacc_ray.extensions.labelling.ground_truth import write
from opacc_ray.labels.formats import parse
from opacc_ray.labels.label_rows import Context, LabelFile, Task

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
    assert label[:7] == ("a.png", "football", "labelled", None, "digits-7", 1, "2018-10-18T22:18:13.527256")


def test_unlabelled_tasks_come_back_blank() -> None:
    tasks = [Task(id, f"s3://b/{i}.png", "r", 1, i) for i, id in enumerate(random_ids(500, seed=9), start=1)]
    data = write(tasks, Context())["input.manifest"]
    labels = list(parse(LabelFile("input.manifest", data)))
    assert [(label.id, label.status, label.run, label.round) for label in labels] == [
        (task.id, "blank", "r", 1) for task in tasks
    ]


def test_images_outside_of_s3_are_refused() -> None:
    with pytest.raises(DataError, match=r"Ground Truth reads images from S3; 'a' is elsewhere"):
        write([Task("a", "/pool/a.png", "r", 1, 1)], Context())


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
