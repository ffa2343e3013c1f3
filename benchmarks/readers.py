"""What reading ahead gives where the device is fast and the transform slow, without a GPU: a stand-in for one.

    python benchmarks/readers.py [--images 4000] [--readers 2] [--turns 3] [--wait] [--ray-data]

The device is a model that sleeps 10 ms for a batch of 64, and so frees the interpreter. The transform costs 1.5 ms of
Python; with --wait, as long a wait that holds the interpreter, for a machine whose cores are busy. A loop, torch's
DataLoader with as many workers, and whole commands of `opacc run`, in turns on one machine: images a second in the
steady state (between the first and the last shard), and seconds of the whole command. Prints a Markdown table of
medians; ends with 1 if files of features differ.
"""

import argparse
import ctypes
import hashlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BATCH, SHARD, SIZE = 64, 256, 32
SLEEP = float(os.environ.get("READERS_SLEEP", ".01"))  # seconds of a batch
STEPS = int(os.environ.get("READERS_STEPS", "45000"))  # of the transform: 1.5 ms on a core of 2025

WAIT = "READERS_WAIT" in os.environ


def costly(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W, 3) -> (3, H, W) in [0, 1], after work that holds the interpreter."""
    if WAIT:
        ctypes.PyDLL(None).usleep(1500)  # which does not free the interpreter
    total = 0
    for step in range(0 if WAIT else STEPS):
        total += step
    return np.moveaxis(np.divide(image, 255, dtype=np.float32), -1, 0) + np.float32(total < 0)


def sleeping() -> Any:
    """Return a torch module, (B, 3, H, W) -> (B, 10), that takes as long as a device would."""
    import torch

    class Sleeping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.last = torch.nn.Linear(3, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            time.sleep(SLEEP)
            return self.last(x.mean((2, 3)))

    return Sleeping()


def asleep(batch: NDArray[np.float32]) -> NDArray[np.float32]:
    """(B, 3, H, W) -> (B, 10), without torch: for the simulated GPU of `nodes.py`."""
    time.sleep(SLEEP)
    return batch.mean((2, 3)) @ np.arange(30, dtype=np.float32).reshape(3, 10)


def read(path: Path) -> NDArray[np.float32]:
    """Return the input of one file, as the other sides read it."""
    with Image.open(path) as image:
        return costly(np.asarray(image))


class Pictures:
    """A dataset of torch."""

    def __init__(self, folder: str) -> None:
        self.paths = sorted(Path(folder).iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> NDArray[np.float32]:
        return read(self.paths[place])


def loader(folder: str, readers: int, how: str | None = None) -> None:
    """Print images a second of torch's DataLoader after its first batches; without readers, it is a bare loop.

    ``how``: its processes start, such as forkserver; None: as torch chooses.
    """
    import torch

    data: Any = Pictures(folder)
    model, begun, ends = sleeping().eval(), time.monotonic(), list[float]()
    with torch.inference_mode():
        for batch in torch.utils.data.DataLoader(
            data, batch_size=BATCH, num_workers=readers, multiprocessing_context=how
        ):
            model(batch)
            ends.append(time.monotonic())
    steady = BATCH * (len(ends) - 1 - SHARD // BATCH) / (ends[-2] - ends[SHARD // BATCH - 1])
    print(f"rate {steady:.0f} first {ends[SHARD // BATCH - 1] - begun:.1f}")


def ray_data(folder: str) -> None:
    """Run Ray Data with one actor, which may transform on all cores, and write Parquet."""
    import ray
    import torch

    class Predictor:
        def __init__(self) -> None:
            self.model = sleeping().eval()

        def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
            with torch.inference_mode():
                return {"output": self.model(torch.from_numpy(np.stack(list(batch["input"])))).numpy()}

    ray.init(address="local", include_dashboard=False, log_to_driver=False)
    images = ray.data.read_images(folder).map(lambda row: {"input": costly(row["image"])})
    images.map_batches(Predictor, batch_size=BATCH, concurrency=1, num_cpus=0).write_parquet(f"{folder}-ray")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ray-data", action="store_true", help="also Ray Data; needs pandas")
    parser.add_argument("--extract", action="append", default=[], help="key: value of extract, of one more command")
    parser.add_argument("--wait", action="store_true", help="the transform waits instead of computing")
    given = parser.parse_args()
    if given.wait:
        os.environ["READERS_WAIT"] = "1"
    with tempfile.TemporaryDirectory(prefix="opacc-readers-") as home:
        fill(Path(home, "pool"), given.images)
        return compare(Path(home), given)


def compare(home: Path, given: argparse.Namespace) -> int:
    """Run each side in turns, and print the medians."""
    kinds = [
        "executor: ray, actors: 1, readers: 0",
        f"executor: ray, actors: 1, readers: {given.readers}",
        f"executor: local, readers: {given.readers}",
    ]
    kinds += given.extract
    sides = {
        "a bare loop": ["loader", "0"],
        f"DataLoader, {given.readers} workers": ["loader", str(given.readers)],
        f"DataLoader, {given.readers} workers, forkserver": ["loader", str(given.readers), "forkserver"],
        **({"Ray Data": ["ray_data"]} if given.ray_data else {}),
    }
    rows: dict[str, list[tuple[float, float, float]]] = {}
    digests = set()
    for turn in range(given.turns):
        for name, (function, *rest) in sides.items():
            command = [sys.executable, __file__, "--side", function, str(home / "pool"), *rest]
            rows.setdefault(name, []).append(measured(command))
        for number, kind in enumerate(kinds):
            output = home / f"run-{turn}-{number}"
            rows.setdefault(f"opacc run, {kind}", []).append(audit(home, output, kind))
            digests.add(digest_of(output))
    print("| side | images a second | seconds to the first shard | seconds of the command |\n|---|---:|---:|---:|")
    for name, found in rows.items():
        rate, first, whole = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"| {name} | {rate:.0f} | {first:.1f} | {whole:.1f} |")
    print(f"| files of features | {'the same' if len(digests) == 1 else 'OTHERS'} | | |")
    return int(len(digests) != 1)


def fill(folder: Path, num: int) -> None:
    """Write pictures of noise."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for i in range(num):
        Image.fromarray(generator.integers(0, 255, (SIZE, SIZE, 3), dtype=np.uint8)).save(folder / f"{i:06d}.png")


