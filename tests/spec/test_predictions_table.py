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
from opacc_ray.spec import load_spec
from opacc_ray.spec.predictions_table import is_table, read_predictions
from opacc_ray.spec.table_spec import kept_spec, spec_of_predictions


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


def test_a_column_with_the_name_of_its_key_wins(folder: Path) -> None:
    found = read_predictions(write(folder, "a.csv", "id,name,prediction,pred\n1,a,2,3\n"))
    assert (found.columns["id"], found.columns["prediction"]) == ("id", "prediction")


def test_named_columns_need_no_usual_name(folder: Path) -> None:
    name = write(folder, "a.csv", "sku,pred,guess,sure\n1,2,3,0.5\n")
    found = read_predictions(name, columns="id=sku, prediction=guess,confidence=sure")
    assert found.columns == {"id": "sku", "prediction": "guess", "confidence": "sure"}
    assert found.unused == ["pred"]
    with pytest.raises(DataError, match='no column "other", which --columns names; its columns are sku'):
        read_predictions(name, columns="id=other")
    with pytest.raises(SpecError, match="KEY=COLUMN,KEY=COLUMN; keys are id, uri, prediction, confidence, prior"):
        read_predictions(name, columns="label=sku")


@pytest.mark.parametrize("words", [("true", "false"), ("yes", "no"), ("1.0", "0.0")])
def test_words_are_classes_and_whole_numbers_are_numbers_of_classes(folder: Path, words: tuple[str, str]) -> None:
    found = read_predictions(write(folder, "a.csv", f"id,pred\n1,{words[0]}\n2,{words[1]}\n"))
    assert found.classes == (None if words[0] == "1.0" else sorted(words))


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
        spec = spec_of_predictions(name, budget=10)
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
        spec_of_predictions(write(folder, "a.csv", f"scan_id,pred,site_id,conf\n{rows}"), budget=3)
    assert "so they are a.csv#0, a.csv#1, ...; for those of scan_id, give --columns id=scan_id" in caplog.text


