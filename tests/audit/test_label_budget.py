"""How many labels a goal takes, for a run: before any label and after them; and the estimate that reads the pool."""

import json
from pathlib import Path

import numpy as np
import pytest
from written_run import CLASSES, IDS, PREDICTION, TRUTH, N, write_run

import opacc_ray as opacc
from opacc_ray.audit import feature_store, goals, labels, results, steps
from opacc_ray.audit.label_budget import label_budget
from opacc_ray.audit.run import Run
from opacc_ray.cli.main import main


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)


def answer(run: Run, number: int) -> None:
    rows = "".join(f"{name},{CLASSES[TRUTH[IDS.index(name)]]}\n" for name in run.read_chosen(number).ids)
    labels.import_labels(run, f"labels-{number}.csv", ("id,label\n" + rows).encode())


def test_before_any_label_it_is_the_models_own_word(run: Run) -> None:
    found = label_budget(run, 0.05)
    assert found.labels == 0
    assert not found.reached
    assert found.total_labels <= found.srs_labels <= found.worthless_labels <= found.most_labels <= N
    assert sum(found.sizes) >= found.total_labels
    assert label_budget(run, 0.1).total_labels < found.total_labels


def test_after_a_round_it_is_the_labels(run: Run) -> None:
    steps.select(run, "neyman", 60, {})
    assert label_budget(run, 0.05).labels == 0
    answer(run, 1)
    found, goal = label_budget(run, 0.05), goals.look_for_goal(run, 0.05)
    assert (found.labels, found.worthless_labels, found.most_labels) == (60, None, None)
    assert (found.total_labels, found.sizes, found.srs_labels) == (goal.total_labels, goal.sizes, goal.srs_labels)
    assert label_budget(run, 0.9).reached


def test_the_command_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", run.uri, "--until", "0.05"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("goal       ±0.05 with about ")
    assert "the model's own word" in out
    assert main(["budget", run.uri, "--until", "0.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "opacc-budget/1"


def test_the_estimate_of_neyman_reads_the_pool_and_learns_from_all_rounds(run: Run) -> None:
    first = steps.select(run, "neyman", 30, {})
    answer(run, 1)
    second = steps.next_round(run, 40)
    answer(run, 2)
    outcomes = [(PREDICTION == TRUTH)[part.index].astype(float) for part in (first, second)]
    stated = results.estimate(run)
    with feature_store.open_view(run, (), ("prediction", "confidence", "hidden")) as view:
        expected = opacc.estimate([first, second], outcomes, pool=view)
    assert (stated.value, stated.low, stated.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert stated.value != opacc.estimate([first, second], outcomes).value
    assert stated.low <= np.mean(PREDICTION == TRUTH) <= stated.high


def test_rounds_are_combined_exactly_unbiased_if_the_run_asks_for_it(run: Run) -> None:
    chosen = steps.select(run, "neyman", 30, {"combine": "rounds"})
    answer(run, 1)
    outcome = (PREDICTION == TRUTH)[chosen.index].astype(float)
    assert results.estimate(run).value == pytest.approx(opacc.estimate(chosen, outcome).value)
