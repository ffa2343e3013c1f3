"""Specs from one file of stored predictions, and the commands that take such a file."""

import functools
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tables import parquet

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.lake.formats import place_of
from opacc_ray.spec import load_spec
from opacc_ray.spec.table_spec import TableKeys, is_table, kept_spec, read_predictions, spec_of_predictions


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, name: str, content: str | bytes) -> str:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def problems(name: str, *needs: str) -> str:
    with pytest.raises(DataError) as caught:
        read_predictions(name, needs)
    return str(caught.value)


# -- reading ---------------------------------------------------------------------------------------------


packed = functools.partial(gzip.compress, mtime=0)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "image_id,predicted,score\n007,cat,0.9\n008,dog,0.25\n"),
        ("a.csv", "\ufeffimage_id,Predicted,SCORE\r\n007,cat,0.9\r\n008,dog,0.25\r\n"),
        ("a.csv", "image_id;predicted;score\n007;cat;0,9\n008;dog;0,25\n"),
        ("a.csv", "image_id;predicted;score;at\n007;cat;0,9;12:00:00.5\n008;dog;0,25;12:00:01.5\n"),
        pytest.param(
            "a.csv.gz", packed(b"image_id,predicted,score\n007,cat,0.9\n") + packed(b"008,dog,0.25\n"), id="gz"
        ),
        ("a.ndjson", '{"id": "007", "pred": "cat", "prob": 0.9}\n{"id": "008", "pred": "dog", "prob": 0.25}\n'),
        ("a.csv", 'score,"image_id",predicted,note\n0.9,"007","cat","one, or\ntwo lines"\n0.25,"008","dog",\n'),
        ("a.tsv", "image id\tpred label\tconf\n007\tcat\t0.9\n008\tdog\t0.25\n"),
        ("a.jsonl", '{"id": "007", "pred": "cat", "prob": 0.9}\n{"id": "008", "pred": "dog", "prob": 0.25}\n'),
    ],
)
def test_columns_are_matched_by_their_usual_names(folder: Path, name: str, content: str | bytes) -> None:
    found = read_predictions(write(folder, name, content), ["confidence"])
    assert found.columns.keys() == {"id", "prediction", "confidence"}
    assert found.classes == ["cat", "dog"]
    assert np.array_equal(found.pool.prediction, [0, 1])
    assert np.array_equal(found.pool.confidence, [0.9, 0.25])


def test_a_parquet_file_is_read_without_its_layers(folder: Path) -> None:
    hidden = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(6)), 3)
    table = pa.table({"id": ["a", "b"], "prediction": [3, 0], "hidden": hidden})
    found = read_predictions(write(folder, "a.parquet", parquet(table)))
    assert found.columns == {"id": "id", "prediction": "prediction"}
    assert found.classes is None
    assert np.array_equal(found.pool.prediction, [3, 0])


def test_a_folder_with_the_suffix_of_parquet_is_a_folder(folder: Path) -> None:
    assert not is_table(write(folder, "out.parquet/part-0.parquet", b"").partition("/")[0])
    assert is_table(write(folder, "a.parquet", b""))
    assert is_table("a.csv")
    assert not is_table("spec.json")


def test_a_column_of_paths_stands_in_for_ids(folder: Path) -> None:
    found = read_predictions(write(folder, "a.csv", "path,pred\na.png,1\nb.png,0\n"))
    assert found.columns == {"id": "path", "uri": "path", "prediction": "pred"}


def test_named_columns_need_no_usual_name(folder: Path) -> None:
    name = write(folder, "a.csv", "sku,pred,guess,sure\n1,2,3,0.5\n")
    found = read_predictions(name, columns="id=sku, prediction=guess,confidence=sure")
    assert found.columns == {"id": "sku", "prediction": "guess", "confidence": "sure"}
    assert found.unused == ["pred"]
    with pytest.raises(DataError, match='no column "other", which --columns names; its columns are sku'):
        read_predictions(name, columns="id=other")
    with pytest.raises(SpecError, match="KEY=COLUMN,KEY=COLUMN; keys are id, uri, prediction, confidence"):
        read_predictions(name, columns="label=sku")


