"""What a command does until its first shard is finished, part by part.

    python benchmarks/startup.py [--repetitions 3]

Each part runs in a fresh process; seconds are those of the wall, the least of the repetitions, and beside them those of
the CPU, which a busy machine changes less. Prints a Markdown table.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import markdown_table as markdown
import yaml

from opacc_ray.lake.store_uris import open_store

ROOT = Path(__file__).parents[1]
PARTS = {
    "Python": "",
    "the command line": "import opacc_ray.cli.main",
    "what a run imports": "import opacc_ray.audit.verbs, opacc_ray.cluster.actor_pool",
    "torch": "import torch",
    "Ray": "import ray",
    "a local Ray, started and ended": "from opacc_ray.cluster import local\nwith local.started(): pass",
    "and joined": "from opacc_ray.cluster.session import connected\nwith connected(): pass",
}
FIRST_SHARD = r"extract: [1-9]\d* of"
COLUMNS = ("part", "seconds", "CPU seconds")


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--repetitions", type=int, default=3)
    repetitions = found.parse_args().repetitions
    rows = []
    for part, code in PARTS.items():
        walls, cpus = zip(*(_timed([sys.executable, "-c", code]) for _ in range(repetitions)), strict=True)
        rows.append((part, f"{min(walls):.2f}", f"{min(cpus):.2f}"))
    firsts = {
        "first shard": lambda: _first_shard(trial=False),
        "first shard, with a trial": lambda: _first_shard(trial=True),
        "first shard of the demo, from its run": _first_shard_of_demo,
    }
    for title, take in firsts.items():
        rows.append((title, f"{min(take() for _ in range(repetitions)):.2f}", ""))
    print(markdown.header(COLUMNS), *map(markdown.row, rows), sep="\n")


def _timed(command: list[str]) -> tuple[float, float]:
    """Seconds of the wall and of the CPU that a process takes, and those that it waits for."""
    before, begun = os.times(), time.monotonic()
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return time.monotonic() - begun, cpu


def _first_shard(trial: bool) -> float:
    """Seconds from the command to its first shard: 512 small images in a folder, two actors."""
    sys.path.insert(0, str(ROOT / "tests"))
    from small_pictures import picture

    with tempfile.TemporaryDirectory(prefix="opacc-startup-") as home:
        open_store(f"{home}/pool").write_many((f"{i:04d}.png", picture(i)) for i in range(512))
        spec = {
            "name": "startup",
            "pool": {"uri": f"{home}/pool", "format": "images"},
            "model": {"factory": "small_model:network"},
            "extract": {"shard_size": 128},
            "sample": {"method": "srs", "budget": 5},
            "output": f"{home}/audits",
        }
        Path(home, "spec.yaml").write_text(yaml.safe_dump(spec))
        command = [sys.executable, "-m", "opacc_ray", "run", "spec.yaml", *([] if trial else ["--no-trial"])]
        return _seconds_until(FIRST_SHARD, command, home)


def _first_shard_of_demo() -> float:
    """Seconds from the demo's run to its first shard of 500 scans; a local Ray starts while its model is trained."""
    with tempfile.TemporaryDirectory(prefix="opacc-startup-") as home:
        return _seconds_until(FIRST_SHARD, [sys.executable, "-m", "opacc_ray", "demo", "--folder", home], home, "run ")


def _seconds_until(line: str, command: list[str], folder: str, since: str = "") -> float:
    """Seconds until a command says a line, from its start or from a line that begins like ``since``."""
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    begun = time.monotonic()
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | paths, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stderr is not None
        if since:
            begun = next(time.monotonic() for said in run.stderr if said.startswith(since))
        seconds = next(time.monotonic() - begun for said in run.stderr if re.match(line, said))
        run.stderr.read()
    return seconds


if __name__ == "__main__":
    main()
