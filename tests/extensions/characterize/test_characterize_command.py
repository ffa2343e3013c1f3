"""`opacc characterize` on real runs: what it writes, what it names, and what it refuses in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest
from features_run import write_features

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.extensions.characterize.characterization import Characterization
from opacc_ray.report.page import page
from opacc_ray.report.run_report import gather
from opacc_ray.runs.run import Run

CLASSES = ["cat", "dog", "<owl>"]


def features(num: int, seed: int, width: int = 6, *, skew: bool = False, dark: float = 1.0) -> dict[str, np.ndarray]:
    """What a model says of examples of three classes; of a skewed set few are owls, in the dark neurons are weaker."""
    rng = np.random.default_rng(seed)
    truth = rng.choice(3, num, p=[0.45, 0.45, 0.1] if skew else [1 / 3] * 3)
    hidden = np.maximum(np.eye(3, width)[truth] * 3 + rng.normal(size=(num, width)), 0) * dark
    output = hidden[:, :3] * 2
    confidence = 1 / np.exp(output - output.max(1, keepdims=True)).sum(1)
    return {
        "hidden": hidden,
        "output": output,
        "confidence": confidence,
        "prediction": output.argmax(1),
        "label": truth,
    }


def write(home: Path, name: str, columns: dict[str, np.ndarray], classes: list[str] | None = CLASSES) -> Run:
    kept = {key: values for key, values in columns.items() if key != "label"}
    as_stored = {key: v.astype(np.float32) if key in ("hidden", "output") else v for key, v in kept.items()}
    return write_features(f"{home}/{name}-00000001", as_stored, classes)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a pool like its reference, one of a skewed and dark pool, and the reference as a case."""
    folder = tmp_path_factory.mktemp("characterized")
    write(folder, "usual", features(1800, 1))
    write(folder, "night", features(1800, 2, skew=True, dark=0.5))
    np.savez(folder / "train.npz", **features(3000, 3))
    return folder


