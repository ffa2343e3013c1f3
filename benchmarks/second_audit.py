"""Seconds from command to manifest: the first audit of a pool, and further ones that find its features there.

    python benchmarks/second_audit.py [--images 10000]

Puts pictures of noise, 28 × 28, into a local S3 server and runs `opacc run` on them, each time as a process of its own,
as a user does: first a simple random sample, which extracts, then other methods under other names. A LeNet-5 of random
weights plays the model, since what it says does not matter here. Prints a Markdown table: seconds on the clock, and of
CPU in the process of the command, which other work on the machine does not lengthen.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import markdown_table as markdown
import numpy as np
import torch
from fashion_job import LeNet5
from safetensors.torch import save

from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store

METHODS = ("srs", "css", "ces", "deepest", "neyman")


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--images", type=int, default=10_000)
    given = found.parse_args()
    with tempfile.TemporaryDirectory() as home, LocalS3(f"{home}/s3") as server:
        os.environ.update(server.environment())
        _fill(server.create_bucket("lake"), given.images)
        print(markdown.header(("audit", "seconds", "of CPU", "shards extracted")))
        for number, method in enumerate((METHODS[0], *METHODS)):
            seconds, cpu, extracted = _run(Path(home), method, number)
            name = f"{'first' if not number else 'another'}, {method}"
            print(markdown.row([name, f"{seconds:.1f}", f"{cpu:.1f}", str(extracted)]), flush=True)


def _fill(bucket: str, num_images: int) -> None:
    rng, lake = np.random.default_rng(0), open_store(bucket)
    torch.manual_seed(0)
    lake.write("lenet5.safetensors", save(LeNet5().state_dict()))
    pictures = rng.integers(0, 256, (num_images, 28, 28), dtype=np.uint8)
    lake.write_many((f"pool/{i:05d}.png", encode_png(picture)) for i, picture in enumerate(pictures))


def _run(home: Path, method: str, number: int) -> tuple[float, float, int]:
    """Seconds of `opacc run` and of its CPU, and how many shards it wrote."""
    spec = home / f"{number}.yaml"
    content = {
        "name": f"audit-{number}",
        "pool": {"uri": "s3://lake/pool", "format": "images"},
        "model": {"factory": "fashion_job:LeNet5", "weights": "s3://lake/lenet5.safetensors"},
        "sample": {"method": method, "budget": 100},
        "output": "s3://lake/audits",
    }
    spec.write_text(json.dumps(content))
    before, used = _shards(), _children()
    begun = time.perf_counter()
    command = [sys.executable, "-m", "opacc_ray", "run", str(spec)]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    seconds = time.perf_counter() - begun
    if done.returncode:
        sys.exit(done.stderr)
    return seconds, _children() - used, len(_shards() - before)


def _children() -> float:
    """Seconds of CPU of the commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shards() -> set[tuple[str, str]]:
    found = open_store("s3://lake/audits/features").list()
    return {(entry.key, entry.tag) for entry in found if entry.key.endswith(".parquet")}


if __name__ == "__main__":
    main()
