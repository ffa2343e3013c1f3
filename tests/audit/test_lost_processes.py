"""Actors and drivers that die: what comes after them ends in the same bytes, or in the name of a shard."""

import json
import logging
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from extracting_here import extracting_here
from killed_worker import killed_once
from picture_audits import features_of, run_spec
from waiting import until

from opacc_ray.audit import verbs
from opacc_ray.errors import ClusterError
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.usefixtures("ray_cluster")

TWO = {"batch_size": 8, "shard_size": 10, "actors": 2}
TESTS = Path(__file__).parents[1]


def with_function(spec, name: str) -> dict:
    """The content of a spec of two actors and another model."""
    return spec(extract=TWO, model={"function": f"numpy_model:{name}"})


def test_killed_actor_changes_nothing(spec, finished: Run, tmp_path: Path) -> None:
    from opacc_ray.cluster import actor_pool

    marker = tmp_path / "died"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actor_pool, "Worker", killed_once(marker))
        run = run_spec(spec(extract=TWO))
    assert marker.exists()
    assert features_of(run) == features_of(finished)


def test_shard_that_always_kills_its_actor_fails_by_name(spec) -> None:
    content = with_function(spec, "dying")
    with pytest.raises(ClusterError, match=r"shard part-000005 \(050\.png \.\. 059\.png\) failed 3 times") as raised:
        run_spec(content)
    assert "so repair or remove 055.png, at which alone it fails, and run again" in str(raised.value)
    run = Run.open(verbs.start(parse_spec(content, "spec"))[0].uri)
    assert run.read_index() is None
    assert run.rounds() == []


@pytest.mark.processes
def test_killed_driver_resumes_with_the_missing_shards_only(
    spec, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    extract = TWO | {"batch_size": 10, "executor": "ray"}  # a batch is a shard: each actor finishes two, and waits
    model = {"function": "numpy_model:held", "arguments": {"folder": str(folder), "free": 2}}
    content = spec(extract=extract, model=model) | {"name": "resumed"}
    run, _ = verbs.start(parse_spec(content, "spec"))
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps(content))
    command = [sys.executable, "-m", "opacc_ray", "run", str(path), "--no-trial"]
    driver = subprocess.Popen(command, cwd=TESTS, stderr=(tmp_path / "log").open("w"))
    try:
        until(lambda: len(run.finished_shards()) >= 2 or driver.poll() is not None)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    before = len(run.finished_shards())
    assert 2 <= before <= 4, (tmp_path / "log").read_text()
    (folder / "on").touch()
    caplog.set_level(logging.INFO, "opacc_ray")
    run_spec(content)
    told = re.search(r"(\d+) of 12 shards were done before", caplog.text)
    assert told, caplog.text
    assert before <= int(told[1]) < 12  # an actor may finish the shard it had in hand after its driver's death
    with extracting_here():
        undisturbed = run_spec(spec(extract=extract, model={"function": "numpy_model:random"}))
    assert features_of(run) == features_of(undisturbed)
