"""The job through Ray and S3 against a bare loop that reads, decodes and computes the same with the same threads.

    python benchmarks/throughput.py [--share 1.0] [--cases npy png jpeg] [--ray-data]

At --share 1: 200,000 images of 28×28 in 20 npy files; 10,000 PNGs of 28×28; 2,000 JPEGs of 640×480 through a ResNet-18;
all on one real S3 server. Both sides have one actor, one thread of torch, 16 threads that read and one that decodes.
The bare loop runs in a process of its own, with the same libraries and nothing of this package but its model.
Start-up is stated apart: on both sides images a second are counted from the end of the first batch.
With --ray-data, Ray Data does the PNGs from a folder (read_images, map_batches on one actor, write_parquet), whole
against whole. Prints a Markdown table.
"""

import argparse
import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np
from PIL import Image

from opacc_ray.audit import steps
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.storage import Store, open_store
from opacc_ray.spec import parse_spec

HERE = Path(__file__).parent
COLUMNS = ("pool", "side", "images", "start-up, s", "images a second", "of the bare loop")


class Case(NamedTuple):
    """One pool and its model."""

    images: int  # at --share 1
    factory: str
    batch: int
    shard: int


CASES = {
    "npy": Case(200_000, "small", 256, 4096),
    "png": Case(10_000, "small", 256, 512),
    "jpeg": Case(2_000, "resnet18", 16, 64),
}


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--share", type=float, default=1.0, help="of each pool's images")
    found.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    found.add_argument("--ray-data", action="store_true")
    return found


def main() -> None:
    given = parser().parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), str(HERE)])
    sys.path.insert(0, str(HERE))
    print(markdown.header(COLUMNS, texts=2), flush=True)
    with tempfile.TemporaryDirectory(prefix="opacc-throughput-") as home, LocalS3(f"{home}/s3") as server:
        os.environ |= server.environment()
        server.create_bucket("audits")
        for name in given.cases:
            case = CASES[name]
            num = max(4 * case.shard, int(given.share * case.images))
            server.create_bucket(name)
            fill(open_store(f"s3://{name}"), name, num)
            _compare(name, case, num)
        if given.ray_data:
            _against_ray_data(home, max(2048, int(given.share * CASES["png"].images)))


def fill(pool: Store, name: str, num: int) -> None:
    """Put the images of a case into a store."""
    generator = np.random.default_rng(0)
    if name == "npy":
        for part in range(20):
            sink = io.BytesIO()
            np.save(sink, generator.integers(0, 255, (num // 20, 28, 28), dtype=np.uint8))
            pool.write(f"{part:02d}.npy", sink.getvalue())
        return
    shape, kind = ((28, 28), "PNG") if name == "png" else ((480, 640, 3), "JPEG")
    some = [_encoded(generator.integers(0, 255, shape, dtype=np.uint8), kind) for _ in range(32)]
    pool.write_many((f"{i:06d}.{name}", some[i % len(some)]) for i in range(num))


def _encoded(pixels: np.ndarray, kind: str) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format=kind)
    return sink.getvalue()


def _compare(name: str, case: Case, num: int) -> None:
    command = [sys.executable, str(HERE / "throughput_loop.py"), name, case.factory, str(case.batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    images, start, seconds = (float(word) for word in done.stdout.split())
    bare = images / seconds
    _row(name, "bare loop", num, start, bare, 1.0)
    with tempfile.TemporaryDirectory(prefix="opacc-throughput-") as folder:
        start, rate = _job(f"s3://{name}", "npy" if name == "npy" else "images", case, Path(folder, "first"))
    _row(name, "job", num, start, rate, rate / bare)


def _job(pool: str, kind: str, case: Case, note: Path) -> tuple[float, float]:
    """Seconds until a job has computed its first batch, which it notes in a file, and images a second from then on."""
    content: dict[str, Any] = {
        "name": f"throughput-{kind}",
        "pool": {"uri": pool, "format": kind},
        "model": {"factory": f"throughput_model:{case.factory}", "arguments": {"note": str(note)}},
        "transform": "throughput_model:to_input",
        "extract": {"actors": 1, "batch_size": case.batch, "shard_size": case.shard},
        "sample": {"method": "srs", "budget": 10},
        "output": "s3://audits/",
    }
    begun = time.monotonic()
    _, stages = steps.start(parse_spec(content, "spec"))
    ends: list[float] = []
    steps.extract(stages, lambda done, _: ends.append(time.monotonic()) if done else None)
    num = stages[0].plan.num_examples
    assert num is not None
    first = float(note.read_text())  # of the clock that all processes of a machine share
    return first - begun, (num - case.batch) / (ends[-1] - first)


def _row(pool: str, side: str, num: int, start: float, rate: float, ratio: float) -> None:
    cells = (pool, side, f"{num}", f"{start:.1f}", f"{rate:.0f}", f"{ratio:.2f}")
    print(markdown.row(cells), flush=True)


def _against_ray_data(home: str, num: int) -> None:
    """PNGs in a folder, whole job against whole job, each in a process of its own that starts a local Ray."""
    fill(open_store(f"{home}/png"), "png", num)
    spec = Path(home, "spec.yaml")
    spec.write_text(
        f"name: folder\npool: {{uri: {home}/png, format: images}}\nmodel: {{factory: 'throughput_model:small'}}\n"
        f"transform: throughput_model:to_input\nextract: {{actors: 1}}\nsample: {{method: srs, budget: 10}}\n"
        f"output: {home}/audits\n"
    )
    data = [sys.executable, str(HERE / "throughput_ray_data.py"), f"{home}/png", f"{home}/written"]
    job = [sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"]
    seconds = []
    for command in (data, job):
        begun = time.monotonic()
        subprocess.run(command, capture_output=True, check=True)
        seconds.append(time.monotonic() - begun)
    print(markdown.row(("png in a folder", "Ray Data, whole", f"{num}", "", f"{num / seconds[0]:.0f}", "")))
    ratio = f"{seconds[0] / seconds[1]:.1f} × Ray Data"
    print(markdown.row(("png in a folder", "job, whole", f"{num}", "", f"{num / seconds[1]:.0f}", ratio)))


if __name__ == "__main__":
    main()
