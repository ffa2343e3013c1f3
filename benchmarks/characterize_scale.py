"""EP, CP, BC and PBC of a large pool whose features are held by actors.

    python benchmarks/characterize_scale.py [--files 200] [--rows 50000] [--width 64] [--actors 1 2 4]

Writes features of files × rows examples (each file holds the same ones, all random), and for each number of actors
starts a process that measures them in actors. Prints a Markdown table: seconds until the actors are there, seconds for
the four measures, in which features are read from storage, the most memory that the process held, without its actors,
and a digest of all numbers, which is the same if they are, bit for bit.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import markdown_table as markdown
import numpy as np

from opacc_ray.audit.stages import index_features
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, encode_shard, report_on
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.runs.identity import header_of
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

CLASSES = 10
NAMES = ("hidden", "output", "prediction", "confidence")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--files", type=int, default=200)
    found.add_argument("--rows", type=int, default=50_000)
    found.add_argument("--width", type=int, default=64)
    found.add_argument("--actors", type=int, nargs="+", default=[1, 2, 4])
    found.add_argument("--measure", help=argparse.SUPPRESS)  # the run, of the process that measures
    return found


def main() -> None:
    given = parser().parse_args()
    if given.measure:
        print(json.dumps(measured(given.measure, given.actors[0])))
        return
    print(markdown.header(("actors", "examples", "start, s", "measure, s", "driver, MB", "digest")))
    with tempfile.TemporaryDirectory(prefix="opacc-scale-") as home:
        uri = write_run(home, given.files, given.rows, given.width)
        for num in given.actors:
            command = [sys.executable, __file__, "--measure", uri, "--actors", str(num)]
            done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
            cells = [f"{done[name]:.1f}" for name in ("start", "measure")]
            print(
                markdown.row([str(num), f"{done['size']:,}", *cells, f"{done['memory']:.0f}", done["digest"]]),
                flush=True,
            )


def write_run(home: str, files: int, rows: int, width: int) -> str:
    """A run whose shards are all alike; returns its URI."""
    content = {
        "name": "scale",
        "pool": {"uri": f"{home}/pool", "format": "images"},
        "model": {"factory": "user:network"},
        "output": home,
    }
    spec = parse_spec(content, "scale")
    plan = Plan(tuple(Shard(number, ()) for number in range(files)), "")
    run = Run.create(f"{home}/scale-00000001", header_of(spec, plan, None))
    rng = np.random.default_rng(0)
    columns = {
        "hidden": rng.standard_normal((rows, width), dtype=np.float32),
        "output": rng.standard_normal((rows, CLASSES), dtype=np.float32),
        "confidence": rng.beta(6, 1, rows),
        "prediction": rng.integers(0, CLASSES, rows),
    }
    ids = [f"{row:06d}" for row in range(rows)]
    made = FeatureShard(ids, ids, columns, [], False)
    data = encode_shard(made)
    reports = {}
    for shard in plan.shards:
        run.features.write(shard.file, data)
        reports[shard.number] = report_on(made, data, shard.file)
    index_features(Extraction(spec, spec.pool, spec.features(), run.features), plan, reports)
    return run.uri


def measured(uri: str, num_actors: int) -> dict[str, float | int | str]:
    """Seconds, memory in MB, and a digest of the numbers."""
    from opacc_ray.cluster.session import connected
    from opacc_ray.datasets.class_coverage import Regions, measure
    from opacc_ray.datasets.classes import Grouped
    from opacc_ray.parts.view import View

    there = Run.open(uri).read_features()
    assert there
    with connected():
        from opacc_ray.cluster.parts import ActorParts  # imports Ray, which reads its token mode then

        start = time.perf_counter()
        parts = ActorParts(there.features, NAMES, num_actors)
        view = View(parts)
        view.map(len)
        ready = time.perf_counter()
        found = measure(Grouped(view, CLASSES), Regions(high=0.8))
        done = time.perf_counter()
        parts.close()
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(values).tobytes() for values in found)).hexdigest()
    return {
        "size": view.size,
        "start": ready - start,
        "measure": done - ready,
        "memory": int(peak[1]) * 1024 / 1e6,
        "digest": digest[:8],
    }


if __name__ == "__main__":
    main()
