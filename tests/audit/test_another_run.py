"""A second run on the features of another: its spec with another sample, and the answers of both where both chose.

Most runs here are written by hand (`written_run.py`).
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_run import CLASSES, IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec
from opacc_ray.stored_audit import Audit


@pytest.fixture
def deepest(tmp_path: Path) -> Run:
    """A run with a labelled round of deepest, which prefers likely failures."""
    run = write_run(tmp_path, "deepest", PREDICTION, classes=CLASSES)
    give(run, verbs.select(run, "deepest", 60, {}).ids, "ann")
    return run


@pytest.fixture
def srs(tmp_path: Path) -> Run:
    """A run with 100 random examples, none of them labelled."""
    run = write_run(tmp_path, "srs", PREDICTION, classes=CLASSES)
    verbs.select(run, "srs", 100, {})
    return run


def true(id: str) -> str:
    return CLASSES[TRUTH[IDS.index(id)]]


def give(run: Run, ids: Sequence[str], annotator: str | None = None) -> None:
    rows = "".join(f"{id},{true(id)},2026-01-02T03:04:05Z\n" for id in ids)
    label_actions.import_labels(run, "labels.csv", f"id,label,labelled_at\n{rows}".encode(), annotator=annotator)


def both(*runs: Run) -> list[str]:
    first, second = (run.read_selection(1).ids for run in runs)
    return [id for id in first if id in second]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -- run --like -------------------------------------------------------------------------------------------------


def test_run_like_another_draws_anew_from_the_same_features(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "answers.csv"
    rows = [(id, CLASSES[told], 0.75) for id, told in zip(IDS, PREDICTION.tolist(), strict=True)]
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("id", "prediction", "confidence"), *rows])
    output = str(tmp_path / "runs")
    first = answer(capsys, "run", str(table), "--method", "css", "--budget", "30", "--output", output)["run"]
    give(Run.open(first), Run.open(first).read_selection(1).ids)
    again = ("run", "--like", first, "--method", "srs", "--budget", "90", "--seed", "7")
    drawn = answer(capsys, *again)
    assert (drawn["method"], drawn["n"], drawn["labelled"]) == ("srs", 90, 0)
    assert answer(capsys, *again) == drawn
    one, two = Run.open(first), Run.open(drawn["run"])
    assert (two.spec.seed, two.uri.rpartition("/")[0]) == (7, one.uri.rpartition("/")[0])
    assert two.complete_features().digest == one.complete_features().digest
    assert answer(capsys, "run", "--like", first)["run"] == first
    assert main(again) == 0
    assert f"next: opacc labels import {two.name} {one.name}\n" in capsys.readouterr().out
    taken = answer(capsys, "labels", "import", two.name, one.name)
    assert (taken["labels"], taken["missing"]) == (len(both(one, two)), 90 - len(both(one, two)))
    second = Audit.open(first).like("srs", 90, seed=7)
    assert (second.uri, second.add_labels(Audit.open(first)).again) == (two.uri, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give FILE.csv or SPEC.yaml, or --like RUN"),
        (["SPEC.yaml", "--like", "RUN"], "give FILE.csv or SPEC.yaml, or --like RUN"),
        (["SPEC.yaml", "--seed", "1"], "--seed and --set are for --like"),
        (["--like", "RUN", "--slices", "camera"], "--slices is only for a file of predictions"),
        (["--like", "RUN", "--method", "nearest"], "nearest"),
    ],
)
def test_what_does_not_go_with_like_is_refused(
    arguments: list[str], complaint: str, srs: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *(srs.uri if text == "RUN" else text for text in arguments)]) == 2
    assert complaint in capsys.readouterr().err


def test_spec_like_another_keeps_parameters_of_the_same_method_alone() -> None:
    pool = {"uri": "x.parquet", "format": "features", "columns": {"id": "id", "prediction": "p", "confidence": "c"}}
    content = {"name": "a", "pool": pool, "sample": {"method": "neyman", "budget": 50, "fresh": True}, "output": "out"}
    content["pool"]["columns"]["judges"] = ["j"]
    assert parse_spec(content | {"history": "auto"}, "spec").like(None, None, None, {}).history is None
    spec = parse_spec(content | {"history": ["run"]}, "spec")
    more = spec.like(None, 80, None, {})
    assert (more.sample.budget, more.sample.fresh, more.history, more.pool.columns.judges) == (80, True, ["run"], ["j"])
    other = spec.like("srs", None, 3, {})
    assert (other.sample.budget, other.sample.fresh, other.seed) == (50, False, 3)
    assert (other.history, other.pool.columns.judges) == (None, None)
    with pytest.raises(SpecError, match="nothing"):
        spec.like("srs", None, None, {"nothing": 1})


@pytest.mark.parametrize("method", ["deepest", "neyman"])
def test_labels_of_another_run_steer_no_draw(method: str, deepest: Run, tmp_path: Path) -> None:
    alone = write_run(tmp_path / "elsewhere", "other", PREDICTION, classes=CLASSES)
    beside = write_run(tmp_path, "other", PREDICTION, classes=CLASSES)
    assert verbs.select(alone, method, 50, {}).to_dict() == verbs.select(beside, method, 50, {}).to_dict()


# -- labels import RUN OTHER ------------------------------------------------------------------------------------


def test_answers_of_another_run_are_taken_as_they_count_there(srs: Run, deepest: Run) -> None:
    corrected, withdrawn, *rest = both(deepest, srs)
    label_actions.correct(deepest, corrected, "?", "chief")
    label_actions.withdraw(deepest, withdrawn)
    taken = label_actions.import_answers(srs, deepest)
    assert (taken.labels, taken.cant_tell, taken.missing) == (len(rest), 1, 100 - 1 - len(rest))
    (found,) = read_rounds(srs)
    assert dict(zip(found.known.ids, found.truth, strict=True)) == {id: true(id) for id in rest}
    assert found.unsure == (corrected,)
    kept = {item.id: item for item in label_actions.list_answers(srs).answers}
    assert (kept[rest[0]].annotator, kept[rest[0]].labelled_at) == ("ann", "2026-01-02T03:04:05Z")
    assert (kept[corrected].annotator, kept[rest[0]].source) == ("chief", "deepest")
    assert label_actions.import_answers(srs, deepest).again
    label_actions.correct(deepest, rest[0], "owl", "chief")  # later imports replace earlier ones of the same run
    label_actions.import_answers(srs, deepest)
    (found,) = read_rounds(srs)
    assert dict(zip(found.known.ids, found.truth, strict=True))[rest[0]] == "owl"


def test_answers_that_differ_follow_the_rule_of_the_run_that_takes_them(srs: Run, deepest: Run) -> None:
    (id, *_) = both(deepest, srs)
    other = next(name for name in CLASSES if name != true(id))
    label_actions.import_labels(srs, "own.csv", f"id,label,annotator\n{id},{other},bob\n".encode())
    with pytest.raises(LabelError, match=r"in conflict.*nothing of the file was taken"):
        label_actions.import_answers(srs, deepest)
    taken = label_actions.import_answers(srs, deepest, conflict="latest")
    assert (taken.conflict, taken.num_overruled) == ("latest", 1)


def test_samples_that_are_completed_by_answers_of_another_run_are_design_based(srs: Run, deepest: Run) -> None:
    shared = both(deepest, srs)
    label_actions.import_answers(srs, deepest)
    stated = accuracy.estimate(srs, partial=True)
    assert stated.reason == (
        f"{100 - len(shared)} of 100 labels of round 1 are assumed to be missing at random, though {len(shared)} of "
        "the others were labelled for another sample"
    )
    chosen = srs.read_selection(1).ids
    give(srs, [id for id in chosen if id not in shared])
    places = [IDS.index(id) for id in chosen]
    stated = accuracy.estimate(srs)
    assert (stated.design_based, stated.reason) == (True, None)
    assert stated.value == pytest.approx(np.mean(PREDICTION[places] == TRUTH[places]))


def test_a_further_round_waits_for_a_label_of_its_own(srs: Run, deepest: Run) -> None:
    """Those that another run chose are likely failures, so they are no part of it by themselves."""
    give(srs, srs.read_selection(1).ids)
    before = accuracy.estimate(srs).value
    second = verbs.next_round(srs, 80, method="neyman")
    assert set(second.design.drawn_after.tolist()) == set(srs.read_selection(1).index.tolist())
    label_actions.import_answers(srs, deepest)
    _, last = read_rounds(srs)
    assert 0 < last.labelled.sum() == last.known_otherwise
    assert (last.is_counted, last.nonresponse) == (False, None)
    assert accuracy.estimate(srs).value == before
    give(srs, last.missing[:1])
    with pytest.raises(LabelError, match=f"{len(last.missing) - 1} of 180 labels are missing"):
        accuracy.estimate(srs)


def test_answers_to_another_question_are_refused(srs: Run, deepest: Run, tmp_path: Path) -> None:
    log = srs.commits
    others = {
        "pool": write_run(tmp_path, "grown", PREDICTION, listing="b", classes=CLASSES),
        "classes": write_run(tmp_path, "named", PREDICTION, classes=["cat", "dog", "wolf"]),
        "task": write_run(tmp_path, "measured", PREDICTION.astype(float), task="regression", error_scale=1),
    }
    for key, other in others.items():
        with pytest.raises(LabelError, match=f"{other.uri} has the {key} .* import answers of a run of the same pool"):
            label_actions.import_answers(srs, other)
    with pytest.raises(LabelError, match="has its own answers already"):
        label_actions.import_answers(srs, srs)
    unanswered = write_run(tmp_path, "unanswered", PREDICTION, classes=CLASSES)
    verbs.select(unanswered, "srs", 20, {})
    with pytest.raises(LabelError, match=r"has no answer to an example that .* has selected"):
        label_actions.import_answers(srs, unanswered)
    assert srs.commits == log


@pytest.mark.parametrize("option", [["--annotator", "ann"], ["--only-selected"], ["--numbers-are-classes"]])
def test_options_of_a_file_are_refused_for_a_run(
    option: list[str], srs: Run, deepest: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["labels", "import", srs.uri, deepest.uri, *option]) == 2
    assert "of a run only --conflict is an option" in capsys.readouterr().err