# -- problems --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "classes"), [(("no", "yes"), ["no", "yes"]), (("yes", "no"), ["yes", "no"])])
def test_a_probability_of_one_class_is_no_confidence(
    folder: Path, words: tuple[str, str], classes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """As scikit-learn's ``predict_proba(X)[:, 1]``: one column, whatever is predicted."""
    share = np.linspace(0, 1, 40)
    rows = "".join(f"{i},{words[int(own >= 0.3)]},{own:.3f}\n" for i, own in enumerate(share))
    name = write(folder, "a.csv", f"id,pred,prob\n{rows}")
    found = read_predictions(name)
    assert found.columns == {"id": "id", "prediction": "pred", "output": "prob"}
    assert found.classes == classes
    assert found.pool.prediction is not None
    expected = np.where(share >= 0.3, share, 1 - share)
    assert found.pool.confidence == pytest.approx(expected, abs=1e-3)
    assert np.array_equal(found.pool.prediction, share >= 0.3)
    with caplog.at_level("INFO"):
        spec = spec_of_predictions(name, TableKeys(budget=10))
    assert f'prob is the probability of "{words[1]}", whatever is predicted' in caplog.text
    assert "no column of confidences" not in caplog.text
    assert (spec.model.output, spec.model.classes) == ("probability", classes)
    confident = write(folder, "b.csv", "id,pred,prob\n" + "".join(f"{i},{i % 2},{0.5 + i / 80}\n" for i in range(40)))
    assert read_predictions(confident).columns["confidence"] == "prob"


def test_a_column_with_another_value_in_every_row_is_proposed_for_ids(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = "".join(f"s{i},{i % 2},{i % 3},0.9\n" for i in range(9))
    with caplog.at_level("INFO"):
        spec_of_predictions(write(folder, "a.csv", f"scan_id,pred,site_id,conf\n{rows}"), TableKeys(budget=3))
    assert "so they are a.csv#0, a.csv#1, ...; for those of scan_id, give --columns id=scan_id" in caplog.text


def test_all_problems_are_reported_at_once(folder: Path) -> None:
    rows = "a,cat,97.5\na,,20\n,dog,30\n"
    assert problems(write(folder, "a.csv", f"id,pred,confidence\n{rows}")) == (
        "a.csv: (1) 1 row without an id (id), first row 3 of the data; "
        "(2) 1 row without a prediction (pred), first row 2 of the data: fill them, or leave these rows out; put "
        "a class that is called null or nan in quotes; "
        "(3) the confidence ('confidence') holds 97.5, outside [0, 1]; divide a percentage "
        "by 100; its columns are id, pred, confidence"
    )


def test_missing_and_ambiguous_columns_are_reported_at_once(folder: Path) -> None:
    assert problems(write(folder, "a.csv", "y_pred,pred_label,x\n1,2,3\n"), "confidence", "hidden") == (
        "a.csv: (1) the columns y_pred, pred_label may all be the prediction; give --columns prediction=y_pred; "
        "(2) no column of confidences, such as confidence, conf, score, probability: give --columns confidence=COLUMN; "
        "(3) the method needs hidden: write a spec, or choose another method; its columns are y_pred, pred_label, x"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("id,pred,conf\n1,0,0.9\n2,0,1.7\n3,0,0.8\n", "holds 1.7, outside [0, 1]; give a probability"),
        ("id,pred,conf\n1,0,90\n2,0,0.7\n3,0,80\n", "holds 90, outside [0, 1]; divide a percentage by 100"),
        ("id,pred,conf\n1,0,1.2\n", "the confidence ('conf') holds 1.2, outside [0, 1]; give a probability"),
        ("id,pred,conf\n1,0,93%\n", 'holds "93%", which is not a number; write 0.93 for 93 %;'),
        (
            "id,pred\n1,0.5\n",
            "not a class number, 0 or more; if it is a predicted value, give --task regression",
        ),
        ("id,pred\n1,-1\n", "the prediction ('pred') holds -1, which is not a class number, 0 or more"),
        ("id,pred\n", "it has no row"),
        ("id,pred\na,0\na,1\n", 'the column id of ids holds 1 id more than once, such as "a"'),
        ("a,cat,0.9\nb,dog,0.8\n", "the first row looks like data: start the file with the names of its columns"),
        ("id,pred,pred\n1,2,3\n", "two columns 'pred'; rename one"),
        ("id,pred\n1,2,3\n", r"is not valid CSV (CSV parse error: Row #2: Expected 2 columns, got 3: 1,2,3)"),
        ("", "is empty; give a CSV file"),
    ],
)
def test_a_problem_is_named_with_its_remedy(folder: Path, content: str, problem: str) -> None:
    assert problem in problems(write(folder, "a.csv", content))


def test_a_file_that_is_not_there_or_not_utf_8_is_an_error(folder: Path) -> None:
    assert problems("a.csv") == "there is no file a.csv; check the path"
    content = "id,pred\n1,größer\n".encode("latin-1")
    assert "is not UTF-8 (invalid start byte at byte 12): save it as UTF-8" in problems(write(folder, "a.csv", content))


def test_what_a_spreadsheet_leaves_is_named(folder: Path) -> None:
    table = "id,prediction,confidence\na,x,0.9\nb,y,0.8\n,,\n"
    assert problems(write(folder, "a.csv", table)).startswith("a.csv: row 3 of the data is empty: remove it; its col")
    several = problems(write(folder, "a.csv", table.replace("b,y,0.8", "b,y,")))
    assert "(1) row 3 of the data is empty" in several
    assert "(2) 1 row without a confidence (confidence), first row 2" in several
    assert "row 3 of the data is empty, and 1 other row: remove them" in problems(
        write(folder, "a.csv", f"{table},,\n")
    )
    assert "save it as UTF-8 (in Excel: CSV UTF-8)" in problems(write(folder, "a.csv", table.encode("utf-16")))
    for spec in (write(folder, "a.xlsx", b"PK\3\4\xff"), "none.ods"):
        with pytest.raises(SpecError, match=rf"{spec} is a workbook, .*: save its sheet as CSV"):
            load_spec(spec)
    with pytest.raises(SpecError, match=r"p.xlsx is a workbook"):
        place_of("features", "s3://lake/p.xlsx")


# -- specs -----------------------------------------------------------------------------------------------


def test_a_spec_of_predictions_is_kept_and_read_again(folder: Path) -> None:
    name = write(folder, "my answers.csv", "id,pred\n1,cat\n2,dog\n")
    spec = spec_of_predictions(name, TableKeys(budget=1, method="srs"))
    uri = f"{folder}/audits/my-answers.yaml"
    assert kept_spec(spec) == load_spec(uri) == spec
    other = spec_of_predictions(name, TableKeys(budget=2, method="srs"))
    assert kept_spec(other) == load_spec(uri) == other  # no run has used the first one
    write(folder / "audits", "my-answers-0123abcd/spec.json", "{}")
    run = f"{folder}/audits/my-answers-0123abcd"
    with pytest.raises(SpecError, match=rf"sample.budget=2, now 1; `opacc next {run} .*`.* --like {run} .*--name"):
        kept_spec(spec)


def test_slices_and_shown_columns_are_added_to_the_spec_of_a_run(folder: Path) -> None:
    name = write(folder, "answers.csv", "id,pred,conf,camera,text\n1,cat,.9,n,a\n2,dog,.8,s,b\n")
    kept_spec(spec_of_predictions(name, TableKeys(budget=1, method="srs", show="text")))
    file = folder / "audits/answers.yaml"
    file.write_text(file.read_text() + "goal: 90 %\n")
    write(folder / "audits", "answers-0123abcd/spec.json", "{}")
    found = kept_spec(spec_of_predictions(name, TableKeys(budget=1, method="srs", slices="camera")))
    assert found == load_spec(str(file))
    assert found.pool.slice_names == ["camera"]
    assert (found.manifest.show, found.least and found.least.share) == (["text"], 0.9)
    with pytest.raises(SpecError, match=r"another spec of this name: .*sample.method=srs, now css"):
        kept_spec(spec_of_predictions(name, TableKeys(budget=1, method="css")))


@pytest.mark.parametrize("budget", [50, None])
def test_a_file_of_the_same_name_elsewhere_is_another_audit(budget: int | None, folder: Path, told) -> None:
    rows = "".join(f"{n},{n % 2},0.{n + 10}\n" for n in range(80))
    files = [write(folder, f"{week}/answers.csv", f"id,pred,prob\n{rows}") for week in ("week1", "week2")]
    assert told("run", files[0], "--budget", "20")[0] == 0
    code, _, log = told("run", files[1], *(["--budget", str(budget)] if budget else []))
    assert (code, "budget" in log, "--like" in log) == (2, False, False)
    assert f"{folder}/week1/answers.csv, not {folder}/week2/answers.csv; give this file another name with --name" in log
    assert told("run", files[1], "--budget", "20", "--name", "week2")[0] == 0


def test_a_file_whose_classes_changed_is_another_audit(folder: Path, told) -> None:
    rows = [f"{n},{['cat', 'dog'][n % 2]},0.9\n" for n in range(40)]
    name = write(folder, "answers.csv", f"id,pred,prob\n{''.join(rows)}")
    assert told("run", name, "--budget", "10")[0] == 0
    write(folder, "answers.csv", f"id,pred,prob\n{''.join(rows).replace('dog', 'fox')}")
    code, _, log = told("run", name, "--budget", "10")
    assert code == 2
    assert "is another spec of this name" in log
    assert "model.classes=['cat', 'dog'], now ['cat', 'fox']" in log
    assert told("run", name, "--budget", "10", "--name", "foxes")[0] == 0


# -- commands --------------------------------------------------------------------------------------------


@pytest.fixture
def answers(folder: Path) -> str:
    draw = np.random.default_rng(0)
    rows = [f"i{n},{draw.choice(['cat', 'dog', 'fish'])},{draw.uniform(0.3, 1):.3f}" for n in range(300)]
    return write(folder, "answers.csv", "key;label_pred;prob\n" + "\n".join(rows).replace(",", ";"))


def test_slices_are_columns_of_the_file_and_crossings(folder: Path, told) -> None:
    rows = "".join(f"{i},{i % 2},0.9,{'ab'[i % 2]},{i % 3}\n" for i in range(30))
    answers = write(folder, "answers.csv", f"id,pred,prob,camera,region\n{rows}")
    code, _, log = told("run", answers, "--budget", "4", "--slices", "camera, region,camera*region")
    assert code == 0, log
    assert load_spec(folder / "audits" / "answers.yaml").pool.slice_names == ["camera", "region", "camera*region"]
    code, out, _ = told("check", answers, "--budget", "4", "--slices", "camera,regoin")
    assert code == 5
    assert "has no column 'regoin' (did you mean 'region'?); it has id, pred, prob, camera, region" in out
    code, _, log = told("run", str(folder / "audits" / "answers.yaml"), "--slices", "camera")
    assert (code, "--slices is only for a file of predictions" in log) == (2, True)


def test_a_file_of_predictions_is_audited_in_one_command(answers: str, folder: Path, told) -> None:
    code, out, log = told("run", answers, "--budget", "40")
    assert code == 0
    assert "columns: id = key, prediction = label_pred, confidence = prob" in log
    assert "classes: cat, dog, fish (the predictions, sorted)" in log
    assert f"spec: {folder}/audits/answers.yaml" in log
    [manifest] = folder.glob("audits/answers-*/rounds/1/*/manifest.csv")
    ids = [line.partition(",")[0] for line in manifest.read_text().splitlines()[1:]]
    assert len(set(ids)) == 40
    labels = write(folder, "labels.csv", "id,label\n" + "".join(f"{name},cat\n" for name in ids))
    run = str(manifest.parents[3])
    assert f'label      copy {manifest} to labels-1.csv and fill in the column "label"\n' in out
    assert f"next: opacc labels import {manifest.parents[3].name} labels-1.csv\n" in out
    _, _, log = told("estimate", run)
    assert f"no example of {run} has a label yet: fill in a copy of {manifest}, and import it" in log
    assert told("labels", "import", run, labels)[0] == 0
    assert told("estimate", run)[0] == 0
    again, as_spec = (told("run", *given) for given in ([answers, "--budget", "40"], ["audits/answers.yaml"]))
    assert again[:2] == as_spec[:2]
    assert len([*folder.glob("audits/answers-*")]) == 1


def test_check_writes_nothing_and_reports_a_budget_above_the_pool(answers: str, folder: Path, told) -> None:
    code, out, _ = told("check", answers, "--budget", "40")
    assert (code, out.splitlines()[-1]) == (0, f"next: opacc run {answers} --budget 40")
    code, out, _ = told("check", answers, "--budget", "301")
    assert code == 2
    assert f"sample.budget=301 is larger than the pool {folder}/{answers}, which has 300 examples; set at most" in out
    assert [item.name for item in folder.iterdir()] == [answers]


def test_a_class_whose_name_means_cant_tell_is_a_warning(folder: Path, told) -> None:
    rows = "".join(f"{i},{('ok', 'unsure')[i % 2]},0.{5 + i % 5}\n" for i in range(60))
    code, text, _ = told("run", write(folder, "a.csv", f"id,pred,prob\n{rows}"), "--budget", "5")
    assert code == 0
    assert "a label 'unsure' means can't tell, not that class: label the class 1, or rename it" in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["submit", "answers.csv"],
            "answers.csv is a file of predictions, and this needs a spec, a YAML file: `opacc run",
        ),
        (["run", "audits/answers.yaml", "--budget", "40"], "--budget is only for a file of predictions; set it in the"),
        (["run", "answers.txt", "--budget", "40"], "there is no spec at answers.txt"),
        (["run", "audits", "--budget", "40"], "audits is a folder, not a spec; to audit what is in it, name it as"),
    ],
)
def test_what_is_for_a_file_of_predictions_or_for_a_spec_is_refused_for_the_other(
    command: list[str], said: str, told, answers: str
) -> None:
    assert told("run", answers, "--budget", "40")[0] == 0
    code, _, log = told(*command)
    assert (code, said in log) == (2, True)


