"""Regression suites: what they keep, what a changed model does on them, and when a model or a pool has left them."""

import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from extracting_here import extracting_here
from golden_run import copy_golden_run
from picture_audits import answer, run_spec, write_scans
from PIL import Image
from safetensors.torch import save_file
from small_model import trained
from small_pictures import picture, pixels, to_input
from small_spec import small_spec
from written_run import CLASSES, PREDICTION, write_run

import opacc_ray as opacc
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extensions.suites.suites import make_suite, read_suite
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run

NUM = 60


def write_pool(folder: Path, change: Callable[[bytes], bytes] = bytes, names: int = NUM) -> str:
    folder.mkdir(parents=True)
    for number in range(names):
        (folder / f"{number:03d}.png").write_bytes(change(picture(number)))
    return str(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a pool, weights, a spec, its labelled run and a suite of 16 of its 40 labels."""
    home = tmp_path_factory.mktemp("suites")
    write_scans(home / "scans", NUM)
    content = small_spec(str(home / "scans"), str(home / "audits"), sample={"method": "srs", "budget": 40})
    (home / "spec.yaml").write_text(json.dumps(content))
    with extracting_here():
        run = run_spec(content)
    label_actions.import_labels(run, "labels.csv", answer(run, 1))
    make_suite(run, str(home / "suite"), size=16)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    return Run.open(str(next((home / "audits").glob("small-*"))))


@pytest.fixture
def suite(home: Path, tmp_path: Path) -> Iterator[str]:
    """A copy of the suite, to change."""
    (tmp_path / "suite").mkdir()
    for file in (home / "suite").iterdir():
        (tmp_path / "suite" / file.name).write_bytes(file.read_bytes())
    return str(tmp_path / "suite")


def weights(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> str:
    """Write the weights with a change; return their path."""
    state = {name: value.clone() for name, value in trained().state_dict().items()}
    change(state)
    save_file(state, path)
    return str(path)


def swap(state: dict[str, torch.Tensor]) -> None:
    """Classes 1 and 2 change places."""
    state["last.weight"][[1, 2]] = state["last.weight"][[2, 1]]


def layers_of(numbers: list[int]) -> list[np.ndarray]:
    """Hidden and output layer of some pictures, by torch."""
    net, batch = trained().eval(), torch.tensor(np.stack([to_input(pixels(number)) for number in numbers]))
    with torch.inference_mode():
        hidden = torch.relu(net.first(batch.flatten(1)))
        return [hidden.numpy(), net.last(hidden).numpy()]


def met(layers: list[np.ndarray]) -> set[int]:
    """Requirements of nc:0.5 that some example meets, by hand."""
    scaled = [
        (values - values.min(1, keepdims=True)) / np.ptp(values, axis=1, keepdims=True).clip(1e-30) for values in layers
    ]
    return set(np.flatnonzero((np.concatenate(scaled, axis=1) > 0.5).any(axis=0)).tolist())


def number(id: str) -> int:
    return int(id.removesuffix(".png"))


# -- what a suite keeps --------------------------------------------------------------------------------------


def test_a_suite_keeps_labels_answers_inputs_and_what_they_cover(home: Path) -> None:
    opened = read_suite(str(home / "suite"))
    found = opened.document
    assert (len(found.examples), found.labelled, found.pool_size) == (16, 40, NUM)
    assert len({own.id for own in found.examples}) == 16
    for own, array in zip(found.examples, opened.inputs or (), strict=True):
        assert own.prediction == str(number(own.id) % 4)
        assert own.label == str((number(own.id) + own.id.endswith("7.png")) % 4)
        assert own.right == (own.label == own.prediction)
        assert np.array_equal(array, pixels(number(own.id)))
    assert found.failures == sum(own.id.endswith("7.png") for own in found.examples)
    suite, pool = met(layers_of([number(own.id) for own in found.examples])), met(layers_of(list(range(NUM))))
    cover = found.coverage
    assert (cover.criterion, cover.requirements) == ("nc:0.5", 10)
    assert (cover.met, cover.pool, cover.both) == (len(suite), len(pool), len(suite & pool))
    assert found.age < 0.1


def test_a_suite_of_stored_predictions_has_no_inputs(tmp_path: Path) -> None:
    made = make_suite(Run.open(str(copy_golden_run(tmp_path))), str(tmp_path / "suite"))
    assert made.files == {}
    assert len(made.examples) == made.labelled == 50
    assert made.coverage is not None  # of the hidden layer
    rows = "".join(f"{own.id},{own.prediction}\n" for own in made.examples)
    (tmp_path / "same.csv").write_text(f"id,prediction\n{rows}")
    found = opacc.regress(tmp_path / "same.csv", tmp_path / "suite")
    assert (found.passed, found.right, found.coverage) == (True, 50 - made.failures, None)
    run = opacc.regress(made.run, tmp_path / "suite")
    assert (run.passed, run.coverage) == (True, made.coverage)


# -- what a model does on it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["spec.yaml", "scans/model.safetensors", "run"])
def test_the_same_model_passes(model: str, home: Path, run: Run, told) -> None:
    uri = run.uri if model == "run" else str(home / model)
    code, out, err = told("regress", uri, str(home / "suite"))
    assert (code, err) == (0, "")
    failures = read_suite(str(home / "suite")).document.failures
    assert (
        f"suite     {16 - failures} of 16 right" in out.replace("  " * 4, "  ") or f"{16 - failures} of 16 right" in out
    )
    assert "no estimate of the accuracy on the pool" in out
    assert "next:" not in out
    assert ("pool covered" in out) == (model == "run")


def test_a_mutated_model_fails_and_the_report_names_what_changed(home: Path, tmp_path: Path, told) -> None:
    mutant = weights(tmp_path / "mutant.safetensors", swap)
    code, out, err = told("regress", mutant, str(home / "suite"))
    found = opacc.regress(mutant, home / "suite")
    examples = read_suite(str(home / "suite")).document.examples
    now = {own.id: {1: "2", 2: "1"}.get(number(own.id) % 4, own.prediction) for own in examples}
    assert [own.id for own in found.newly_wrong] == [e.id for e in examples if e.right and now[e.id] != e.label]
    assert [own.id for own in found.newly_right] == [e.id for e in examples if not e.right and now[e.id] == e.label]
    assert found.right == sum(now[own.id] == own.label for own in examples)
    assert found.right_before == sum(own.right for own in examples)
    wrong = len(found.newly_wrong)
    assert wrong > 2
    assert code == 10
    assert err.startswith(f"opacc: {wrong} examples are wrong that were right; ")
    assert all(own.id in out for own in found.newly_wrong)
    assert out.endswith(f"next: opacc regress {mutant} {home / 'suite'} --accept\n")
    code, out, _ = told("regress", mutant, str(home / "suite"), "--json", "--allow", str(wrong - 1))
    assert (code, json.loads(out)["passed"]) == (10, False)
    code, out, _ = told("regress", mutant, str(home / "suite"), "--json", "--allow", str(wrong))
    assert (code, json.loads(out)["passed"]) == (0, True)


def test_accepted_answers_are_compared_with_from_then_on(suite: str, tmp_path: Path) -> None:
    mutant = weights(tmp_path / "mutant.safetensors", swap)
    before = read_suite(suite).document
    assert opacc.regress(mutant, suite, accept=True).accepted
    after = read_suite(suite).document
    assert [own.label for own in after.examples] == [own.label for own in before.examples]
    assert (after.coverage.share, after.made, after.model) == (before.coverage.share, before.made, mutant)
    found = opacc.regress(mutant, suite)
    assert (found.passed, found.newly_right) == (True, [])
    assert not opacc.regress(str(tmp_path / "mutant.safetensors"), suite, allow=0).newly_wrong


def test_predictions_by_id_are_answers(home: Path, tmp_path: Path) -> None:
    own = {item.id: item.prediction for item in read_suite(str(home / "suite")).document.examples}
    assert opacc.regress(own, home / "suite").passed
    wrong = next(item for item in read_suite(str(home / "suite")).document.examples if item.right)
    found = opacc.regress(own | {wrong.id: "9"}, home / "suite")
    assert [(item.id, item.now) for item in found.newly_wrong] == [(wrong.id, "9")]
    (tmp_path / "answers.csv").write_text("id,prediction\n" + "".join(f"{id},{said}\n" for id, said in own.items()))
    assert opacc.regress(tmp_path / "answers.csv", home / "suite").passed
    del own[wrong.id]
    with pytest.raises(DataError, match=rf"lacks 1 example of the 16 of .*, the first '{wrong.id}'"):
        opacc.regress(own, home / "suite")


def test_a_suite_is_made_by_the_command_and_from_python(run: Run, tmp_path: Path, told) -> None:
    code, out, _ = told("suite", run.uri, str(tmp_path / "one"), "--size", "12", "--coverage", "tknc:2")
    assert code == 0
    assert "examples  12 of 40 labelled, " in out
    assert " requirements of tknc:2; 100 % of the " in out
    assert out.splitlines()[-1].startswith("next: opacc regress ")
    made = opacc.make_suite(run.uri, str(tmp_path / "two"), size=12, criterion="tknc:2")
    other = read_suite(str(tmp_path / "one")).document
    assert (made.examples, made.coverage) == (other.examples, other.coverage)


# -- what it no longer covers --------------------------------------------------------------------------------


def test_a_model_whose_neurons_are_dead_has_left_the_suite(home: Path, tmp_path: Path) -> None:
    def die(state: dict[str, torch.Tensor]) -> None:
        state["first.weight"][:] = 0
        state["first.bias"][:] = -1

    found = opacc.regress(weights(tmp_path / "dead.safetensors", die), home / "suite")
    assert found.coverage.met == 0  # a layer whose neurons are equal activates none
    assert any("the model has left the suite: it meets 0.0 % of the requirements" in text for text in found.warnings)


def test_a_pool_outside_the_ranges_has_left_the_suite(home: Path, run: Run, tmp_path: Path) -> None:
    """Neuron boundaries: no example of the suite's own pool is beyond its ranges, and darker pictures are."""
    made = make_suite(run, str(tmp_path / "suite"), criterion="nbc")
    assert (made.coverage.pool, made.coverage.share) == (0, 1.0)
    assert opacc.regress(run.uri, tmp_path / "suite").warnings == []
    write_pool(tmp_path / "scans" / "pool", darker, 20)
    shutil.copy(home / "scans" / "model.safetensors", tmp_path / "scans")
    with extracting_here():
        dark = run_spec(small_spec(str(tmp_path / "scans"), str(tmp_path), sample={"method": "srs", "budget": 5}))
    found = opacc.regress(dark.uri, tmp_path / "suite")
    assert found.passed
    assert (found.coverage.both, found.coverage.share) == (0, 0.0)
    assert found.warnings == [
        f"the pool of {dark.uri} has left the suite: it meets {found.coverage.pool} requirements of nbc, and the suite "
        "0.0 % of these, where it met 100.0 % of those of its own pool; label some of this pool and make a new suite"
    ]


def darker(data: bytes) -> bytes:
    """A quarter as bright."""
    sink = io.BytesIO()
    Image.open(io.BytesIO(data)).point(lambda value: value // 4).save(sink, format="PNG")
    return sink.getvalue()


# -- what is refused -----------------------------------------------------------------------------------------


def test_what_is_no_suite_or_no_model_is_one_sentence(home: Path, run: Run, suite: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"there is a suite at .* already"):
        make_suite(run, suite)
    with pytest.raises(SpecError, match="size 41: the run has 40 labelled examples; give 1 to 40"):
        make_suite(run, str(tmp_path / "new"), size=41)
    with pytest.raises(DataError, match=r"there is no suite at .* make one with `opacc suite RUN"):
        opacc.regress({}, tmp_path / "none")
    with pytest.raises(SpecError, match="is no model: give a spec"):
        opacc.regress(tmp_path / "model.onnx", suite)
    with pytest.raises(SpecError, match="allow=-1"):
        opacc.regress({}, suite, allow=-1)
    content = json.loads((home / "spec.yaml").read_text())
    content["model"] |= {"classes": ["a", "b", "c", "d"]}
    (tmp_path / "named.yaml").write_text(json.dumps(content))
    with pytest.raises(SpecError, match="give a model of the same classes"):
        opacc.regress(tmp_path / "named.yaml", suite)
    Path(suite, "inputs.npz").write_bytes(b"other")
    with pytest.raises(DataError, match=r"inputs\.npz was changed since the suite was made"):
        opacc.regress({}, suite)


def test_a_model_that_answers_nan_is_named_with_the_example(home: Path, tmp_path: Path) -> None:
    def spoil(state: dict[str, torch.Tensor]) -> None:
        state["last.bias"][:] = torch.nan

    first = read_suite(str(home / "suite")).document.examples[0].id
    with pytest.raises(DataError, match=rf"NaN or infinity in output for example '{first}'; mend the model"):
        opacc.regress(weights(tmp_path / "nan.safetensors", spoil), home / "suite")


def test_a_run_without_labels_or_with_scores_makes_no_suite(tmp_path: Path) -> None:
    plain = write_run(tmp_path, "a", PREDICTION, classes=CLASSES)
    with pytest.raises(LabelError, match="has no selection yet"):
        make_suite(plain, str(tmp_path / "suite"))
    values = write_run(tmp_path, "b", PREDICTION.astype(float), task="regression")
    with pytest.raises(SpecError, match=r"is a regression; set score: \{within: E\}"):
        make_suite(values, str(tmp_path / "suite"))
