"""Where the audits run: an S3 server behind a faulty door, and a Ray cluster of several nodes on this machine.

The pool is behind one of ``DOORS``, which fails as often: in S3, in Google's storage, or an Iceberg table in a REST
catalog that vends short-lived credentials.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import yaml
from catalog_server import CatalogServer
from faulty_proxy import FaultyProxy
from gcs_server import gcs_server, set_faults
from pyiceberg.catalog.sql import SqlCatalog
from safetensors.torch import save
from small_model import network
from small_pictures import picture

from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.lake.store_uris import open_store

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent
NUM_IMAGES, SHARD_SIZE = 96, 8


class Site:
    """Runs audits, each under a prefix of its own, and knows the processes that serve them."""

    def __init__(self, home: Path, door: "Door", cluster: Any) -> None:
        self.home, self.door, self.proxy, self.cluster = home, door, door.proxy, cluster
        self._pids = home / "pids"
        self._pids.mkdir()
        self.drivers: list[subprocess.Popen[bytes]] = []

    def spec(self, output: str, seconds: float = 0.15) -> Path:
        """Write the spec of an audit, a batch of which takes some seconds, and return its path."""
        content = {
            "name": "chaos",
            "pool": self.door.pool,
            "model": {
                "factory": "small_model:noted_network",
                "arguments": {"folder": str(self._pids), "seconds": seconds},
                "weights": "s3://scans/model.safetensors",
            },
            "extract": {
                "batch_size": 4,
                "shard_size": SHARD_SIZE,
                "actors": {"min": 1, "max": 2},
                "shard_timeout": 10,
                "start_timeout": 60,
                "attempts": 6,
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


@dataclass
class Door:
    """What serves the pool of the audits, and the faults of it and of the audits' own storage."""

    proxy: FaultyProxy
    pool: dict[str, Any]
    google: str | None = None  # address of Google's storage
    catalog: CatalogServer | None = None

    def draw(self, seed: int, share: float) -> None:
        """Begin another sequence of faults."""
        self.proxy.draw(seed, share)
        if self.google is not None:
            set_faults(self.google, share)
        if self.catalog is not None:
            self.catalog.random, self.catalog.share = random.Random(seed), share

    def met(self) -> Counter[str]:
        """How often each fault was met so far."""
        found = self.proxy.met.copy()
        found["503 of Google"] = 0 if self.google is None else set_faults(self.google, 0)
        found["503 of the catalog"] = 0 if self.catalog is None else self.catalog.met
        return found


DOORS = ("s3", "gs", "rest")


def _door(kind: str, home: Path, server: LocalS3, proxy: FaultyProxy, stack: ExitStack) -> Door:
    """Fill a pool behind a door, and lead this process, and all that it starts, there."""
    pictures = [(f"{i:03d}.png", picture(i)) for i in range(NUM_IMAGES)]
    if kind == "s3":
        open_store("s3://scans/pool").write_many(pictures)
        return Door(proxy, {"uri": "s3://scans/pool/", "format": "images"})
    if kind == "gs":
        address = stack.enter_context(gcs_server())
        os.environ["STORAGE_EMULATOR_HOST"] = address
        open_store("gs://lake/pool").write_many(pictures)
        return Door(proxy, {"uri": "gs://lake/pool", "format": "images"}, google=address)
    keys = {"s3.endpoint": server.endpoint, "s3.access-key-id": server.access_key}
    keys |= {"s3.secret-access-key": server.secret_key}
    os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"  # for rclone, as a writer
    own = SqlCatalog("own", uri=f"sqlite:///{home}/catalog.db", warehouse="s3://scans/warehouse", **keys)
    own.create_namespace("db")
    rows = pa.table({"id": [key for key, _ in pictures], "image": [data for _, data in pictures]})
    table = own.create_table("db.scans", rows.schema)
    for start in range(0, NUM_IMAGES, SHARD_SIZE):
        table.append(rows.slice(start, SHARD_SIZE))
    catalog = CatalogServer(lambda: (server.access_key, server.secret_key, 240), proxy.endpoint, own)
    stack.enter_context(catalog)
    for name, value in (("TYPE", "rest"), ("URI", catalog.endpoint), ("TOKEN", catalog.token)):
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name}"] = value
    pool = {"format": "iceberg", "catalog": "lake", "table": "db.scans", "columns": {"id": "id", "image": "image"}}
    return Door(proxy, pool, catalog=catalog)


@contextmanager
def open_site(kind: str = "s3", nodes: int = 2) -> Iterator[Site]:
    """Start the servers; everything ends, and is deleted, with the block."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opacc-chaos-")))
        server = stack.enter_context(LocalS3(home / "s3"))
        proxy = stack.enter_context(FaultyProxy(server.endpoint))
        _isolate(server, proxy)
        server.create_bucket("scans")
        server.create_bucket("audits")
        open_store("s3://scans").write("model.safetensors", save(network().state_dict()))
        yield stack.enter_context(_served(home, _door(kind, home, server, proxy, stack), nodes))


@contextmanager
def _served(home: Path, door: Door, nodes: int) -> Iterator[Site]:
    from ray._common.utils import reset_ray_address
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    site = Site(home, door, cluster)
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
