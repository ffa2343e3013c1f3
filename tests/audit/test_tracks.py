"""Tracks: several methods and budgets on one run, one set of labels, and no draw steered by another one's labels.

The runs here are written by hand (`written_run.py`).
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from audited_run import label, write_features, write_pool
from written_run import CLASSES, IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import accuracy, label_budget, verbs
from opacc_ray.audit.exported_case import export_case
from opacc_ray.audit.status import status
from opacc_ray.audit.verify import verify
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.commit_log import Happening
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose first track has a labelled round of deepest, which prefers likely failures."""
    made = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    import_for(made, verbs.select(made, "deepest", 60, {}).ids)
    return made


def import_for(run: Run, ids: Sequence[str]) -> dict[str, Any]:
    rows = "".join(f"{name},{CLASSES[TRUTH[IDS.index(name)]]}\n" for name in ids)
    return label_actions.import_labels(run, "labels.csv", ("id,label\n" + rows).encode()).to_dict()


def select_beside(run: Run, method: str, budget: int, parameters: dict[str, Any], seed: int | None = None) -> Run:
    """Select as `opacc select` without --track; return the run on the track of the selection."""
    track = verbs.free_track(run, verbs.Choice.of(run, method, budget, parameters, seed))
    verbs.select(track, method, budget, parameters, seed)
    return track


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def listed(run: Run, number: int = 1) -> list[str]:
    """The ids that annotators get."""
    text = run.folder(number).read("manifest.csv").decode("utf-8-sig")
    return [row["id"] for row in csv.DictReader(text.splitlines())]


def outcomes(ids: Sequence[str]) -> list[float]:
    places = [IDS.index(name) for name in ids]
    return (PREDICTION[places] == TRUTH[places]).astype(float).tolist()


# -- opening ---------------------------------------------------------------------------------------------


def test_selection_on_a_labelled_run_opens_a_track_beside_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = run.read_selection(1).to_dict()
    opened = answer(capsys, "select", run.uri, "--method", "srs", "--budget", "100")
    assert (opened["track"], opened["round"], opened["method"]) == ("srs-100", 1, "srs")
    assert opened["manifests"] == [f"{run.uri}/tracks/srs-100/rounds/1/manifest.{kind}" for kind in ("csv", "jsonl")]
    assert run.read_selection(1).to_dict() == first
    assert answer(capsys, "select", run.uri, "--method", "srs", "--budget", "100") == opened
    named = answer(capsys, "select", run.uri, "--method", "srs", "--budget", "100", "--track", "again", "--seed", "9")
    assert named["track"] == "again"
    assert [item.track for item in run.tracks()] == [None, "again", "srs-100"]


def test_same_selection_as_that_of_a_labelled_round_opens_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "select", run.uri, "--method", "deepest", "--budget", "60")["track"] is None
    assert len(run.tracks()) == 1


def test_selection_without_labels_is_replaced_on_its_own_track(tmp_path: Path) -> None:
    run = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    verbs.select(run, "srs", 20, {})
    assert select_beside(run, "css", 30, {}).track is None
    assert (run.read_selection(1).method, len(run.tracks())) == ("css", 1)


