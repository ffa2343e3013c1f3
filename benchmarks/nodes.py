"""Images a second on 1, 2 and 4 nodes that Ray simulates on this machine, with a device that sleeps.

    python benchmarks/nodes.py [--nodes 1 2 4] [--shards 96]
    python benchmarks/nodes.py --remote 0 2 4 [--shards 96]

Each node has one CPU, so one actor; its model sleeps 0.5 s for a shard of 64 images, whose transform costs nothing. So
the cores of this machine do not limit, and what is lost is lost by the driver, its queue and Ray. Counted is from the
time when each actor has finished two shards. Prints a Markdown table with the efficiency: of the device alone.

With --remote, a node with one CPU and what Ray takes for a GPU, two nodes of two CPUs, and a transform that waits 1.5
ms without freeing the interpreter: images a second with so many remote readers. The model sleeps 10 ms for a batch.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

import readers

SLEEP = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--shards", type=int, default=96)
    parser.add_argument("--remote", type=int, nargs="+", default=[])
    given = parser.parse_args()
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ |= {"READERS_SLEEP": str(SLEEP), "READERS_STEPS": "0", "PYTHONPATH": os.pathsep.join(paths)}
    print(f"| {'remote readers' if given.remote else 'nodes'} | images a second | efficiency |\n|---|---:|---:|")
    with tempfile.TemporaryDirectory(prefix="opacc-nodes-") as home:
        readers.fill(Path(home, "pool"), readers.BATCH * given.shards)
        for num in given.remote:
            os.environ |= {"READERS_SLEEP": ".01", "READERS_WAIT": "1"}
            nodes = [{"num_cpus": 1, "num_gpus": 1}, {"num_cpus": 2}, {"num_cpus": 2}]
            rate = measure(Path(home), num, nodes, "function: 'readers:asleep'", f", remote_readers: {num}", 4)
            print(f"| {num} | {rate:.0f} | {rate / (readers.BATCH / 0.01):.2f} |", flush=True)
        for num in [] if given.remote else given.nodes:
            rate = measure(Path(home), num, [{"num_cpus": 1}] * num, "factory: 'readers:sleeping'", "", num)
            print(f"| {num} | {rate:.0f} | {rate / (num * readers.BATCH / SLEEP):.2f} |", flush=True)


def measure(home: Path, num: int, nodes: list[dict[str, int]], model: str, extract: str, actors: int) -> float:
    """Return the images a second of a run on some nodes, without the first shards and the last of each actor."""
    from ray.cluster_utils import Cluster

    cluster = Cluster()
    for resources in nodes:
        cluster.add_node(include_dashboard=False, **resources)
    spec, output = home / "spec.yaml", home / f"run-{num}"
    settings = f"batch_size: {readers.BATCH}, shard_size: {readers.BATCH}, features: [output, confidence]{extract}"
    spec.write_text(
        f"name: nodes\npool: {{uri: {home}/pool, format: images}}\nmodel: {{{model}}}\n"
        f"transform: readers:costly\nextract: {{{settings}}}\n"
        f"sample: {{method: srs, budget: 10}}\noutput: {output}\n"
    )
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        readers.measured([sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"])
    finally:
        cluster.shutdown()
    times = sorted(path.stat().st_mtime for path in output.rglob("part-*.parquet"))[2 * actors : -actors]
    return readers.BATCH * (len(times) - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    main()
