"""A whole fleet by its command, on a real Ray and S3: 3 models × 2 pools, one broken weight file, labels, history."""

import json
from pathlib import Path
from typing import Any

import pytest
from local_s3 import LocalS3
from packed import verified_pack
from small_fleet import label, model, write_fleet

from opacc_ray.cli.main import main
from opacc_ray.cluster import actor_pool
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

PAIRS = [f"weekly-{model}-{pool}" for model in ("random", "trained", "biased") for pool in ("shop", "field")]
BROKEN = "weekly-biased-field"


class Fleet:
    """The file of a fleet, and what its command says of it."""

    def __init__(self, home: Path, output: str) -> None:
        (home / "broken.safetensors").write_bytes(b"cut off")
        broken = {"model": {"weights": str(home / "broken.safetensors")}}
        overrides = [{"models": ["biased"], "pools": ["field"], "spec": broken}]
        self.home, self.output = home, output
        models = {name: {"function": f"numpy_model:{name}"} for name in ("random", "trained")}
        models["biased"] = model(home, "biased")
        self.file = write_fleet(home, models=models, overrides=overrides, output=output)
        self.extracted: list[str] = []  # folder of each extraction on actors

    def run(self, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, answer, and what the command says meanwhile."""
        extract = actor_pool.extract_shards

        def noted(job: Any, *rest: Any) -> None:
            self.extracted.append(job.target.uri)
            extract(job, *rest)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(actor_pool, "extract_shards", noted)
            code = main(["fleet", str(self.file), "--json", *options])
        said = capsys.readouterr()
        return code, json.loads(said.out), said.err


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, s3: LocalS3, ray_cluster: None) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"), s3.create_bucket("fleet"))


@pytest.mark.slow
def test_a_fleet_from_its_file_to_its_alerts(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, said = fleet.run(capsys)
    runs = {item["name"]: item["run"] for item in answer["audits"]}
    assert list(runs) == PAIRS
    assert [name for name, run in runs.items() if run is None] == [BROKEN]
    assert [item["name"] for item in answer["audits"] if item["failure"]] == [BROKEN]
    assert code == 5
    assert f"opacc: 1 audit of 6 failed: {BROKEN}" in said
    assert "broken.safetensors is neither safetensors nor" in answer["audits"][5]["failure"]["error"]
    assert len(fleet.extracted) == len(set(fleet.extracted)) == 5
    assert {entry.key for entry in open_store(fleet.output).list("fleets/")} == {
        *(f"fleets/weekly/summary.{kind}" for kind in ("html", "json", "md")),
        *(f"fleets/weekly/outcomes/{name}.json" for name in PAIRS),
    }
    assert {item["waiting"][0]["missing"] for item in answer["audits"][:5]} == {30}

    (fleet.home / "broken.safetensors").write_bytes((fleet.home / "biased.safetensors").read_bytes())
    fleet.extracted.clear()
    code, answer, _ = fleet.run(capsys)
    assert code == 0
    assert len(fleet.extracted) == 1
    assert {item["name"]: item["run"] for item in answer["audits"]}.items() > {
        name: run for name, run in runs.items() if run
    }.items()

    fleet.extracted.clear()
    for item in answer["audits"]:
        run = Run.open(item["run"])
        label(run, run.read_selection(1).ids)
    code, answer, _ = fleet.run(capsys)
    assert code == 0
    assert fleet.extracted == []
    assert [item["waiting"] for item in answer["audits"]] == [[]] * 6
    by_name = {item["name"]: item["history"][-1] for item in answer["audits"]}
    assert by_name["weekly-trained-shop"]["value"] == by_name["weekly-trained-field"]["value"] == 1.0
    assert by_name["weekly-random-shop"]["high"] < 0.9
    assert main(["history", "weekly-random-shop", "--output", fleet.output, "--json"]) == 0
    history = json.loads(capsys.readouterr().out)
    assert history["points"] == [by_name["weekly-random-shop"]]
    for item in answer["audits"]:
        verified_pack(Run.open(item["run"]), fleet.home)
