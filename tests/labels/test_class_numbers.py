"""Numbers where classes have names: refused in whatever form they come, unless they are declared to count from 0."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from logged import label_files
from written_run import CLASSES, IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.labels.label_log import adopt_rules, read_log
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.page.desk import LabelQueue
from opacc_ray.runs.run import Run
from opacc_ray.spec import LabelsSpec, parse_spec
from opacc_ray.stored_audit import Audit


def ids_of(run: Run) -> tuple[str, ...]:
    return run.read_selection(1).ids


def index_of(id: str) -> int:
    return int(TRUTH[IDS.index(id)])


def csv_of(ids: Sequence[str], first: int = 0) -> bytes:
    """Labels by number, of classes that are counted from ``first``."""
    return ("id,label\n" + "".join(f"{id},{index_of(id) + first}\n" for id in ids)).encode()


def in_form(form: str, id: str, text: str) -> bytes:
    """One label in the form of a tool."""
    choice = {"from_name": "label", "to_name": "image", "type": "choices", "value": {"choices": [text]}}
    made = {
        "csv": f"id,label\n{id},{text}\n",
        "semicolons": f"id;label\n{id};{text}.0\n",
        "jsonl": json.dumps({"id": id, "label": int(text)}),
        "array": json.dumps([{"id": id, "label": int(text)}]),
        "label-studio": json.dumps([{"data": {"opacc_id": id}, "annotations": [{"result": [choice]}]}]),
        "json-min": json.dumps([{"opacc_id": id, "id": 3, "label": text, "annotation_id": 4}]),
        "cvat": f'<annotations><image name="{id}"><tag label="{text}"/></image></annotations>',
        "ground-truth": json.dumps({"source-ref": "s3://b/a", "opacc-id": id, "x-metadata": {"class-name": text}}),
    }
    return made[form].encode()


FORMS = ["csv", "semicolons", "jsonl", "array", "label-studio", "json-min", "cvat", "ground-truth"]


@pytest.mark.parametrize("form", FORMS)
def test_a_number_is_refused_in_every_form_and_read_in_every_form_if_asked_for(run: Run, form: str) -> None:
    first = ids_of(run)[0]
    data = in_form(form, first, "1")
    with pytest.raises(LabelError, match=r"1 of 1 labels are numbers, such as '1(\.0)?' for '.*the classes have names"):
        label_actions.import_labels(run, "back", data)
    assert (read_log(run).actions, label_files(run, 1)) == ([], [])
    taken = label_actions.import_labels(run, "back", data, numbers_are_classes=True)
    assert taken.notes == ["1 label is a class number, counted from 0: 1 = 'dog' (1)"]
    assert read_rounds(run)[0].truth == ("dog",)


def test_numbers_that_count_from_0_raise_no_question(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(run.uri, "..", "back.csv")
    path.write_bytes(csv_of(ids_of(run)))
    assert main(["labels", "import", run.uri, str(path), "--numbers-are-classes"]) == 0
    said = capsys.readouterr().out
    assert "0 = 'cat'" in said
    assert "classes from 1" not in said
    assert "other label" not in said


def test_classes_without_names_are_counted_and_a_missing_0_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path, "nameless", PREDICTION)
    ids = verbs.select(run, "srs", 20, {}).ids
    (tmp_path / "back.csv").write_bytes(csv_of([id for id in ids if index_of(id)]))
    assert main(["labels", "import", run.uri, str(tmp_path / "back.csv")]) == 0
    assert "labels is 0, the first class" in capsys.readouterr().out
    (tmp_path / "more.csv").write_bytes(csv_of([id for id in ids if not index_of(id)]))
    assert main(["labels", "import", run.uri, str(tmp_path / "more.csv")]) == 0
    assert "numbers" not in capsys.readouterr().out


def test_a_spec_or_an_edited_one_may_set_it(run: Run) -> None:
    ids, first = ids_of(run), ids_of(run)[0]
    with pytest.raises(LabelError, match=f"example '{first}' has the label '1', which is a number"):
        label_actions.correct(run, first, "1", "ann")
    asked = run.spec.model_copy(update={"labels": LabelsSpec(numbers_are_classes=True)})
    assert asked.identity() == run.spec.identity()
    adopt_rules(run, asked)
    adopt_rules(run, asked)
    assert len(read_log(run).actions) == 1
    label_actions.import_labels(run, "numbers.csv", csv_of(ids))
    label_actions.correct(run, first, "1", "ann")
    adopt_rules(run, run.spec)
    assert not read_log(run).numbers_are_classes
    assert read_rounds(run)[0].truth == ("dog", *(CLASSES[index_of(id)] for id in ids[1:]))
    with pytest.raises(LabelError, match="1 of 1 labels are numbers"):
        label_actions.import_labels(run, "one.csv", csv_of([first]))


def test_the_page_and_the_notebook_also_refuse_numbers(run: Run) -> None:
    first = ids_of(run)[0]
    with pytest.raises(LabelError, match="'1', which is a number"):
        LabelQueue(run).save("ann", 0, "1")
    for given in ({first: 1}, {first: np.int64(1)}, [{"id": first, "label": "1"}]):
        with pytest.raises(LabelError, match=r"1 of 1 labels are numbers.*numbers_are_classes=True in Python"):
            Audit(run).add_labels(given)
    assert Audit(run).add_labels({first: 1}, numbers_are_classes=True).labels == 1
    assert read_rounds(run)[0].truth == ("dog",)


@pytest.mark.parametrize("classes", [["1", "2", "3"], ["cat", "dog", " 7"]])
def test_names_that_are_numbers_are_names(tmp_path: Path, classes: list[str]) -> None:
    run = write_run(tmp_path, "digits", PREDICTION, classes=classes)
    ids = verbs.select(run, "srs", 20, {}).ids
    rows = "".join(f"{id},{classes[index_of(id)].strip()}\n" for id in ids)
    data = f"id,label\n{rows}".encode()
    with pytest.raises(
        SpecError, match="--numbers-are-classes cannot be used: a class has a number as its name, so numbers are"
    ):
        label_actions.import_labels(run, "back.csv", data, numbers_are_classes=True)
    taken = label_actions.import_labels(run, "back.csv", data)
    assert (taken.labels, taken.notes) == (20, [])
    assert read_rounds(run)[0].truth == tuple(classes[index_of(id)] for id in ids)
    with pytest.raises(SpecError, match=r"labels\.numbers_are_classes: the name of class '.*' is a number"):
        parse_spec(run.spec.model_dump() | {"labels": {"numbers_are_classes": True}}, "spec")
