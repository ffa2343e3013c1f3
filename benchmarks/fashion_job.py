"""The audit job on 10,000 real images, against a plain torch loop over the same arrays in memory.

    python benchmarks/fashion_job.py FOLDER        # with fashion.npz and fashion_lenet5.safetensors

Puts the Fashion-MNIST test images as PNG into a real S3 server, extracts them with 1 and with 2 actors, and prints two
Markdown tables: wall times, and the accuracy that 100 labels give by each method beside the true one.
"""

import argparse
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import markdown_table as markdown
import numpy as np
import torch

from opacc_ray.audit import verbs
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import feature_store
from opacc_ray.runs.run import Run
from opacc_ray.samplers import select
from opacc_ray.samplers.estimate import estimate
from opacc_ray.spec import parse_spec

METHODS = ("srs", "css", "ces", "neyman")
STEPS = (
    "plain torch loop in memory",
    "upload of 10,000 PNGs",
    *(
        f"job with {actors}, {part}"
        for actors in ("1 actor", "2 actors")
        for part in ("until the first shard", "the other shards", "in all")
    ),
)
TIME_COLUMNS = ("step", "seconds")
ACCURACY_COLUMNS = ("by", "accuracy", "95 % interval")


class LeNet5(torch.nn.Module):
    """The network whose weights lie beside the images: (B, 1, 28, 28) -> (B, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = torch.nn.Conv2d(1, 6, 5), torch.nn.Conv2d(6, 16, 5)
        self.f1, self.f2 = torch.nn.Linear(256, 120), torch.nn.Linear(120, 84)
        self.out = torch.nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for convolution in (self.c1, self.c2):
            x = torch.nn.functional.max_pool2d(torch.relu(convolution(x)), 2)
        return self.out(torch.relu(self.f2(torch.relu(self.f1(x.flatten(1))))))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("folder", type=Path, metavar="FOLDER")
    found.add_argument("--images", type=int, default=10_000, help="take the first ones only, for a first try")
    return found


def main() -> None:
    given = parser().parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    data = np.load(given.folder / "fashion.npz")
    images, labels = data["x_test"][: given.images], data["y_test"][: given.images]
    weights = (given.folder / "fashion_lenet5.safetensors").read_bytes()
    sys.path.insert(0, str(Path(__file__).parent))  # actors import the network from here
    step = iter(STEPS)
    print(markdown.header(TIME_COLUMNS))
    _print_time(next(step), _plain_loop(images, weights))
    with tempfile.TemporaryDirectory() as home, LocalS3(home) as server:
        os.environ.update(server.environment())
        server.create_bucket("lake")
        lake = open_store("s3://lake")
        lake.write("models/lenet5.safetensors", weights)
        begun = time.perf_counter()
        lake.write_many((f"fashion/{i:05d}.png", encode_png(image)) for i, image in enumerate(images))
        _print_time(next(step), time.perf_counter() - begun)
        for actors in (1, 2):
            run, seconds = _extract(actors)
            for value in seconds:
                _print_time(next(step), value)
        print()
        _print_estimates(run, labels)


def _print_time(step: str, seconds: float) -> None:
    print(markdown.row([step, f"{seconds:.1f}"]), flush=True)


def _plain_loop(images: np.ndarray, weights: bytes) -> float:
    from safetensors.torch import load

    model = LeNet5().eval()
    model.load_state_dict(load(weights))
    begun = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(images), 256):
            model(torch.from_numpy(images[start : start + 256]).unsqueeze(1).float() / 255)
    return time.perf_counter() - begun


def _extract(actors: int) -> tuple[Run, tuple[float, float, float]]:
    """The run, and the seconds until its first shard, for the others, and in all."""
    spec = parse_spec(
        {
            "name": f"fashion-{actors}-actors",
            "pool": {"uri": "s3://lake/fashion/", "format": "images"},
            "model": {"factory": "fashion_job:LeNet5", "weights": "s3://lake/models/lenet5.safetensors"},
            "extract": {"actors": actors},
            "sample": {"method": "ces", "budget": 100},
            "output": f"s3://lake/audits-{actors}",  # of its own: runs of one output share features
        },
        "fashion",
    )
    finished: list[float] = []  # when each shard was done
    begun = time.perf_counter()
    run, stages = verbs.start(spec)
    verbs.extract(stages, lambda done, total: finished.append(time.perf_counter()) if done else None)
    in_all = time.perf_counter() - begun
    return run, (finished[0] - begun, finished[-1] - finished[0], in_all)


def _print_estimates(run: Run, labels: np.ndarray) -> None:
    print(markdown.header(ACCURACY_COLUMNS))
    with feature_store.open_view(run, ["hidden", "confidence", "prediction"]) as view:
        correct: np.ndarray[Any, Any] = (view.column("prediction") == labels).astype(np.float64)
        print(markdown.row(["all labels", f"{correct.mean():.4f}", ""]))
        for method in METHODS:
            selection = select.select(view, method, 100, seed=1)
            found = estimate(selection, correct[selection.index])
            print(markdown.row([method, f"{found.value:.4f}", f"{found.low:.4f} to {found.high:.4f}"]))


if __name__ == "__main__":
    main()
