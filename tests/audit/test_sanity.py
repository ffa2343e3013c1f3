"""Is this the model you mean? Slips that end in no error, and what commands, documents and report say of them."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from extracting_here import extracting_here
from picture_audits import copied
from safetensors.torch import save, save_file
from small_model import Net, network, trained, value_network
from small_pictures import picture

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.checks import check
from opacc_ray.audit.status import newest_round, status
from opacc_ray.cli.command import terminal_text
from opacc_ray.cli.main import main
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report import answers
from opacc_ray.report.page import page, summary
from opacc_ray.report.run_report import gather
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

N, NAMES = 120, ["disc", "square", "star", "triangle"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 pictures, picture i of class i % 4, and a model that tells the classes."""
    home = tmp_path_factory.mktemp("lake")
    (home / "pool").mkdir()
    for i in range(N):
        (home / "pool" / f"{i:03d}.png").write_bytes(picture(i))
    (home / "model.safetensors").write_bytes(save(trained().state_dict()))
    return home


def content(lake: Path, home: Path, model: dict[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    own = {"factory": "small_model:network", "weights": f"{lake}/model.safetensors", "classes": NAMES}
    return {
        "name": "small",
        "pool": {"uri": f"{lake}/pool", "format": "images"},
        "model": own | (model or {}),
        "extract": {"batch_size": 8, "shard_size": 30},
        "sample": {"method": "srs", "budget": 60},
        "output": str(home / "runs"),
    } | sections


def run_spec(given: dict[str, Any]) -> Run:
    with extracting_here():
        return verbs.first_round(parse_spec(given, "spec.yaml"), trial=True)


@pytest.fixture(scope="module")
def finished(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the model that tells the classes. Not to be changed: `run` is a copy to work on."""
    return run_spec(content(lake, tmp_path_factory.mktemp("finished")))


@pytest.fixture
def run(finished: Run, tmp_path: Path) -> Run:
    """A copy of that run in `runs`."""
    return copied(finished, str(tmp_path / "runs"))


def label(run: Run, truth: Callable[[int], str]) -> None:
    """Label every chosen picture with what ``truth`` says of its number."""
    rows = [{"id": id, "label": truth(int(id[:3]))} for id in run.read_selection(1).ids]
    import_labels(run, "labels.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())


def everywhere(run: Run) -> Mapping[str, str]:
    """What each command says of a run that has labels."""
    stated = accuracy.estimate(run)
    report, pictures = gather(run)
    said = {
        "estimate": terminal_text(answers.estimate(stated)),
        "estimate.json": json.dumps(json.loads((Path(run.uri) / "estimate.json").read_text())["warnings"]),
        "status": terminal_text(answers.status(status(run))),
        "status --json": json.dumps(status(run).to_dict()["warnings"]),
        "next": terminal_text(answers.drawn(newest_round(run))),
        "report": page(report, pictures).replace("&#39;", "'").replace("\N{NO-BREAK SPACE}", " "),
        "report.md": summary(report).replace("\\", ""),
        "report.json": json.dumps(report.to_dict()["warnings"]),
    }
    return {name: text.lower() for name, text in said.items()}  # on the page each is a sentence


def warned(run: Run) -> list[str]:
    return status(run).warnings


# -- what is predicted -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_says_what_was_predicted(lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = content(lake, tmp_path)
    (tmp_path / "spec.yaml").write_text(json.dumps(given))
    with extracting_here():
        assert main(["run", str(tmp_path / "spec.yaml")]) == 0
        out = capsys.readouterr().out
        assert main(["run", str(tmp_path / "spec.yaml"), "--json"]) == 0
    [line] = [line for line in out.splitlines() if line.startswith("predicted")]
    said = json.loads(capsys.readouterr().out)
    assert line.startswith("predicted  disc: 30, square: 30, star: 30, triangle: 30; confidence 0.")
    assert "warning" not in out
    assert said["predicted"]["classes"] == dict.fromkeys(NAMES, 30)
    lowest, middle, highest = (said["predicted"]["confidence"][key] for key in ("low", "median", "high"))
    assert lowest <= middle <= highest <= 1
    assert line.endswith(f"confidence {lowest:.2f} to {highest:.2f}, median {middle:.2f}")
    run = Run.open(said["run"])
    assert line in terminal_text(answers.status(status(run)))
    assert status(run).to_dict()["predicted"] == said["predicted"]
    assert verify(run.uri).faults == []


@pytest.mark.slow
def test_run_says_where_the_values_of_a_regression_lie(lake: Path, tmp_path: Path) -> None:
    save_file(value_network().state_dict(), tmp_path / "value.safetensors")
    model = {"factory": "small_model:value_network", "weights": f"{tmp_path}/value.safetensors", "task": "regression"}
    run = run_spec(content(lake, tmp_path, model | {"classes": None}))
    found = newest_round(run).predicted
    assert found.classes is None
    assert f"predicted  {found.values.low:.4g} to {found.values.high:.4g}, median {found.values.median:.4g}" in (
        terminal_text(answers.drawn(newest_round(run)))
    )


def test_lost_or_damaged_file_of_warnings_stops_nothing_and_is_found_by_verify(
    run: Run, lake: Path, tmp_path: Path
) -> None:
    run.store.write("sanity.json", run.store.read("sanity.json").replace(b'"disc": 30', b'"disc": 31'))
    assert newest_round(run).predicted is None
    assert len(verify(run.uri).faults) == 1
    (Path(run.uri) / "sanity.json").unlink()
    assert status(run).predicted is None
    again = run_spec(content(lake, tmp_path))
    assert again.uri == run.uri
    assert status(again).predicted is not None


# -- models that are not the one ---------------------------------------------------------------------------


def dead() -> Net:
    """A model whose outputs are all equal."""
    net = network()
    torch.nn.init.zeros_(net.last.weight)
    return net


@pytest.mark.slow
def test_model_whose_outputs_are_all_equal_is_told_by_every_command(lake: Path, tmp_path: Path) -> None:
    save_file(dead().state_dict(), tmp_path / "dead.safetensors")
    given = content(lake, tmp_path, {"weights": f"{tmp_path}/dead.safetensors"})
    made, failure = check(parse_spec(given, "spec.yaml"), "spec.yaml")
    assert failure is None
    assert made.warnings == ["all 64 outputs are equal; check the weights and the transform"]
    assert "warning   all 64 outputs are equal" in terminal_text(answers.checks(made, "spec.yaml"))
    run = run_spec(given)
    label(run, lambda i: NAMES[i % 4])
    for text in everywhere(run).values():
        assert "all 64 outputs are equal; check the weights and the transform" in text
        assert "all 120 examples are predicted as '" in text
        assert "all 120 confidences are 0." in text


def unseeded() -> Net:
    return Net()


@pytest.mark.slow
@pytest.mark.parametrize(("factory", "is_random"), [("unseeded", True), ("small_model:trained", False)])
def test_forgotten_weights_are_told(factory: str, is_random: bool, lake: Path, tmp_path: Path) -> None:
    name = factory if ":" in factory else f"{__name__}:{factory}"
    given = content(lake, tmp_path, {"factory": name, "weights": None})
    said = (
        "model.weights is not given, and building the model twice gives different parameters (first.weight, first.bias "
        "and 2 more). They are random, so a random network would be audited; give model.weights"
    )
    made, _ = check(parse_spec(given, "spec.yaml"), "spec.yaml")
    assert (said in made.warnings) == is_random
    run = run_spec(given)
    assert (said in newest_round(run).warnings) == is_random
    label(run, lambda i: NAMES[i % 4])
    assert all((said.lower() in text) == is_random for text in everywhere(run).values())


@pytest.mark.slow
def test_classes_in_another_order_are_told_with_the_first_labels(lake: Path, tmp_path: Path) -> None:
    run = run_spec(content(lake, tmp_path, {"classes": ["square", "disc", "star", "triangle"]}))
    assert warned(run) == []
    label(run, lambda i: NAMES[i % 4])
    said = f"instead of {accuracy.estimate(run, keep=False).value:.0%}".replace("%", " %")
    for text in everywhere(run).values():
        assert "labels and predictions agree on 100 %" in text
        assert said in text
        assert "if 'square' and 'disc' change places: is model.classes in the model's order?" in text


@pytest.mark.slow
def test_sound_audit_has_no_warning(lake: Path, tmp_path: Path) -> None:
    run = run_spec(content(lake, tmp_path, sample={"method": "neyman", "budget": 60}))
    label(run, lambda i: NAMES[i % 4] if i % 5 else NAMES[(i + 1) % 4])
    assert all(text == "[]" for name, text in everywhere(run).items() if "json" in name)
    assert not any("warning" in text for name, text in everywhere(run).items() if name in ("estimate", "status"))


# -- before anything is extracted --------------------------------------------------------------------------


def found_by(given: dict[str, Any]) -> tuple[str, list[str], str]:
    """What `check` says of the model, its warnings, and its failure."""
    made, failure = check(parse_spec(given, "spec.yaml"), "spec.yaml")
    return made.checks[-1].found, made.warnings, str(failure or "")


@pytest.mark.parametrize("rows", [40, 1000])
def test_check_tries_rows_from_all_over_an_array(rows: int, lake: Path, tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir()
    pixels = np.zeros((rows, 1, 8, 8), np.float32)
    for i in range(rows):  # sorted by class
        row, column = divmod(4 * i // rows, 2)
        pixels[i, 0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] = 1
    np.save(tmp_path / "arrays" / "rows.npy", pixels)
    pool = {"uri": f"{tmp_path}/arrays", "format": "npy"}
    found, _, _ = found_by(content(lake, tmp_path, pool=pool, sample={"method": "srs", "budget": 8}))
    assert f"of {min(rows, 64)} examples predicted: " in found
    assert all(f"{name}: " in found for name in NAMES)


@pytest.mark.parametrize("policy", ["error", "exclude"])
def test_check_sees_nan_beyond_the_first_example(policy: str, lake: Path, tmp_path: Path) -> None:
    model = {"factory": "small_model:broken_network", "classes": None}
    (tmp_path / "pool").mkdir()
    for i in range(20, 50):
        (tmp_path / "pool" / f"{i:03d}.png").write_bytes(picture(i))
    given = content(lake, tmp_path, model, pool={"uri": f"{tmp_path}/pool", "format": "images"})
    given |= {"extract": {"batch_size": 8, "on_bad_item": policy}, "sample": {"method": "srs", "budget": 5}}
    found, _, failure = found_by(given)
    if policy == "error":
        assert "example '033.png' of" in failure
        assert "NaN or infinity in output" in failure
    else:
        assert failure == ""
        assert found.endswith("; 1 example would be left out")


def nothing(image: np.ndarray) -> None:
    """A transform that forgets to return."""


def test_transform_that_returns_none_is_told(lake: Path, tmp_path: Path) -> None:
    _, _, failure = found_by(content(lake, tmp_path, transform=f"{__name__}:nothing"))
    assert failure == (
        "transform returned None, given example '000.png' of shape (8, 8) and type uint8; let it return the model's "
        "input"
    )


def sigmoids(batch: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-batch.reshape(len(batch), -1)[:, :4] * 4))


def test_scores_of_several_labels_are_told_whatever_they_are_called(lake: Path, tmp_path: Path) -> None:
    model: dict[str, Any] = {"factory": None, "weights": None, "function": f"{__name__}:sigmoids"}
    given = {"sample": {"method": "srs", "budget": 5}, "extract": {"features": ["output", "confidence"]}}
    _, _, failure = found_by(content(lake, tmp_path, model | {"output": "probabilities"}, **given))
    assert "sigmoids, the scores of several labels per example, are neither probabilities nor logits" in failure
    _, [warning], failure = found_by(content(lake, tmp_path, model | {"output": "logits"}, **given))
    assert failure == ""
    assert warning.startswith("model.output says logits, and every output lies in [0, 1], as after a sigmoid")


def test_inputs_far_from_those_of_the_reference_are_told(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir()
    (tmp_path / "train").mkdir()
    pixels = np.random.default_rng(0).normal(0.5, 0.2, (80, 1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "train" / "rows.npy", pixels)
    sections: dict[str, Any] = {
        "pool": {"uri": f"{tmp_path}/arrays", "format": "npy"},
        "reference": {"uri": f"{tmp_path}/train"},
        "extract": {"features": ["hidden", "output", "confidence", "dsa"], "batch_size": 8},
        "sample": {"method": "srs", "budget": 8},
    }
    for scale, is_far in ((1, False), (255, True)):
        sink = io.BytesIO()
        np.save(sink, scale * pixels[::-1])
        (tmp_path / "arrays" / "rows.npy").write_bytes(sink.getvalue())
        _, warnings, failure = found_by(content(lake, tmp_path, **sections))
        assert failure == ""
        assert [text.startswith("the inputs lie far from those of the reference") for text in warnings] == [
            True
        ] * is_far


@pytest.mark.parametrize(
    ("model", "transform", "said"),
    [
        ("dropping", "to_input", "The model gives another output for the same input: dropout is on"),
        ("trained", "augmented", "The transform gives another input for the same example: it augments at random"),
        ("trained", "to_input", None),
    ],
)
def test_results_that_are_random_are_told(
    model: str, transform: str, said: str | None, lake: Path, tmp_path: Path
) -> None:
    own = {"factory": f"small_model:{model}"}
    made, _ = check(parse_spec(content(lake, tmp_path, own, transform=f"small_pictures:{transform}"), "s"), "s")
    found = [text for text in made.warnings if "one random draw is audited" in text]
    assert [text.startswith(said or "") for text in found] == ([True] if said else [])