def test_all_problems_are_reported_at_once(folder: Path) -> None:
    rows = "a,cat,97.5\na,,20\n,dog,30\n"
    assert problems(write(folder, "a.csv", f"id,pred,confidence\n{rows}")) == (
        'a.csv: (1) 1 row without an id (id); (2) the column id of ids holds an id more than once, such as "a"; make '
        "them unique, or name another column: --columns id=COLUMN; "
        "(3) 1 row without a prediction (pred), first row 2 of the data: fill them, or leave these rows out; "
        "(4) the column confidence of confidences holds 97.5, "
        "outside [0, 1]; divide a percentage by 100; its columns are id, pred, confidence"
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
        ("id,pred,conf\n1,0,1.2\n", "the column conf of confidences holds 1.2, outside [0, 1]; give a probability"),
        ("id,pred,conf\n1,0,93%\n", 'holds "93%", which is not a number; write 0.93 for 93 %;'),
        ("id,pred\n1,0.5\n", "holds 0.5, which is not a class; for a regression, write a spec with model.task"),
        ("id,pred\n1,-1\n", "the column pred of predictions holds -1, and numbers of classes start at 0"),
        ("id,pred\n", "it has no row"),
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
    assert "is not UTF-8 (invalid start byte at byte 12); save it as UTF-8" in problems(write(folder, "a.csv", content))


# -- specs -----------------------------------------------------------------------------------------------


def test_a_spec_of_predictions_is_kept_and_read_again(folder: Path) -> None:
    name = write(folder, "my answers.csv", "id,pred\n1,cat\n2,dog\n")
    spec = spec_of_predictions(name, budget=1, method="srs")
    uri = f"{folder}/audits/my-answers.yaml"
    assert kept_spec(spec) == load_spec(uri) == spec
    other = spec_of_predictions(name, budget=2, method="srs")
    assert kept_spec(other) == load_spec(uri) == other  # no run has used the first one
    write(folder / "audits", "my-answers-0123abcd/spec.json", "{}")
    run = f"{folder}/audits/my-answers-0123abcd"
    again = f"before the first label, `opacc select {run} --method srs --budget 3` draws all 3 anew"
    with pytest.raises(SpecError) as refused:
        kept_spec(other.model_copy(update={"sample": other.sample.model_copy(update={"budget": 3})}))
    assert str(refused.value) == (
        f"{uri} is another spec of this name, with sample.budget=2; once those are labelled, `opacc next {run} "
        f"--budget 1` draws 1 more; {again}; or choose another name with --name"
    )
    with pytest.raises(SpecError, match=r"with sample.budget=2; before the first label, `opacc select .* --budget 1`"):
        kept_spec(spec)


def test_slices_and_shown_columns_are_added_to_the_spec_of_a_run(folder: Path) -> None:
    name = write(folder, "answers.csv", "id,pred,conf,camera,text\n1,cat,.9,n,a\n2,dog,.8,s,b\n")
    kept_spec(spec_of_predictions(name, budget=1, method="srs", show="text"))
    file = folder / "audits/answers.yaml"
    file.write_text(file.read_text() + "goal: 90 %\n")
    write(folder / "audits", "answers-0123abcd/spec.json", "{}")
    found = kept_spec(spec_of_predictions(name, budget=1, method="srs", slices="camera"))
    assert found == load_spec(str(file))
    assert found.pool.slice_names == ["camera"]
    assert (found.manifest.show, found.least and found.least.share) == (["text"], 0.9)
    with pytest.raises(SpecError, match=r"which draws from it otherwise"):
        kept_spec(spec_of_predictions(name, budget=1, method="css"))


# -- commands --------------------------------------------------------------------------------------------


@pytest.fixture
def answers(folder: Path) -> str:
    draw = np.random.default_rng(0)
    rows = [f"i{n},{draw.choice(['cat', 'dog', 'fish'])},{draw.uniform(0.3, 1):.3f}" for n in range(300)]
    return write(folder, "answers.csv", "key;label_pred;prob\n" + "\n".join(rows).replace(",", ";"))


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([*arguments])
    return code, *capsys.readouterr()


def test_slices_are_columns_of_the_file_and_crossings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{i},{i % 2},0.9,{'ab'[i % 2]},{i % 3}\n" for i in range(30))
    answers = write(folder, "answers.csv", f"id,pred,prob,camera,region\n{rows}")
    code, _, log = asked(capsys, "run", answers, "--budget", "4", "--slices", "camera, region,camera*region")
    assert code == 0, log
    assert load_spec(folder / "audits" / "answers.yaml").pool.slice_names == ["camera", "region", "camera*region"]
    code, out, _ = asked(capsys, "check", answers, "--budget", "4", "--slices", "camera,regoin")
    assert code == 5
    assert "has no column 'regoin' (did you mean 'region'?); it has id, pred, prob, camera, region" in out
    code, _, log = asked(capsys, "run", str(folder / "audits" / "answers.yaml"), "--slices", "camera")
    assert (code, "--slices is only for a file of predictions" in log) == (2, True)


def test_a_file_of_predictions_is_audited_in_one_command(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, log = asked(capsys, "run", answers, "--budget", "40")
    assert code == 0
    assert "columns: id = key, prediction = label_pred, confidence = prob" in log
    assert "classes: cat, dog, fish (the predictions, sorted)" in log
    assert f"spec: {folder}/audits/answers.yaml" in log
    [manifest] = folder.glob("audits/answers-*/rounds/1/manifest.csv")
    ids = [line.partition(",")[0] for line in manifest.read_text().splitlines()[1:]]
    assert len(set(ids)) == 40
    labels = write(folder, "labels.csv", "id,label\n" + "".join(f"{name},cat\n" for name in ids))
    run = str(manifest.parents[2])
    assert f'label      copy {manifest} to labels-1.csv and fill in the column "label"\n' in out
    assert f"next: opacc labels import {manifest.parents[2].name} labels-1.csv\n" in out
    _, _, log = asked(capsys, "estimate", run)
    assert f"no example of {run} has a label yet: fill in a copy of {manifest}, and import it" in log
    assert asked(capsys, "labels", "import", run, labels)[0] == 0
    assert asked(capsys, "estimate", run)[0] == 0
    again, as_spec = (asked(capsys, "run", *given) for given in ([answers, "--budget", "40"], ["audits/answers.yaml"]))
    assert again[:2] == as_spec[:2]
    assert len([*folder.glob("audits/answers-*")]) == 1


def test_check_writes_nothing_and_reports_a_budget_above_the_pool(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = asked(capsys, "check", answers, "--budget", "40")
    assert (code, out.splitlines()[-1]) == (0, f"next: opacc run {answers} --budget 40")
    code, out, _ = asked(capsys, "check", answers, "--budget", "301")
    assert code == 2
    assert f"sample.budget=301 is larger than the pool {folder}/{answers}, which has 300 examples; set at most" in out
    assert [item.name for item in folder.iterdir()] == [answers]


def test_a_command_that_needs_a_spec_says_so(answers: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, log = asked(capsys, "plan", answers)
    assert code == 2
    assert f"{answers} is a file of predictions, and this needs a spec, a YAML file: `opacc run {answers} --bud" in log


def test_a_goal_of_a_run_names_the_command_that_goes_on_to_it(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, log = asked(capsys, "run", answers, "--budget", "40", "--until", "±0.03")
    assert (code, [item.name for item in folder.iterdir()]) == (2, [answers])
    assert f"`opacc audit {answers} --budget 40 --until '±0.03'` goes on to a goal" in log
    assert len(log.splitlines()) == 1


def test_a_run_that_is_typed_again_says_that_nothing_is_drawn(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "drawn before" not in asked(capsys, "run", answers, "--budget", "40")[2]
    assert "UTC: nothing new is drawn" in asked(capsys, "run", answers, "--budget", "40")[2]


def test_a_refused_budget_leaves_no_spec(answers: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, log = asked(capsys, "run", answers, "--budget", "301")
    assert (code, [item.name for item in folder.iterdir()]) == (2, [answers])
    assert "set at most 300" in log
    assert asked(capsys, "run", answers, "--budget", "40")[0] == 0
    code, _, log = asked(capsys, "run", answers, "--budget", "50")
    assert code == 2
    assert "answers.yaml is another spec" in log


def test_the_labels_of_a_run_are_forecast_by_its_short_name(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "run", answers, "--budget", "40")[0] == 0
    [run] = folder.glob("audits/answers-*/")
    code, out, _ = asked(capsys, "budget", run.name, "--until", "0.1", "--json")
    assert (code, json.loads(out)["run"]) == (0, str(run))


def test_the_labels_that_an_interval_needs_are_forecast_before_the_first_one(
    answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for width in ("0.03", "0.1"):
        code, out, _ = asked(capsys, "budget", answers, "--until", width, "--json")
        assert code == 0
        found[width] = json.loads(out)
    assert found["0.1"]["total_labels"] < found["0.03"]["total_labels"] <= 300
    assert found["0.1"]["run"] == answers
    assert found["0.1"]["labels"] == 0
    assert all(sum(each["sizes"]) == each["total_labels"] for each in found.values())
    _, out, log = asked(capsys, "budget", answers, "--until", "0.1")
    assert f"in rounds of {', '.join(map(str, found['0.1']['sizes']))}\n" in out
    assert "the model's confidence, corrected for usual overconfidence, which predicts " in out
    assert "warning" not in log


def test_a_class_whose_name_means_cant_tell_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{i},{('ok', 'unsure')[i % 2]},0.{5 + i % 5}\n" for i in range(60))
    code, text, _ = asked(capsys, "run", write(folder, "a.csv", f"id,pred,prob\n{rows}"), "--budget", "5")
    assert code == 0
    assert "a label 'unsure' means can't tell, not that class: label the class 1, or rename it" in text


@pytest.mark.parametrize("command", ["run --budget 1", "check --budget 1", "budget --until 0.1"])
def test_a_file_without_a_confidence_is_a_warning(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = write(folder, "a.csv", "id,prediction,foo\n1,cat,7\n2,dog,8\n")
    code, out, log = asked(capsys, *command.split(), name)
    assert code == 0
    assert "warning: no column of confidences, so labels are drawn nearly at random; unused columns: foo; " in log
    assert "recognised names: confidence, conf, score, " in log
    if command.startswith("budget"):
        assert "based on  a rough guess of 90.0 % accuracy; there is no confidence\n" in out
        assert "useless" not in out


def test_a_budget_of_a_file_may_be_drawn_but_has_no_options_of_a_run(
    folder: Path, answers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(capsys, "budget", answers, "--until", "0.05", "--picture", "widths.svg")[0] == 0
    assert (folder / "widths.svg").read_text().startswith("<svg")
    code, _, log = asked(capsys, "budget", answers, "--until", "0.05", "--method", "srs")
    assert code == 2
    assert "--method and --track need a run; remove them" in log


def test_options_of_a_file_of_predictions_are_refused_for_a_spec(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    write(folder, "answers.csv", "id,pred,prob\n1,0,0.9\n2,1,0.8\n")
    assert asked(capsys, "run", "answers.csv", "--budget", "1")[0] == 0
    code, _, log = asked(capsys, "run", "audits/answers.yaml", "--budget", "40")
    assert code == 2
    assert "--budget is only for a file of predictions; set it in the spec audits/answers.yaml instead" in log
    code, _, log = asked(capsys, "run", "answers.txt", "--budget", "40")
    assert (code, "there is no spec at answers.txt" in log) == (2, True)
    code, _, log = asked(capsys, "run", "audits", "--budget", "40")
    assert code == 2
    assert "audits is a folder, not a spec; to audit what is in it, name it as pool.uri in a spec" in log


def test_a_budget_is_that_of_the_run_of_a_file_unless_it_is_given(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, log = asked(capsys, "run", answers)
    assert code == 2
    assert f"--budget is missing: the number of labels; `opacc budget {answers} --until ±0.03` shows how many" in log
    assert asked(capsys, "run", answers, "--budget", "40")[0] == 0
    code, out, log = asked(capsys, "run", answers)
    assert (code, "selected   40 of 300 examples" in out, "nothing new is drawn" in log) == (0, True, True)
    assert asked(capsys, "run", answers, "--name", "other")[0] == 2


def test_the_first_round_of_an_audit_towards_a_goal_is_the_one_that_budget_predicts(
    answers: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = json.loads(asked(capsys, "budget", answers, "--until", "0.08", "--json")[1])["sizes"]
    for _ in range(2):
        code, _, log = asked(capsys, "audit", answers, "--until", "0.08", "--no-browser")
        assert (code, f"waits for {sizes[0]} labels" in log) == (7, True)
    assert "first round" not in log  # it is drawn: the second time, the budget is the run's
