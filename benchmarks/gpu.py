"""What a GPU gives: the same features as a CPU, the pace of a bare torch loop, and surprise by the second.

    python benchmarks/gpu.py [--images 4096] [--batch 128] [--pool 20000]

ResNet-18 and a model of the size of ViT-B/16. Then a pool of JPEGs of 224×224 in a folder, through ResNet-18: whole
commands of `opacc run`, of torch's DataLoader with a process per core, and of Ray Data, one after another; the same
command again, whose files must be the same, with its actor killed, with more actors, and with 0, 4 and 15 readers. Then
without Ray, and the larger model. --pool 0 leaves that out. Without a CUDA device it measures nothing. Prints a table;
ends with 1 if the features of CPU and GPU differ by more than the stated tolerance, or files differ.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import markdown_table as markdown
import networks
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from opacc_ray.extract.reference import Reference
from opacc_ray.extract.torch_model import Model
from opacc_ray.spec import ModelSpec

TOLERANCE = 1e-3
"""Between features of CPU and GPU, of the largest value of the layer."""

SHARD = 1024
"""Examples of a shard of the audits."""

QUERIES, TRACES, NEURONS = 10_000, 60_000, 512


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pool", type=int, default=20_000, help="JPEGs of the audits")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: torch finds no CUDA device here")
        return 0
    images = np.random.default_rng(0).random((given.batch, 3, 224, 224), dtype=np.float32)
    difference = _difference(images[:8])
    repetitions = max(2, given.images // given.batch)
    print(markdown.header((f"on {torch.cuda.get_device_name()}", "value")))
    print(markdown.row(("largest difference of CPU and GPU, of the layer's largest value", f"{difference:.1e}")))
    for factory, name in (("resnet18", "ResNet-18"), ("vit", "ViT-B/16")):
        for precision in ("float32", "bfloat16"):
            _pace(images, factory, f"{name}, {precision}", precision, repetitions)
    _surprise()
    same = True
    if given.pool:
        with tempfile.TemporaryDirectory(prefix="opacc-gpu-") as home:
            same = _audits(Path(home), given.pool)
    return int(difference > TOLERANCE or not same)


def _model(device: str, factory: str = "resnet18", precision: str = "float32") -> Model:
    return Model(ModelSpec(factory=f"networks:{factory}"), device, precision)


def _difference(images: NDArray[np.float32]) -> float:
    here, there = _model("cpu")(images), _model("cuda")(images)
    assert here.hidden is not None
    assert there.hidden is not None
    pairs = ((here.hidden, there.hidden), (here.output, there.output))
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs)


def _pace(images: NDArray[np.float32], factory: str, name: str, precision: str, repetitions: int) -> None:
    """Images a second as an actor runs batches, and as a bare loop does on the same bytes; how long the GPU is busy."""
    ours = _model("cuda", factory, precision)
    dtype, layout = getattr(torch, precision), torch.preserve_format
    bare = getattr(networks, factory)().eval().to("cuda", dtype)
    if precision != "float32":
        layout = torch.channels_last
        bare = bare.to(memory_format=layout)

    def loop() -> None:
        with torch.inference_mode():
            bare(torch.from_numpy(images).to("cuda", dtype).contiguous(memory_format=layout)).float().cpu().numpy()

    busy = list[float]()

    def overlapped() -> None:
        """Wait for a batch once the next one has begun."""
        before = ours.start(images)
        for _ in range(repetitions - 1):
            running = ours.start(images)
            busy.append(before()[1])
            before = running
        busy.append(before()[1])

    ours(images)
    job = len(images) * repetitions / (seconds := _seconds(overlapped, 1, warm=False))
    plain = len(images) * repetitions / _seconds(loop, repetitions)
    print(markdown.row((f"{name}: images a second", f"{job:.0f}")))
    print(markdown.row((f"{name}: of a bare loop", f"{job / plain:.2f}")))
    print(markdown.row((f"{name}: share of time the device is busy", f"{sum(busy) / seconds:.2f}")), flush=True)


def _surprise() -> None:
    generator = np.random.default_rng(0)
    traces = generator.random((TRACES, NEURONS), dtype=np.float32)
    reference = Reference(traces, generator.integers(0, 10, TRACES), _model("cuda").arrays)
    rows, classes = generator.random((QUERIES, NEURONS), dtype=np.float32), generator.integers(0, 10, QUERIES)
    reference.dsa(rows[:100], classes[:100])
    seconds = _seconds(lambda: reference.dsa(rows, classes), 1)
    work = 2 * QUERIES * TRACES * NEURONS / 1e9  # of all distances; those of a class are a tenth of them
    print(markdown.row((f"DSA, {QUERIES} × {TRACES} × {NEURONS}: seconds", f"{seconds:.2f}")))
    print(markdown.row(("DSA: GFLOP/s of all distances", f"{work / seconds:.0f}")))


def _audits(home: Path, num: int) -> bool:
    """Whole commands on a folder of JPEGs; returns whether the files of three runs are the same."""
    _fill(home / "pool", num)
    _whole([sys.executable, "-c", "import ray, torch; torch.ones(1).cuda()"])  # both from the disk to memory
    here = Path(__file__).parent
    loops = {
        "torch's DataLoader": [str(here / "gpu_loop.py"), str(home / "pool")],
        "Ray Data": [str(here / "gpu_ray_data.py"), str(home / "pool"), str(home / "written")],
    }
    for name, command in loops.items():
        _row(name, num, _whole([sys.executable, *command]), "")
    _job(home, "first", num)  # compiles, and so does Ray Data's
    digest = _job(home, "one actor", num)
    same = [_job(home, "one actor, killed halfway", num, kill=True) == digest]
    same += [_job(home, f"{actors} actors on one GPU", num, actors) == digest for actors in (2, 4)]
    same += [_job(home, f"one actor, {readers} readers", num, readers=readers) == digest for readers in (0, 4, 15)]
    print(markdown.row(("files of features of these runs", "the same" if all(same) else "OTHERS")), flush=True)
    _job(home, "one actor, ViT-B/16", num, extract="precision: bfloat16", factory="vit")
    _job(home, "without Ray", num, extract="executor: local")
    return all(same)


def _job(
    home: Path,
    name: str,
    num: int,
    actors: int = 1,
    kill: bool = False,
    readers: int | str = "auto",
    extract: str = "executor: ray",
    factory: str = "resnet18",
) -> str:
    """Run a command, write its row, and return the digest of its features."""
    output = home / re.sub(r"\W+", "-", name)
    settings = f"actors: {actors}, gpus_per_actor: {1 / actors}, readers: {readers}, {extract}"
    seconds, rate = _run(home, output, settings, factory, kill)
    if name != "first":
        [work] = output.rglob("extraction.json")
        busy = json.loads(work.read_text())["busy"]
        _row(f"job, {name}", num, seconds, f", {rate:.0f} between shards, device {100 * busy:.0f} % busy")
    return _digest(output)


def _row(name: str, num: int, seconds: float, more: str) -> None:
    cells = (f"{num} JPEGs, {name}: seconds, images a second", f"{seconds:.1f}, {num / seconds:.0f}{more}")
    print(markdown.row(cells), flush=True)


def _fill(folder: Path, num: int) -> None:
    """Pictures with some structure: noise of 14×14, enlarged."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    kinds = []
    for _ in range(256):
        sink = io.BytesIO()
        small = Image.fromarray(generator.integers(0, 255, (14, 14, 3), dtype=np.uint8))
        small.resize((224, 224), Image.Resampling.BICUBIC).save(sink, format="JPEG", quality=90)
        kinds.append(sink.getvalue())
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda i: (folder / f"{i:06d}.jpg").write_bytes(kinds[i % len(kinds)]), range(num)))


