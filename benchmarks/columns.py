"""What verbs read and hold: bytes at the server's door, memory of the driver, seconds to index.

    python benchmarks/columns.py bytes     a run of 20,000 × 512 features in a local S3 server
    python benchmarks/columns.py memory    a run of 10,000,000 examples with a hidden layer of 8, in a folder

Each verb runs as a process of its own, as a user runs it; its memory is the most that was resident at a time.
"""

import argparse
import contextlib
import os
import pickle
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path

from opacc_ray.audit import verbs
from opacc_ray.audit.stages import index_features
from opacc_ray.cli.main import main
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.labels import label_actions
from opacc_ray.lake.examples import Shard
from opacc_ray.lake.store import Entry
from opacc_ray.runs.run import Run

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from counting_proxy import CountingProxy
from synthetic_run import extraction_of, open_synthetic, write_synthetic

METHODS = ("srs", "css", "deepest", "neyman", "neyman")
"""Neyman twice: the first time it reads the hidden layer, and keeps its directions for later rounds."""


def count_bytes() -> None:
    """Bytes and requests of `opacc next` and `opacc estimate`, beside the size of the features."""
    with tempfile.TemporaryDirectory() as folder, LocalS3(folder) as server:
        os.environ.update(server.environment())
        run = write_synthetic(f"{server.create_bucket('wide')}/wide-00000001", 20_000, 512, 1024)
        stored = sum(entry.size for entry in run.features.list())
        verbs.select(run, "css", 100, {})
        _label(run, 1)
        print(f"features: {stored / 1e6:.1f} MB in {len(run.finished_shards())} shards\n")
        print("| command | bytes | of the features | requests |\n|---|---:|---:|---:|")
        with CountingProxy(server.endpoint) as door:
            os.environ |= {"AWS_ENDPOINT_URL": door.endpoint, "AWS_ENDPOINT_URL_S3": door.endpoint}
            for number, method in enumerate(METHODS, 2):
                for command in (["next", run.uri, "--budget", "50", "--method", method], ["estimate", run.uri]):
                    door.reset()
                    _run(["-m", "opacc_ray", *command])
                    share, num = door.total() / stored, sum(door.requests.values())
                    told = f"{command[0]} --method {method}" if command[0] == "next" else "estimate"
                    print(f"| {told} | {door.total():,} | {share:.2%} | {num} |", flush=True)
                    if command[0] == "next":
                        _label(run, number)


def measure_memory(size: int = 10_000_000, shard_size: int = 100_000) -> None:
    """Memory and time of `opacc select` for 200 labels, and of indexing."""
    with tempfile.TemporaryDirectory() as folder:
        uri = f"{folder}/long-00000001"
        run, plan, written = open_synthetic(uri, size, 8, shard_size, own_ids=True)
        own = dict(enumerate(written))
        stored = sum(entry.size for entry in run.features.list())
        print(f"{size:,} examples, {stored / 1e6:.0f} MB of features in {len(plan.shards)} shards\n")
        print("| what | seconds of CPU | memory, MB |\n|---|---:|---:|")
        made = {number: report._replace(own_ids=False, hashes=None) for number, report in own.items()}
        for told, kind, reports in (
            ("index, images", "images", made),
            ("index, ids made of keys", "npy", made),
            ("index, ids of the pool's own", "npy", own),
            ("index after a restart, ids of the pool's own", "npy", {}),
        ):
            Path(folder, "reports").write_bytes(pickle.dumps((plan, reports)))
            print(f"| {told} |", _run([__file__, "index", uri, f"{folder}/reports", kind]), flush=True)
        for method in ("srs", "css", "deepest"):
            command = ["select", uri, "--method", method, "--budget", "200"]
            print(f"| opacc select --method {method} |", _run([__file__, "command", *command]), flush=True)


def index(uri: str, reports: str, kind: str) -> None:
    """Make an index of the reports in a file; of images, the plan lists every one."""
    plan, known = pickle.loads(Path(reports).read_bytes())
    job = extraction_of(Run.open(uri))
    if kind == "images":
        job = replace(job, source=job.source.model_copy(update={"format": kind}))
        starts = [0, *accumulate(known[shard.number].num_examples for shard in plan.shards)]
        rows = [range(start, stop) for start, stop in pairwise(starts)]
        listed = [tuple(Entry(f"{row:09d}.png", 1, "") for row in own) for own in rows]
        plan = plan._replace(shards=tuple(Shard(number, entries) for number, entries in enumerate(listed)))
    begun = time.process_time()
    index_features(job, plan, known)
    _tell(time.process_time() - begun)


def command(*arguments: str) -> None:
    """Run `opacc` with these arguments."""
    with contextlib.redirect_stdout(sys.stderr):
        code = main(arguments)
    if code:
        sys.exit(code)
    _tell(time.process_time())


def _tell(seconds: float) -> None:
    """Print seconds of CPU, and the most memory that this process held."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    print(f"{seconds:.2f} | {int(peak[1]) * 1024 / 1e6:.0f} |")


def _run(arguments: Sequence[str]) -> str:
    """Run Python; returns what it printed."""
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)} failed: {done.stderr}")
    return done.stdout.strip()


def _label(run: Run, number: int) -> None:
    chosen = run.read_chosen(number)
    rows = (f"{name},{said}" for name, said in zip(chosen.ids, chosen.predictions, strict=True))
    label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *rows]).encode())


if __name__ == "__main__":
    tasks = {"bytes": count_bytes, "memory": measure_memory, "index": index, "command": command}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tasks, help="index and command are run by the other two")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    given = parser.parse_args()
    tasks[given.task](*given.arguments)
