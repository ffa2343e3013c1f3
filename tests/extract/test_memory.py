"""The memory of an actor, or of a reader, for images of 1 to 4,000 pixels a side stays within docs/scale.md."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from opacc_ray.lake.formats.images import READ_BYTES
from opacc_ray.lake.store_uris import open_store

SCRIPT = """
import resource, sys
from pathlib import Path
from opacc_ray.extract.machine import tune_allocation
from one_shard import extract, spec_of

tune_allocation()
folder, readers = Path(sys.argv[1]), int(sys.argv[2])
def peak():
    if readers:
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM:")) << 10
spec = spec_of(folder, transform="small_model:fit", pool={"uri": str(folder / "warm"), "format": "images"})
extract(spec, folder / "first", readers)
before = peak()
extract(spec_of(folder, transform="small_model:fit"), folder, readers)
print(peak() - before)
"""


def write(folder: Path, sides: list[int]) -> None:
    """Grey images of these sides, of noise in their first rows: files that are not small."""
    noise = np.random.default_rng(0).integers(0, 255, (300, 4000), dtype=np.uint8)
    for number, side in enumerate(sides):
        pixels = np.zeros((side, side), dtype=np.uint8)
        pixels[:300] = noise[:side, :side]
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, format="PNG", compress_level=1)
        open_store(str(folder)).write(f"{number:03d}.png", sink.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize("readers", [0, 2])
def test_memory_of_an_actor_is_bounded_for_large_images(tmp_path: Path, readers: int) -> None:
    write(tmp_path / "warm", [8] * 20)
    write(tmp_path / "pool", [1, 4000, 8, 2000, 4000, 1000, 1, 4000] * 4)
    tests = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), str(readers)],
        env={"PYTHONPATH": f"{tests}:{tests.parent}:{tests.parents[1]}", "MALLOC_ARENA_MAX": "2", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    one = 2 * 4000 * 4000  # an image while it is decoded: Pillow's pixels, and the array
    assert int(done.stdout) <= READ_BYTES + 2 * one
