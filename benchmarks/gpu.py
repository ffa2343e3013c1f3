"""What a GPU gives: the same features as a CPU, the pace of a bare torch loop, and surprise by the second.

    python benchmarks/gpu.py [--images 4096] [--batch 128]

Without a CUDA device it says so and measures nothing. Prints a Markdown table; ends with 1 if the features of CPU and
GPU differ by more than the stated tolerance.
"""

import argparse
import sys
import time
from collections.abc import Callable

import markdown_table as markdown
import numpy as np
import throughput_model
import torch
from numpy.typing import NDArray

from opacc_ray.extract.surprise import Reference
from opacc_ray.extract.torch_model import Model
from opacc_ray.spec import ModelSpec

TOLERANCE = 1e-3
"""Between features of CPU and GPU, of the largest value of the layer."""

QUERIES, TRACES, NEURONS = 10_000, 60_000, 512


def main() -> int:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--images", type=int, default=4096)
    found.add_argument("--batch", type=int, default=128)
    given = found.parse_args()
    if not torch.cuda.is_available():
        print("skipped: torch finds no CUDA device here")
        return 0
    images = np.random.default_rng(0).random((given.batch, 3, 224, 224), dtype=np.float32)
    difference = _difference(images[:8])
    repetitions = max(2, given.images // given.batch)
    print(markdown.header((f"on {torch.cuda.get_device_name()}", "value")))
    print(markdown.row(("largest difference of CPU and GPU, of the layer's largest value", f"{difference:.1e}")))
    for precision in ("float32", "bfloat16"):
        _pace(images, precision, repetitions)
    _surprise()
    return int(difference > TOLERANCE)


def _model(device: str, precision: str = "float32") -> Model:
    spec = ModelSpec(factory="throughput_model:resnet18")
    return Model(spec, device, precision, channels_last=precision != "float32")


def _difference(images: NDArray[np.float32]) -> float:
    here, there = _model("cpu")(images), _model("cuda")(images)
    assert here.hidden is not None
    assert there.hidden is not None
    pairs = ((here.hidden, there.hidden), (here.output, there.output))
    return max(float(np.abs(one - other).max() / np.abs(one).max()) for one, other in pairs)


def _pace(images: NDArray[np.float32], precision: str, repetitions: int) -> None:
    """Images a second as an actor runs batches, and as a bare loop does on the same bytes; how long the GPU is busy."""
    ours = _model("cuda", precision)
    dtype, layout = getattr(torch, precision), torch.preserve_format
    bare = throughput_model.resnet18().eval().to("cuda", dtype)
    if precision != "float32":
        layout = torch.channels_last
        bare = bare.to(memory_format=layout)

    def loop() -> None:
        with torch.inference_mode():
            bare(torch.from_numpy(images).to("cuda", dtype).contiguous(memory_format=layout)).float().cpu().numpy()

    def busy() -> None:
        with torch.inference_mode():
            bare(on_device)

    on_device = torch.from_numpy(images).to("cuda", dtype).contiguous(memory_format=layout)
    seconds = [_seconds(work, repetitions) for work in (lambda: ours(images), loop, busy)]
    job, plain = (len(images) * repetitions / each for each in seconds[:2])
    print(markdown.row((f"ResNet-18, {precision}: images a second", f"{job:.0f}")))
    print(markdown.row((f"ResNet-18, {precision}: of a bare loop", f"{job / plain:.2f}")))
    print(markdown.row((f"ResNet-18, {precision}: share of time the device is busy", f"{seconds[2] / seconds[0]:.2f}")))


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


def _seconds(work: Callable[[], object], repetitions: int) -> float:
    work()
    torch.cuda.synchronize()
    begun = time.monotonic()
    for _ in range(repetitions):
        work()
    torch.cuda.synchronize()
    return time.monotonic() - begun


if __name__ == "__main__":
    sys.exit(main())
