"""Kill readers and actors of audits, one after another, until some number has died: the bytes must be the same.

    PYTHONPATH=tests:. python -m chaos.kills [30]

An audit has 24 shards, one actor of a local Ray and two readers. After each second shard that is written, SIGKILL
ends a reader and an actor in turns. Audits follow one another until enough were killed. Each must end by itself, in the
bytes of an audit without readers and without Ray, and leave no process and no file in /dev/shm.
"""

import hashlib
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from small_pictures import picture

MARKER = "OPACC_KILLS"
"""Environment variable by which the processes of an audit are known."""

SHARDS, SIZE, SECONDS = 24, 16, 600

NAMES = {"a reader": "opacc_ray.extract.user_code", "an actor": "ray::Worker"}
"""What is in the command line of a process of each kind."""


def main(num: int) -> int:
    with tempfile.TemporaryDirectory(prefix="opacc-kills-") as home:
        return kill(Path(home), num)


def kill(home: Path, num: int) -> int:
    """Kill ``num`` processes; returns 1 if anything differs or stays."""
    (home / "pool").mkdir()
    for i in range(SHARDS * SIZE):
        (home / "pool" / f"{i:04d}.png").write_bytes(picture(i))
    begun, killed, problems = time.monotonic(), Counter[str](), list[str]()
    before = set(os.listdir("/dev/shm"))
    expected, audits = audit(home, "calm", "executor: local, readers: 0", 0, Counter(), random.Random(0)), 0
    while killed.total() < num:
        audits += 1
        found = audit(
            home,
            f"audit-{audits}",
            "executor: ray, actors: 1, readers: 2",
            num,
            killed,
            random.Random(audits),
            problems,
        )
        problems += ["other bytes"] * (found != expected)
    left = {name for name in set(os.listdir("/dev/shm")) - before if "opacc" in name}
    problems += [f"left in /dev/shm: {sorted(left)}"] * bool(left)
    kinds = ", ".join(f"{count} times {kind}" for kind, count in sorted(killed.items()))
    print(f"{killed.total()} kills ({kinds}) in {audits} audits, {time.monotonic() - begun:.0f} s: ", end="")
    print("the same bytes, nothing left" if not problems else "; ".join(problems))
    return int(bool(problems))


def audit(
    home: Path,
    name: str,
    extract: str,
    num: int,
    killed: Counter[str],
    draw: random.Random,
    problems: list[str] | None = None,
) -> str:
    """Run an audit, kill its processes meanwhile, and return a digest of its features."""
    spec, output, token = home / "spec.yaml", home / name, secrets.token_hex(8)
    spec.write_text(
        f"name: killed\npool: {{uri: {home}/pool, format: images}}\nmodel: {{function: 'numpy_model:noted', "
        f"arguments: {{folder: '{home}', seconds: .1}}}}\ntransform: small_pictures:to_input\n"
        f"extract: {{batch_size: 4, shard_size: {SIZE}, {extract}}}\n"
        f"sample: {{method: srs, budget: 10}}\noutput: {output}\n"
    )
    command = [sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"]
    driver = subprocess.Popen(command, env=os.environ | {MARKER: token}, stderr=(home / "log").open("w"), stdout=-3)
    end, at = time.monotonic() + SECONDS, 1
    while driver.poll() is None and time.monotonic() < end:
        if killed.total() < num and len(list(output.rglob("part-*.parquet"))) >= at:
            time.sleep(draw.uniform(0, 0.3))
            kind = sorted(NAMES)[killed.total() % 2]
            if victims := processes(token, NAMES[kind]):
                os.kill(draw.choice(victims), signal.SIGKILL)
                killed[kind] += 1
                at += 2
        time.sleep(0.05)
    driver.kill()
    if driver.wait() != 0 and problems is not None:
        problems.append(f"exit code {driver.returncode}: {(home / 'log').read_text()[-500:]}")
    time.sleep(5)  # Ray's processes end after the command
    if (left := processes(token, "")) and problems is not None:
        problems.append(f"{len(left)} processes stayed")
    digest = hashlib.sha256()
    for path in sorted(output.rglob("part-*.parquet")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def processes(token: str, name: str) -> list[int]:
    """Return the numbers of the processes of an audit with ``name`` in their command lines."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_ours = f"{MARKER}={token}".encode() in (process / "environ").read_bytes()
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if is_ours and line and name in line:
            found.append(int(process.name))
    return found


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 30))
