"""Rounds as a user meets them: what the next one takes over, what closing gives up, what a look may count.

The runs here are written by hand (`written_run.py`).
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from logged import log_labels
from written_run import CLASSES, PREDICTION, TRUTH, label, write_run

from opacc_ray.audit import accuracy, goals, verbs
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.sequential import BETTING, SPENDING, confidence_sequence
from opacc_ray.labels import label_actions, labelled_rounds
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)


def text_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


# -- closing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "wrong"),
    [(20, {"method": "ney"}), (20, {"parameters": {"flor": 0.2}}), (1000, {})],
)
def test_what_is_refused_closes_nothing(budget: int, wrong: dict[str, Any], run: Run) -> None:
    chosen = verbs.select(run, "css", 60, {})
    label(run, chosen.ids[:40])
    with pytest.raises(SpecError):
        verbs.next_round(run, budget, close=True, **wrong)
    assert run.read_closed(1) is None
    assert label(run, chosen.ids[40:]).labelled == 60


def test_labels_that_come_after_the_closing_are_counted_and_told(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    chosen = verbs.select(run, "css", 60, {})
    late = chosen.ids[::3]
    label(run, [name for name in chosen.ids if name not in late])
    following = verbs.next_round(run, 100, close=True)
    again = sorted(set(late) & set(following.ids))
    assert again
    path = tmp_path / "late.csv"
    path.write_text("id,label\n" + "".join(f"{name},cat\n" for name in late))
    told = text_of(capsys, "labels", "import", run.uri, str(path))
    lost = len(late) - len(again)
    assert f"{lost} rows for examples given up in round 1, which do not count\n" in told
    assert told.startswith(
        f"{path.name}  {len(late)} labels taken: {len(late)} for round 1, {len(again)} for round 2\n"
    )
    assert re.search(rf"\n2 +100 +{len(again)} +{100 - len(again)} +- +-\n", told)
    assert re.search(rf"\n1 +css +60 +40 +- +- +{len(late)}\n", text_of(capsys, "status", run.uri))
    assert f"\ngiven up  {len(late)} labels of round 1\n" in text_of(capsys, "estimate", run.uri, "--partial")


def test_closed_round_without_any_label_changes_no_design(run: Run) -> None:
    first = verbs.select(run, "css", 60, {})
    label(run, first.ids)
    verbs.next_round(run, 20)
    verbs.next_round(run, 20, close=True)
    label(run, run.read_selection(3).ids)
    result = accuracy.estimate(run).to_dict()
    assert (result["n"], result["given_up"], result["design_based"], result["reason"]) == (80, 20, True, None)


def test_closing_again_gives_up_what_was_given_up_before(run: Run) -> None:
    chosen = verbs.select(run, "srs", 20, {})
    label(run, chosen.ids[:15])
    verbs.close_round(run)
    label_actions.withdraw(run, chosen.ids[0])
    verbs.close_round(run)
    assert sorted(run.read_closed(1) or ()) == sorted([chosen.ids[0], *chosen.ids[15:]])


def test_label_that_comes_while_the_next_round_is_drawn_is_not_given_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = verbs.select(run, "neyman", 20, {})
    label(run, chosen.ids[:15])
    draw = verbs._choose

    def slow(*arguments: Any) -> Any:
        label(run, chosen.ids[15:18])
        return draw(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(verbs, "_choose", slow)
        with pytest.raises(LabelError, match=r"labels of round 1 of .* were imported during its closing"):
            verbs.next_round(run, 10, close=True)
    assert (run.rounds(), run.read_closed(1)) == ([1], None)
    verbs.next_round(run, 10, close=True)
    assert run.read_closed(1) == list(chosen.ids[18:])


def test_labels_that_come_between_the_decision_and_the_entry_are_seen(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = verbs.select(run, "srs", 20, {})
    label(run, chosen.ids[:15])
    create, other = type(run.store).create, Run.open(run.uri)

    def late(store: Any, key: str, data: bytes) -> bytes:
        monkeypatch.undo()
        label(other, chosen.ids[15:18])
        return bytes(create(store, key, data))

    monkeypatch.setattr(type(run.store), "create", late)
    with pytest.raises(LabelError, match=r"were imported during its closing, so nothing was closed"):
        verbs.close_round(run)
    assert run.read_closed(1) is None


def test_labels_in_conflict_leave_a_round_open(run: Run) -> None:
    chosen = verbs.select(run, "srs", 20, {})
    label(run, chosen.ids[:15])
    rows = "".join(f"{chosen.ids[15]},{name}\n" for name in CLASSES[:2])
    log_labels(Run.open(run.uri), "twice.csv", f"id,label\n{rows}".encode())
    with pytest.raises(LabelError, match="labels in conflict"):
        verbs.close_round(run)
    assert run.read_closed(1) is None


def test_next_again_prints_the_round_that_a_killed_command_drew(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    label(run, verbs.select(run, "srs", 30, {}).ids)
    drawn = text_of(capsys, "next", run.uri, "--budget", "20")
    again = text_of(capsys, "next", run.uri, "--budget", "20")
    assert "round 2 was drawn already; label it" in again
    assert [line for line in again.splitlines() if line not in drawn.splitlines()] == [
        "note      round 2 was drawn already; label it"
    ]
    assert run.rounds() == [1, 2]
    assert main(["next", run.uri, "--budget", "21"]) == LabelError.exit_code
    assert "needs 20 labels" in (refusal := capsys.readouterr().err)
    assert "none has come yet: give them by `opacc label" in refusal
    assert "--close" not in refusal
    label(run, run.read_selection(2).ids[:5])
    assert main(["next", run.uri, "--budget", "20"]) == LabelError.exit_code
    assert "needs 15 labels" in capsys.readouterr().err


# -- what the next round takes over ----------------------------------------------------------------------


@pytest.mark.parametrize("say", ["", "?"])
def test_a_round_of_which_a_stratum_has_no_label_is_not_gone_on_from(say: str, run: Run) -> None:
    """No estimate could count its labels, and so none those of later rounds."""
    chosen = verbs.select(run, "css", 20, {})
    stratum = chosen.design.columns()["stratum"]
    label(run, [id for id, own in zip(chosen.ids, stratum, strict=True) if own > 0])
    others = [id for id, own in zip(chosen.ids, stratum, strict=True) if own == 0]
    label(run, others, say)
    message = "the labels of round 1 of .* cannot be used yet: stratum 0 has no label, .*; label some of it, or draw"
    with pytest.raises(LabelError, match=message):
        verbs.next_round(run, 10, close=True)
    if not say:
        with pytest.raises(LabelError, match=message):
            verbs.close_round(run)
    assert (run.rounds(), run.read_closed(1)) == ([1], None)
    label_actions.correct(run, others[0], "owl", "ann")
    verbs.next_round(run, 10, close=True)
    assert accuracy.estimate(run, partial=True).n == 20 - len(others) + 1


def test_parameters_that_are_not_given_stay(run: Run) -> None:
    first = verbs.select(run, "neyman", 30, {"floor": 0.4, "price": 0.3})
    label(run, first.ids)
    second = verbs.next_round(run, 20, parameters={"price": 0.2})
    assert (second.parameters["floor"], second.parameters["price"]) == (0.4, 0.2)
    label(run, second.ids)
    assert verbs.next_round(run, 20, method="srs").parameters == {"replacement": False}


# -- looks -----------------------------------------------------------------------------------------------


def test_half_a_round_is_no_look_where_a_sequence_goes_round_by_round(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    first = verbs.select(run, "css", 60, {})
    label(run, first.ids[::2])
    with pytest.raises(LabelError, match=r"round 1 of .* needs 30 labels, and only complete rounds count"):
        goals.look_for_goal(run, 0.1)
    sequence = accuracy.estimate(run, partial=True).to_dict()["sequence"]
    assert (sequence["low"], sequence["high"]) == (0, 1)
    label(run, first.ids[1::2])
    whole = accuracy.estimate(run).to_dict()["sequence"]
    assert (whole["method"], whole["reason"]) == (SPENDING, None)
    before = goals.look_for_goal(run, 0.02)
    second = verbs.next_round(run, 50)
    label(run, second.ids[::5])
    halfway = accuracy.estimate(run, partial=True).to_dict()["sequence"]
    assert halfway == whole | {"reason": "it only includes complete rounds, and round 2 still needs labels"}
    told = text_of(capsys, "estimate", run.uri, "--partial")
    assert "; it only includes complete rounds, and round 2" in told
    now = goals.look_for_goal(run, 0.02)
    assert (now.looks, now.total_labels) == (before.looks, before.total_labels)
    assert now.labels_to_go == before.labels_to_go - 10


def test_half_a_round_is_a_look_where_a_sequence_goes_label_by_label(run: Run) -> None:
    first = verbs.select(run, "srs", 60, {})
    label(run, first.ids[:30])
    result = accuracy.estimate(run, partial=True).to_dict()
    (known,) = labelled_rounds.read_rounds(run)
    assert result["sequence"]["low"] == confidence_sequence(join(known.known, known.outcome)).low > 0
    assert (result["sequence"]["method"], result["sequence"]["reason"]) == (BETTING, None)


def test_labels_that_come_before_those_of_earlier_draws_are_no_look_until_the_round_is_whole(run: Run) -> None:
    first = verbs.select(run, "srs", 60, {})
    label(run, first.ids[1:31])
    early = accuracy.estimate(run, partial=True).to_dict()["sequence"]
    assert (early["low"], early["high"]) == (0, 1)
    assert early["reason"] == "it only includes complete rounds, and round 1 still needs labels"
    label(run, first.ids)
    whole = accuracy.estimate(run).to_dict()["sequence"]
    assert (whole["method"], whole["reason"]) == (BETTING, None)
    assert 0 < whole["low"] <= whole["high"]


def test_round_that_is_closed_with_the_look_counts_and_is_closed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = verbs.select(run, "css", 60, {})
    label(run, first.ids[:50])
    reached = json.loads(text_of(capsys, "next", run.uri, "--until", "0.4", "--close", "--json"))
    assert reached["goal"]["reached"]
    assert run.read_closed(1) == sorted(first.ids[50:], key=first.ids.index)
    assert run.rounds() == [1]
    assert accuracy.estimate(run).to_dict()["sequence"]["reason"] is None


# -- goals -----------------------------------------------------------------------------------------------


def answered(run: Run, *arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(text_of(capsys, "next", run.uri, *arguments, "--json"))


@pytest.mark.parametrize("method", ["css", "neyman"])
@pytest.mark.slow
def test_rounds_until_a_goal_are_drawn_as_planned_and_end(
    method: str, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, verbs.select(run, method, 30, {}).ids)
    sizes, answer = [30], answered(run, "--until", "±0.06", capsys=capsys)
    while not answer["goal"]["reached"]:
        assert answer["n"] == answer["goal"]["sizes"][0]
        assert answer["goal"]["labels_to_go"] == sum(answer["goal"]["sizes"])
        assert answer["goal"]["total_labels"] == sum(sizes) + answer["goal"]["labels_to_go"]
        sizes.append(answer["n"])
        label(run, run.read_selection(answer["round"]).ids)
        answer = answered(run, "--until", "±0.06", capsys=capsys)
    assert len(sizes) <= 6
    goal = answer["goal"]
    assert [look["labels"] for look in goal["looks"]] == np.cumsum(sizes).tolist()
    widths = [look["cautious_half_width"] for look in goal["looks"]]
    assert widths[-1] <= 0.06 < min(widths[:-1])
    assert goal["looks"][-1]["half_width"] == pytest.approx((goal["high"] - goal["low"]) / 2)
    assert goal["low"] <= np.mean(PREDICTION == TRUTH) <= goal["high"]


def test_what_is_decided_is_kept_with_the_round_and_the_same_again(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, verbs.select(run, "neyman", 30, {}).ids)
    asked = goals.look_for_goal(run, 0.06)
    assert run.goals().get(1) is None  # asking writes nothing
    first = answered(run, "--until", "0.06", capsys=capsys)
    assert run.goals().get(1) == asked
    assert first["goal"].items() <= asked.to_dict().items()
    label(run, run.read_selection(2).ids)
    again = goals.look_for_goal(run, 0.06)
    assert again.looks[:1] == asked.looks
    assert goals.look_for_goal(run, 0.06) == again
    enough = answered(run, "--until", "0.3", capsys=capsys)
    assert enough["goal"]["reached"]
    assert answered(run, "--until", "0.3", capsys=capsys) == enough
    assert run.rounds() == [1, 2]


def test_where_all_is_labelled_nothing_more_is_advised_or_drawn(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    label(run, verbs.select(run, "neyman", 300, {}).ids)
    told = text_of(capsys, "next", run.uri, "--until", "0.01")
    assert "reached   ±1 points with 300 labels in 1 round\n" in told
    assert "note" not in told
    with pytest.raises(LabelError, match="all 300 examples of the pool are labelled, so there is none left to choose"):
        verbs.next_round(run, 5)


def test_labels_that_are_missing_are_asked_for_before_a_goal_draws_more(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    label(run, verbs.select(run, "srs", 30, {}).ids)
    answered(run, "--until", "0.05", capsys=capsys)
    assert main(["next", run.uri, "--until", "0.05"]) == LabelError.exit_code
    assert "round 2 of" in capsys.readouterr().err
    assert (run.rounds(), run.goals().get(2)) == ([1, 2], None)


# -- what is current -------------------------------------------------------------------------------------


def test_corrected_label_asks_for_another_estimate(run: Run) -> None:
    chosen = verbs.select(run, "srs", 20, {})
    rows = [f"{name},cat,ann,2024-01-01T00:00\n" for name in chosen.ids]
    header = "id,label,annotator,labelled_at\n"
    label_actions.import_labels(run, "labels.csv", (header + "".join(rows)).encode())
    accuracy.estimate(run)
    assert status(run).to_dict()["waits_for"] == "nothing"
    correction = f"{header}{chosen.ids[0]},dog,ann,2024-01-02T00:00\n"
    label_actions.import_labels(run, "correction.csv", correction.encode())
    assert status(run).to_dict()["waits_for"] == "nothing but `opacc estimate`"
    assert accuracy.estimate(run).to_dict()["n"] == 20
    assert status(run).to_dict()["waits_for"] == "nothing"


def test_the_first_round_is_drawn_once(run: Run) -> None:
    chosen = verbs.select(run, "srs", 60, {})
    assert verbs.select(run, "srs", 60, {}).to_dict() == chosen.to_dict()
    with pytest.raises(LabelError, match=r"another `opacc run` drew round 1 of .* first"):
        verbs.select(run, "srs", 50, {})
    assert len(run.logged(Draw, 1)) == 1