def test_a_budget_is_that_of_the_run_of_a_file_unless_it_is_given(answers: str, folder: Path, told) -> None:
    code, _, log = told("run", answers)
    assert code == 2
    assert f"--budget is missing: the number of labels; `opacc budget {answers} --until ±0.03` shows how many" in log
    assert told("run", answers, "--budget", "40")[0] == 0
    code, out, log = told("run", answers)
    assert (code, "selected   40 of 300 examples" in out, "nothing new is drawn" in log) == (0, True, True)
    assert told("run", answers, "--name", "other")[0] == 2


def test_the_first_round_of_an_audit_towards_a_goal_is_the_one_that_budget_predicts(
    answers: str, folder: Path, told
) -> None:
    sizes = json.loads(told("budget", answers, "--until", "0.08", "--json")[1])["sizes"]
    for _ in range(2):
        code, _, log = told("audit", answers, "--until", "0.08", "--no-browser")
        assert (code, f"waits for {sizes[0]} labels" in log) == (7, True)
    assert "first round" not in log  # it is drawn: the second time, the budget is the run's


def values_file(folder: Path, values: list[object], name: str = "houses.csv") -> str:
    (folder / name).write_text("id,prediction\n" + "".join(f"h{i},{value}\n" for i, value in enumerate(values)))
    return str(folder / name)


