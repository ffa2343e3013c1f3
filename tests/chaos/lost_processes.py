"""``PYTHONPATH=tests python -m chaos.lost_processes TIMES SEED [KIND…]``: kill parts of a command's own Ray.

Each command extracts 30 shards of S3 and must end by itself with the bytes of an undisturbed one. A process is killed
at a random moment, or the S3 server stops for 100 seconds. One line of JSON is printed for each command.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from listening import family
from small_pictures import picture

from chaos.campaign import content_of
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.store_uris import open_store

TESTS = Path(__file__).parents[1]
KINDS = {
    "gcs": "gcs/gcs_server",
    "raylet": "raylet/raylet",
    "agent": "ray::DashboardAgent",
    "actor": "ray::Worker",
    "node": "opacc_ray.cluster.local",
    "s3": "",
}
"""What is lost, and the name in the command of the process."""

WITHIN, ACTORS, GONE, LIMIT = 8.0, 4.0, 100.0, 400.0
"""Seconds of a process in which it is killed, of an actor, in which S3 is gone, and that a command may take."""


def spec_for(output: str) -> dict[str, Any]:
    return {
        "name": "lost",
        "pool": {"uri": "s3://scans/pool/", "format": "images"},
        "model": {"function": "numpy_model:slow"},
        "transform": "small_pictures:to_input",
        "extract": {"batch_size": 4, "shard_size": 4, "actors": 1},
        "sample": {"method": "srs", "budget": 20},
        "output": output,
    }


def start(home: Path, output: str) -> subprocess.Popen[bytes]:
    (home / "spec.yaml").write_text(yaml.safe_dump(spec_for(output)))
    command = [sys.executable, "-m", "opacc_ray", "run", str(home / "spec.yaml"), "--no-trial"]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=TESTS, stdout=log, stderr=log)


def victims(driver: int, name: str) -> list[int]:
    """The processes of a command that hold a name."""
    found = []
    for pid in family(driver):
        with suppress(OSError):  # it has ended
            found += [pid] if name in Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") else []
    return found


def lose(kind: str, driver: subprocess.Popen[bytes], server: LocalS3, wait: float) -> bool:
    """Lose something after a while; returns whether it was there."""
    if kind == "s3":
        time.sleep(wait)
        assert server._process is not None
        server._process.send_signal(signal.SIGSTOP)
        time.sleep(GONE)
        server._process.send_signal(signal.SIGCONT)
        return True
    while driver.poll() is None and not victims(driver.pid, KINDS[kind]):
        time.sleep(0.05)
    time.sleep(wait)
    for pid in victims(driver.pid, KINDS[kind])[:1]:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL) if kind == "node" else os.kill(pid, signal.SIGKILL)
            return True
    return False


def main(times: str, seed: str, *kinds: str) -> int:
    rng, wrong = random.Random(int(seed)), 0
    with tempfile.TemporaryDirectory(prefix="opacc-lost-") as folder, LocalS3(Path(folder) / "s3") as server:
        home = Path(folder)
        os.environ |= server.environment() | {"PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
        os.environ.pop("RAY_ADDRESS", None)
        server.create_bucket("scans")
        server.create_bucket("audits")
        open_store("s3://scans/pool").write_many((f"{i:03d}.png", picture(i)) for i in range(120))
        if start(home, "s3://audits/calm/").wait(LIMIT):
            raise RuntimeError((home / "log").read_text())
        expected = content_of(open_store("s3://audits/calm"))
        for turn in range(int(times)):
            for kind in kinds or KINDS:
                wait = rng.uniform(0, ACTORS if kind == "actor" else WITHIN)
                wrong += disturb(home, server, f"{kind}-{turn}", kind, wait, expected)
    return min(wrong, 1)


def disturb(home: Path, server: LocalS3, name: str, kind: str, wait: float, expected: dict[str, bytes]) -> bool:
    """Run one command that loses something; returns whether it did not end as it should."""
    output, begun = f"s3://audits/{name}/", time.monotonic()
    driver = start(home, output)
    try:
        lost = lose(kind, driver, server, wait)
        code = driver.wait(LIMIT)
    finally:
        driver.kill()
    same = code == 0 and content_of(open_store(output)) == expected
    said: Sequence[str] = () if same else (home / "log").read_text().splitlines()[-3:]
    line = {"name": name, "after": round(wait, 1), "lost": lost, "code": code, "same": same, "said": list(said)}
    print(json.dumps(line | {"seconds": round(time.monotonic() - begun, 1)}), flush=True)
    return not same


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
