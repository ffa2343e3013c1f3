"""References: a file, whose classes are those of the model by name; another run; and a run's own training data."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from extracting_here import extracting_here
from features_run import write_features
from picture_audits import write_scans
from small_spec import small_spec

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.extensions.characterize.characterization import characterize_sets
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = ["zebra", "ape", "mole", "fox"]
"""In the model's order, which is not that of the alphabet."""


def features(num: int, seed: int, wrong: float = 0.0) -> dict[str, np.ndarray]:
    """Four classes around centres of other widths; a share of the labels is swapped between the last two."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, num)
    hidden = 4 * np.eye(5)[truth] + rng.normal(size=(num, 5)) * np.array([0.5, 1, 1.5, 0.8])[truth][:, None]
    output = hidden[:, :4] * 2
    label = np.where((rng.random(num) < wrong) & (truth > 1), 5 - truth, truth)
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    named = {"prediction": output.argmax(1), "label": label, "confidence": confidence}
    return {"hidden": hidden.astype(np.float32), "output": output.astype(np.float32)} | named


def run_of(home: Path, columns: dict[str, np.ndarray], classes: list[str] | None = CLASSES) -> Run:
    kept = {name: values for name, values in columns.items() if name != "label"}
    return write_features(f"{home}/named-00000001", kept, classes)


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def sets_of(run: Run, reference: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    arguments = ["characterize", run.uri, "--reference", str(reference), "--no-shift", *more]
    return answer(arguments, capsys)["models"][0]["sets"]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 5
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def as_names(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return columns | {name: np.array(CLASSES)[columns[name]] for name in ("prediction", "label")}


def table(columns: dict[str, np.ndarray], path: Path) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    lists = {name: values.tolist() for name, values in columns.items()}
    parquet.write_table(pa.table(lists), path)
    return path


@pytest.mark.slow
def test_classes_by_name_give_what_their_numbers_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(2000, 1)
    run = run_of(tmp_path, columns)
    kept = columns["label"] != 1  # no ape, so that an alphabet of those that are there is shorter
    fewer = {name: values[kept] for name, values in columns.items()}
    for content, name in ((columns, "all"), (fewer, "fewer")):
        np.savez(tmp_path / f"{name}-numbers.npz", **content)
        np.savez(tmp_path / f"{name}-names.npz", **as_names(content))
        spaced = as_names(content)["label"].astype(object)
        spaced[0] = f" {spaced[0]} "
        table(as_names(content) | {"label": spaced}, tmp_path / f"{name}-names.parquet")
        numbers = sets_of(run, tmp_path / f"{name}-numbers.npz", capsys)
        for file in (f"{name}-names.npz", f"{name}-names.parquet"):
            found = sets_of(run, tmp_path / file, capsys)
            assert [item["classes"] for item in found] == [item["classes"] for item in numbers]
        assert numbers[0]["classes"][0]["cp"] > 0.1
        made = {
            file: answer(["generate", run.uri, "--count", "100", "--reference", f"{tmp_path}/{file}"], capsys)["sets"]
            for file in (f"{name}-numbers.npz", f"{name}-names.npz")
        }
        first, second = ([one["accuracy"] for one in sets] for sets in made.values())
        assert first == second
    assert "its classes are numbers, read as places in model.classes: 0 is 'zebra'" in numbers[-1]["remarks"][0]


def test_labels_with_gaps_are_labels_and_gaps_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(2000, 1)
    run = run_of(tmp_path, columns)
    gaps = columns["label"].astype(float)
    gaps[:60] = np.nan
    np.savez(tmp_path / "floats.npz", **columns | {"label": gaps})
    names = as_names(columns)["label"].astype(object)
    names[:60] = None
    table(columns | {"label": names}, tmp_path / "names.parquet")
    np.savez(
        tmp_path / "unsure.npz", **columns | {"label": np.where(np.arange(2000) < 60, "?", as_names(columns)["label"])}
    )
    np.savez(tmp_path / "labelled.npz", **{name: values[60:] for name, values in columns.items()})
    expected = answer(["generate", run.uri, "--reference", f"{tmp_path}/labelled.npz"], capsys)
    for file in ("floats.npz", "names.parquet", "unsure.npz"):
        found = answer(["generate", run.uri, "--reference", f"{tmp_path}/{file}"], capsys)
        assert found["labels"] == "label"
        assert "60 of 2000 examples have no label and are left out" in found["remarks"]
        assert [one["accuracy"] for one in found["sets"]] == [one["accuracy"] for one in expected["sets"]]


def test_a_reference_needs_no_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(900, 1)
    run = run_of(tmp_path, columns)
    columns.pop("label")
    np.savez(tmp_path / "seen.npz", **columns)
    pool, reference = sets_of(run, tmp_path / "seen.npz", capsys)
    assert pool["classes"] == reference["classes"]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        (
            "label",
            ["wolf"],
            'label of row 1 is "wolf", which is none of the model\'s 4 classes: zebra, ape, mole, fox; c',
        ),
        ("prediction", ["wolf"], 'prediction of row 1 is "wolf", which is none of the model\'s 4 classes'),
        ("prediction", ["?"], "prediction of row 1 is missing; fill it in"),
        ("label", [4], "label of row 1 is 4, and the model has 4 classes, 0 to 3; correct it, or write the names"),
        ("label", [-1], "label of row 1 is -1, and the model has 4 classes"),
        ("label", [0.5], "label of row 1 is 0.5, and the model has 4 classes"),
        ("label", [True], "label holds true and false, and the model's classes have names"),
        ("label", [[1, 2]], r"label has the shape (300, 2); give one class per example"),
    ],
)
def test_what_is_no_class_is_refused_with_the_classes(
    column: str, values: list[Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(300, 1)
    run = run_of(tmp_path, columns)
    rest = as_names(columns)[column] if isinstance(values[0], str) else columns[column]
    wrong = np.repeat(values, 300, axis=0) if isinstance(values[0], bool | list) else np.array([*values, *rest[1:]])
    np.savez(tmp_path / "wrong.npz", **columns | {column: wrong})
    for command in ("characterize", "generate"):
        assert said in refused([command, run.uri, "--reference", f"{tmp_path}/wrong.npz"], capsys)


def test_names_are_refused_where_the_model_has_none_and_numbers_where_they_are_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(300, 1)
    run = run_of(tmp_path, columns, None)
    np.savez(tmp_path / "names.npz", **as_names(columns))
    said = refused(["characterize", run.uri, "--reference", f"{tmp_path}/names.npz"], capsys)
    assert "none of the model's 4 classes: 0, 1, 2, 3; name them in model.classes of the spec" in said
    np.savez(tmp_path / "text.npz", **columns | {"label": columns["label"].astype(str)})
    sets_of(run, tmp_path / "text.npz", capsys)
    digits = write_features(f"{tmp_path}/digits-00000001", {"prediction": columns["prediction"]}, ["1", "2", "3", "4"])
    np.savez(tmp_path / "numbers.npz", **columns)
    said = refused(["characterize", digits.uri, "--reference", f"{tmp_path}/numbers.npz"], capsys)
    assert "a class has the number '1' for a name, so it is not clear whether numbers are names or places" in said


def test_a_run_of_other_classes_is_no_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(300, 1)
    run = run_of(tmp_path, columns)
    kept = {name: values for name, values in columns.items() if name != "label"}
    other = write_features(f"{tmp_path}/other-00000001", kept, [*CLASSES[:2], "fox", "mole"])
    said = refused(["characterize", run.uri, "--reference", other.uri], capsys)
    assert f"the classes of {other.uri} are not those of {run.uri}: they differ from class 2 on" in said
    nameless = write_features(f"{tmp_path}/nameless-00000001", kept)
    assert len(sets_of(run, Path(nameless.uri), capsys)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_halves_of_one_set_give_no_notice_although_the_model_errs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(4000, 5, wrong=0.8)
    run = run_of(tmp_path, {name: values[:2000] for name, values in columns.items()})
    np.savez(tmp_path / "half.npz", **{name: values[2000:] for name, values in columns.items()})
    assert main(["characterize", run.uri, "--reference", f"{tmp_path}/half.npz"]) == 0
    said = capsys.readouterr().out
    assert "notice" not in said
    assert "named, pool: 2,000 examples, by prediction" in said
    assert "named, reference: 2,000 examples, by prediction" in said
    assert "its labels are not used: the pool has none, so both are grouped by prediction" in said


def test_a_class_that_the_reference_lacks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(900, 1)
    run = run_of(tmp_path, columns)
    kept = columns["prediction"] != 3
    np.savez(tmp_path / "fewer.npz", **{name: values[kept] for name, values in columns.items()})
    pool, _ = sets_of(run, tmp_path / "fewer.npz", capsys)
    assert pool["classes"][3]["cp"] is None
    assert "no CP where the reference has fewer than two examples of a class: fox" in pool["remarks"]


@pytest.mark.slow
def test_a_share_that_differs_by_chance_is_not_named_and_one_that_does_not_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a class with 12 examples a share differs by .1 nearly always; of one with 600 it does not."""
    columns = features(2400, 1)
    np.savez(tmp_path / "reference.npz", **columns)
    arguments = ["--reference", f"{tmp_path}/reference.npz", "--no-shift"]
    moved = 0
    for seed in range(6):
        small = features(48, 100 + seed)
        (tmp_path / f"{seed}").mkdir()
        run = run_of(tmp_path / f"{seed}", small)
        assert main(["characterize", run.uri, *arguments]) == 0
        moved += "Classes with another share" in capsys.readouterr().out
    assert moved == 0
    doubtful = features(2400, 2)
    doubtful["confidence"][::3] = 0.6
    (tmp_path / "doubtful").mkdir()
    run = run_of(tmp_path / "doubtful", doubtful)
    assert main(["characterize", run.uri, *arguments]) == 0
    assert "Classes with another share near a boundary (BC) than in the reference: zebra" in capsys.readouterr().out