@pytest.mark.parametrize("values", [[1000 + 7 * i for i in range(60)], [100.5 + i for i in range(60)]])
def test_predictions_that_may_be_values_or_classes_are_refused_unless_the_task_says(
    values: list[object], tmp_path: Path
) -> None:
    uri = values_file(tmp_path, values)
    with pytest.raises(DataError, match="--task regression"):
        spec_of_predictions(uri, TableKeys(budget=10))
    spec = spec_of_predictions(uri, TableKeys(budget=10, task="regression"))
    assert (spec.model.task, spec.metrics) == ("regression", ["mae", "rmse", "bias"])
    assert spec.score.error_scale == pytest.approx(np.std(values), rel=0.05)
    if isinstance(values[0], int):
        assert spec_of_predictions(uri, TableKeys(budget=10, task="classification")).model.has_classes


def test_texts_that_differ_in_every_row_are_no_classes(tmp_path: Path) -> None:
    uri = values_file(tmp_path, [f"a long answer {i}" for i in range(60)])
    with pytest.raises(DataError, match="60 different ones in 60 rows; name another column"):
        spec_of_predictions(uri, TableKeys(budget=10))
    assert len(spec_of_predictions(uri, TableKeys(budget=10, task="classification")).model.classes or ()) == 60
    few = values_file(tmp_path, [f"class {i % 30}" for i in range(60)], "few.csv")
    assert len(spec_of_predictions(few, TableKeys(budget=10)).model.classes or ()) == 30


