"""What drawing a sample costs the driver: the most memory that it held, and seconds, features being held by actors.

    python benchmarks/driver_memory.py [--actors 2] [--labels 200] [--folder /tmp] EXAMPLES×NEURONS:METHOD,METHOD…

Writes what the methods read of that many examples in a folder: predictions of ten classes, confidences, and hidden and
output layers unless NEURONS is 0. What they hold is random, how they lie is real. Each method then runs in a process of
its own, which starts a local Ray and actors, waits until they hold what the method reads, and draws. Prints a Markdown
table: megabytes that were resident before the draw and at most, seconds until the actors were ready and of the draw, on
the clock and of the driver's CPU.

METHOD may be ``estimate``: then a draw by neyman is labelled, and measured is the estimate of the accuracy, of all
classes by prediction and by truth, of macro F1 and of 40 slices. The pool of such a case has 100 classes.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import markdown_table as markdown
import numpy as np

from opacc_ray.cluster.session import connected
from opacc_ray.estimation.estimate import KnownPool, numbers_of
from opacc_ray.estimation.sample import join
from opacc_ray.extract.feature_files import Features
from opacc_ray.extract.shards import FeatureFile, FeatureShard, encode_shard
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.parts.view import View
from opacc_ray.pool import BY_PREDICTION, BY_TRUTH, Pool, Slicing
from opacc_ray.samplers import find_method, parse_parameters
from opacc_ray.samplers.select import select

CASES = ("1000000×64:ces,deepest,neyman", "1000000×0:srs,deepest,neyman")

COLUMNS = ("examples", "neurons", "method", "MB before", "MB at most", "s to hold", "s to draw", "of CPU")

SHARD_SIZE = 100_000

CLASSES = 10

ESTIMATE, SLICES, MANY_CLASSES = "estimate", 40, 100
"""What is no method; the slices that it states, and the classes of its pool."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--labels", type=int, default=200)
    parser.add_argument("--folder", help="where the features are written for the time of the measurement")
    parser.add_argument("cases", nargs="*", default=CASES, metavar="EXAMPLES×NEURONS:METHODS")
    given = parser.parse_args()
    print(markdown.header(COLUMNS))
    for case in given.cases:
        size, width, methods = parts_of(case)
        with tempfile.TemporaryDirectory(prefix="opacc-driver-", dir=given.folder) as home:
            names = {name for method in methods for name in features_of(method, width)}
            write(open_store(home), size, width, names, MANY_CLASSES if ESTIMATE in methods else CLASSES)
            for method in methods:
                own = [home, str(size), str(width), method, str(given.actors), str(given.labels)]
                done = subprocess.run([sys.executable, __file__, "draw", *own], capture_output=True, text=True)
                if done.returncode:
                    sys.exit(f"{method} failed: {done.stderr}")
                print(markdown.row([f"{size:,}", str(width), method, *done.stdout.split()]), flush=True)


def parts_of(case: str) -> tuple[int, int, list[str]]:
    """Examples, neurons and methods of a case."""
    found = re.fullmatch(r"(\d+)×(\d+):([\w,]+)", case)
    if not found:
        sys.exit(f"{case!r} is no case; give EXAMPLES×NEURONS:METHOD,METHOD…, such as {CASES[0]}")
    return int(found[1]), int(found[2]), found[3].split(",")


def features_of(method: str, width: int) -> list[str]:
    """Features that a method reads, of those that are written."""
    method = "neyman" if method == ESTIMATE else method
    parameters = parse_parameters(method, {})
    wanted = (*find_method(method).needs(parameters), *parameters.optional_features)
    there = ("confidence", "prediction", *(("hidden", "output") if width else ()))
    return [name for name in there if name in wanted] or ["prediction"]


def write(store: Store, size: int, width: int, names: set[str], num_classes: int) -> None:
    """Features in files of `SHARD_SIZE` examples, which have the same ids in each."""
    ids = [f"{row:09d}.png" for row in range(min(SHARD_SIZE, size))]
    for start in range(0, size, SHARD_SIZE):
        rng, num = np.random.default_rng(start), min(SHARD_SIZE, size - start)
        columns = {"confidence": 1 - rng.beta(0.3, 4, num), "prediction": rng.integers(0, num_classes, num)}
        if width:
            columns["hidden"] = rng.standard_normal((num, width), dtype=np.float32)
        if "output" in names:
            columns["output"] = rng.standard_normal((num, num_classes), dtype=np.float32)
        store.write(name_of(start), encode_shard(FeatureShard(ids[:num], ids[:num], columns, [])))


def draw(home: str, size: int, width: int, method: str, num_actors: int, num_labels: int) -> None:
    """Draw with actors that hold the features, and print what it took."""
    starts, names = range(0, size, SHARD_SIZE), features_of(method, width)
    files = [FeatureFile(name_of(start), min(SHARD_SIZE, size - start)) for start in starts]
    features = Features(open_store(home), tuple(files))
    with connected():
        from opacc_ray.cluster.tasks import ActorParts  # imports Ray, which reads its token mode then

        begun = time.perf_counter()
        view = View(ActorParts(features, names, num_actors))
        view.map(part_load, names)
        held, before = time.perf_counter() - begun, _megabytes("VmRSS")
        do = estimating(view, num_labels) if method == ESTIMATE else partial(select, view, method, num_labels, seed=1)
        begun, cpu = time.perf_counter(), time.process_time()
        do()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(f"{before:.0f} {_megabytes('VmHWM'):.0f} {held:.1f} {seconds:.1f} {cpu:.1f}")


def estimating(view: View, num_labels: int) -> Callable[[], None]:
    """Draw, label at random with one error in ten, and return what estimates; the peak of memory starts anew."""
    rng, chosen = np.random.default_rng(2), select(view, "neyman", num_labels, seed=1)
    predicted = view.column("prediction").astype(np.int32)
    truth = np.where(rng.random(num_labels) < 0.9, predicted[chosen.index], rng.integers(0, MANY_CLASSES, num_labels))
    sample = join(chosen, (truth == predicted[chosen.index]).astype(np.float64), truth=truth)
    names = tuple(f"slice {s}" for s in range(SLICES))
    slicing = Slicing(names, rng.integers(0, SLICES, view.size, dtype=np.int32))
    Path("/proc/self/clear_refs").write_text("5")

    def estimate() -> None:
        pool = KnownPool(view, predicted, list(map(str, range(MANY_CLASSES))), {"slices": slicing})
        numbers, accuracy = numbers_of(pool, sample), Metric(ACCURACY)
        for by in ("slices", BY_PREDICTION, BY_TRUTH):
            numbers.by(accuracy, by, 0.95)
        numbers.estimate(Metric("macro_f1"), 0.95)
        numbers.estimate(accuracy, 0.95)

    return estimate


def part_load(part: Pool, names: list[str]) -> None:
    """Let a part read its features."""
    for name in names:
        getattr(part, name)


def name_of(start: int) -> str:
    return f"{start:09d}.parquet"


def _megabytes(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024 / 1e6


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    if sys.argv[1:2] == ["draw"]:
        home, size, width, method, *numbers = sys.argv[2:]
        draw(home, int(size), int(width), method, *map(int, numbers))
    else:
        main()
