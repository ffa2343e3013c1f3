"""The names that tools and people give to examples: one rule, whatever the format, and no guess."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from written_run import CLASSES, PREDICTION, write_run

from opacc_ray.audit import verbs
from opacc_ray.errors import LabelError
from opacc_ray.labels import label_actions
from opacc_ray.labels.joining import ids_of_names
from opacc_ray.labels.label_rows import name_of_copy
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run

ROUND = ["a/frame.1.jpeg", "a/frame.2.jpeg", "b/frame.2.jpeg", "c/d/x.png", "top.png", "a b.c"]
POOL = {*ROUND, "c/top.png", "b/frame.1.jpeg", "cam2/7.jpg"}


def meant(*names: str, selected: Sequence[str] = ROUND, only_selected: bool = False) -> dict[str, str]:
    return ids_of_names(names, selected, lambda ids: POOL.intersection(ids), only_selected=only_selected)


@pytest.mark.parametrize(
    ("name", "id"),
    [
        ("a~2Fframe.1.jpeg", "a/frame.1.jpeg"),
        ("images/a~2Fframe.1.jpeg", "a/frame.1.jpeg"),
        ("c~2Fd~2Fx.png~.png", "c/d/x.png"),
        ("s3://lake/pool/a/frame.2.jpeg", "a/frame.2.jpeg"),
        ("C:\\work\\a\\frame.2.jpeg", "a/frame.2.jpeg"),
        (" a/frame.2.jpeg ", "a/frame.2.jpeg"),
        ("a/frame.2", "a/frame.2.jpeg"),
        ("up/b/frame.2.png", "b/frame.2.jpeg"),
        ("frame.1.jpeg", "a/frame.1.jpeg"),
        ("todo/frame.1.JPG", "a/frame.1.jpeg"),
        ("frame.1", "a/frame.1.jpeg"),
        ("d/x.png", "c/d/x.png"),
        ("x", "c/d/x.png"),
        ("images/top.png", "top.png"),
        ("a b.c.png", "a b.c"),
    ],
)
def test_a_name_means_one_example(name: str, id: str) -> None:
    assert meant(name) == {name: id}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["frame.2.jpeg"],
            "'frame.2.jpeg' may be 'a/frame.2.jpeg' or 'b/frame.2.jpeg': write ids as",
        ),
        (["up/frame.2"], "'up/frame.2' may be 'a/frame.2.jpeg' or 'b/frame.2.jpeg'"),
        (["cam1/x.png", "cam3/x.png"], "'cam1/x.png' and 'cam3/x.png' may both be 'c/d/x.png'"),
        (["c/d/x.png", "x.png"], "'c/d/x.png' and 'x.png' may both be 'c/d/x.png'"),
    ],
)
def test_what_may_mean_two_examples_is_refused_with_both(names: list[str], words: str) -> None:
    with pytest.raises(LabelError) as caught:
        meant(*names)
    assert words in str(caught.value)


def test_a_base_name_is_no_name_where_other_examples_are_labelled_too() -> None:
    assert meant("up/a/frame.1.jpeg", only_selected=True) == {"up/a/frame.1.jpeg": "a/frame.1.jpeg"}
    with pytest.raises(LabelError, match=r"'frame.1.jpeg' may be 'a/frame.1.jpeg', or an example that was not"):
        meant("frame.1.jpeg", only_selected=True)


# -- formats -----------------------------------------------------------------------------------------------


def cvat(names: Sequence[str]) -> str:
    images = "".join(f'<image name="{name}"><tag label="cat"/></image>' for name in names)
    return f"<annotations>{images}</annotations>"


def label_studio(names: Sequence[str]) -> str:
    answer = {"from_name": "choice", "value": {"choices": ["cat"]}}
    places = [f"/data/upload/3/1a2b3c4d-{name}" for name in names]
    return json.dumps([{"id": 1, "data": {"img": place}, "annotations": [{"result": [answer]}]} for place in places])


def label_studio_csv(names: Sequence[str]) -> str:
    rows = "".join(f"5,1,{k},/data/local-files/?d=up%2F{name},cat,3.5\n" for k, name in enumerate(names))
    return f"annotation_id,annotator,id,image,label,lead_time\n{rows}"


def ground_truth(names: Sequence[str]) -> str:
    job = {"label": 0, "label-metadata": {"class-name": "cat", "human-annotated": "yes"}}
    return "".join(json.dumps({"source-ref": f"s3://lake/up/{name}"} | job) + "\n" for name in names)


def csv(names: Sequence[str]) -> str:
    return "id,label\n" + "".join(f"{name},cat\n" for name in names)


def jsonl(names: Sequence[str]) -> str:
    return "".join(json.dumps({"id": name, "label": "cat"}) + "\n" for name in names)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = write_run(
        tmp_path, "frames", PREDICTION, [f"{k % 3}/frame.{k}.jpeg" for k in range(len(PREDICTION))], classes=CLASSES
    )
    verbs.select(run, "srs", 20, {})
    return run


@pytest.mark.parametrize("write", [cvat, label_studio, label_studio_csv, ground_truth, csv, jsonl])
@pytest.mark.parametrize("name", [lambda id: id, name_of_copy, lambda id: id.rpartition("/")[2], lambda id: f"x/{id}"])
def test_every_format_has_the_rule(write: Callable[[Sequence[str]], str], name: Callable[[str], str], run: Run) -> None:
    ids = run.read_selection(1).ids
    data = write([name(id) for id in ids]).encode()
    done = label_actions.import_labels(run, "back", data)
    assert (done.labels, done.missing) == (20, 0)
    [known] = read_rounds(run)
    assert known.labelled.all()
    assert label_actions.import_labels(run, "back", data).again
    assert {item.id for item in label_actions.list_answers(run).answers} == set(ids)


# -- columns -----------------------------------------------------------------------------------------------

CUSTOMERS = {"uri": "nowhere", "format": "parquet", "columns": {"id": "customer", "array": "x"}}


@pytest.mark.parametrize(
    "header", ["customer,churn", "Customer,label", "customer,churn,annotator", "id,customer,label", "customer;churn"]
)
def test_the_columns_of_the_runs_table_are_read(header: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "churn", PREDICTION, sections={"pool": CUSTOMERS}, classes=CLASSES)
    ids = verbs.select(run, "srs", 20, {}).ids
    separator = ";" if ";" in header else ","
    row = {"id": "{}", "customer": "{}", "churn": "cat", "label": "cat", "annotator": "ann"}
    cells = [row[name.lower()] for name in header.split(separator)]
    data = header + "\n" + "".join(separator.join(cells).format(*[id] * 2) + "\n" for id in ids)
    assert label_actions.import_labels(run, "back.csv", data.encode()).missing == 0
    lines = "".join(json.dumps({"customer": id, "churn": "cat"}) + "\n" for id in ids)
    assert label_actions.import_labels(run, "back.jsonl", lines.encode()).missing == 0
    assert read_rounds(run)[0].labelled.all()


@pytest.mark.parametrize(
    "header", ["customer,prediction", "customer,Confidence", "customer,a,b", "name,churn", "id,churn"]
)
def test_columns_that_may_be_something_else_are_no_labels(header: str, tmp_path: Path) -> None:
    run = write_run(tmp_path, "churn", PREDICTION, sections={"pool": CUSTOMERS}, classes=CLASSES)
    verbs.select(run, "srs", 20, {})
    with pytest.raises(LabelError, match="start it with a header with the columns id and label"):
        label_actions.import_labels(run, "back.csv", f"{header}\n1,cat,3\n".encode())
