"""What a run says beside its accuracy: another model, costs, classes that agree with the pool, assistance.

The runs here are written by hand (`written_run.py`).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pytest
from two_models import compare
from written_run import CLASSES, CONFIDENCE, IDS, OTHER, PREDICTION, TRUTH, N, label, write_run

import opacc_ray as opacc
from opacc_ray.audit import accuracy, comparison, verbs
from opacc_ray.audit.accuracy import load_costs
from opacc_ray.cli.command import terminal_text
from opacc_ray.documents import sealed
from opacc_ray.errors import DataError, LabelError, OpaccError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.sample import join
from opacc_ray.extensions.lakes.exported_tables import export_tables
from opacc_ray.labels import label_actions
from opacc_ray.report import answers
from opacc_ray.runs.run import Run


def labelled(run: Run, method: str = "srs", **parameters: Any) -> opacc.Selection:
    """Draw 60 examples and label them."""
    chosen = verbs.select(run, method, 60, parameters)
    label(run, chosen.ids)
    return chosen


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)


# -- which rounds are counted ----------------------------------------------------------------------------


def test_a_round_without_any_label_is_left_out_and_one_with_some_must_be_whole(run: Run) -> None:
    labelled(run)
    before = accuracy.estimate(run, keep=False)
    [first, *_] = verbs.next_round(run, 40).ids
    after = accuracy.estimate(run, keep=False)
    assert (after.value, after.low, after.high) == (before.value, before.low, before.high)
    assert ([item.labelled for item in after.rounds], after.missing, after.design_based) == ([60, 0], 40, True)
    assert "\nleft out  round 2, which waits for all of its 40 labels" in terminal_text(answers.estimate(after))
    label(run, [first])
    with pytest.raises(LabelError, match=r"^39 of 100 labels are missing in .* by --partial or, in Python, partial"):
        accuracy.estimate(run, keep=False)


def test_first_labels_of_draws_with_replacement_are_a_sample_of_their_design(run: Run, tmp_path: Path) -> None:
    """An example that later draws repeat counts there only if the draws around them are labelled, too."""
    chosen = verbs.select(run, "sups", 150, {})
    ids = list(dict.fromkeys(chosen.ids))[:50]
    first = min(k for k, name in enumerate(chosen.ids) if name not in ids)
    assert set(ids) & set(chosen.ids[first:]), "some are drawn again"
    label(run, ids)
    found = accuracy.estimate(run, partial=True)
    drawn = chosen.restrict(np.arange(150) < first)
    expected = estimate_outcomes(drawn, (PREDICTION == TRUTH)[drawn.index].astype(float))
    assert (found.value, found.low, found.high, found.n) == (expected.value, expected.low, expected.high, first)
    assert (found.design_based, found.reason) == (True, None)
    assert (found.rounds[0].labelled, found.missing) == (first, len(set(chosen.ids)) - 50)
    export_tables(run, str(tmp_path / "lake"), features=False)
    statuses = ds.dataset(tmp_path / "lake" / "labels", format="parquet").to_table()["status"].to_pylist()
    assert statuses == ["labelled"] * first + [
        "not counted" if name in ids else "missing" for name in chosen.ids[first:]
    ]


def test_labels_here_and_there_of_draws_with_replacement_count_at_every_draw(run: Run) -> None:
    chosen = verbs.select(run, "sups", 150, {})
    ids = list(dict.fromkeys(chosen.ids))[::2]
    label(run, ids)
    found = accuracy.estimate(run, partial=True)
    assert found.n == sum(name in ids for name in chosen.ids) > len(ids)
    assert "missing at random" in str(found.reason)


# -- classes agree with the pool -------------------------------------------------------------------------


def in_memory() -> opacc.Pool:
    return opacc.Pool(prediction=PREDICTION, confidence=CONFIDENCE, hidden=np.ones((N, 5)), classes=CLASSES)


@pytest.mark.parametrize("method", ["srs", "sups", "neyman"])
def test_classes_are_stated_as_in_memory(method: str, run: Run) -> None:
    chosen = labelled(run, method)
    index = json.loads(run.features.read("index.json"))
    del index["predicted"]  # an old index without counts of predicted classes
    run.features.write("index.json", json.dumps(sealed(index)).encode())
    found = accuracy.estimate(run)
    true = [CLASSES[c] for c in TRUTH[chosen.index]]
    for by, stated in (("prediction", found.by_predicted_class), ("truth", found.by_true_class)):
        expected = opacc.estimate(chosen, labels=true, pool=in_memory(), by=by)
        assert stated is not None
        assert {name: one.to_dict() for name, one in expected.items()} == {
            name: one.model_dump() for name, one in stated.items()
        }
    assert found.pool_by_predicted_class == dict(zip(CLASSES, np.bincount(PREDICTION).tolist(), strict=True))


@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_confusions_sum_to_the_predicted_classes(method: str, run: Run) -> None:
    labelled(run, method)
    found = accuracy.estimate(run).confusion
    assert found is not None
    assert np.sum(found.share, axis=0) == pytest.approx(np.bincount(PREDICTION) / N)
    assert np.sum(found.num) == 60


def test_labels_of_classes_that_the_model_never_predicts_have_a_recall_of_0(tmp_path: Path) -> None:
    """The number of classes is not known here, and one label is far beyond the others."""
    run = write_run(tmp_path, "mine", PREDICTION)
    index = json.loads(run.features.read("index.json"))
    del index["features"]["output"]
    run.features.write("index.json", json.dumps(sealed(index)).encode())
    chosen = verbs.select(run, "srs", 60, {})
    first = chosen.ids[0]
    rows = "".join(f"{name},{TRUTH[IDS.index(name)] if name != first else 10**12}\n" for name in chosen.ids)
    label_actions.import_labels(run, "labels.csv", ("id,label\n" + rows).encode())
    found = accuracy.estimate(run).by_true_class
    assert found is not None
    assert list(found) == ["0", "1", "2", str(10**12)]
    assert found[str(10**12)].value == 0


def test_classes_say_that_labels_are_missing(run: Run) -> None:
    chosen = verbs.select(run, "srs", 60, {})
    label(run, chosen.ids[20:], "cat")
    result = accuracy.estimate(run, partial=True).to_dict()
    reasons = [result["reason"], result["by_true_class"]["cat"]["reason"], result["confusion"]["reason"]]
    assert all("20 of 60 labels of round 1 are assumed to be missing at random" in reason for reason in reasons)


# -- two models ------------------------------------------------------------------------------------------


def test_other_model_is_found_by_id_and_by_the_names_of_its_classes(run: Run, tmp_path: Path) -> None:
    chosen = labelled(run)
    order = np.random.default_rng(1).permutation(N)
    code = np.array([2, 0, 1])  # of cat, dog and owl in the other model
    other = write_run(
        tmp_path, "other", code[OTHER][order], [IDS[i] for i in order], "b", classes=["dog", "owl", "cat"]
    )
    first, second = ((values == TRUTH).astype(float)[chosen.index] for values in (PREDICTION, OTHER))
    expected = compare(chosen, first, second, 0.9)
    result = comparison.compare(run, other, level=0.9).to_dict()
    (pair,), (mine, theirs) = result["differences"], result["models"]
    found = {**pair, "first": mine["accuracy"], "second": theirs["accuracy"]}
    assert {name: found[name] for name in expected.to_dict()} == expected.to_dict()
    assert (pair["second"], result["same_listing"], result["pool_size"]) == (other.uri, False, N)
    assert pair["num_unlike"] is None
    assert run.read_estimate() is None


@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_a_model_and_one_that_differs_on_four_examples_are_no_further_apart_than_that(
    method: str, run: Run, tmp_path: Path
) -> None:
    """Also where the other run gives its classes other numbers."""
    labelled(run, method)
    nearly = PREDICTION.copy()
    nearly[:4] = (nearly[:4] + 1) % 3
    code = np.array([2, 0, 1])  # of cat, dog and owl in the other model
    other = write_run(tmp_path, "other", code[nearly], classes=["dog", "owl", "cat"])
    found = comparison.compare(run, other)
    (pair,) = found.differences
    assert pair.num_unlike == 4
    assert -4 / N <= pair.difference.low < pair.difference.high <= 4 / N
    said = terminal_text(answers.comparison(found))
    assert ", 4 predictions differ, better on " in said
    own = comparison.compare(run, run, other)
    assert [pair.num_unlike for pair in own.differences] == [0, 4, 4]
    same = own.differences[0].difference
    assert (same.value, same.low, same.high) == (0, 0, 0)
    said = terminal_text(answers.comparison(own))
    assert "1 - 2     0.0 points   95 % interval 0.0 to 0.0" in said
    assert ", 4 predictions differ" in said


def test_other_model_with_missing_labels_or_examples(run: Run, tmp_path: Path) -> None:
    other = write_run(tmp_path, "other", OTHER, classes=CLASSES)
    chosen = verbs.select(run, "srs", 60, {})
    label(run, chosen.ids[20:], "cat")
    with pytest.raises(LabelError, match="20 of 60 labels are missing"):
        comparison.compare(run, other)
    result = comparison.compare(run, other, partial=True).to_dict()
    difference = result["differences"][0]["difference"]
    assert (difference["n"], difference["design_based"]) == (40, False)
    assert "missing at random" in difference["reason"]
    absent = next(name for name in chosen.ids[20:] if name >= "100.png")
    small = write_run(tmp_path, "small", OTHER[:100], IDS[:100], classes=CLASSES)
    with pytest.raises(DataError, match=rf"small lacks \d+ of 40 labelled examples, the first '{absent}'"):
        comparison.compare(run, small, partial=True)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"task": "regression"}, "mine has the task classification and .*other regression"),
        ({}, "other does not name its classes"),
        (
            {"classes": ["cat", "dgo", "owl"]},
            "'dog' is a class of .*mine alone",
        ),
        ({"classes": [*CLASSES, "yak"]}, "'yak' is a class of .*other alone"),
    ],
)
def test_models_that_answer_other_questions_are_refused(
    model: dict[str, Any], message: str, run: Run, tmp_path: Path
) -> None:
    other = write_run(tmp_path, "other", OTHER, **model)
    with pytest.raises(SpecError, match=message):
        comparison.compare(run, other)


def test_regressions_are_compared_on_the_scale_of_the_run(tmp_path: Path) -> None:
    value = np.linspace(0, 1, N)
    mine = write_run(tmp_path, "mine", value + 0.1, task="regression", error_scale=2)
    other = write_run(tmp_path, "other", value + 0.3, task="regression", error_scale=7)
    chosen = verbs.select(mine, "srs", 30, {})
    rows = "".join(f"{name},{value[IDS.index(name)].item()!r}\n" for name in chosen.ids)
    label_actions.import_labels(mine, "labels.csv", ("id,label\n" + rows).encode())
    result = comparison.compare(mine, other)
    assert [own.accuracy.value for own in result.models] == pytest.approx([1 - 0.05**2, 1 - 0.15**2])
    (pair,) = result.differences
    assert pair.difference.value == pytest.approx(0.15**2 - 0.05**2)
    assert (pair.num_first_better, pair.num_second_better) == (30, 0)
    far = write_run(tmp_path, "far", value + 3, task="regression", error_scale=7)
    assert comparison.compare(mine, far).models[1].accuracy.value == 0
    assert accuracy.estimate(mine).by_true_class is None
    with pytest.raises(SpecError, match="a regression has none; remove --assist"):
        accuracy.estimate(mine, assist=True)


# -- costs -----------------------------------------------------------------------------------------------


def test_mean_cost_is_that_of_the_file(run: Run, tmp_path: Path) -> None:
    chosen = labelled(run)
    path = tmp_path / "costs.yaml"
    path.write_text("owl: 10\ncat: {dog: 2.5}\n")
    costs = load_costs(path, run.spec.model, run.num_classes)
    assert costs == {"owl": 10.0, "cat": {"dog": 2.5}}
    result = accuracy.estimate(run, costs=costs).to_dict()
    table = np.array([[0, 2.5, 1], [1, 0, 1], [10, 10, 0]])
    cost = table[TRUTH[chosen.index], PREDICTION[chosen.index]]
    assert result["mean_cost"]["costs"] == costs
    assert result["mean_cost"]["value"] == pytest.approx(cost.mean())
    assert result["mean_cost"]["standard_error"] == pytest.approx(np.sqrt((1 - 60 / N) * cost.var(ddof=1) / 60))
    assert result["mean_cost"]["low"] < cost.mean() < result["mean_cost"]["high"]
    kept = run.read_estimate()
    assert kept is not None
    assert kept.to_dict() == result


@pytest.mark.parametrize("cost", [1.0, 10.0])
def test_errors_that_cost_the_same_cost_what_the_stated_accuracy_says(cost: float, run: Run) -> None:
    labelled(run, "neyman")
    stated = accuracy.estimate(run, keep=False, costs=dict.fromkeys(CLASSES, cost))
    found = stated.mean_cost
    assert found is not None
    expected = [cost * (1 - value) for value in (stated.value, stated.high, stated.low)]
    assert [found.value, found.low, found.high] == pytest.approx(expected)
    assert found.method == stated.method


# -- assistance ------------------------------------------------------------------------------------------


def test_confidence_of_the_pool_assists(run: Run) -> None:
    from opacc_ray.estimation.failures import assisted_estimate

    chosen = labelled(run)
    outcome = (PREDICTION == TRUTH).astype(float)[chosen.index]
    found = accuracy.estimate(run, assist=True).to_dict()["assisted"]
    assert 0 < found.pop("strength") <= 1
    assert found == assisted_estimate(join(chosen, outcome), CONFIDENCE).to_dict()


def test_method_that_predicts_outcomes_itself_is_not_assisted(run: Run) -> None:
    labelled(run, "neyman")
    with pytest.raises(SpecError, match="neyman already uses one; remove --assist"):
        accuracy.estimate(run, assist=True)


def test_run_without_confidence_cannot_be_assisted(run: Run) -> None:
    labelled(run)
    index = json.loads(run.features.read("index.json"))
    del index["features"]["confidence"]
    run.features.write("index.json", json.dumps(sealed(index)).encode())
    with pytest.raises(
        OpaccError, match=r"has .*, not confidence; add extract\.features: \[hidden, output, confidence\] to"
    ):
        accuracy.estimate(run, assist=True)
    assert run.read_estimate() is None