def _run(home: Path, output: Path, settings: str, factory: str, kill: bool) -> tuple[float, float]:
    """Seconds of the command, and images a second from its first shard on; its actor is killed halfway if asked."""
    spec = home / f"{output.name}.yaml"
    spec.write_text(
        f"name: gpu\npool: {{uri: {home}/pool, format: images}}\nmodel: {{factory: 'networks:{factory}'}}\n"
        f"transform: networks:to_input\nextract: {{{settings}, batch_size: 128, shard_size: {SHARD}}}\n"
        f"sample: {{method: srs, budget: 10}}\noutput: {output}\n"
    )
    killed = threading.Event()
    if kill:
        threading.Thread(target=_kill_actor, args=(output, killed), daemon=True).start()
    seconds = _whole([sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"])
    if kill and not killed.is_set():
        raise SystemExit("no actor was found to be killed")
    shards = sorted(path.stat().st_mtime for path in output.rglob("part-*.parquet"))
    return seconds, SHARD * (len(shards) - 1) / max(shards[-1] - shards[0], 1e-9)


def _kill_actor(output: Path, killed: threading.Event) -> None:
    """Once four shards are written, kill the process of the actor; end when that is done."""
    while len(list(output.rglob("part-*.parquet"))) < 4:
        time.sleep(0.05)
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if (process / "cmdline").read_bytes().startswith(b"ray::Worker"):
                os.kill(int(process.name), signal.SIGKILL)
                killed.set()


def _digest(output: Path) -> str:
    """Of the names and bytes of all shards."""
    found = hashlib.sha256()
    for path in sorted(output.rglob("part-*.parquet")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


def _whole(command: list[str]) -> float:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    begun = time.monotonic()
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return time.monotonic() - begun


def _seconds(work: Callable[[], object], repetitions: int, *, warm: bool = True) -> float:
    if warm:
        work()
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(repetitions):
        work()
    torch.cuda.synchronize()
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
