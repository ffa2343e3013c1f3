"""Where the audits run: an S3 server behind a faulty door, and a Ray cluster of several nodes on this machine."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from local_s3 import LocalS3
from s3_proxies import FaultyProxy
from safetensors.torch import save
from small_model import network
from small_pictures import picture

from opacc_ray.lake.store_uris import open_store

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent
NUM_IMAGES, SHARD_SIZE = 96, 8


class Site:
    """Runs audits, each under a prefix of its own, and knows the processes that serve them."""

    def __init__(self, home: Path, proxy: FaultyProxy, cluster: Any) -> None:
        self.home, self.proxy, self.cluster = home, proxy, cluster
        self._pids = home / "pids"
        self._pids.mkdir()
        self.drivers: list[subprocess.Popen[bytes]] = []

    def spec(self, output: str, seconds: float = 0.15) -> Path:
        """Write the spec of an audit, a batch of which takes some seconds, and return its path."""
        content = {
            "name": "chaos",
            "pool": {"uri": "s3://scans/pool/", "format": "images"},
            "model": {
                "factory": "small_model:noted_network",
                "arguments": {"folder": str(self._pids), "seconds": seconds},
                "weights": "s3://scans/model.safetensors",
            },
            "extract": {
                "batch_size": 4,
                "shard_size": SHARD_SIZE,
                "actors": 2,
                "shard_timeout": 10,
            },
            "sample": {"method": "ces", "budget": 40, "candidates": 20},
            "output": output,
        }
        path = self.home / "spec.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def start(self, spec: Path) -> subprocess.Popen[bytes]:
        """Start one driver; what it says goes to a file beside the spec."""
        command = [sys.executable, "-m", "opacc_ray", "run", str(spec), "--no-trial"]
        with (self.home / "log").open("ab") as log:
            driver = subprocess.Popen(command, cwd=TESTS, stderr=log, stdout=log, start_new_session=True)
        self.drivers.append(driver)
        return driver

    @property
    def log(self) -> str:
        path = self.home / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def actors(self) -> list[int]:
        """Process ids of the actors that are at work, or hang."""
        return [int(path.name) for path in self._pids.iterdir() if _is_worker(path.name)]

    def add_node(self) -> None:
        """Add a node of one CPU; on a busy machine it may take more than one try."""
        for _ in range(5):
            try:
                self.cluster.add_node(num_cpus=1)
                return
            except Exception as error:  # Ray raises just that
                print(f"a node did not start: {error}", file=sys.stderr)
        raise TimeoutError("no node starts on this machine")

    def num_shards(self, output: str) -> int:
        """How many shards of features a run has; looked up in the server's folder, past the faults."""
        folder = self.home / "s3" / output.removeprefix("s3://")
        return sum(1 for _ in folder.glob("**/part-*.parquet"))

    def end(self) -> None:
        """Kill what this site has started and what still runs."""
        for driver in self.drivers:
            if driver.poll() is None:
                driver.kill()
                driver.wait()
        self.drivers.clear()
        for pid in self.actors():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for path in self._pids.iterdir():
            path.unlink()
        (self.home / "log").unlink(missing_ok=True)


def _is_worker(pid: str) -> bool:
    try:
        return Path("/proc", pid, "cmdline").read_bytes().startswith(b"ray::Worker")
    except OSError:
        return False


@contextmanager
def open_site(nodes: int = 2) -> Iterator[Site]:
    """Start the servers; everything ends, and is deleted, with the block."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opacc-chaos-")))
        server = stack.enter_context(LocalS3(home / "s3"))
        proxy = stack.enter_context(FaultyProxy(server.endpoint))
        _isolate(server, proxy)
        server.create_bucket("scans")
        server.create_bucket("audits")
        open_store("s3://scans").write("model.safetensors", save(network().state_dict()))
        open_store("s3://scans/pool").write_many((f"{i:03d}.png", picture(i)) for i in range(NUM_IMAGES))
        yield stack.enter_context(_served(home, proxy, nodes))


@contextmanager
def _served(home: Path, proxy: FaultyProxy, nodes: int) -> Iterator[Site]:
    from ray._common.utils import reset_ray_address
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    site = Site(home, proxy, cluster)
    try:
        for _ in range(nodes):
            site.add_node()
        os.environ["RAY_ADDRESS"] = cluster.address
        yield site
    finally:
        site.end()
        cluster.shutdown()
        reset_ray_address()


def _isolate(server: LocalS3, proxy: FaultyProxy) -> None:
    """Lead this process, and all that it starts, to the S3 server through the door, and lock the cluster to come."""
    from opacc_ray.cluster import local

    for name in [name for name in os.environ if name.startswith(("AWS_", "RAY_"))]:
        del os.environ[name]
    local.lock()
    os.environ |= server.environment() | {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": proxy.endpoint,
        "AWS_ENDPOINT_URL_S3": proxy.endpoint,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(PACKAGE)]),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_DEDUP_LOGS": "0",
    }
