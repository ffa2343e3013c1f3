"""A fleet in a process of its own, on a Ray that it starts: SIGTERM ends it cleanly, and the next run goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from extracting_here import extracting_here
from small_fleet import write_fleet

from opacc_ray.cli.main import main

TESTS = Path(__file__).parents[2]


@pytest.mark.slow
def test_sigterm_ends_all_audits_and_the_next_run_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    held = {"held": {"function": "numpy_model:held", "arguments": {"folder": str(folder), "free": 2}}}
    extract = {"batch_size": 5, "shard_size": 5, "actors": 1}
    file = write_fleet(
        tmp_path,
        models=held,
        spec={"transform": "small_pictures:to_input", "extract": extract, "sample": {"method": "srs", "budget": 9}},
    )
    process = start(file)
    wait_for_shards(process, tmp_path / "audits", 2)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 143, said
    assert "ended by SIGTERM; finished work is kept" in said
    assert "failed" not in said
    done = shards(tmp_path / "audits")
    assert 2 <= len(done) < 21
    times = {path: path.stat().st_mtime_ns for path in done}
    (folder / "on").touch()
    with extracting_here() as made:  # without a second Ray, which takes long to start
        assert main(["fleet", str(file), "--no-trial"]) == 0
    assert len(made) == 21 - len(done)
    assert {path: path.stat().st_mtime_ns for path in done} == times


def start(file: Path) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), str(TESTS.parent)])
    command = [sys.executable, "-m", "opacc_ray", "fleet", str(file), "--no-trial"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("part-*.parquet"))


def wait_for_shards(process: subprocess.Popen[str], folder: Path, number: int) -> None:
    until = time.monotonic() + 300
    while len(shards(folder)) < number:
        assert process.poll() is None, "the fleet has ended before"
        assert time.monotonic() < until, "no shard was finished in five minutes"
        time.sleep(0.05)
