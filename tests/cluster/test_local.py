"""A local Ray that starts ahead of its use is used, ends with its user, and leaves nothing behind."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from listening import RAYLET, running
from small_pictures import picture
from waiting import LONG, until

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]

HEAD = """
import os, sys
from opacc_ray.cluster import local
with local.ahead():
    local.begin()
    print(os.environ["RAY_AUTH_TOKEN"], flush=True)
"""
USED = """
    local.begin()
    import ray
    from opacc_ray.cluster.session import connected
    with connected() as is_ours:
        print(is_ours, ray.get(ray.remote(lambda: 6 * 7).remote()), flush=True)
    with connected():
        print(ray.get(ray.remote(lambda: 6 * 7).remote()), flush=True)
"""
NEVER_USED = """
    raise ValueError("the trial failed")
"""
KILLED = """
    sys.stdin.read()
"""


HELD = """
    local.begin()
    import ray
    from opacc_ray.cluster.session import connected
    with connected():
        print(ray.get(ray.remote(lambda: os.environ["RAY_TMPDIR"]).remote()), flush=True)
        sys.stdin.read()
"""


def started(script: str, log: Path, **changes: str) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with log.open("w") as errors:
        return subprocess.Popen(
            [sys.executable, "-c", HEAD + script],
            env=plain | changes,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def holders(token: str) -> list[int]:
    """Processes that have the token of a Ray in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # it has ended, or is another user's
            pass
    return found


def all_end(token: str) -> bool:
    """Whether all processes with a token end."""
    return until(lambda: not holders(token))


def test_ray_begun_ahead_is_the_one_that_is_used(tmp_path: Path) -> None:
    process = started(USED, tmp_path / "log")
    token, first, second = process.communicate(timeout=LONG)[0].splitlines()
    assert (first, second) == ("True 42", "42"), (tmp_path / "log").read_text()  # the second has a Ray of its own
    assert all_end(token)


@pytest.mark.parametrize("script", [NEVER_USED, KILLED])
def test_ray_that_is_never_used_ends_by_itself(script: str, tmp_path: Path) -> None:
    with started(script, tmp_path / "log") as process:
        assert process.stdout is not None
        token = process.stdout.readline().strip()
        assert until(lambda: holders(token))
        if script == KILLED:
            process.send_signal(signal.SIGKILL)
    assert all_end(token)


@pytest.mark.parametrize(("is_killed", "is_long"), [(False, True), (True, False)], ids=["ended", "killed"])
def test_files_of_ray_are_closed_to_other_users_and_gone_at_the_end(
    is_killed: bool, is_long: bool, tmp_path: Path
) -> None:
    place = tmp_path / ("long" * 30) if is_long else Path(tempfile.mkdtemp(prefix="o", dir="/tmp"))
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    with started(HELD, tmp_path / "log", TMPDIR=str(place)) as process:
        assert process.stdout is not None
        token, folder = (process.stdout.readline().strip() for _ in range(2))
        assert folder, (tmp_path / "log").read_text()
        ours = Path(folder)
        assert ours.parent == (Path("/tmp") if is_long else place)
        assert [path for path in ours.rglob("*") if path.is_socket()]
        assert ours.stat().st_mode & 0o077 == 0
        assert ours.stat().st_uid == os.getuid()
        if is_killed:
            process.send_signal(signal.SIGKILL)
        else:
            process.communicate()
            assert not ours.exists()
    assert all_end(token)
    assert not ours.exists()
    shutil.rmtree(place)


GCS, AGENT = "gcs/gcs_server", "ray::DashboardAgent"
PART = "audits/**/part-*.parquet"
ANOTHER = "was killed or failed; often memory runs out; another one is started"

WAITING = """
import os, runpy, sys
from opacc_ray.cluster import local
plain, left = local.unless_lost, [sys.argv[1]]
def waiting(call, *args, **options):
    if call.__name__ in left:
        left.clear()
        open(call.__name__, "w").close()
        while os.path.exists(call.__name__): pass
    return plain(call, *args, **options)
local.unless_lost = waiting
sys.argv[1:] = ["run", "spec.yaml", "--no-trial"]
runpy.run_module("opacc_ray", run_name="__main__")
"""
"""Runs a command that waits before its first call of a named function of Ray, until a file is gone."""


@pytest.mark.parametrize(
    ("waits", "kills"),
    [
        ("init", [(GCS, "spec.yaml"), (GCS, "init"), (RAYLET, PART)]),
        ("nodes", [(GCS, "nodes"), (AGENT, PART)]),
    ],
)
def test_a_run_goes_on_with_another_ray_whenever_a_process_of_it_is_killed(
    waits: str, kills: list[tuple[str, str]], tmp_path: Path
) -> None:
    """As it starts, before a call, and while an actor is in the second shard: each in a Ray of its own."""
    (tmp_path / "pool").mkdir()
    for i in range(8):
        (tmp_path / "pool" / f"{i:02d}.png").write_bytes(picture(i))
    (tmp_path / "batches").mkdir()
    spec = {
        "name": "lost",
        "pool": {"uri": "pool", "format": "images"},
        "model": {"function": "numpy_model:held", "arguments": {"folder": str(tmp_path / "batches"), "free": 1}},
        "extract": {"shard_size": 2, "batch_size": 2, "actors": 1, "executor": "ray"},
        "sample": {"method": "srs", "budget": 5},
        "transform": "small_pictures:to_input",
        "output": "audits",
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    plain = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    paths = {"PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])}
    command, log = [sys.executable, "-c", WAITING, waits], tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, cwd=tmp_path, env=plain | paths, stderr=errors)

    def comes(what: Callable[[], object]) -> bool:
        return until(lambda: process.poll() is not None or bool(what())) and process.poll() is None

    try:
        for name, sign in kills:
            assert comes(lambda sign=sign: any(tmp_path.glob(sign))), log.read_text()
            assert comes(lambda name=name: running(name, process.pid)), log.read_text()
            before = log.read_text().count(ANOTHER)
            os.kill(running(name, process.pid)[0], signal.SIGKILL)
            if sign == waits:
                (tmp_path / sign).unlink()
            assert comes(lambda before=before: log.read_text().count(ANOTHER) > before), log.read_text()
        (tmp_path / "batches" / "on").touch()
        assert process.wait(2 * LONG) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert len(list(tmp_path.rglob("part-*.parquet"))) == 4