def test_a_regression_without_a_spec_states_its_errors_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    value = rng.lognormal(12, 0.4, 200).round()
    values_file(tmp_path, value.tolist())
    assert main(["run", "houses.csv", "--task", "regression", "--budget", "200"]) == 0
    [run] = [str(path) for path in (tmp_path / "audits").glob("houses-*")]
    truth = value - rng.normal(500, 2000, 200)
    (tmp_path / "truth.csv").write_text(
        "id,label\n" + "".join(f"h{i},{own!r}\n" for i, own in enumerate(truth.tolist()))
    )
    assert main(["labels", "import", run, "truth.csv"]) == 0
    capsys.readouterr()
    assert main(["estimate", run, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    error = value - truth
    expected = {"mae": np.abs(error).mean(), "rmse": np.sqrt(np.mean(error**2)), "bias": error.mean()}
    assert {name: own["value"] for name, own in found["metrics"].items()} == pytest.approx(expected)
    assert (found["lead"], found["metrics"]["mae"]["low"]) == ("mae", found["metrics"]["mae"]["value"])
    assert main(["estimate", run]) == 0
    assert capsys.readouterr().out.startswith(f"MAE       {expected['mae']:,.3f}")
    for command, word in (
        (["estimate", run, "--metric", "f1"], "mae, rmse, bias"),
        (["next", run, "--until", "mae ±0.1"], "unit of the prediction"),
        (["compare", run, run, "--metric", "rmse"], "is not compared"),
        (["report", run, "--goal", "mae 0.9"], "best at 0"),
    ):
        assert main(command) == 2
        assert word in capsys.readouterr().err
