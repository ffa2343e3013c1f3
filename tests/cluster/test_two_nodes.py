"""Two nodes that `ray start` makes: another opacc, a GPU that torch cannot use, and a node that dies."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from listening import RAYLET, running
from ray_with_jobs import TESTS, RayWithJobs
from small_pictures import picture
from waiting import LONG

import opacc_ray
from opacc_ray.lake.store_uris import open_store

pytestmark = pytest.mark.processes

Opacc = Callable[[dict[str, Any]], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayWithJobs]:
    with RayWithJobs(num_cpus=1) as started:
        yield started


@pytest.fixture
def opacc(cluster: RayWithJobs, tmp_path: Path) -> Opacc:
    """Runs an audit of 24 pictures in 12 shards, with other sections, on that cluster."""
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(24))
    content: dict[str, Any] = {
        "name": "two",
        "pool": {"uri": str(tmp_path / "pool"), "format": "images"},
        "model": {"function": "numpy_model:random"},
        "transform": "small_pictures:to_input",
        "extract": {"batch_size": 2, "shard_size": 2},
        "sample": {"method": "srs", "budget": 5},
        "output": str(tmp_path / "runs"),
    }

    def opacc(sections: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        (tmp_path / "spec.yaml").write_text(json.dumps(content | sections))
        command = [sys.executable, "-m", "opacc_ray", "run", str(tmp_path / "spec.yaml"), "--no-trial", "--json"]
        environment = cluster.environment | {"RAY_ADDRESS": cluster.gcs}
        return subprocess.run(command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=2 * LONG)

    return opacc


def shards(folder: Path) -> list[Path]:
    return list(folder.glob("runs/**/part-*.parquet"))


def test_node_with_another_opacc_is_refused_by_name(cluster: RayWithJobs, opacc: Opacc, tmp_path: Path) -> None:
    package = Path(shutil.copytree(TESTS.parent / "opacc_ray", tmp_path / "old" / "opacc_ray"))
    for file, now, then in (
        ("_version.py", f'__version__ = "{opacc_ray.__version__}"', '__version__ = "0.1.9"'),
        ("extract/inference.py", "output.argmax(axis=1)", "(output.argmax(axis=1) + 1) % output.shape[1]"),
        ("extract/machine.py", "def software()", "def software_of_old()"),
    ):
        text = (package / file).read_text()
        assert now in text
        (package / file).write_text(text.replace(now, then))
    with cluster.node(path=package.parent):
        done = opacc({})
    assert done.returncode == 4, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith("opacc:")]
    assert "(127.0.0.2) has opacc 0.1.9 (code " in line
    assert f"the driver has opacc {opacc_ray.__version__} (code " in line
    assert shards(tmp_path) == []


def test_node_with_a_gpu_that_torch_cannot_use_is_one_sentence(
    cluster: RayWithJobs, opacc: Opacc, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch can use a GPU here")
    with cluster.node("--num-gpus=1"):
        done = opacc({"model": {"factory": "small_model:network"}, "transform": None})
    assert done.returncode == 4, done.stderr
    line = done.stderr.splitlines()[-1]
    assert f"torch {torch.__version__}" in line
    assert "set extract.gpus_per_actor: 0" in line
    assert not {"\x1b", "ray::", "File"} & set(done.stderr.split())


def test_node_that_dies_is_our_sentence_and_not_rays_log(cluster: RayWithJobs, opacc: Opacc, tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    processes.mkdir()
    with cluster.node() as node:
        [raylet] = running(RAYLET, node.pid)

        def kill() -> None:
            while len(list(processes.iterdir())) < 2:  # an actor of each node is in a batch
                time.sleep(0.1)
            os.kill(raylet, signal.SIGKILL)
            while all(Path("/proc", process.name).exists() for process in processes.iterdir()):
                time.sleep(0.1)  # until that node's actor has ended, with its batch
            (processes / "on").touch()

        killer = threading.Thread(target=kill, daemon=True)
        killer.start()
        model = {"function": "numpy_model:held", "arguments": {"folder": str(processes)}}
        done = opacc({"model": model, "extract": {"batch_size": 1, "shard_size": 2, "actors": 2}})
        killer.join(1)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert "was lost" in done.stderr
    assert not [word for word in ("state-dump", "Raylet", "(raylet") if word in done.stdout + done.stderr]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_node_without_a_gpu_reads_for_the_one_that_has_it(
    cluster: RayWithJobs, opacc: Opacc, tmp_path: Path, is_killed: bool
) -> None:
    """The same bytes, also after a reader was lost, which costs its shard a try."""
    runs, killed = tmp_path / "runs", list[int]()

    def kill() -> None:
        while not list(runs.rglob("part-*.parquet")):
            time.sleep(0.02)
        while not killed:
            for process in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):  # it has ended
                    if (process / "cmdline").read_bytes().startswith(b"ray::RemoteReading"):
                        os.kill(int(process.name), signal.SIGKILL)
                        killed.append(int(process.name))

    model = {"function": "numpy_model:noted", "arguments": {"folder": str(tmp_path), "seconds": 0.2}}
    extract = {"batch_size": 2, "shard_size": 6, "readers": 0}
    with cluster.node("--num-gpus=1"):
        if is_killed:
            threading.Thread(target=kill, daemon=True).start()
        there = opacc({"model": model, "extract": extract | {"remote_readers": "auto"}, "output": f"{runs}/there"})
    here = opacc({"model": model, "extract": extract | {"executor": "local"}, "output": f"{runs}/here"})
    assert (there.returncode, here.returncode) == (0, 0), there.stderr + here.stderr
    assert len(killed) == is_killed
    files = [sorted((runs / name).rglob("part-*.parquet")) for name in ("there", "here")]
    assert [len(own) for own in files] == [4, 4]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]
    [work] = (runs / "there").rglob("extraction.json")
    assert json.loads(work.read_text())["readers"] == 1
