"""Fixtures that several test modules share."""

import contextlib
import functools
import gc
import logging
import math
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from _pytest.unraisableexception import gc_collect_iterations_key
from local_s3 import LocalS3
from real_browser import NO_BROWSER
from small_spec import small_spec

from opacc_ray.audit import checks
from opacc_ray.extract import trial, user_code
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs import run as run_module
from opacc_ray.samplers import auxiliary

os.environ["RAY_AUTH_MODE"] = "token"  # Ray reads it once, when it is imported
os.environ.setdefault("OPACC_STORAGE_PATIENCE", "0")  # tests of outages set it

ISOLATED = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "3",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out tests marked `slow` or `processes`")


TESTS = Path(__file__).parent
MEMORY = Path("/dev/shm")
"""A file system in memory, in which files are made and removed in microseconds; on a disk that takes milliseconds."""


def pytest_configure(config: pytest.Config) -> None:
    if MEMORY.is_dir() and _takes_all_files():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))  # folders of `tmp_path`
    config.option.loadscopereorder = False  # of xdist, which begins with the files of many tests: those take no time
    gc.disable()  # until all is imported and collected, of which nothing is garbage


def _takes_all_files() -> bool:
    status = os.statvfs(MEMORY)
    return status.f_bavail * status.f_frsize >= 4 << 30 and not status.f_flag & os.ST_NOEXEC


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """End with one line on what was skipped, and how to run it."""
    skipped = terminalreporter.stats.get("skipped", [])
    browser = sum("no browser is installed" in str(report.longrepr) for report in skipped)
    if skipped:
        advice = f", {browser} of them because {NO_BROWSER}" if browser else ""
        terminalreporter.write_line(f"{len(skipped)} tests were skipped{advice}")


STARTERS = {
    "s3",
    "moto_endpoint",
    "gcs_endpoint",
    "azure_environment",
    "ray_cluster",
    "chromium",
    "rclone",
    "moto",
    "gcs",
}
"""Fixtures, and parameters of fixtures, that start a process or a server: tests with one get the marker `processes`."""


LONGEST = (
    "cluster/test_local.py",
    "runs/test_feature_sets.py",
    "cluster/test_actor_pool.py",
    "extensions/jobs/test_jobs.py",
    "fuzz/test_mutants.py",
    "docs/test_commands.py",
    "audit/test_loaded_code.py",
    "cluster/test_two_nodes.py",
    "extensions/fleet/test_summary.py",
    "security/test_local_cluster.py",
    "audit/test_lost_processes.py",
    "estimation/test_weighted.py",
    "cluster/test_memory.py",
    "extensions/fleet/test_fleet.py",
    "cluster/test_full_disk.py",
)
"""Files of half a minute and more. Those that start a Ray of their own alternate with others, which need the cores."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their fixtures; with --fast, keep those without `processes` and `slow`.

    The longest files come first, then those with most of these tests: else one worker ends with them while others wait.
    """
    for item in items:
        if STARTERS & {*getattr(item, "fixturenames", ()), *_parameters(item)}:
            item.add_marker("processes")
    heavy = Counter(item.path for item in items if _is_heavy(item))
    rank = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: (rank.get(item.path, len(rank)), -heavy[item.path]))
    if config.getoption("--fast"):
        config.hook.pytest_deselected(items=[item for item in items if _is_heavy(item)])
        items[:] = [item for item in items if not _is_heavy(item)]


def pytest_collection_finish() -> None:
    """Spare the garbage collector what imports and collection have made: it stays to the end.

    Let torch's loggers propagate: else pytest adds its handlers to each of the 40, six times in a test.
    """
    gc.freeze()
    gc.enable()
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "torch":
            logging.getLogger(name).propagate = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave out pytest's collections at the end, of half a second each."""
    gc.unfreeze()
    config.stash[gc_collect_iterations_key] = 0


def _parameters(item: pytest.Item) -> list[str]:
    """Return the parameters of a test and its fixtures that are texts."""
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return [value for value in values if isinstance(value, str)]


def _is_heavy(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("processes", "slow"))


@pytest.fixture(scope="session", autouse=True)
def without_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --fast, fail a test that starts a process and does not have the marker."""
    with pytest.MonkeyPatch.context() as patch:
        if request.config.getoption("--fast"):
            patch.setattr(subprocess.Popen, "__init__", _refusing(subprocess.Popen.__init__))
        yield


@pytest.fixture(scope="session", autouse=True)
def models_here() -> Iterator[None]:
    """Run models of commands in this process, without the seconds that another one takes to import torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_code, "isolated", contextlib.nullcontext)
        yield


def _refusing(start: Callable[..., None]) -> Callable[..., None]:
    def started(self: Any, command: Any, *arguments: Any, **options: Any) -> None:
        program = Path(command if isinstance(command, str) else command[0]).name
        if program not in ("git", "lscpu", "uname"):  # which the package asks for its version and the machine
            self._child_created = False  # for Popen.__del__
            pytest.fail(f"starts {program}: mark this test with pytest.mark.processes")
        start(self, command, *arguments, **options)

    return started