def test_boundaries_that_no_example_is_near_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(900, 1)
    columns["confidence"] = np.where(columns["prediction"] < 2, 0.99, np.minimum(columns["confidence"], 0.65))
    run = run_of(tmp_path, columns)
    assert main(["characterize", run.uri]) == 0
    said = capsys.readouterr().out
    assert (
        "Classes without an example near a boundary (BC is 0), so no boundary of theirs is tested: zebra, ape." in said
    )
    pbc = [own["pbc"] for own in answer(["characterize", run.uri], capsys)["models"][0]["sets"][0]["classes"]]
    unmet = 12 - sum(map(len, pbc))
    assert unmet >= 6
    assert f"no example lies near the boundary in {unmet} of 12 pairs of a class and another" in said


@pytest.mark.slow
@pytest.mark.parametrize("weights", [True, False], ids=["in a shared folder", "in the run's own prefix"])
def test_the_runs_own_training_data_are_its_reference(weights: bool, tmp_path: Path) -> None:
    write_scans(tmp_path, 40, range(200, 224))
    given: dict[str, Any] = {
        "reference": {"uri": f"{tmp_path}/train"},
        "extract": {"batch_size": 4, "shard_size": 10, "features": ["hidden", "output", "confidence", "dsa"]},
        "sample": {"method": "srs", "budget": 8},
    }
    if not weights:
        given["model"] = {"factory": "small_model:trained"}
    spec = small_spec(str(tmp_path), f"{tmp_path}/audits", **given)
    with extracting_here():
        run = verbs.first_round(parse_spec(spec, "spec"), trial=True)
    [model_found] = characterize_sets([Run.open(run.uri)]).models
    pool, selection, reference = model_found.sets
    assert (pool.examples, selection.examples, reference.examples) == (40, 8, 24)
    assert model_found.reference is not None
    assert "reference" in model_found.reference
    within = sum(item.cp * item.examples for item in reference.classes if item.cp is not None)
    assert 0 < within <= 24
    assert np.isclose(sum(item.ep for item in pool.classes), len(pool.classes))