def characterized(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["characterize", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_skewed_and_drifted_pool_moves_ep_cp_and_the_shift_and_the_usual_one_does_not(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = ["--reference", f"{home}/train.npz"] * 2
    runs = [f"{home}/usual-00000001", f"{home}/night-00000001"]
    found = characterized([*runs, *reference, "--boundary", "0-0.8", "--out", str(home / "both")], capsys)
    usual, night = (model["sets"][0] for model in found["models"])
    assert {item["grouped_by"] for model in found["models"] for item in model["sets"]} == {"prediction"}
    of = {item["name"]: item for item in usual["classes"]}
    at_night = {item["name"]: item for item in night["classes"]}
    assert list(of) == CLASSES
    assert all(0.85 < item["ep"] < 1.15 for item in of.values())
    assert all(item["moved"]["p"] > 0.05 for item in of.values())
    assert all(at_night[name]["moved"]["p"] <= 0.002 for name in ("cat", "dog"))
    assert at_night["<owl>"]["ep"] < 0.5
    assert all(item["shift"] - item["shift_floor"] < 0.05 for item in of.values())
    assert all(at_night[name]["shift"] - at_night[name]["shift_floor"] > 0.2 for name in ("cat", "dog"))
    assert all(at_night[name]["bc"] > of[name]["bc"] + 0.1 for name in ("cat", "dog"))
    assert sum(of["cat"]["pbc"].values()) == pytest.approx(of["cat"]["bc"], abs=1e-12)
    written = Characterization.from_bytes((home / "both" / "characterization.json").read_bytes(), "it")
    assert written.to_dict() == found
    text = (home / "both" / "characterization.html").read_text()
    assert "&lt;owl&gt;" in text
    assert "<owl>" not in text
    assert "http" not in text.replace("http-equiv", "")
    assert "Lower than in the reference" in text
    assert "Classes whose features moved from the reference" in text


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_move_along_a_minor_direction_is_named_and_the_smallest_that_would_be_found_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve neurons with a spread of their own; one of the weakest moves by ten times its spread, for owls."""
    rng = np.random.default_rng(8)

    def seen(num: int, moved: float) -> dict[str, np.ndarray]:
        prediction = np.arange(num) % 3
        hidden = rng.normal(size=(num, 12)) * np.linspace(3, 1, 12)
        hidden[:, 9] += moved * (prediction == 2)
        return {"hidden": hidden, "prediction": prediction, "label": prediction}

    run = write(tmp_path, "moved", seen(1200, 10))
    np.savez(tmp_path / "train.npz", **seen(1500, 0))
    assert main(["characterize", run.uri, "--reference", f"{tmp_path}/train.npz"]) == 0
    said = capsys.readouterr().out
    [notice] = [line for line in said.splitlines() if "Classes whose features moved from the reference" in line]
    assert "more than by chance: <owl> (" in notice
    assert "cat" not in notice
    assert "dog" not in notice
    [power] = [line for line in said.splitlines() if "would be found with a probability of 80 %" in line]
    assert "a move of a class by 0.2" in power
    owl = characterized([run.uri, "--reference", f"{tmp_path}/train.npz"], capsys)["models"][0]["sets"][0]["classes"][2]
    assert (owl["moved"]["p"], owl["moved"]["sd"] > 3, 0.2 < owl["moved"]["detects"] < 0.4) == (0.001, True, True)
    assert abs(owl["shift"] - owl["shift_floor"]) < 0.06  # it does not see that direction


def test_a_selection_is_characterised_beside_its_pool_and_the_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write(tmp_path, "chosen", features(600, 4))
    verbs.select(run, "deepest", 60, {})
    found = characterized([run.uri], capsys)
    pool, selection = found["models"][0]["sets"]
    assert (selection["name"], selection["examples"]) == ("selection", 60)
    mean = {item["name"]: np.mean([own["bc"] for own in item["classes"]]) for item in (pool, selection)}
    assert mean["selection"] > 2 * mean["pool"]  # deepest looks for low confidence
    report, pictures = gather(Run.open(run.uri))
    assert report.sections["characterization"]["models"][0]["sets"][0]["name"] == "pool"
    written = page(report, pictures)
    assert "What the pool covers" in written
    assert "in the reference" not in written  # none was given


def test_a_class_of_one_and_one_never_predicted_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = features(90, 5)
    columns["prediction"] = np.array([0] * 89 + [1])
    run = write(tmp_path, "rare", columns)
    assert main(["characterize", run.uri, "--no-shift"]) == 0
    said = capsys.readouterr().out
    assert "never predicted, so that EP is 0 and nothing else is known: <owl>" in said
    assert "predicted once, and the shares of one example are 0 or 1: dog" in said


@pytest.mark.parametrize(
    ("kept", "lacks"),
    [
        (["confidence"], ["CP needs hidden of every example", "PBC needs output and confidence of every example"]),
        (["hidden"], ["BC needs confidence of every example", "PBC needs output and confidence of every example"]),
    ],
)
def test_a_measure_whose_features_are_missing_is_left_out_and_said(
    kept: list[str], lacks: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = features(300, 9)
    run = write(tmp_path, "bare", {name: columns[name] for name in [*kept, "prediction"]})
    [pool] = characterized([run.uri], capsys)["models"][0]["sets"]
    assert pool["remarks"] == [f"{text}, and they lack it" for text in lacks]
    values = [(own["cp"] is None, own["bc"] is None, own["pbc"] is None) for own in pool["classes"]]
    assert values == [("hidden" not in kept, "confidence" not in kept, True)] * 3


def test_what_cannot_be_is_refused_in_one_sentence(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*arguments: str) -> tuple[int, str]:
        code = main(["characterize", *arguments])
        return code, capsys.readouterr().err

    usual = f"{home}/usual-00000001"
    regression = write_features(f"{tmp_path}/angle-00000001", {"prediction": np.arange(30.0)}, task="regression")
    code, said = refused(regression.uri)
    assert (code, said.count("\n")) == (2, 1)
    assert "is a regression, and EP, CP, BC, PBC and the shift need classes" in said
    wide = write(tmp_path, "wide", features(300, 6, width=9))
    code, said = refused(usual, "--reference", wide.uri, "--no-shift")
    assert (code, said.count("\n")) == (5, 1)
    assert "6 neurons here and 9 in the reference; give a reference with features of the same model" in said
    code, said = refused(usual, f"{home}/night-00000001", "--reference", wide.uri)
    assert (code, "1 reference for 2 RUNs; give --reference once for each" in said) == (2, True)
    code, said = refused(usual, "--boundary", "low")
    assert (code, "--boundary low: write two numbers, such as 0-0.7" in said) == (2, True)
