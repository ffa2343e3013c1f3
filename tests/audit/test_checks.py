"""Checks before Ray starts: each mistake is found, in one sentence, by the driver alone."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import save_file
from small_model import network
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.audit.checks import check
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError, SpecError
from opacc_ray.spec import parse_spec


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures under `pool/` and the weights of `small_model`."""
    folder = tmp_path_factory.mktemp("lake")
    (folder / "pool").mkdir()
    for i in range(12):
        (folder / "pool" / f"{i:03d}.png").write_bytes(picture(i))
    save_file(network().state_dict(), folder / "model.safetensors")
    return folder


def content(lake: Path, home: Path, **sections: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "pool": {"uri": f"{lake}/pool", "format": "images"},
        "model": model(lake),
        "extract": {"batch_size": 4},
        "sample": {"method": "ces", "budget": 5},
        "output": str(home),
    } | sections


def model(lake: Path, **changes: Any) -> dict[str, Any]:
    return {"factory": "small_model:network", "weights": f"{lake}/model.safetensors"} | changes


def mistakes(lake: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """The check that fails, and its sentence, by the sections of a spec."""
    (lake / "empty").mkdir(exist_ok=True)
    (lake / "bad").mkdir(exist_ok=True)
    (lake / "bad" / "000.png").write_bytes(b"no picture")
    blocked = lake / "pool" / "000.png" / "runs"
    return {
        "budget": ({"sample": {"method": "srs"}}, "sample.budget is missing; set the number of labels"),
        "pool": ({"pool": {"uri": f"{lake}/empty", "format": "images"}}, "holds no .png"),
        "budget of more than the pool": (
            {"sample": {"method": "srs", "budget": 13}},
            "which has 12 examples; set at most 12",
        ),
        "weights": ({"model": model(lake, weights=f"{lake}/none.pt")}, "none.pt"),
        "weights digest": ({"model": model(lake, sha256="0" * 64)}, f"the spec expects {'0' * 64}"),
        "output": ({"output": str(blocked)}, "cannot write"),
        "model module": ({"model": model(lake, factory="no_such:net")}, "'no_such:net' cannot be imported"),
        "model function": ({"model": model(lake, factory="small_model:net")}, "has no 'net'"),
        "model arguments": ({"model": model(lake, arguments={"depth": 3})}, "raised TypeError"),
        "model layer": ({"model": model(lake, hidden_layer="fc9")}, "no layer 'fc9'; it has first, last"),
        "model output": ({"model": model(lake, output="probabilities")}, "set model.output: logits"),
        "model classes": ({"model": model(lake, classes=["a", "b"])}, "names 2 classes and the model has 4"),
        "model transform": ({"transform": "small_pictures:picture"}, "transform, given example '000.png'"),
        "model example": (
            {"pool": {"uri": f"{lake}/bad", "format": "images"}, "sample": BUDGET},
            "repair or remove it, or set extract.on_bad_item: exclude to state the accuracy of the rest",
        ),
    }


BUDGET = {"method": "srs", "budget": 1}
NAMES = list(mistakes(Path("/tmp")))


def test_sound_spec_passes_every_check(lake: Path, tmp_path: Path) -> None:
    made, failure = check(parse_spec(content(lake, tmp_path / "runs"), "spec.yaml"), "spec.yaml")
    assert failure is None
    assert made.ok
    assert [item.name for item in made.checks] == ["pool", "budget", "weights", "output", "model"]
    assert made.checks[-1].found.startswith(
        "example '000.png' (8, 8) uint8 becomes (1, 8, 8), no transform: divided by 255; read 12 × (H, W) uint8 L; "
        "6 hidden neurons, 4 outputs"
    )
    assert list(tmp_path.iterdir()) == []


def test_check_leaves_an_output_as_it_is_however_deep(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for output in ("there", "there/runs", "runs/of/today"):
        _, failure = check(parse_spec(content(lake, tmp_path / output), "spec.yaml"), "spec.yaml")
        assert failure is None
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_output_below_a_folder_that_cannot_be_written_is_found(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for output in ("dangling", "dangling/runs"):
        _, failure = check(parse_spec(content(lake, tmp_path / output), "spec.yaml"), "spec.yaml")
        assert "cannot write" in str(failure)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", NAMES)
def test_mistake_is_found_by_its_check_and_by_a_run_before_it_starts(
    name: str, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_ray(*_: object) -> None:
        raise AssertionError("actors were asked for")

    monkeypatch.setattr(verbs, "extract", no_ray)
    sections, message = mistakes(lake)[name]
    spec = parse_spec(content(lake, tmp_path / "runs", **sections), "spec.yaml")
    made, failure = check(spec, "spec.yaml")
    wrong = [item for item in made.checks if not item.ok]
    assert [item.name for item in wrong] == [name.split()[0]]
    assert message in wrong[0].found == str(failure)
    assert "\n" not in wrong[0].found
    with pytest.raises(OpaccError) as caught:
        verbs.first_round(spec, trial=True)
    assert message in str(caught.value)
    assert not (tmp_path / "runs").exists()


def test_too_large_a_budget_does_not_hide_what_is_wrong_with_the_model(lake: Path, tmp_path: Path) -> None:
    sections = {"sample": {"method": "srs", "budget": 13}, "model": model(lake, factory="small_model:netwrk")}
    made, failure = check(parse_spec(content(lake, tmp_path / "runs", **sections), "spec.yaml"), "spec.yaml")
    wrong = {item.name: item.found for item in made.checks if not item.ok}
    assert list(wrong) == ["budget", "model"]
    assert wrong["model"].endswith("has no 'netwrk'; did you mean 'network'?")
    assert str(failure) == wrong["budget"]


def test_method_that_stops_by_itself_needs_no_budget(lake: Path, tmp_path: Path) -> None:
    spec = parse_spec(content(lake, tmp_path, sample={"method": "deepreduce"}), "spec.yaml")
    assert check(spec, "spec.yaml")[0].checks[1].found == "deepreduce stops by itself"


@pytest.mark.parametrize("shard_size", [1, 2])
def test_bad_first_example_is_passed_over_if_the_spec_excludes_those(
    shard_size: int, lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "a.png").write_bytes(b"no picture")
    (tmp_path / "pool" / "b.png").write_bytes(picture(1))
    pool = {"uri": f"{tmp_path}/pool", "format": "images"}
    for policy, kind in (("error", DataError), ("exclude", type(None))):
        sections = {"pool": pool, "extract": {"on_bad_item": policy, "shard_size": shard_size}, "sample": BUDGET}
        _, failure = check(parse_spec(content(lake, tmp_path, **sections), "spec.yaml"), "spec.yaml")
        assert isinstance(failure, kind)


def test_pool_of_bad_examples_alone_is_not_read_to_its_end(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    for i in range(10):
        (tmp_path / "pool" / f"{i}.png").write_bytes(b"no picture")
    pool = {"uri": f"{tmp_path}/pool", "format": "images"}
    sections = {"pool": pool, "extract": {"on_bad_item": "exclude", "shard_size": 1}, "sample": BUDGET}
    _, failure = check(parse_spec(content(lake, tmp_path, **sections), "spec.yaml"), "spec.yaml")
    assert f"no example of the first 8 shards of {tmp_path}/pool could be read, the first because of 0.png" in str(
        failure
    )


def test_command_prints_a_line_a_check_and_ends_with_the_code_of_the_first_failure(
    lake: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(content(lake, tmp_path / "runs")))
    assert main(["check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:2] for line in out.splitlines()] == [
        *([name, "ok"] for name in ("pool", "budget", "weights", "output", "model")),
        ["next:", "opacc"],
    ]
    assert out.endswith(f"\nnext: opacc run {path}\n")
    assert err == ""
    path.write_text(
        json.dumps(content(lake, tmp_path / "runs", sample={"method": "srs"}, model=model(lake, weights="no")))
    )
    assert main(["check", str(path), "--json"]) == SpecError.exit_code
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert (answer["format"], answer["ok"]) == ("opacc-check/1", False)
    assert [(item["name"], item["ok"]) for item in answer["checks"]] == [
        ("pool", True),
        ("budget", False),
        ("weights", False),
        ("output", True),
    ]
    assert err == "opacc: 2 of 4 checks failed: budget, weights; see the lines above\n"


@pytest.mark.parametrize("ids", [["device"], ["device", "time"]])
def test_an_id_that_appears_twice_is_found_before_a_run(tmp_path: Path, ids: list[str]) -> None:
    (tmp_path / "pool").mkdir()
    for part in range(2):  # the repeated one is in another file
        rows = [f"d{number % 40}" for number in range(30 * part, 30 * part + 30)]
        table = {"device": rows, "time": list(range(30 * part, 30 * part + 30)), "said": ["a"] * 30}
        pq.write_table(pa.table(table), tmp_path / "pool" / f"{part}.parquet")
    columns = {"id": ids[0] if len(ids) == 1 else ids, "prediction": "said"}
    pool = {"uri": str(tmp_path / "pool"), "format": "features", "columns": columns}
    spec = {"name": "t", "pool": pool, "sample": {"method": "srs", "budget": 5}, "output": str(tmp_path / "runs")}
    made, failure = check(parse_spec(spec | {"model": {"classes": ["a", "b"]}}, "spec.yaml"), "spec.yaml")
    found = {item.name: item.found for item in made.checks}
    if len(ids) == 1:
        assert isinstance(failure, DataError)
        assert found["ids"].startswith('the id "d0" appears twice in ')
    else:
        assert (failure, found["ids"]) == (None, "60 ids, each once")
