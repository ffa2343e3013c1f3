"""A full disk: the shard is named, no partial file remains, and the run resumes when there is space."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_pictures import picture

from opacc_ray.lake.store_uris import open_store

TESTS = Path(__file__).parents[1]

SCRIPT = """
import shutil, subprocess
from pathlib import Path
from opacc_ray.cli.main import main
from opacc_ray.cluster.session import connected
def mount(*options):
    subprocess.run(["mount", *options], check=True)
mount("-t", "tmpfs", "-o", "size=40k", "none", "full")
with connected():
    print("exit", main(["run", "spec.yaml", "--no-trial"]))
    print(*Path("full").rglob(".opacc-tmp-*"))
    mount("-o", "remount,size=50m", "full")
    main(["run", "spec.yaml", "--no-trial"])
shutil.copytree("full", "copy")
"""


@pytest.mark.slow
def test_full_disk_ends_a_run_which_resumes_with_more_space(tmp_path: Path) -> None:
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    if not shutil.which("unshare") or subprocess.run([*own_mounts, "true"], capture_output=True).returncode:
        pytest.skip("this system does not allow a user to mount a small disk in a namespace")
    open_store(str(tmp_path / "pool")).write_many((f"{i:03d}.png", picture(i)) for i in range(120))
    content = {
        "name": "full",
        "pool": {"uri": str(tmp_path / "pool"), "format": "images"},
        "model": {"function": "numpy_model:random"},
        "extract": {"shard_size": 10, "actors": 1, "executor": "ray"},
        "sample": {"method": "srs", "budget": 5},
        "output": str(tmp_path / "full"),
    }
    (tmp_path / "full").mkdir()
    (tmp_path / "spec.yaml").write_text(json.dumps(content))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [*own_mounts, sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=environment | {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "exit 4", done.stderr
    assert "the disk is full; free some space or choose another place" in done.stderr
    assert ".opacc-tmp-" not in done.stdout
    assert "shards were done before" in done.stderr
    assert len([*(tmp_path / "copy").rglob("part-*.parquet")]) == 12
