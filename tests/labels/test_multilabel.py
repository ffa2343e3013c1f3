"""Examples with any number of classes: labels are sets, and the score is how far they agree with the prediction."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown_pool import TAGS, tagged_run, tags_of

from opacc_ray.audit.accuracy import estimate
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.extensions.labelling.labelling_tasks import write_tasks
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.label_log import Score
from opacc_ray.labels.label_rows import set_of
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec
from opacc_ray.spec.model_spec import ModelSpec

MODEL = ModelSpec(task="multilabel", classes=TAGS)


def labelled(run: Run, separator: str = "|") -> bytes:
    rows = (
        {"id": id, "label": separator.join(sorted(tags_of(id), reverse=True)) or "none"}
        for id in run.read_selection(1).ids
    )
    return "\n".join(map(json.dumps, rows)).encode()


@pytest.mark.parametrize(
    ("text", "found"),
    [("owl|cat", "cat|owl"), ("cat; owl", "cat|owl"), ("dog", "dog"), ("none", "none"), ("cat,cat", "cat")],
)
def test_a_label_is_a_set_in_one_form(text: str, found: str) -> None:
    assert set_of(text, MODEL, id="a") == found


def test_a_name_that_is_no_class_is_refused_with_the_nearest() -> None:
    with pytest.raises(LabelError, match=r"has the label 'cat\|dgo' with 'dgo', .*did you mean 'dog'"):
        set_of("cat|dgo", MODEL, id="a")


def test_the_score_is_the_jaccard_index_or_equality() -> None:
    assert Score().of_sets({"cat", "dog"}, {"dog", "owl"}) == 1 / 3
    assert Score().of_sets(set(), set()) == 1
    assert Score().of_sets(set(), {"cat"}) == 0
    assert Score(exact=True).of_sets({"cat", "dog"}, {"dog"}) == 0
    assert Score(exact=True).of_sets({"cat"}, {"cat"}) == 1


@pytest.mark.parametrize("exact", [False, True])
def test_an_audit_covers_the_truth(tmp_path: Path, exact: bool) -> None:
    run = tagged_run(tmp_path, 60, **({"score": {"exact": True}} if exact else {}))
    assert import_labels(run, "labels.jsonl", labelled(run, ";" if exact else "|")).labelled == 60
    scores = []
    for i in range(200):
        true = tags_of(f"m{i}")
        said = true - ({"owl"} if i % 4 == 0 else set())
        scores.append(Score(exact=exact).of_sets(true, said))
    found = estimate(run)
    assert found.low <= np.mean(scores) <= found.high
    assert found.measure == ("share with all classes right" if exact else "mean Jaccard index of the classes")
    [known] = read_rounds(run)
    assert {"owl"} >= {
        name
        for said, so in zip(known.predicted, known.truth, strict=True)
        for name in set(so.split("|")) ^ set(said.split("|"))
    } - {"none"}
    make_report(run, None, level=0.95)


def test_label_studio_asks_for_several_and_gives_them_back(tmp_path: Path) -> None:
    run = tagged_run(tmp_path, 20)
    write_tasks(run, "label-studio", str(tmp_path / "ls"))
    store = open_store(str(tmp_path / "ls"))
    assert '<Choices name="labels" toName="row" choice="multiple"' in store.read("config-1.xml").decode()
    items = json.loads(store.read("tasks-1.json"))
    for item in items:
        value = {"choices": sorted(tags_of(item["data"]["opacc_id"])) or ["none"]}
        item["annotations"] = [
            {"completed_by": 1, "result": [{"from_name": "labels", "type": "choices", "value": value}]}
        ]
    flat = [item["data"] | {"labels": item["annotations"][0]["result"][0]["value"]} for item in items]
    for name, content in (("export.json", items), ("min.json", flat)):
        import_labels(run, name, json.dumps(content).encode())
    [known] = read_rounds(run)
    assert [set(text.split("|")) - {"none"} for text in known.truth] == [tags_of(id) for id in known.known.ids]
    with pytest.raises(SpecError, match="CVAT"):
        write_tasks(run, "cvat", str(tmp_path / "cvat"))


@pytest.mark.parametrize(
    ("model", "score", "said"),
    [
        ({"task": "multilabel"}, {}, "classes are missing, which task: multilabel needs"),
        ({"task": "multilabel", "classes": ["a", "b|c"]}, {}, "with task: multilabel a name has no '|'"),
        ({"task": "multilabel", "classes": [f"c{i}" for i in range(53)]}, {}, "supports 52 classes, and there are 53"),
        ({"task": "multilabel", "classes": ["a"]}, {"within": 1}, "are only supported for regressions"),
        ({"classes": ["a"]}, {"exact": True}, "only supported for regressions and multilabel"),
    ],
)
def test_specs_that_do_not_fit_are_refused(model: Any, score: Any, said: str) -> None:
    content = {
        "name": "x",
        "pool": {"uri": "pool", "format": "features", "columns": {"prediction": "p"}},
        "model": model,
        "score": score,
        "sample": {"method": "srs", "budget": 5},
        "output": "out",
    }
    with pytest.raises(SpecError) as caught:
        parse_spec(content, "x.yaml")
    assert said in str(caught.value)
