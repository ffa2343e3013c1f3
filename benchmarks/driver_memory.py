"""What drawing a sample costs the driver: the most memory that it held, and seconds, features being held by actors.

    python benchmarks/driver_memory.py [--examples 1000000] [--width 64] [--methods ces deepest neyman]
                                       [--actors 2] [--labels 200] [--folder /tmp]

Writes features of that many examples in a folder: predictions, confidences, and a hidden layer of ``width``, none where
it is 0. Each method then runs in a process of its own, which starts a local Ray and actors, waits until they hold what
the method reads, and draws. Prints a Markdown table: megabytes resident before the draw and at most, and seconds until
the actors were ready and of the draw. What is drawn does not depend on the number of actors.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import markdown_table as markdown

from opacc_ray.audit.run import Run
from opacc_ray.cluster.parts import ActorParts
from opacc_ray.cluster.session import connected
from opacc_ray.extract.features import Features
from opacc_ray.parts.view import View
from opacc_ray.samplers.select import find_method, parse_parameters, select

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from synthetic_run import write_synthetic

SHARD_SIZE = 100_000


def main() -> None:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--examples", type=int, default=1_000_000)
    found.add_argument("--width", type=int, default=64)
    found.add_argument("--methods", nargs="+", default=["ces", "deepest", "neyman"])
    found.add_argument("--actors", type=int, default=2)
    found.add_argument("--labels", type=int, default=200)
    found.add_argument("--folder", help="where the features are written for the time of the measurement")
    given = found.parse_args()
    print(markdown.header(("examples", "neurons", "method", "MB before", "MB at most", "s to hold", "s to draw")))
    with tempfile.TemporaryDirectory(prefix="opacc-driver-", dir=given.folder) as home:
        uri = f"{home}/fake-00000001"
        write_synthetic(uri, given.examples, given.width, SHARD_SIZE)
        for method in given.methods:
            command = [sys.executable, __file__, uri, method, str(given.actors), str(given.labels)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{method} failed: {done.stderr}")
            cells = (f"{given.examples:,}", str(given.width), method, *done.stdout.split())
            print(markdown.row(cells), flush=True)


def draw(uri: str, method: str, num_actors: str, num_labels: str) -> None:
    """Draw with actors that hold the features, and print what it took."""
    run, parameters = Run.open(uri), parse_parameters(method, {})
    index = run.read_index()
    assert index is not None
    features = Features.of(run.features, index)
    wanted = (*find_method(method).needs(parameters), *parameters.optional_features, "prediction")
    names = [name for name in index.features if name in wanted]
    with connected():
        begun = time.perf_counter()
        parts = ActorParts(features, names, int(num_actors))
        view = View(parts)
        view.map(part_size)
        held, before = time.perf_counter() - begun, _megabytes("VmRSS")
        begun = time.perf_counter()
        select(view, method, int(num_labels), seed=1)
        print(f"{before:.0f} {_megabytes('VmHWM'):.0f} {held:.1f} {time.perf_counter() - begun:.1f}")


def part_size(part: object) -> int:
    return len(part)  # type: ignore[arg-type]


def _megabytes(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


if __name__ == "__main__":
    if len(sys.argv) == 5 and not sys.argv[1].startswith("-"):
        draw(*sys.argv[1:])
    else:
        main()