@pytest.fixture(scope="session", autouse=True)
def unhurried() -> Iterator[None]:
    """Let a trial read all that it reads in time on an idle machine: tests count it."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (trial, checks):
            patch.setattr(module, "SECONDS", math.inf)
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """What tests write need not outlive a power cut: waiting for the disk takes 2 ms a file, 30,000 times or so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def one_commit() -> Iterator[None]:
    """Ask git for the commit of a working directory once: each run states it, and tests make thousands of runs."""

    @functools.cache
    def commit_of(folder: str) -> str | None:
        return own()

    own = run_module._git_commit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_module, "_git_commit", lambda: commit_of(os.getcwd()))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_grouping() -> Iterator[None]:
    """Group the scores of a pool once: simulations draw hundreds of samples from it."""

    @functools.lru_cache(maxsize=16)
    def grouped(values: bytes, dtype: str, num: int) -> np.ndarray:
        return own(np.frombuffer(values, dtype), num)

    own = auxiliary.kmeans_1d
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            auxiliary, "kmeans_1d", lambda values, num: grouped(values.tobytes(), values.dtype.str, num).copy()
        )
        yield


@pytest.fixture(scope="session")
def states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(autouse=True)
def own_state(states: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the outputs that commands remember apart from those of other tests and of the developer."""
    monkeypatch.setenv("XDG_STATE_HOME", str(states / secrets.token_hex(8)))
    monkeypatch.delenv("OPACC_OUTPUT", raising=False)


@pytest.fixture(autouse=True)
def own_path() -> Iterator[None]:
    """Forget the folders in which a command looks for modules: each import of later tests would look there, too."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Undo what a command does to the root logger: it would last to the end of this process."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:
        if type(handler).__module__.startswith("opacc_ray."):
            root.removeHandler(handler)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalS3]:
    """A real S3 server. From here on, the environment leads to it and to no account of the developer's."""
    with LocalS3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in (ISOLATED | server.environment()).items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def s3_client(s3: LocalS3) -> Any:
    """A client of that server that rests on nobody's environment."""
    import boto3

    keys = {"aws_access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}
    return boto3.session.Session(region_name="us-east-1", **keys).client("s3", endpoint_url=s3.endpoint)


@pytest.fixture
def bucket(s3_client: Any) -> str:
    """The URI of a fresh, empty bucket on the real S3 server, made without the process that `create_bucket` starts."""
    name = f"bucket-{secrets.token_hex(4)}"
    s3_client.create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """A server of moto, which keeps checksums and knows conditional writes."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """A server of Google Cloud Storage, in memory, with the bucket ``lake``."""
    from gcs_server import gcs_server

    with gcs_server() as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def azure_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment that leads to Azurite, where its program is on the path."""
    from azurite import PROGRAM, azurite

    if PROGRAM is None:
        pytest.skip("azurite-blob is not on the path")
    with azurite(tmp_path_factory.mktemp("azure")) as environment:
        yield environment


@pytest.fixture(scope="session")
def ray_cluster(s3: LocalS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One local Ray of two CPUs for the whole session, whose workers know the S3 server and the tests' own modules."""
    import ray

    from opacc_ray.cluster import local

    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            patch.setenv(name, "")  # to be restored after, whatever the cluster is locked with
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_OVERRIDE_RESOURCES", '{"CPU": 2}')  # whatever the machine has
        with local.started() as address:
            patch.delenv("RAY_OVERRIDE_RESOURCES")
            ray.init(address=address, log_to_driver=False)
            yield
            ray.shutdown()


@pytest.fixture(scope="session")
def scans(s3: LocalS3) -> str:
    """A bucket with 120 small grey PNGs under `pool/` and the weights of `small_model` under `model.safetensors`."""
    from safetensors.torch import save
    from small_model import network
    from small_pictures import picture

    store = open_store(s3.create_bucket("scans"))
    store.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(120))
    store.write("model.safetensors", save(network().state_dict()))
    return store.uri


@pytest.fixture
def spec(scans: str, bucket: str) -> Callable[..., dict[str, Any]]:
    """Makes specs for `scans` whose runs go to a fresh bucket."""
    return functools.partial(small_spec, scans, bucket)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """This machine's Chromium."""
    from playwright.sync_api import sync_playwright
    from real_browser import launched

    with sync_playwright() as playwright:
        opened = launched(playwright.chromium)
        yield opened
        opened.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """That Chromium, whose pages end with the test; tests that ask for it carry `needs_browser`."""
    yield chromium
    for context in chromium.contexts:
        context.close()


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: its exit code, and what it printed to stdout and stderr."""
    from opacc_ray.cli.main import main

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        return code, *capsys.readouterr()

    return run
