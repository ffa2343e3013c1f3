"""Labels that are no single class: judged answers, whose grades have outcomes, and sets of classes with their score."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown_pool import TAGS, answers, graded_run, served_app, tagged_run, tags_of
from starlette.testclient import TestClient

from opacc_ray.audit.accuracy import estimate
from opacc_ray.audit.comparison import compare
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.extensions.labelling.labelling_tasks import write_tasks
from opacc_ray.labels.joining import as_shown, grade_of, is_swapped, set_of
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.labels.label_log import Score
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec
from opacc_ray.spec.spec_sections import ModelSpec

VERDICT = ModelSpec(task="grade")


def rows(run: Run) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run.folder(1).read("manifest.csv").decode())))


def is_right(answer: str, id: str) -> bool:
    return answer == f"It is {id.removeprefix('q')}."


def graded(run: Run, grade: Any) -> bytes:
    """Labels of all rows of a manifest, each by a function of its row."""
    return "".join(json.dumps({"id": row["id"], "label": grade(row)}) + "\n" for row in rows(run)).encode()


@pytest.mark.parametrize(
    ("text", "grade"),
    [
        ("right", "right"),
        ("Correct", "right"),
        ("WRONG", "wrong"),
        ("incorrect", "wrong"),
        ("partially correct", "partly"),
        ("1", "right"),
        ("0.0", "wrong"),
        ("0.5", "partly"),
        ("false", "wrong"),
    ],
)
def test_verdicts_have_the_words_that_people_and_judges_use(text: str, grade: str) -> None:
    assert grade_of(text, VERDICT, id="a") == grade


@pytest.mark.parametrize(
    ("grades", "text", "said"),
    [
        (None, "good", "which is none of the grades: use 'right', 'partly', 'wrong'"),
        (None, "0.7", "none of the grades"),
        ("score", "7", "no score from 0 to 1"),
        ("score", "nan", "no number"),
        ("1-5", "0", "use '1', '2', '3', '4', '5'"),
        ("preference", "C", "use 'A', 'B', 'tie'"),
        ("preference", "1", "none of the grades"),
    ],
)
def test_other_words_are_refused_with_the_grades(grades: str | None, text: str, said: str) -> None:
    with pytest.raises(LabelError, match="which is no") as caught:
        grade_of(text, ModelSpec(task="grade", grades=grades), id="a")
    assert said in str(caught.value)


def test_a_scale_of_one_to_five_and_own_grades_have_their_outcomes() -> None:
    own = ModelSpec(task="grade", grades={"good": 1, "fair": 0.6, "bad": 0})
    assert own.outcomes == {"good": 1, "fair": 0.6, "bad": 0}
    assert grade_of("Fair", own, id="a") == "fair"
    five = ModelSpec(task="grade", grades="1-5")
    assert [(five.outcomes or {})[grade_of(text, five, id="a")] for text in ("1", "3.0", "5")] == [0, 0.5, 1]


def test_half_of_all_pairs_are_swapped_and_labels_mean_what_was_seen() -> None:
    ids = [f"q{i}" for i in range(4000)]
    swapped = np.array([is_swapped(id) for id in ids])
    assert 0.46 < swapped.mean() < 0.54
    model = ModelSpec(task="grade", grades="preference")
    for id in ids[:50]:
        for shown in ("A", "B", "tie"):
            assert as_shown(grade_of(shown, model, id=id), model, id) == shown


@pytest.mark.parametrize(
    ("grades", "label", "truth", "measure"),
    [
        (None, lambda ok: "correct" if ok else "wrong", lambda ok: ok, "share right, counting partly as 0.5"),
        ("score", lambda ok: "0.9" if ok else "0.2", lambda ok: 0.2 + 0.7 * ok, "mean score, from 0 to 1"),
    ],
    ids=["verdict", "score"],
)
@pytest.mark.slow
def test_an_audit_of_graded_answers_covers_the_truth(
    tmp_path: Path, grades: Any, label: Any, truth: Any, measure: str
) -> None:
    run = graded_run(tmp_path, grades, 80)
    given = graded(run, lambda row: label(is_right(row["answer"], row["id"])))
    assert import_labels(run, "grades.jsonl", given).labelled == 80
    found = estimate(run)
    mean = float(np.mean(truth(answers()[1].astype(float))))
    assert found.low <= mean <= found.high
    assert found.srs.effective_size is not None
    assert found.srs.effective_size > 80  # its confidence helps
    assert found.measure == measure
    assert found.confusion is None
    make_report(run, None, level=0.95)
    page = open_store(run.uri).read("report.html").decode()
    assert "secret gold" not in page
    assert '<td class="text">What is ' in page  # what annotators saw of the mistakes


def test_a_preference_is_blind_and_covers_the_truth(tmp_path: Path) -> None:
    run = graded_run(tmp_path, "preference", 60)
    text = run.folder(1).read("manifest.csv").decode() + run.folder(1).read("manifest.jsonl").decode()
    assert "rival" not in text
    assert "reply" not in text

    def prefers(row: dict[str, str]) -> str:
        first, second = (is_right(row[f"answer {name}"], row["id"]) for name in "AB")
        return "tie" if first == second else "A" if first else "B"

    import_labels(run, "grades.jsonl", graded(run, prefers))
    found = estimate(run)
    assert found.low <= answers()[1].mean() / 2 <= found.high
    assert found.measure == "share in which reply is preferred to rival, a tie counting half"
    assert set(read_rounds(run)[0].truth) == {"tie", "second"}  # the rival is always right


def test_the_page_shows_the_answer_and_speaks_of_a_and_b(tmp_path: Path) -> None:
    run = graded_run(tmp_path, "preference", 12)
    client = TestClient(served_app(run), base_url="http://test/" + "t" * 20)
    setup = client.get("setup").json()
    assert setup["classes"] == ["A", "tie", "B"]
    assert setup["long"] == ["answer A", "answer B"]
    for _ in range(12):
        number = client.post("next", json={}).json()["number"]
        reply = client.post("answer", json={"number": number, "label": "A"}).json()
        assert reply["saved"] == {"label": "A"}
    preferred = read_rounds(run)[0]
    assert {"first", "second"} == set(preferred.truth)  # A is not always the same model
    for id, label in zip(preferred.known.ids, preferred.truth, strict=True):
        assert (label == "second") == is_swapped(id)
    assert client.post("undo", json={}).json()["undone"] == {"label": "A"}


def test_grades_are_of_one_model(tmp_path: Path) -> None:
    run = graded_run(tmp_path, None, 10)
    import_labels(run, "a.jsonl", graded(run, lambda row: "right"))
    with pytest.raises(SpecError, match="judge the answers of one model; audit a preference"):
        compare(run, run)


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
    assert set_of(text, MODEL) == found


def test_a_name_that_is_no_class_is_refused_with_the_nearest() -> None:
    with pytest.raises(LabelError, match=r"with 'dgo', .*did you mean 'dog'"):
        set_of("cat|dgo", MODEL)


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
    import_labels(run, "export.json", json.dumps(items).encode())
    [known] = read_rounds(run)
    assert [set(text.split("|")) - {"none"} for text in known.truth] == [tags_of(id) for id in known.known.ids]
    with pytest.raises(SpecError, match="CVAT"):
        write_tasks(run, "cvat", str(tmp_path / "cvat"))


GRADED, TAGGED = {"task": "grade"}, {"task": "multilabel"}


@pytest.mark.parametrize(
    ("columns", "model", "score", "said"),
    [
        ({"prediction": "p", "answer": "a"}, GRADED, {}, "pool.columns.prediction is only supported for"),
        ({"answer": "a"}, {}, {}, "pool.columns.answer is only supported for grade"),
        ({"confidence": "c", "answer": ["a", "b"]}, GRADED, {}, "and annotators grade one answer; name 1"),
        ({"answer": "a"}, GRADED | {"grades": "preference"}, {}, "a preference is between two answers; name 2"),
        ({"answer": "a"}, {"task": "grade", "grades": "stars"}, {}, "use verdict, 1-5, preference, score"),
        ({"answer": "a"}, {"task": "grade", "grades": {"good": 2, "bad": 0}}, {}, "the worst 0 and the best 1"),
        ({"answer": "a"}, {"task": "grade", "classes": ["a", "b"]}, {}, "model.classes is only supported for"),
        ({"prediction": "a"}, {"grades": "score"}, {}, "model.grades is only supported for grade"),
        ({}, {"task": "multilabel"}, {}, "classes are missing, which task: multilabel needs"),
        ({}, {"task": "multilabel", "classes": ["a", "b|c"]}, {}, "with task: multilabel a name has no '|'"),
        ({}, TAGGED | {"classes": [f"c{i}" for i in range(53)]}, {}, "supports 52 classes, and there are 53"),
        ({}, {"task": "multilabel", "classes": ["a"]}, {"within": 1}, "score.within is only supported for regression"),
        ({}, {"classes": ["a"]}, {"exact": True}, "score.exact is only supported for multilabel"),
    ],
)
def test_specs_that_do_not_fit_are_refused(columns: Any, model: Any, score: Any, said: str) -> None:
    content = {
        "name": "x",
        "pool": {"uri": "pool", "format": "features", "columns": columns or {"prediction": "p"}},
        "model": model,
        "score": score,
        "sample": {"method": "srs", "budget": 5},
        "output": "out",
    }
    with pytest.raises(SpecError) as caught:
        parse_spec(content, "x.yaml")
    assert said in str(caught.value)
