"""A Ray cluster with its job server, in processes of its own: what `ray start --head` starts on a machine."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import PIPE
from types import MappingProxyType
from typing import Self

from listening import family

TESTS = Path(__file__).parent
STARTED_IN, ENDED_IN = 300.0, 30.0  # seconds
NOTICED_IN = 3.0  # `ray start --block` looks each second whether all of its processes live
TRIES = 3
PORTS = ("port", "ray-client-server-port", "dashboard-port", "dashboard-agent-listen-port", "metrics-export-port")


NEVER: Mapping[str, Path] = MappingProxyType({})


class RayWithJobs:
    """A context: the cluster, which ends with it.

    Attributes
    ----------
    address : of the job server.
    metrics : URL where Prometheus would read the metrics of its one node.
    environment : how a client of the cluster is started; the nodes have nothing of it but the module path.
    """

    def __init__(self, num_cpus: int = 2) -> None:
        self._num_cpus = num_cpus
        self._folder = Path(tempfile.mkdtemp(prefix="ray-"))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_"))}
        shim = self._folder / "bin" / "opacc"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m opacc_ray "$@"\n')
        shim.chmod(0o755)
        paths = os.pathsep.join([str(shim.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        own = {
            "HOME": str(self._folder),
            "PATH": paths,
            "PYTHONPATH": str(TESTS.parent),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        own |= {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}  # the actor that keeps metrics never ends by itself
        self.environment = plain | token | own

    def __enter__(self) -> Self:
        for number in range(TRIES):  # a port that was free may be another process's by then, and Ray ends
            self._start(number)
            if self._is_up():
                return self
            self._end()
        log = (self._folder / "log").read_text()
        shutil.rmtree(self._folder, ignore_errors=True)
        raise RuntimeError(f"no Ray has started: {log[-2000:]}")

    def __exit__(self, *_: object) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, number: int) -> None:
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self.address = f"http://127.0.0.1:{self._ports['dashboard-port']}"
        self.metrics = f"http://127.0.0.1:{self._ports['metrics-export-port']}/metrics"
        given = [f"--{name}={port}" for name, port in self._ports.items()]
        given += [f"--num-cpus={self._num_cpus}", f"--object-store-memory={200 << 20}", "--min-worker-port=0"]
        given += ["--max-worker-port=0", "--node-ip-address=127.0.0.1", f"--temp-dir={self._folder}/{number}"]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", *given]
        with (self._folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)

    def _is_up(self) -> bool:
        """Whether all doors open, and nothing of it has ended meanwhile."""
        latest = time.monotonic() + STARTED_IN
        while time.monotonic() < latest and self._process.poll() is None:
            if all(map(_is_open, self._ports.values())) and self._answers():
                time.sleep(NOTICED_IN)  # a door may be another process's
                return self._process.poll() is None
            time.sleep(0.2)
        return False

    @contextlib.contextmanager
    def node(self, *options: str, path: Path = TESTS.parent) -> Iterator[subprocess.Popen[bytes]]:
        """A second node of one CPU at 127.0.0.2, whose workers have opacc from ``path``; ends with the block."""
        given = [f"--address={self.gcs}", "--num-cpus=1", f"--object-store-memory={100 << 20}", "--min-worker-port=0"]
        given += [
            "--max-worker-port=0",
            "--node-ip-address=127.0.0.2",
            f"--temp-dir={tempfile.mkdtemp(dir=self._folder)}",
        ]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *given, *options]
        with (self._folder / "log").open("a") as log:
            own = subprocess.Popen(command, env=self.environment | {"PYTHONPATH": str(path)}, stdout=log, stderr=log)
        try:
            self._wait_for_nodes(2)
            assert own.poll() is None, (self._folder / "log").read_text()[-2000:]
            yield own
        finally:
            _end(own)
            self._wait_for_nodes(1)

    def _wait_for_nodes(self, number: int) -> None:
        latest = time.monotonic() + STARTED_IN
        while (self._asked("/nodes?view=summary") or b"").count(b'"ALIVE"') != number:
            assert time.monotonic() < latest, f"there are not {number} nodes"
            time.sleep(0.5)

    @property
    def gcs(self) -> str:
        """Address for RAY_ADDRESS."""
        return f"127.0.0.1:{self._ports['port']}"

    def _end(self) -> None:
        _end(self._process)

    def _answers(self) -> bool:
        return self._asked("/api/jobs/") is not None

    def _asked(self, path: str) -> bytes | None:
        token = {"Authorization": f"Bearer {self.environment['RAY_AUTH_TOKEN']}"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.address}{path}", headers=token), timeout=60
            ) as got:
                return bytes(got.read())
        except OSError:
            return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End `ray start` and all that it has started."""
    own = family(process.pid)
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(ENDED_IN)
    for pid in own:  # those that are left, if the machine is busy
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _is_open(port: int) -> bool:
    with socket.socket() as door:
        door.settimeout(60)
        return door.connect_ex(("127.0.0.1", port)) == 0


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, outside of those that Ray gives to workers."""
    held: list[socket.socket] = []
    while len(held) < number:
        door = socket.socket()
        door.bind(("127.0.0.1", 0))
        if door.getsockname()[1] > 20000:
            held.append(door)
    ports = [door.getsockname()[1] for door in held]
    for door in held:
        door.close()
    return ports


def run(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    until: Mapping[str, Path] = NEVER,
    seconds: float = 900,
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder as a user would; make the file of words that a line of its errors has.

    It is killed after so many seconds.
    """
    own = subprocess.Popen(command, env=dict(environment), cwd=folder, stdout=PIPE, stderr=PIPE, text=True)
    end = threading.Timer(seconds, own.kill)
    end.start()
    with own, ThreadPoolExecutor(1) as reader:
        assert own.stdout
        assert own.stderr
        answer, errors = reader.submit(own.stdout.read), []
        for line in own.stderr:
            errors.append(line)
            for words, path in until.items():
                if words in line:
                    path.touch()
    end.cancel()
    return subprocess.CompletedProcess(command, own.returncode, answer.result(), "".join(errors))
