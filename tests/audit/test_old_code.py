"""Features of old code are never taken for those of today's: they are made again, and one sentence says why."""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from extracting_here import extracting_here
from safetensors.torch import save

from opacc_ray.audit import verbs
from opacc_ray.audit.history import read_record
from opacc_ray.errors import DataError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.extract import model_code
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.slow

MODELS = '''
import json
import os
from pathlib import Path

import torch
from parts.scales import SCALE


class Net(torch.nn.Module):
    """Whether the first of two values is the larger."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)
        self.fc.weight.data = torch.eye(2)
        self.fc.bias.data[:] = 0

    def forward(self, x):
        return self.fc(x) * float(os.environ.get("SIGN", 1))


def net():
    return Net()


def mine(x):
    return SCALE * (x - json.loads(Path(__file__).with_name("mean.json").read_text()))
'''

Made = list[tuple[tuple[str, ...], bool, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of a user's, 40 examples whose first value is offset by 3, and the weights."""
    import torch

    home = tmp_path / "home"
    (home / "parts").mkdir(parents=True)
    for name, text in {"__init__.py": "", "scales.py": "SCALE = 1.0\n", "unrelated.py": "", "README.md": ""}.items():
        (home / "parts" / name).write_text(text)
    (home / "models.py").write_text(MODELS)
    (home / "mean.json").write_text("[0.0, 0.0]")
    (home / "pool").mkdir()
    values = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    np.save(home / "pool" / "a.npy", values + np.array([3, 0], dtype=np.float32))
    state = {"fc.weight": torch.eye(2), "fc.bias": torch.zeros(2)}
    (home / "net.safetensors").write_bytes(save(state))
    monkeypatch.chdir(home)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return home


Audit = Callable[..., tuple[Run, Made]]


@pytest.fixture(params=["shared"])
def audit(folder: Path, request: pytest.FixtureRequest) -> Audit:
    """Runs a spec as `opacc run` in a new process does; of a model with weights, and of one that brings its own."""

    def run(name: str = "first", trial: bool = True, **sections: Any) -> tuple[Run, Made]:
        for module in [name for name in sys.modules if name.partition(".")[0] in ("models", "parts")]:
            del sys.modules[module]
        weights = {"weights": f"{folder}/net.safetensors"} if request.param == "shared" else {}
        content = {
            "name": name,
            "pool": {"uri": f"{folder}/pool", "format": "npy"},
            "model": {"factory": "models:net"} | weights,
            "transform": "models:mine",
            "extract": {"batch_size": 4, "shard_size": 10},
            "sample": {"method": "srs", "budget": 6},
            "output": f"{folder}/audits",
        }
        with extracting_here() as made:
            return verbs.first_round(parse_spec(content | sections, "spec"), trial=trial), made

    return run


def predicted(run: Run) -> list[int]:
    return run_module.read_column(run, "prediction").tolist()


def edit(file: Path, before: str, after: str) -> None:
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after))


