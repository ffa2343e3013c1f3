"""The job through Ray and S3 against a bare loop that reads, decodes and computes the same with the same threads.

    python benchmarks/throughput.py [--share 1.0] [--cases npy png jpeg] [--ray-data]

At --share 1, on one real S3 server: 200,000 images of 28×28 in npy files, nine times; 10,000 PNGs of 28×28, five
times; 2,000 JPEGs of 640×480 through a ResNet-18 with channels last, in three parts. The bare loop and then the job
take a part, and so on, so that what changes on the machine meets both; the last column is the median of the parts'
ratios, and their range. Both sides have one actor, one thread of torch, 16 threads that read and one that decodes. The
bare loop runs in a process of its own, with the same libraries and nothing of this package but its model. Start-up is
stated apart: on both sides images a second are counted from the end of the first batch. All take half an hour on 2
cores, the JPEGs a quarter.
With --ray-data, Ray Data does the PNGs from a folder (read_images, map_batches on one actor, write_parquet), whole
against whole. Prints a Markdown table.
"""

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import markdown_table as markdown
import numpy as np
from PIL import Image

from opacc_ray.audit import verbs
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.spec import parse_spec

HERE = Path(__file__).parent
COLUMNS = ("pool", "side", "images", "start-up, s", "images a second", "of the bare loop")


NOTE = """
Loop and job take part after part in turn. Numbers are medians of the turns, and in parentheses is the range
of their ratios. JPEGs have their channels last on both sides. An actor takes large tensors in huge pages, the loop as
torch does by itself."""


class Case(NamedTuple):
    """One pool and its model."""

    turns: int  # parts of the pool
    images: int  # of each part, at --share 1
    factory: str
    batch: int
    shard: int
    channels_last: bool = False


CASES = {
    "npy": Case(9, 200_000, "small", 256, 4096),
    "png": Case(5, 10_000, "small", 256, 512),
    "jpeg": Case(3, 667, "resnet18", 16, 64, channels_last=True),
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
            for turn in range(case.turns):
                fill(open_store(f"s3://{name}/{turn}"), name, num)
            _compare(name, case, num)
        if given.ray_data:
            _against_ray_data(home, max(2048, int(given.share * CASES["png"].images)))
    print(NOTE)


def fill(pool: Store, name: str, num: int) -> None:
    """Put the images of a case into a store."""
    generator = np.random.default_rng(0)
    if name == "npy":
        files = 20
        for part in range(files):
            sink = io.BytesIO()
            np.save(sink, generator.integers(0, 255, (num // files, 28, 28), dtype=np.uint8))
            pool.write(f"{part:02d}.npy", sink.getvalue())
        return
    shape, kind = ((28, 28), "PNG") if name == "png" else ((480, 640, 3), "JPEG")
    some = [_encoded(generator.integers(0, 255, shape, dtype=np.uint8), kind) for _ in range(32)]
    pool.write_many((f"{i:06d}.{name}", some[i % len(some)]) for i in range(num))


def _encoded(pixels: np.ndarray, kind: str) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format=kind)
    return sink.getvalue()


class Stretch(NamedTuple):
    """One side's work on one part of a pool."""

    start: float  # seconds until the end of the first batch
    rate: float  # images a second from then on


def _compare(name: str, case: Case, num: int) -> None:
    loops, jobs = [], []
    for turn in range(case.turns):
        loops.append(_loop(name, turn, case))
        with tempfile.TemporaryDirectory(prefix="opacc-throughput-") as folder:
            jobs.append(_job(name, turn, case, Path(folder, "first")))
    ratios = [job.rate / loop.rate for job, loop in zip(jobs, loops, strict=True)]
    _row(name, "bare loop", num, loops, "1")
    _row(name, "job", num, jobs, f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


def _loop(name: str, turn: int, case: Case) -> Stretch:
    loop = [str(HERE / "throughput_loop.py"), name, f"{turn}/", case.factory, str(case.batch)]
    command = [sys.executable, *loop, *(["channels_last"] if case.channels_last else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    images, start, seconds = (float(word) for word in done.stdout.split())
    return Stretch(start, images / seconds)


def _job(name: str, turn: int, case: Case, note: Path) -> Stretch:
    """A job, whose model notes in a file when it has computed its first batch."""
    content: dict[str, Any] = {
        "name": f"throughput-{name}-{turn}",
        "pool": {"uri": f"s3://{name}/{turn}", "format": "npy" if name == "npy" else "images"},
        "model": {"factory": f"throughput_model:{case.factory}", "arguments": {"note": str(note)}},
        "transform": "throughput_model:to_input",
        "extract": {
            "actors": 1,
            "batch_size": case.batch,
            "shard_size": case.shard,
            "channels_last": case.channels_last,
        },
        "sample": {"method": "srs", "budget": 10},
        "output": "s3://audits/",
    }
    begun = time.monotonic()
    _, stages = verbs.start(parse_spec(content, "spec"))
    ends: list[float] = []
    verbs.extract(stages, lambda done, _: ends.append(time.monotonic()) if done else None)
    num = stages[0].plan.num_examples
    assert num is not None
    first = float(note.read_text())  # of the clock that all processes of a machine share
    return Stretch(first - begun, (num - case.batch) / (ends[-1] - first))


def _row(pool: str, side: str, num: int, stretches: list[Stretch], ratio: str) -> None:
    """The medians of a side, and its rate as a share of the bare loop's."""
    start, rate = (statistics.median(values) for values in zip(*stretches, strict=True))
    cells = (
        pool,
        side,
        f"{len(stretches)} × {num}",
        f"{start:.1f}",
        f"{rate:{'.0f' if rate >= 100 else '.2f'}}",
        ratio,
    )
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
