"""A local Ray refuses clients without the token, and other clusters on the machine do not disturb it."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import grpc
import pytest
from listening import Listener, family, grpc_codes, http_status, listeners
from waiting import LONG

pytestmark = pytest.mark.slow

HOLD = """
import os, sys
from opacc_ray.cluster.session import connected
with connected():
    import ray
    folder = ray.get(ray.remote(lambda: os.environ["RAY_TMPDIR"]).remote())
    print(ray.get_runtime_context().gcs_address, os.environ["RAY_AUTH_TOKEN"], folder, flush=True)
    sys.stdin.read()
"""

OTHER = """
import os, sys, secrets
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
import ray
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
for line in sys.stdin:
    print(ray.get(ray.remote(lambda: "still here").remote()), flush=True)
"""

JOIN = """
import ray
ray.init(address=ADDRESS, log_to_driver=False)
print("joined")
"""


NOBODY = 65534


def as_nobody(attempts: Callable[[], list[str]]) -> list[str]:
    """Return what attempts of user `nobody` got, each in words; only root can call it."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = attempts()
        except BaseException as error:
            found = [f"the attempt itself failed: {error!r}"]
        os.write(writer, "\n".join(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said.splitlines()


def got_from(pids: Sequence[int], folder: Path, sockets: Sequence[Path], secret: str) -> list[str]:
    """Return what a process gets: names of files, connections to sockets, a secret of other processes."""
    found = []
    for place in (folder, *sockets):
        for verb, act in (("listed", os.listdir), ("renamed", lambda path: os.rename(path, f"{path}_old"))):
            try:
                act(place)
                found.append(f"{verb} {place}")
            except OSError:
                pass
    for place in sockets:
        with socket.socket(socket.AF_UNIX) as link:
            if link.connect_ex(str(place)) == 0:
                found.append(f"connected to {place}")
    for pid in pids:
        for name in ("environ", "mem", "fd"):
            try:
                place = Path(f"/proc/{pid}/{name}")
                content = place.read_bytes() if name == "environ" else str(list(place.iterdir())).encode()
                found.append(f"read {place}{', with the secret' * (secret.encode() in content)}")
            except OSError:
                pass
    return found


def started(script: str, folder: Path, **changes: str) -> subprocess.Popen[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": (folder / "log").open("a"), "text": True}
    return subprocess.Popen([sys.executable, "-c", script], env=plain | {"HOME": str(folder)} | changes, **pipes)  # type: ignore[call-overload, no-any-return]


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    try:
        process.communicate(timeout=LONG)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def other(home: Path) -> Iterator[subprocess.Popen[str]]:
    """Another Ray on this machine, of another process, with a token of its own: the newest that Ray would find."""
    process = started(OTHER, home, AUTOSCALER_METRIC_PORT="-1")  # it would have the port that ours must not open
    assert ":" in line_of(process), (home / "log").read_text()
    yield process
    end(process)


class Cluster(NamedTuple):
    """A process with a cluster of ours."""

    process: subprocess.Popen[str]
    address: str
    token: str
    folder: Path  # of its sockets and logs


@pytest.fixture(scope="module")
def ours(other: subprocess.Popen[str], home: Path) -> Iterator[Cluster]:
    """A cluster of ours, started while another Ray runs, below a folder that everybody may read."""
    place = Path(tempfile.mkdtemp(prefix="o", dir="/tmp"))
    place.chmod(0o755)
    process = started(HOLD, home, TMPDIR=str(place))
    words = line_of(process).split()
    assert len(words) == 3, (home / "log").read_text()
    yield Cluster(process, words[0], words[1], Path(words[2]))
    end(process)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def doors(ours: Cluster) -> list[Listener]:
    return listeners(family(ours.process.pid))


def test_other_ray_on_the_machine_does_not_disturb(other: subprocess.Popen[str], ours: Cluster) -> None:
    assert ours.address
    assert other.stdin is not None
    other.stdin.write("ask\n")
    other.stdin.flush()
    assert line_of(other) == "still here"


def test_clients_without_the_token_are_refused(ours: Cluster, home: Path) -> None:
    clients = {}
    for name, own in (("without", {"MODE": "disabled"}), ("wrong", {"MODE": "token", "TOKEN": "0" * 64})):
        (home / name).mkdir()
        credentials = {f"RAY_AUTH_{key}": value for key, value in own.items()}
        clients[name] = started(JOIN.replace("ADDRESS", repr(ours.address)), home / name, **credentials)
    for name, client in clients.items():
        assert "joined" not in client.communicate(timeout=LONG)[0]
        log = (home / name / "log").read_text()
        assert "AuthenticationError" in log or "token" in log.lower()


def test_token_is_in_no_file(ours: Cluster, home: Path) -> None:
    assert not list(home.glob(".ray/*"))
    environment = Path(f"/proc/{ours.process.pid}/environ")
    assert environment.stat().st_mode & 0o077 == 0  # for this user alone


def test_no_port_answers_without_the_token(doors: list[Listener]) -> None:
    listing = "\n".join(map(str, doors))
    assert len(doors) >= 4, listing
    for door in doors:
        for path in ("/", "/metrics", "/get_or_create_runtime_env"):
            assert http_status(door, path) in (None, 401, 403, 404, 405), (door, path, listing)
        assert grpc.StatusCode.OK not in grpc_codes(door).values(), (door, listing)


def test_services_of_ray_ask_for_the_token(doors: list[Listener]) -> None:
    asking = {method for door in doors for method, code in grpc_codes(door).items() if code.name == "UNAUTHENTICATED"}
    assert {method.split("/")[1].rpartition(".")[2] for method in asking} >= {
        "NodeInfoGcsService",
        "InternalKVGcsService",
        "NodeManagerService",
        "CoreWorkerService",
        "ObjectManagerService",
    }


@pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
def test_another_user_reads_no_file_and_reaches_no_socket(ours: Cluster) -> None:
    """Ports are those of this machine, whoever connects: the tests above ask them without the token."""
    place = ours.folder.parents[-3]  # below /tmp
    sockets = [path for path in ours.folder.rglob("*") if path.is_socket()]
    assert sockets
    pids = family(ours.process.pid)
    assert as_nobody(lambda: [f"listed {place}"] if os.listdir(place) else []) == [f"listed {place}"]
    assert as_nobody(lambda: got_from(pids, ours.folder, sockets, ours.token)) == []
