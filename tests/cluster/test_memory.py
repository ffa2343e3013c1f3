"""Memory of a node that runs out, on a cluster of its own, and Ray's object store."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ray._common.utils import get_system_memory
from small_model import memory_used
from small_pictures import picture

from opacc_ray.audit import verbs
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

TESTS = Path(__file__).parents[1]
LEAST = 6 << 30
"""Bytes of memory that must be free: half of them is filled, by other tests too, before Ray kills an actor."""
MOST = 4 << 30
"""Bytes that are filled, however many are free."""

PICTURE = 224 * 224 * 3
"""Bytes of an example of a large pool."""


@pytest.mark.processes
def test_an_actor_killed_for_memory_costs_its_shards_one_try(
    spec: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    total, used = get_system_memory(), memory_used()
    if total - used < LEAST:
        pytest.skip(f"{(total - used) / 1e9:.1f} GB of memory are free; {LEAST / 1e9:.1f} are needed to fill some")
    limit = used + min((total - used) // 2, MOST)
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(40))
    content = spec(
        pool={"uri": str(tmp_path / "pool"), "format": "images"},
        model={
            "factory": "small_model:greedy_network",
            "arguments": {"folder": str(tmp_path / "kills"), "limit": limit},
        },
        extract={"batch_size": 5, "shard_size": 10, "actors": 1, "executor": "ray", "readers": 0},
        sample={"method": "srs", "budget": 5},
        output=str(tmp_path / "audits"),
    )
    (tmp_path / "kills").mkdir()
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(content))
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    limits = {"RAY_memory_usage_threshold": f"{limit / total:.4f}", "RAY_memory_monitor_refresh_ms": "100"}
    paths = {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command = [sys.executable, "-m", "opacc_ray", "run", "spec.yaml", "--no-trial", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=plain | limits | paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "kills").iterdir()} == {"load", "run"}
    assert done.stderr.count("an actor was lost while it loaded the model; it is replaced") == 1
    assert done.stderr.count("an actor was lost with 2 shards in flight; it is replaced") == 1
    assert len(Run.open(json.loads(done.stdout)["run"]).finished_shards()) == 4


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_a_pool_of_ten_times_the_object_store_does_not_pass_through_it(tmp_path: Path) -> None:
    import ray
    from ray._private.internal_api import get_memory_info_reply, get_state_from_address

    def stored() -> Any:
        return get_memory_info_reply(get_state_from_address(ray.get_runtime_context().gcs_address)).store_stats

    before = stored()
    rows = 10 * before.object_store_bytes_avail // PICTURE + 1
    (tmp_path / "pool").mkdir()
    np.lib.format.open_memmap(tmp_path / "pool" / "x.npy", "w+", np.uint8, (rows, PICTURE))  # takes no place on a disk
    content = {
        "name": "large",
        "pool": {"uri": str(tmp_path / "pool"), "format": "npy"},
        "model": {"function": "numpy_model:constant"},
        "extract": {"batch_size": 100, "shard_size": 1000, "actors": 2, "executor": "ray"},
        "sample": {"method": "srs", "budget": 5},
        "output": str(tmp_path / "audits"),
    }
    run, stages = verbs.start(parse_spec(content, "spec"))
    verbs.extract(stages, lambda *_: None)
    index = run.read_index()
    assert index is not None
    assert index.num_examples == rows
    after = stored()
    assert after.spilled_bytes_total == before.spilled_bytes_total == 0
    assert after.cumulative_created_bytes - before.cumulative_created_bytes < 1_000_000
