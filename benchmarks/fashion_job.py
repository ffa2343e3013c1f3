"""The audit job on 10,000 real images, against a plain torch loop over the same arrays in memory.

    python benchmarks/fashion_job.py FOLDER        # with fashion.npz and fashion_lenet5.safetensors

Puts the Fashion-MNIST test images as PNG into a real S3 server, extracts them with 1 and with 2 actors, and prints wall
times, the true accuracy, and the accuracy that 100 labels give by each method.
"""

import io
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from opacc_ray.audit import feature_store, steps
from opacc_ray.audit.run import Run
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.estimators.estimate import estimate
from opacc_ray.lake.storage import open_store
from opacc_ray.samplers import select
from opacc_ray.spec import parse_spec


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


def main(folder: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    for name in ("botocore", "urllib3"):
        logging.getLogger(name).setLevel(logging.WARNING)
    data = np.load(folder / "fashion.npz")
    images, labels = data["x_test"], data["y_test"]
    weights = (folder / "fashion_lenet5.safetensors").read_bytes()
    sys.path.insert(0, str(Path(__file__).parent))  # actors import the network from here
    print(f"plain torch loop in memory   {_plain_loop(images, weights):7.1f} s")
    with tempfile.TemporaryDirectory() as home, LocalS3(home) as server:
        os.environ.update(server.environment())
        server.create_bucket("lake")
        lake = open_store("s3://lake")
        lake.write("models/lenet5.safetensors", weights)
        begun = time.perf_counter()
        lake.write_many((f"fashion/{i:05d}.png", _png(image)) for i, image in enumerate(images))
        print(f"upload of 10,000 PNGs        {time.perf_counter() - begun:7.1f} s")
        for actors in (1, 2):
            run = _extract(actors)
        _estimates(run, labels)


def _plain_loop(images: np.ndarray, weights: bytes) -> float:
    from safetensors.torch import load

    model = LeNet5().eval()
    model.load_state_dict(load(weights))
    begun = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(images), 256):
            model(torch.from_numpy(images[start : start + 256]).unsqueeze(1).float() / 255)
    return time.perf_counter() - begun


def _extract(actors: int) -> Run:
    spec = parse_spec(
        {
            "name": f"fashion-{actors}-actors",
            "pool": {"uri": "s3://lake/fashion/", "format": "images"},
            "model": {"factory": "fashion_job:LeNet5", "weights": "s3://lake/models/lenet5.safetensors"},
            "extract": {"actors": actors},
            "sample": {"method": "ces", "budget": 100},
            "output": "s3://lake/audits",
        },
        "fashion",
    )
    begun = time.perf_counter()
    run, stages = steps.start(spec)
    steps.extract(stages, _Stopwatch(actors, begun))
    print(f"job with {actors} actors, in all      {time.perf_counter() - begun:7.1f} s")
    return run


class _Stopwatch:
    """Tells start-up (Ray, actors, model) from the steady rate after the first shard."""

    def __init__(self, actors: int, begun: float) -> None:
        self._actors, self._begun, self._first = actors, begun, 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.perf_counter()
        if done == 1:
            self._first = now
            print(f"  {self._actors} actors, until the first shard {now - self._begun:5.1f} s")
        if done == total:
            print(f"  {self._actors} actors, the other shards      {now - self._first:5.1f} s")


def _estimates(run: Run, labels: np.ndarray) -> None:
    with feature_store.open_view(run, ["hidden", "confidence", "prediction"]) as view:
        correct: np.ndarray[Any, Any] = (view.column("prediction") == labels).astype(np.float64)
        print(f"true accuracy                {correct.mean():.4f}")
        for method in ("srs", "css", "ces"):
            selection = select.select(view, method, 100, seed=1)
            print(f"{method:<28} {estimate(selection, correct[selection.index])}")


def _png(image: np.ndarray) -> bytes:
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, format="PNG")
    return sink.getvalue()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