@pytest.mark.parametrize(
    ("before", "after", "name", "audit"),
    [
        ("SCALE * (x", "SCALE * ([3, 0] - x", "first", "shared"),  # in the transform
        ("self.fc(x)", "-self.fc(x)", "second", "own"),  # in the model
    ],
    indirect=["audit"],
)
def test_features_of_changed_code_are_made_again(
    before: str, after: str, name: str, audit: Audit, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the same audit, run again, and in a new one under the same output; the run before keeps what it has."""
    old, _ = audit()
    drawn = predicted(old)
    edit(folder / "models.py", before, after)
    caplog.clear()
    new, made = audit(name)
    assert len(made) == 4
    assert predicted(new) != drawn
    place = f"features/{old.header.features.digest}" if old.header.features else f"{old.name}/features"
    kept = f" for {old.name}, which keeps them with its rounds and labels" if name == "first" else ""
    said = f"models.py has changed since the features in {place} were extracted{kept}: extracting again"
    assert [message for message in caplog.messages if "extracting again" in message] == [said]
    assert predicted(Run.open(old.uri)) == drawn
    assert verify(old.uri).faults == verify(new.uri).faults == []


@pytest.fixture
def install_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Gives torch another version."""
    real = model_code.distribution

    def install(version: str) -> None:
        torch = SimpleNamespace(version=version, read_text=lambda _: None)
        monkeypatch.setattr(model_code, "distribution", lambda name: torch if name == "torch" else real(name))
        model_code._release.cache_clear()

    yield install
    model_code._release.cache_clear()


def test_features_of_another_version_of_a_library_are_made_again(
    audit: Audit, install_torch: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = audit()
    was = importlib.metadata.version("torch").partition("+")[0]
    install_torch("99.1+cu999")
    new, made = audit("second")
    assert (len(made), new.header.code.libraries) == (4, {"torch": "99.1"})
    assert any(f"torch has changed from {was} to 99.1 since the features in" in message for message in caplog.messages)
    install_torch("99.1+cpu")  # another build of it
    assert audit("second")[1] == []
    assert old.uri != new.uri


def test_what_features_do_not_come_from_keeps_them(audit: Audit, folder: Path) -> None:
    first, _ = audit()
    (folder / "parts" / "README.md").write_text("changed")
    (folder / "parts" / "unrelated.py").write_text("changed = 1")
    (folder / "other.py").write_text("")
    again, made = audit()
    assert (again.uri, made) == (first.uri, [])


@pytest.mark.parametrize(("seen", "audit"), [("variable", "shared"), ("data", "own")], indirect=["audit"])
def test_what_no_source_file_shows_is_found_by_extracting_examples_again(
    seen: str, audit: Audit, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = audit()
    drawn = predicted(old)
    if seen == "variable":
        monkeypatch.setenv("SIGN", "-1")
    else:
        (folder / "mean.json").write_text("[4.0, -1.0]")
    caplog.clear()
    new, made = audit()
    assert len(made) == 4
    assert new.uri != old.uri
    assert predicted(new) != drawn == predicted(Run.open(old.uri))
    [said] = [message for message in caplog.messages if "extracting again" in message]
    if seen == "data":
        assert said.startswith("mean.json has changed since the features in ")
    else:
        assert said.startswith("example 'a.npy:")
        assert "has another output than is stored: the difference is " in said
        assert "and 0.1 % is allowed; no source file has changed, so data or settings of the model have" in said
    caplog.clear()
    again, made = audit()
    assert (again.uri, made) == (new.uri, [])
    kept, made = audit(trial=False)  # the newest that there are
    assert (kept.uri, made) == (new.uri, [])
    monkeypatch.delenv("SIGN", raising=False)
    (folder / "mean.json").write_text("[0.0, 0.0]")
    assert audit()[0].uri == old.uri
    assert not [message for message in caplog.messages if "extracting again" in message]


def test_features_half_made_by_other_code_are_not_completed(
    audit: Audit, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, _ = audit()
    old.features.delete("index.json")
    for shard in (1, 3):
        old.features.delete(f"part-{shard:06d}.parquet")
    assert len(audit()[1]) == 2
    old.features.delete("index.json")
    old.features.delete("part-000000.parquet")
    monkeypatch.setenv("SIGN", "-1")
    new, made = audit()
    assert (len(made), new.uri == old.uri) == (4, False)


def test_stored_reference_is_compared_too(audit: Audit, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an audit of another pool, of which no features are there."""
    sections = {
        "reference": {"uri": f"{folder}/train"},
        "sample": {"method": "deepest", "budget": 6, "auxiliary": "lsa"},
        "extract": {"batch_size": 4, "shard_size": 20, "features": ["hidden", "output", "lsa"]},
    }
    (folder / "train").mkdir()
    (folder / "other").mkdir()
    values = np.random.default_rng(1).normal(size=(40, 2)).astype(np.float32)
    for place, offset in (("train", 0), ("other", 1)):
        np.save(folder / place / "a.npy", values + np.float32(offset))
    other = {"name": "other", "pool": {"uri": f"{folder}/other", "format": "npy"}}
    first, _ = audit(**sections)
    assert len(audit(**sections, **other)[1]) == 2 + 2  # shards of the model's features, and of lsa
    monkeypatch.setenv("SIGN", "-1")
    again, made = audit(**sections, **other | {"pool": {"uri": f"{folder}/pool", "format": "npy"}})
    assert len(made) == 2 + 2 + 2  # of the reference as well
    assert again.header.reference != first.header.reference


def test_features_that_were_removed_are_made_again_without_a_word(
    audit: Audit, caplog: pytest.LogCaptureFixture
) -> None:
    run, _ = audit()
    for entry in run.features.list():
        run.features.delete(entry.key)
    caplog.clear()
    assert len(audit()[1]) == 4
    assert not [message for message in caplog.messages if "again" in message]


@pytest.mark.parametrize("features", [["confidence"], ["hidden"], []])
def test_features_without_outputs_are_compared_too(
    features: list[str], audit: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract = {"batch_size": 4, "shard_size": 10, "features": features}
    old, _ = audit(extract=extract)
    assert audit(extract=extract)[1] == []
    sign = {"SIGN": "-1"} if features != ["hidden"] else {}
    for name, value in sign.items():
        monkeypatch.setenv(name, value)
    if not sign:
        Path("mean.json").write_text("[1.0, 0.0]")
    new, _ = audit(extract=extract)
    assert new.uri != old.uri


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ("self.fc(x) + torch.randn(2)", "that returns other outputs each time"),
        ("self.fc(x - x.mean(0))", "that returns other outputs for an example if the rest of its batch differs"),
    ],
)
def test_model_that_cannot_be_compared_keeps_its_features_and_says_so(
    forward: str, said: str, audit: Audit, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(folder / "models.py", "self.fc(x)", forward)
    first, _ = audit()
    caplog.clear()
    again, made = audit()
    assert (again.uri, made) == (first.uri, [])
    assert any(said in message for message in caplog.messages)


def test_half_precision_and_another_batch_are_within_the_tolerance(audit: Audit) -> None:
    first, _ = audit(extract={"batch_size": 4, "shard_size": 10, "precision": "bfloat16"})  # the coarser one
    again, made = audit(extract={"batch_size": 4, "shard_size": 10, "precision": "bfloat16"})
    assert (again.uri, made) == (first.uri, [])


def test_history_is_that_of_the_same_code(audit: Audit, folder: Path) -> None:
    auto = {"history": "auto", "sample": {"method": "neyman", "budget": 6}}
    old, _ = audit()
    labels = "".join(f"{name},0\n" for name in old.read_chosen(1).ids)
    import_labels(old, "labels.csv", f"id,label\n{labels}".encode())
    same, _ = audit("same", **auto)
    edit(folder / "models.py", "self.fc(x)", "-self.fc(x)")
    other, _ = audit("other", **auto)
    edit(folder / "models.py", "-self.fc(x)", "self.fc(x)")
    (folder / "mean.json").write_text("[9.0, 0.0]")
    shifted, _ = audit("shifted", **auto)
    taught = [[source.uri for source in read_record(run).sources] for run in (same, other, shifted)]
    assert taught == [[old.uri], [], []]


def test_worker_whose_files_are_others_is_refused(audit: Audit, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an actor that starts hours later, when the file was edited meanwhile."""
    settled = verbs.settle

    def edited(*given: Any, **options: Any) -> Any:
        resolved = settled(*given, **options)
        (folder / "parts" / "scales.py").write_text("SCALE = 5.0\n")
        return resolved

    monkeypatch.setattr(verbs, "settle", edited)
    with pytest.raises(DataError, match=r"scales\.py on .* is not the parts/scales\.py that this run began with"):
        audit()
    assert not list((folder / "audits").rglob("part-*.parquet"))


def test_stored_features_need_no_code_but_to_run(audit: Audit, folder: Path) -> None:
    run, _ = audit()
    (folder / "models.py").unlink()
    assert len(Run.open(run.uri).read_selection(1)) > 0
    assert verify(run.uri).faults == []


def test_grown_pool_takes_features_of_the_same_data_of_code_alone(audit: Audit, folder: Path) -> None:
    first, _ = audit()
    assert sum(predicted(first)) < 4
    (folder / "mean.json").write_text("[3.0, 0.0]")
    np.save(folder / "pool" / "b.npy", np.ones((3, 2), dtype=np.float32))
    second, made = audit()
    assert (second.header.grown_from, len(made)) == (None, 5)
    np.save(folder / "pool" / "c.npy", np.ones((3, 2), dtype=np.float32))
    third, made = audit()
    assert (third.header.grown_from, len(made)) == (second.name, 1)
    (folder / "mean.json").write_text("[0.0, 0.0]")
    fourth, made = audit()
    assert (fourth.header.grown_from, predicted(fourth)[:40]) == (first.name, predicted(first))


def test_grown_pool_takes_no_features_of_a_model_that_changed_unseen(
    audit: Audit, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but an environment variable has changed: stored examples of the earlier run are extracted again."""
    old, _ = audit()
    np.save(folder / "pool" / "b.npy", np.ones((3, 2), dtype=np.float32))
    monkeypatch.setenv("SIGN", "-1")
    new, made = audit()
    assert len(made) == 5
    assert new.header.grown_from is None
    assert any("no source file has changed" in message for message in caplog.messages)
    assert [1 - said for said in predicted(old)] == predicted(new)[:40]
