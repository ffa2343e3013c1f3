"""A fleet by its command, on a real Ray and S3: two models at once, one that is not there, labels, SIGTERM."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from local_s3 import LocalS3
from packed import verified_pack
from small_fleet import label, write_fleet
from waiting import until

from opacc_ray.cli.main import main
from opacc_ray.cluster import actor_pool
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

NAMES = [f"weekly-{model}-shop" for model in ("trained", "random", "none")]
BROKEN = "weekly-none-shop"

pytestmark = pytest.mark.slow


class Fleet:
    """The file of a fleet, and what its command says of it."""

    def __init__(self, home: Path, output: str) -> None:
        self.home, self.output = home, output
        models = {name: {"function": f"numpy_model:{name}"} for name in ("trained", "random", "none")}
        pools = {"shop": {"uri": str(home / "shop"), "format": "images"}}
        self.file = write_fleet(home, models=models, pools=pools, output=output)
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


def test_a_fleet_from_its_file_to_its_numbers(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer, said = fleet.run(capsys)
    runs = {item["name"]: item["run"] for item in answer["audits"]}
    assert list(runs) == NAMES
    assert [name for name, run in runs.items() if run is None] == [BROKEN]
    assert [item["name"] for item in answer["audits"] if item["failure"]] == [BROKEN]
    assert code == 2
    assert f"opacc: 1 audit of 3 failed: {BROKEN}" in said
    assert "'numpy_model' has no 'none'" in answer["audits"][2]["failure"]["error"]
    assert len(fleet.extracted) == len(set(fleet.extracted)) == 2
    assert {entry.key for entry in open_store(fleet.output).list("fleets/")} == {
        *(f"fleets/weekly/summary.{kind}" for kind in ("html", "json", "md")),
        *(f"fleets/weekly/outcomes/{name}.json" for name in NAMES),
    }
    assert {item["waiting"][0]["missing"] for item in answer["audits"][:2]} == {30}

    fleet.extracted.clear()
    for item in answer["audits"][:2]:
        label(Run.open(item["run"]))
    code, answer, _ = fleet.run(capsys)
    assert (code, fleet.extracted) == (2, [])
    assert [item["run"] for item in answer["audits"]] == list(runs.values())
    assert [item["waiting"] for item in answer["audits"]] == [[]] * 3
    last = [item["history"][-1] for item in answer["audits"][:2]]
    assert last[0]["value"] == 1.0
    assert last[1]["high"] < 0.9
    assert main(["history", NAMES[1], "--output", fleet.output, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["points"] == [last[1]]
    verified_pack(Run.open(answer["audits"][0]["run"]), fleet.home)


@pytest.fixture
def signals() -> Iterator[None]:
    """Let the next SIGTERM end this process again: a command ignores those after its first."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("ray_cluster", "signals")
def test_sigterm_ends_all_audits_and_the_next_run_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the signal comes to a command in this process, while its actors wait in the middle of their work."""
    folder = tmp_path / "batches"
    folder.mkdir()
    held = {"held": {"function": "numpy_model:held", "arguments": {"folder": str(folder), "free": 2}}}
    extract = {"batch_size": 5, "shard_size": 5, "actors": 1}
    file = write_fleet(
        tmp_path,
        models=held,
        spec={"transform": "small_pictures:to_input", "extract": extract, "sample": {"method": "srs", "budget": 9}},
    )
    sent = threading.Thread(target=send_sigterm_after, args=(tmp_path / "audits", 2))
    sent.start()
    code = main(["fleet", str(file), "--no-trial"])
    sent.join()
    said = capsys.readouterr().err
    assert code == 143, said
    assert "ended by SIGTERM; finished work is kept" in said
    assert "failed" not in said
    times = {path: path.stat().st_mtime_ns for path in shards(tmp_path / "audits")}
    assert 2 <= len(times) < 21
    (folder / "on").touch()
    with extracting_here() as made:
        assert main(["fleet", str(file), "--no-trial"]) == 0
    assert len(made) == 21 - len(times)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def send_sigterm_after(folder: Path, number: int) -> None:
    """Send it to this process once so many shards are finished."""
    until(lambda: len(shards(folder)) >= number)
    os.kill(os.getpid(), signal.SIGTERM)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("part-*.parquet"))
