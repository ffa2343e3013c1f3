"""The experiments of the fourth paper on labelled cases, and cases that a study makes: drifted, or seen by a model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from scipy.stats import spearmanr
from small_model import trained
from small_pictures import pixels, to_input
from small_spec import small_spec
from small_study import labelled, results_of, run_here, spec_of

from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, SpecError
from opacc_ray.study import experiment
from opacc_ray.study.drift import LABEL_DRIFTS, drift_image, parse_drift


@pytest.fixture
def case(tmp_path: Path) -> Path:
    np.savez(tmp_path / "toy.npz", **labelled())
    return tmp_path / "toy.npz"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "_run", run_here)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["study", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_measures_and_correlations_are_those_of_the_paper(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told(capsys, "--as", "characterization", case, "--output", tmp_path / "out")
    base, *drifted = found["cases"]
    data = labelled()
    label, said, num = data["label"], data["prediction"], len(data["label"])
    assert (base["case"], base["drift"], base["accuracy"]) == ("toy", None, pytest.approx((said == label).mean()))
    assert base["measures"]["EP"] == pytest.approx(np.bincount(label) * 3 / num)
    near = data["confidence"] <= 0.7
    assert base["measures"]["BC"] == pytest.approx([near[label == i].mean() for i in range(3)])
    assert len(base["measures"]["PBC"]) == 6
    assert [one["drift"] for one in drifted] == [f"label_shift:{s:g}" for s in (0.25, 0.5, 0.75, 1)]
    by_name = {(one["kind"], one["measure"]): one for one in found["correlations"]}
    drops = [base["accuracy"] - one["accuracy"] for one in found["cases"]]
    distance = []
    for strength in (0, 0.25, 0.5, 0.75, 1):
        rows = LABEL_DRIFTS["label_shift"](label, strength, np.random.default_rng(0))
        shares = [np.bincount(own, minlength=3) * 3 / len(own) for own in (said[rows], said)]
        distance.append(np.abs(shares[0] - shares[1]).mean())
    ranked = by_name["pools", "EP: mean distance"]
    assert (ranked["rho"], ranked["ranked"]) == (pytest.approx(spearmanr(distance, drops).statistic), 5)
    assert by_name["classes", "BC"]["rho"] is None  # three classes are too few
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    runner_up = np.argsort(data["output"], axis=1)[:, -2]
    close = [(near & (said == i) & (runner_up == j)).sum() for i, j in pairs]
    taken = [((said == i) & (label == j)).sum() for i, j in pairs]
    assert by_name["pairs", "PBC"]["rho"] == pytest.approx(spearmanr(close, taken).statistic)
    assert [one["count"] for one in found["generated"]] == [100, 300, 700, 1000]
    last = found["generated"][-1]
    assert last["accuracy"][-1] > last["accuracy"][0]  # near centroids it is right more often
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| PBC " in text
    assert "(Table 2; in brackets: published)" in text
    drawn = (tmp_path / "out" / "figures" / "measures.svg").read_text()
    assert drawn.count("<circle") == 3 + 3 + 3 + 6


def test_a_reference_gives_clusters_and_the_shift(
    case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    far = labelled(1500)
    far["hidden"] = far["hidden"] + np.float32(0)
    np.savez(tmp_path / "train.npz", **far)
    arguments = ["--as", "characterization", case, "--drift", "class_shift:0.5", "--output", tmp_path / "out"]
    found = told(capsys, *arguments, "--reference", tmp_path / "train.npz")
    base, gone = found["cases"]
    assert len(base["measures"]["shift"]) == 3
    assert "shift" not in gone["measures"]
    assert sum(value == 0 for value in gone["measures"]["EP"]) == 1  # a class has disappeared
    assert "| shift" in (tmp_path / "out" / "table.md").read_text()


TRUE = (np.arange(80) % 4 + (np.arange(80) % 10 == 7)) % 4
"""Labels of 80 pictures, of which the model gets eight wrong."""


def images(folder: Path) -> Path:
    np.savez(
        folder / "scans.npz",
        x=np.stack([pixels(number) for number in range(80)]),
        label=TRUE,
        camera=np.arange(80) // 40,
    )
    save_file(trained().state_dict(), folder / "model.safetensors")
    content = small_spec(str(folder), str(folder), sample={"method": "srs", "budget": 5})
    (folder / "net.yaml").write_text(json.dumps(content | {"transform": "small_pictures:to_input"}))
    return folder / "scans.npz"


def test_a_study_of_drifted_images_as_a_model_sees_them(tmp_path: Path) -> None:
    given = {"models": [str(tmp_path / "net.yaml")], "drifts": ["noise:0.9", "label_shift"], "by": "camera"}
    results = results_of(spec_of(images(tmp_path), tmp_path / "out", **given, repetitions=3))
    assert [case["case"] for case in results["cases"]] == ["scans", "scans-noise-0.9", "scans-label_shift-0.5"]
    net = trained().eval()
    for name, kind in (("scans", None), ("scans-noise-0.9", "noise")):
        made = np.load(tmp_path / "out" / "cases" / f"{name}.npz")
        seen = [pixels(i) if kind is None else drift_image(pixels(i), kind, 0.9, 0, str(i)) for i in range(80)]
        with torch.inference_mode():
            output = net(torch.tensor(np.stack([to_input(one) for one in seen]))).numpy()
        assert "x" not in made
        assert np.allclose(made["output"], output, atol=1e-5)
        assert made["prediction"].tolist() == output.argmax(1).tolist()
        assert made["label"].tolist() == TRUE.tolist()
    assert results["cases"][0]["truth"] == {"0": 0.9, "1": 0.9}


@pytest.mark.slow
def test_two_models_see_the_same_drifts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = images(tmp_path)
    (tmp_path / "other.yaml").write_text((tmp_path / "net.yaml").read_text())
    models = ["--model", tmp_path / "net.yaml", "--model", tmp_path / "other.yaml"]
    found = told(capsys, "--as", "characterization", file, *models, "--drift", "dark:0.9", "--output", tmp_path / "o")
    assert [case["case"] for case in found["cases"]] == [
        *("scans-net", "scans-net-dark-0.9"),
        *("scans-other", "scans-other-dark-0.9"),
    ]
    first, second = ([c["measures"] for c in found["cases"] if f"-{name}" in c["case"]] for name in ("net", "other"))
    assert first == second


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mist:0.5", "there is no drift 'mist'"),
        ("dark:2", "strength 2: give a number from 0"),
        ("dark:much", "write KIND:STRENGTH, such as dark:0.5"),
        ("pollution", "'pollution' is one of training data"),
    ],
)
def test_a_drift_that_is_none_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_drift(text)


def test_what_cannot_be_made_is_one_sentence(case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SpecError, match=r"drift dark:0\.5 is one of images, which a model must see; add --model"):
        results_of(spec_of(case, tmp_path / "out", drifts=["dark:0.5"]))
    images(tmp_path)
    with pytest.raises(DataError, match=r"toy\.npz has no array 'x' of images"):
        results_of(spec_of(case, tmp_path / "out", models=[str(tmp_path / "net.yaml")]))
    assert main(["study", "--as", "characterization", str(case), "--method", "ces"]) == 2
    assert "--as characterization does not take methods" in capsys.readouterr().err
    assert main(["study", str(case), "--method", "srs", "--reference", str(case)]) == 2
    assert "--reference is for --as characterization" in capsys.readouterr().err
