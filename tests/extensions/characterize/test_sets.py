"""Data sets without a run: files and pools in memory, by label or prediction."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from features_run import write_features

import opacc_ray as opacc
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize.coverage_page import neuron_coverage
from opacc_ray.report.facts import percent

NAMES = ("ape", "fox", "mole")


def arrays(num: int, seed: int, shifted: float = 0.0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 3, num)
    hidden = 3 * np.eye(4)[label] + rng.normal(size=(num, 4)) + shifted
    output = 2 * hidden[:, :3]
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    layers = {"hidden": hidden.astype(np.float32), "output": output.astype(np.float32)}
    return layers | {"prediction": output.argmax(1), "label": label, "confidence": confidence}


def pool(columns: dict[str, np.ndarray], **more: Any) -> opacc.Pool:
    return opacc.Pool(**{name: values for name, values in columns.items() if name != "label"}, **more)


def by_hand(data: dict[str, np.ndarray], reference: dict[str, np.ndarray], by: str) -> list[float]:
    """CP of each class (Eq. 4), from the definition."""
    found = []
    for k in range(3):
        cluster = reference["hidden"][reference[by] == k].astype(np.float64)
        centroid = cluster.mean(axis=0)
        reach = np.linalg.norm(cluster - centroid, axis=1).max()
        away = np.linalg.norm(data["hidden"][data[by] == k] - centroid, axis=1)
        found.append(float((away <= 0.5 * reach).mean()))
    return found


@pytest.mark.parametrize("by", ["label", "prediction"])
def test_pools_in_memory_are_measured_as_the_paper_defines(by: Any) -> None:
    data, reference = arrays(400, 1), arrays(900, 2)
    given = {"labels": data["label"], "reference_labels": reference["label"], "by": by}
    found = opacc.characterize(pool(data), pool(reference), shift=False, **given)
    measured, compared = found.sets
    assert (measured.name, compared.name, measured.grouped_by) == ("set", "reference", by)
    assert [one.cp for one in measured.classes] == pytest.approx(by_hand(data, reference, by), abs=1e-9)
    counts = np.bincount(data[by], minlength=3)
    assert [one.ep for one in measured.classes] == pytest.approx(counts * 3 / 400)
    near = data["confidence"] <= 0.7
    shares = [float(near[data[by] == k].mean()) for k in range(3)]
    assert [one.bc for one in measured.classes] == pytest.approx(shares)


def test_labels_group_only_if_both_sets_have_them() -> None:
    data, reference = arrays(300, 1), arrays(300, 2)
    both = opacc.characterize(
        pool(data), pool(reference), labels=data["label"], reference_labels=reference["label"], shift=False
    )
    one = opacc.characterize(pool(data), pool(reference), labels=data["label"], shift=False)
    assert (both.sets[0].grouped_by, one.sets[0].grouped_by) == ("label", "prediction")
    with pytest.raises(DataError, match="has no labels"):
        opacc.characterize(pool(data), by="label", shift=False)


def test_names_and_missing_labels(tmp_path: Path) -> None:
    data = arrays(300, 3)
    named = [None if k % 10 == 0 else NAMES[code] for k, code in enumerate(data["label"])]
    found = opacc.characterize(pool(data, classes=NAMES), labels=named, shift=False)
    assert [one.name for one in found.sets[0].classes] == list(NAMES)
    assert found.sets[0].grouped_by == "label"
    assert any("30 of 300 examples have no label and are left out" in remark for remark in found.sets[0].remarks)
    with pytest.raises(DataError, match='label of the data of row 1 is "wolf"'):
        opacc.characterize(pool(data, classes=NAMES), labels=["wolf"] * 300, shift=False)
    with pytest.raises(DataError, match="data and reference have other classes"):
        opacc.characterize(pool(data, classes=NAMES), pool(data), shift=False)


def test_files_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    sets = {"a": arrays(300, 1), "b": arrays(200, 2, shifted=1.0), "train": arrays(900, 3)}
    for name, columns in sets.items():
        texts = {key: np.array(NAMES)[columns[key]] for key in ("prediction", "label")}
        np.savez(f"{name}.npz", **columns | texts)
    assert main(["characterize", "a.npz", "b.npz", "--reference", "train.npz", "--json", "--no-shift"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [model["name"] for model in models] == ["a", "b"]
    for model, name in zip(models, "ab", strict=True):
        first, reference = model["sets"]
        assert (first["grouped_by"], reference["examples"]) == ("label", 900)
        expected = by_hand(sets[name], sets["train"], "label")
        assert [one["cp"] for one in first["classes"]] == pytest.approx(expected, abs=1e-9)
    assert {path.name for path in (tmp_path / "characterized").iterdir()} == {
        "characterization.json",
        "characterization.html",
    }
    given = ["characterize", "a.npz", "--reference", "train.npz", "--by", "prediction"]
    assert main([*given, "--no-shift", "--out", "out", "--json"]) == 0
    [model] = json.loads(capsys.readouterr().out)["models"]
    expected = by_hand(sets["a"], sets["train"], "prediction")
    assert [one["cp"] for one in model["sets"][0]["classes"]] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a.npz", "run-1"], 5, "there is no run at"),
        (["a.npz", "--reference", "numbers.npz"], 5, "a.npz has names of classes and numbers.npz numbers"),
        (["a.npz", "a.npz", "a.npz", "--reference", "a.npz", "--reference", "a.npz"], 2, "2 references for 3 FILEs"),
        (["hidden.npz"], 5, "hidden.npz: it has no predictions"),
        (["nowhere.npz"], 3, "nowhere.npz"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    columns = arrays(50, 1)
    np.savez("numbers.npz", **columns)
    np.savez("hidden.npz", hidden=columns["hidden"])
    np.savez("a.npz", **columns | {key: np.array(NAMES)[columns[key]] for key in ("prediction", "label")})
    assert main(["characterize", *arguments, "--no-shift"]) == code
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said


def test_runs_and_folders_of_files_are_on_one_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "week").mkdir()
    columns = {name: arrays(50, seed) for name, seed in (("a", 1), ("b", 2))}
    for name, own in columns.items():
        np.savez(f"week/{name}.npz", **own)
    run = write_features(str(tmp_path / "net-1"), {key: columns["b"][key] for key in FEATURES}).uri
    given = ["characterize", "week", run, "week/a.npz", "--no-shift", "--json"]
    assert main(given) == 0
    found = json.loads(capsys.readouterr().out)
    models = found["models"]
    assert [model["name"] for model in models] == ["a", "b", "net", "a"]
    assert [model["sets"][0]["grouped_by"] for model in models] == ["label", "label", "prediction", "label"]
    own = [model["sets"][0]["classes"] for model in models]
    by_prediction = opacc.characterize(pool(columns["b"]), shift=False).sets[0].classes
    assert [one["cp"] for one in own[2]] == pytest.approx([one.cp for one in by_prediction])
    reference = ["--reference", "week/a.npz"] * 4
    assert main([*given, *reference]) == 0
    shared = json.loads(capsys.readouterr().out)["models"]
    assert [model["reference"] for model in shared] == ["week/a.npz"] * 4
    assert main([*given, "--by", "label"]) == 2
    assert "--by label is for FILEs; a RUN is grouped by prediction" in json.loads(capsys.readouterr().out)["error"]


FEATURES = ("hidden", "output", "prediction", "confidence")


def test_neuron_coverage_is_a_number() -> None:
    data, reference = arrays(60, 1), arrays(90, 2)
    bits = np.random.default_rng(3).random((60, 21)) < 0.03
    other = np.random.default_rng(4).random((90, 21)) < 0.03
    packed = np.packbits(other, axis=1)
    found = opacc.characterize(pool(data, coverage=bits), pool(reference, coverage=packed), shift=False)
    assert [one.requirements for one in found.sets] == [bits.any(axis=0).sum(), other.any(axis=0).sum()]
    share = other.any(axis=0).sum() / bits.any(axis=0).sum()
    assert f"{percent(share)} of those that the set meets" in (neuron_coverage(found, found.sets[1]) or "")
    assert neuron_coverage(found, found.sets[0]) == f"neuron coverage: {bits.any(axis=0).sum()} requirements met"
    without = opacc.characterize(pool(data), shift=False)
    assert (without.sets[0].requirements, neuron_coverage(without, without.sets[0])) == (None, None)