def audit(home: Path, output: Path, extract: str) -> tuple[float, float, float]:
    """Run a command; returns images a second between shards, and seconds to the first one and in all."""
    spec = home / "spec.yaml"
    spec.write_text(
        f"name: readers\npool: {{uri: {home}/pool, format: images}}\nmodel: {{factory: 'readers:sleeping'}}\n"
        f"transform: readers:costly\nextract: {{batch_size: {BATCH}, shard_size: {SHARD}, {extract}}}\n"
        f"sample: {{method: srs, budget: 10}}\noutput: {output}\n"
    )
    begun = time.time()
    _, _, seconds = measured([sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"])
    shards = sorted(path.stat().st_mtime for path in output.rglob("part-*.parquet"))
    rate = SHARD * (len(shards) - 1) / max(shards[-1] - shards[0], 1e-9)
    return rate, shards[0] - begun, seconds


def measured(command: list[str]) -> tuple[float, float, float]:
    """Run a command; returns the rate and the seconds that it prints, and the seconds that it takes."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    begun, env = time.monotonic(), os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode not in (0, 7):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    numbers = re.search(r"rate (\S+) first (\S+)", done.stdout)
    rate, first = map(float, numbers.groups()) if numbers else (float("nan"), float("nan"))
    return rate, first, time.monotonic() - begun


def digest_of(output: Path) -> str:
    """Return a digest of the names and bytes of all shards."""
    found = hashlib.sha256()
    for path in sorted(output.rglob("part-*.parquet")):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--side"]:
        name, folder, *rest = sys.argv[2:]
        {"loader": lambda: loader(folder, int(rest[0]), *rest[1:]), "ray_data": lambda: ray_data(folder)}[name]()
        sys.exit()
    sys.exit(main())
