"""Extraction on actors of a real Ray: distribution of shards, hangs, lack of memory, SIGTERM."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from extracting_here import extracting_here
from ray.exceptions import GetTimeoutError
from waiting import LONG, until

from opacc_ray.audit import verbs
from opacc_ray.cluster import actor_pool
from opacc_ray.errors import ClusterError
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

TESTS = Path(__file__).parents[1]


def extracted(content: dict[str, Any]) -> Run:
    run, stages = verbs.start(parse_spec(content, "spec"))
    verbs.extract(stages, lambda *_: None)
    return run


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a worker be over when it hangs, which a file says, and not before, however slow it is."""
    seen, replace, answer = set[str](), actor_pool._ActorPool._replace_hung, actor_pool.unless_lost

    def hangs() -> bool:
        new = {*os.listdir(tmp_path)} - seen
        seen.update(new)
        return bool(new)

    def replace_hung(pool: Any) -> None:
        if hangs():
            for actor in pool._actors:
                actor.last_sign = -math.inf
        replace(pool)

    def answer_of(call: Callable[..., Any], *given: Any, **options: Any) -> Any:
        while call is ray.get and not ray.wait([*given], timeout=0.1)[0]:
            if hangs():
                raise GetTimeoutError
        return answer(call, *given, **options)

    monkeypatch.setattr(actor_pool._ActorPool, "_replace_hung", replace_hung)
    monkeypatch.setattr(actor_pool, "unless_lost", answer_of)


@pytest.fixture
def with_model(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Makes specs of two actors and another model; its arguments have an empty folder of their own."""

    def make(function: str, arguments: dict[str, Any], **extract: Any) -> dict[str, Any]:
        model = {"function": f"numpy_model:{function}", "arguments": {"folder": str(tmp_path)} | arguments}
        content = spec(model=model)
        content["extract"] |= {"actors": 2} | extract
        return content

    return make


@pytest.mark.usefixtures("ray_cluster", "hanging")
def test_shard_that_hangs_is_given_to_another_actor(
    with_model: Callable[..., dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = extracted(with_model("spoiled", {"how": "hang", "times": 1}, shard_timeout=900, actors=1))
    assert "an actor finished nothing for 900 s; it is replaced" in caplog.text
    assert len(list(tmp_path.iterdir())) == 1
    index = run.read_index()
    assert index is not None
    assert index.num_examples == 120


@pytest.mark.usefixtures("ray_cluster")
def test_an_idle_actor_is_given_a_copy_of_the_slowest_shard(
    spec: Callable[..., dict[str, Any]],
    with_model: Callable[..., dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO", logger="opacc_ray")
    monkeypatch.setattr(actor_pool, "SLOW_SECONDS", 0.5)
    slow = extracted(with_model("spoiled", {"how": "hang", "times": 1}))  # 1000 s, with shard_timeout 1800
    assert "shard part-000005 is slow; another actor extracts a copy" in caplog.text
    assert "replaced" not in caplog.text
    with extracting_here():
        usual = extracted(spec(name="usual", model={"function": "numpy_model:random"}))
    assert slow.read_index() == usual.read_index()


@pytest.mark.usefixtures("ray_cluster")
def test_an_actor_whose_machine_is_taken_back_ends_cleanly(
    with_model: Callable[..., dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = with_model("noted", {"seconds": 0.1}, actors=1)
    run, stages = verbs.start(parse_spec(content, "spec"))

    def take_back(done: int, _: int) -> None:
        if done in (3, 6):
            latest = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
            os.kill(int(latest.name), signal.SIGTERM)

    verbs.extract(stages, take_back)
    assert "an actor was preempted" in caplog.text
    assert len(list(tmp_path.iterdir())) == 3
    index = run.read_index()
    assert index is not None
    assert index.num_examples == 120


@pytest.mark.usefixtures("ray_cluster", "hanging")
def test_shard_that_always_hangs_is_named(with_model: Callable[..., dict[str, Any]]) -> None:
    content = with_model("spoiled", {"how": "hang", "times": 9}, shard_timeout=900, actors=1, shard_size=2)
    message = r"part-000027 \(054\.png \.\. 055\.png\) failed 3 times, last with: nothing was finished for 900 s: an "
    message += r"example hangs.* so repair or remove 055\.png, at which alone it fails"
    with pytest.raises(ClusterError, match=message):
        extracted(content)


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("where", ["interpreter", "torch"])
def test_memory_that_runs_out_costs_a_try(
    with_model: Callable[..., dict[str, Any]], scans: str, tmp_path: Path, where: str
) -> None:
    content = with_model("spoiled", {"how": "memory", "times": 2}, actors=1)
    if where == "torch":
        arguments = {"folder": str(tmp_path), "times": 2}
        weights = f"{scans}/model.safetensors"
        content["model"] = {"factory": "small_model:spoiled_network", "weights": weights, "arguments": arguments}
    run = extracted(content)
    assert len(list(tmp_path.iterdir())) == 2
    assert run.read_index() is not None


@pytest.mark.usefixtures("ray_cluster")
def test_an_example_that_always_takes_too_much_memory_is_named(with_model: Callable[..., dict[str, Any]]) -> None:
    content = with_model("spoiled", {"how": "memory", "times": 99}, actors=1, shard_size=2)
    message = r"part-000027 .* failed 3 times, last with: memory ran out; .* so repair or remove 055\.png, at"
    with pytest.raises(ClusterError, match=message):
        extracted(content)


@pytest.mark.processes
def test_sigterm_ends_a_run_as_an_interruption_does(spec: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    folder = tmp_path / "batches"
    folder.mkdir()
    content = spec(model={"function": "numpy_model:held", "arguments": {"folder": str(folder), "free": 1}})
    content["extract"] |= {"batch_size": 10, "executor": "ray"}  # a batch is a shard
    run, _ = verbs.start(parse_spec(content, "spec"))
    path, log = tmp_path / "spec.yaml", tmp_path / "log"
    path.write_text(json.dumps(content))
    command = [sys.executable, "-m", "opacc_ray", "run", str(path), "--no-trial"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    driver = subprocess.Popen(command, cwd=TESTS, stderr=log.open("w"), env=environment)
    try:
        assert until(lambda: run.finished_shards() or driver.poll() is not None), log.read_text()
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(LONG) == 143, log.read_text()
    finally:
        driver.kill()
    assert log.read_text().splitlines()[-1] == (
        "opacc: ended by SIGTERM; finished work is kept; run the same command again"
    )
    assert not [word for word in ("Traceback", "terminate called", "***", "Stack trace") if word in log.read_text()]
    assert run.finished_shards()
    assert run.read_index() is None