def test_selection_of_a_track_whose_labels_came_for_another_is_not_replaced(run: Run) -> None:
    beside = select_beside(run, "srs", 100, {})
    overlap = set(run.read_selection(1).ids)
    verbs.select(beside, "srs", 100, {}, seed=5)  # labels that the first track has anyway orphan nothing
    (name, *_) = [name for name in beside.read_selection(1).ids if name not in overlap]
    import_for(run, [name])
    with pytest.raises(SpecError, match=r"\(track srs-100\) has labels, which.*another track with --track NAME"):
        verbs.select(beside, "srs", 100, {}, seed=6)
    assert import_for(beside, [])["labelled"] > 1


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 65, "-x", "ü", "a\nb"])
def test_name_that_no_folder_can_have_is_refused(name: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", run.uri, "--method", "srs", "--budget", "5", "--track", name]) == SpecError.exit_code
    assert "give a name of 1 to 64 letters" in capsys.readouterr().err
    assert run.store.list("tracks/") == []


@pytest.mark.parametrize(
    "arguments", [["status"], ["estimate"], ["next", "--budget", "5"], ["labels", "import", "FILE"]]
)
def test_track_that_is_not_there_is_refused_by_name(
    arguments: list[str], run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    select_beside(run, "srs", 100, {})
    (tmp_path / "FILE").write_text("id,label\n")
    place = 1 + (arguments[0] == "labels")
    given = [str(tmp_path / "FILE") if item == "FILE" else item for item in arguments]
    assert main([*given[:place], run.uri, *given[place:], "--track", "srs-10"]) == SpecError.exit_code
    assert f"{run.uri} has no track 'srs-10', only srs-100; start it with `opacc select" in capsys.readouterr().err


def test_no_track_comes_before_the_first_selection(tmp_path: Path) -> None:
    run = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    with pytest.raises(LabelError, match="has no selection yet, and the main track comes first"):
        verbs.select(run.along("more"), "srs", 10, {})


# -- labels that are there -------------------------------------------------------------------------------


def test_labels_of_one_track_count_in_another_and_are_not_asked_for_again(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    there = set(run.read_selection(1).ids)
    opened = answer(capsys, "select", run.uri, "--method", "srs", "--budget", "100")
    beside = run.find_track("srs-100")
    chosen = beside.read_selection(1).ids
    shared = there & set(chosen)
    assert opened["labelled"] == len(shared) > 5
    assert listed(beside) == [name for name in chosen if name not in there]
    told = text_of(capsys, "select", run.uri, "--method", "srs", "--budget", "100")
    assert f"labelled  {len(shared)} examples already labelled, on another track; not in the manifests" in told
    assert f"\nnext: opacc label {run.uri} --track srs-100\n" in told
    assert import_for(beside, listed(beside))["missing"] == 0
    stated = accuracy.estimate(beside)
    assert stated.track == "srs-100"
    assert (stated.n, stated.design_based, stated.reason) == (100, True, None)
    assert stated.value == pytest.approx(np.mean(outcomes(chosen)))
    assert accuracy.estimate(run).n == 60
    assert "\ntrack     srs-100\n" in text_of(capsys, "estimate", run.uri, "--track", "srs-100")


@pytest.mark.parametrize("method", ["srs", "css", "ssrs", "deepest", "neyman", "sups", "gbs"])
def test_labels_known_before_steer_no_draw(method: str, run: Run, tmp_path: Path) -> None:
    unlabelled = write_run(tmp_path, "other", PREDICTION, classes=CLASSES)
    verbs.select(unlabelled, "srs", 1, {})
    drawn = [verbs.select(one.along("more"), method, 50, {}).to_dict() for one in (run, unlabelled)]
    assert drawn[0] == drawn[1]


def test_rounds_of_a_track_learn_from_its_own_labels_alone(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    beside = select_beside(run, "neyman", 40, {})
    import_for(beside, listed(beside))
    answered = answer(capsys, "next", run.uri, "--track", "neyman-40", "--budget", "30")
    assert (answered["track"], answered["round"]) == ("neyman-40", 2)
    assert run.rounds() == [1]
    second = beside.read_selection(2)
    known = set(beside.read_selection(1).index.tolist())
    assert second.design.drawn_after is not None
    assert set(second.design.drawn_after.tolist()) == known


def test_part_of_a_round_that_another_choice_labelled_is_no_sample_of_it(run: Run) -> None:
    """Those of a deepest round are likely failures: the first label of a random order is not at random any more."""
    beside = select_beside(run, "srs", 100, {})
    (mine,) = read_rounds(beside)
    num = int(mine.labelled.sum())
    stated = accuracy.estimate(beside, partial=True)
    assert not stated.design_based
    assert stated.reason == (
        f"{100 - num} of 100 labels of round 1 are assumed to be missing at random, "
        f"though {num} of the others were known before the round was drawn"
    )


def test_a_further_round_waits_for_a_label_of_its_own(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Labels that another track gave it before it was drawn stand in no way of what the rounds before it say."""
    beside = select_beside(run, "css", 40, {})
    import_for(beside, listed(beside))
    stated = accuracy.estimate(beside)
    assert text_of(capsys, "report", run.uri, "--track", "css-40")
    verbs.next_round(beside, 60)
    _, second = read_rounds(beside)
    assert 0 < second.labelled.sum() == second.known_before
    assert (second.is_counted, second.nonresponse) == (False, None)
    assert status(run).others[0].estimate_is_current
    assert accuracy.estimate(beside) == accuracy.estimate(beside, partial=True)
    assert accuracy.estimate(beside).value == stated.value
    said = text_of(capsys, "estimate", run.uri, "--track", "css-40")
    assert f"left out  round 2, which waits for its {len(second.missing)} labels" in said
    assert text_of(capsys, "report", run.uri, "--track", "css-40").startswith("answer    The model is right on about")
    verbs.next_round(beside, 20, close=True)
    assert accuracy.estimate(beside).value == stated.value
    *_, third = read_rounds(beside)
    import_for(beside, third.missing[:1])
    with pytest.raises(LabelError, match=f"{len(third.missing) - 1} of 60 labels are missing"):
        accuracy.estimate(beside)


def test_first_labels_of_a_sequential_round_are_a_sample_unless_another_choice_had_them(tmp_path: Path) -> None:
    run = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    import_for(run, verbs.select(run, "srs", 60, {}).ids[:30])
    assert accuracy.estimate(run, partial=True).design_based
    shared = select_beside(run, "srs", 60, {}, seed=run.spec.seed + 1)
    (mine,) = read_rounds(shared)
    assert mine.known_before > 0
    assert mine.nonresponse is not None


def test_label_for_either_track_comes_in_any_file(run: Run) -> None:
    beside = select_beside(run, "css", 100, {})
    wanted = listed(beside)
    import_for(run, wanted[: len(wanted) // 2])
    assert import_for(beside, wanted[len(wanted) // 2 :])["missing"] == 0
    label_actions.correct(run, wanted[0], "owl", "chief")
    assert dict(zip(*_truth(beside), strict=True))[wanted[0]] == "owl"
    label_actions.withdraw(run, wanted[0])
    assert read_rounds(beside)[0].missing == (wanted[0],)


def _truth(run: Run) -> tuple[tuple[str, ...], tuple[str, ...]]:
    (only,) = read_rounds(run)
    return only.known.ids, only.truth


def test_what_a_track_gave_up_counts_in_another(run: Run) -> None:
    beside = select_beside(run, "srs", 100, {})
    wanted = listed(beside)
    verbs.close(beside)
    other = select_beside(run, "css", 100, {})
    both = sorted(set(wanted) & set(listed(other)))
    only = sorted(set(wanted) - set(both))
    imported = import_for(run, wanted)
    assert imported["not_used"] == [{"track": "srs-100", "round": 1, "rows": len(only)}]
    assert not set(both) & set(read_rounds(other)[0].missing)
    assert read_rounds(beside)[0].given_up == tuple(wanted)


# -- the whole run ---------------------------------------------------------------------------------------


def test_status_shows_all_tracks(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    beside = select_beside(run, "srs", 100, {})
    accuracy.estimate(run)
    missing = len(listed(beside))
    state = status(run)
    assert [item.track for item in state.others] == ["srs-100"]
    assert (state.waits_for, state.others[0].waits_for) == ("nothing", f"{missing} labels")
    along = answer(capsys, "status", run.uri, "--track", "srs-100")
    assert (along["track"], along["waits_for"], along["others"][0]["track"]) == ("srs-100", f"{missing} labels", None)
    told = text_of(capsys, "status", run.uri)
    rounds = told.partition("\ntrack      srs-100\n")[2].splitlines()
    assert rounds[0].split()[:5] == ["round", "method", "asked", "labelled", "missing"]
    assert rounds[1].split()[:5] == ["1", "srs", "100", str(100 - missing), str(missing)]
    accuracy.estimate(beside, partial=True)
    import_for(beside, listed(beside))
    assert f"\nnext: opacc estimate {run.uri} --track srs-100\n" in text_of(capsys, "status", run.uri)


def test_estimate_of_a_track_is_not_taken_for_that_of_another(run: Run) -> None:
    beside = select_beside(run, "srs", 100, {})
    accuracy.estimate(run)
    beside.store.write(beside.estimate_key, run.store.read(run.estimate_key))
    (fault,) = verify(run.uri).faults
    assert fault.problem.startswith(f"{run.uri}/tracks/srs-100/estimate.json is not the newest estimate of the log")


def test_round_of_a_track_is_not_taken_for_that_of_another(run: Run) -> None:
    beside = select_beside(run, "srs", 100, {})
    [(commit, draw)] = beside.logged(Draw)
    run.log.append(lambda _: Happening([draw], "other", 1, commit.files))
    found = verify(run.uri)
    assert not found.sound
    assert any("round 1 of" in item.problem and "was drawn for another" in item.problem for item in found.faults)
    assert run.along("other").rounds() == [1]


def test_track_that_lost_its_rounds_is_named(run: Run) -> None:
    beside = select_beside(run, "srs", 100, {})
    import_for(beside, listed(beside))
    accuracy.estimate(beside)
    for entry in run.store.list("tracks/srs-100/rounds/"):
        run.store.delete(entry.key)
    assert any("tracks/srs-100/rounds/1/labels/" in fault.problem for fault in verify(run.uri).faults)


def test_what_is_no_track_is_passed_over(run: Run) -> None:
    run.store.write("tracks/-x/rounds/1/selection.json", b"{}")
    run.store.write("tracks/stray", b"")
    assert [item.track for item in status(run).others] == []
    assert accuracy.estimate(run).n == 60


def test_tracks_lie_in_a_bucket_as_in_a_folder(bucket: str, tmp_path: Path) -> None:
    stated = []
    for home in (str(tmp_path), bucket):
        write_pool(home)
        run, _ = write_features(home)
        label(run, verbs.select(run, "srs", 20, {}).ids)
        beside = select_beside(run, "css", 30, {})
        label(beside, listed(beside))
        result = accuracy.estimate(beside).to_dict()
        stated.append({name: result[name] for name in ("value", "low", "high", "n", "design_based", "track")})
        assert export_case(run, f"{home}/case.npz", partial=True).examples > 30
        assert verify(run.uri).faults == []
    assert stated[0] == stated[1]


@pytest.mark.parametrize("name", ["draws", "manifest.csv", "labels", "predictions.parquet"])
def test_verify_covers_tracks(name: str, tmp_path: Path) -> None:
    write_pool(str(tmp_path))
    run, _ = write_features(str(tmp_path))
    label(run, verbs.select(run, "srs", 20, {}).ids)
    beside = select_beside(run, "css", 30, {})
    label(beside, listed(beside))
    beside.write_goal(label_budget.look_for_goal(beside, 0.2))
    accuracy.estimate(beside)
    assert verify(run.uri).faults == []
    key, *_ = [entry.key for entry in run.store.list("tracks/css-30/rounds/1/") if entry.key.split("/")[4] == name]
    run.store.write(key, run.store.read(key)[:-9] + b"123456789")
    found = verify(run.uri)
    assert any("tracks/css-30/" in fault.problem for fault in found.faults)
