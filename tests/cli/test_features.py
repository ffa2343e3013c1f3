"""`opacc features`: what is listed, and what is refused before anything is lost."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from safetensors.torch import save
from small_model import trained
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.runs.feature_sets import FeatureSets, RemovedSet
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pool").mkdir()
    for i in range(20):
        (tmp_path / "pool" / f"{i:03d}.png").write_bytes(picture(i))
    (tmp_path / "model.safetensors").write_bytes(save(trained().state_dict()))
    return tmp_path


def run_spec(home: Path, **sections: Any) -> Run:
    content = {
        "name": "first",
        "pool": {"uri": f"{home}/pool", "format": "images"},
        "model": {"factory": "small_model:network", "weights": f"{home}/model.safetensors"},
        "extract": {"shard_size": 10},
        "sample": {"method": "srs", "budget": 8},
        "output": f"{home}/audits",
    }
    with extracting_here():
        return verbs.run(parse_spec(content | sections, "spec"))


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main(["features", *arguments])
    return code, *capsys.readouterr()


def test_sets_are_listed_with_their_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = run_spec(home), run_spec(home, name="second", sample={"method": "deepreduce", "budget": 3})
    third = run_spec(home, name="third", extract={"shard_size": 20})
    code, out, _ = asked(capsys, "list", f"{home}/audits", "--json")
    assert code == 0
    found = FeatureSets.from_dict(json.loads(out), "stdout")
    assert found.unread == []
    by_digest = {item.digest: item for item in found.sets}
    assert first.header.features is not None
    assert third.header.features is not None
    mine, other = by_digest.pop(first.header.features.digest), by_digest.pop(third.header.features.digest)
    assert by_digest == {}
    assert mine.runs == [first.name, second.name]
    assert other.runs == [third.name]
    assert mine.features == ["hidden", "output", "confidence", "prediction", "coverage"]
    assert (mine.examples, mine.pool, mine.model) == (20, f"{home}/pool", "small_model:network")
    assert mine.bytes == sum(path.stat().st_size for path in Path(first.features.uri).rglob("*") if path.is_file())
    _, out, _ = asked(capsys, "list", f"{home}/audits")
    assert f"set         {mine.digest}: 20 examples" in out
    assert f"  runs      {first.name}, {second.name}" in out


def test_set_in_use_is_not_removed_unless_forced(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    assert run.header.features is not None
    digest, output = run.header.features.digest, f"{home}/audits"
    code, _, err = asked(capsys, "remove", output, digest)
    assert code == 2
    assert f"1 runs use {digest}, such as {run.name}" in err
    assert "need another extraction before a further round; give --force" in err
    assert run.read_index() is not None
    code, out, _ = asked(capsys, "remove", output, digest[:6], "--force", "--json")
    assert code == 0
    assert RemovedSet.from_dict(json.loads(out), "stdout").removed.runs == [run.name]
    assert not list(Path(output, "features").rglob("*.*"))
    assert run.read_index() is None
    assert len(run.read_selection(1)) == 8
    again = run_spec(home)
    assert again.read_index() is not None


def test_set_that_no_run_uses_is_removed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    for path in sorted(Path(run.uri).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert run.header.features is not None
    code, out, _ = asked(capsys, "remove", f"{home}/audits", run.header.features.digest)
    assert (code, out.startswith("removed   ")) == (0, True)
    code, _, err = asked(capsys, "list", f"{home}/audits")
    assert code == 5
    assert f"{home}/audits holds no runs and no features; give the `output` of a spec" in err


def test_runs_that_share_nothing_are_told_from_a_wrong_place(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    shutil.rmtree(home / "audits" / "features")
    code, out, _ = asked(capsys, "list", f"{home}/audits")
    assert (code, out) == (0, f"no features are shared in {home}/audits\n")
    for place, what in ((run.uri, "is a run"), (f"{home}/nowhere", "holds no runs and no features")):
        code, _, err = asked(capsys, "list", place)
        assert code == 5
        assert f"{place} {what}; give the `output` of a spec" in err


def test_set_is_kept_while_a_header_cannot_be_read(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    (Path(run.uri) / "spec.json").write_text("{")
    assert run.header.features is not None
    code, _, err = asked(capsys, "remove", f"{home}/audits", run.header.features.digest)
    assert code == 2
    assert f"the header of {run.name} is not readable, so it may use" in err
    assert run.read_index() is not None


def test_digest_that_is_none_or_two_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_spec(home)
    code, _, err = asked(capsys, "remove", f"{home}/audits", "nothing")
    assert code == 5
    assert run.header.features is not None
    assert f"no set of features in {home}/audits begins with 'nothing'; there: {run.header.features.digest}" in err
    assert asked(capsys, "remove", f"{home}/audits", "")[0] == 5
