"""A local Ray in a process of its own, which can start while the command does other work.

Ray takes seconds to start, and a run has other work first: a trial of the model, for example. A command that runs one
audit opens :func:`ahead`; code that finds that actors will be needed calls :func:`begin`; code that needs them takes
:func:`started`.

The process is this module: it starts Ray by ``ray.init``, prints its address, and later the name of a process of Ray
that has ended. It ends all of them when its input ends, which also happens when the process at the other end dies.
"""

import contextlib
import logging
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from opacc_ray.errors import ClusterError, LostRayError
from opacc_ray.registry import require

log = logging.getLogger(__name__)

Result = TypeVar("Result")

OBJECT_STORE = 200 << 20  # bytes: only reports of shards and parts of a draw pass through it

UNANSWERED = "RAY_gcs_rpc_server_reconnect_timeout_s"
"""Seconds in which a process of Ray ends itself if the GCS is gone."""

SETTINGS = {
    UNANSWERED: "30",  # a raylet without it never lets a driver join, which then runs no other thread
    "RAY_prestart_worker_first_driver": "0",  # a process per CPU, for the process that keeps Ray, which has no work
    "RAY_enable_metrics_collection": "0",  # the port of its metrics answers everyone, without the token
    "AUTOSCALER_METRIC_PORT": "-1",  # as does that of its autoscaler: 44217, unless another Ray has it; there is no -1
    "RAY_worker_niceness": os.environ.get("RAY_worker_niceness", "0"),  # noqa: SIM112 Ray's 15 lets other processes stop a model
}
"""Environment variables that set options of Ray in its own processes."""

LONGEST = 24  # bytes of the longest path for Ray's folder: its sockets add some 80, and the limit is 107 (macOS: 103)
TICK = 0.2  # seconds between two checks that Ray's processes run
END_WITHIN = 10.0  # seconds in which Ray's processes must have ended by themselves
PATIENCE = 30.0  # seconds to wait for the end of the process that keeps Ray


def named_address() -> str:
    """Return the address of the cluster that the environment names; `local` if it names none."""
    return os.environ.get("RAY_ADDRESS") or "local"


def lock() -> None:
    """Set Ray's token mode for the Ray that this process starts: its ports listen on all interfaces.

    The token is random, and only in the environment of this process, which its workers inherit. A loss of that Ray does
    not end this process.

    Raises ClusterError if Ray was imported before without token mode, which it reads once.
    """
    if "ray" in sys.modules and os.environ.get("RAY_AUTH_MODE") != "token":
        raise ClusterError(
            "Ray was imported before its token mode was set, so no local Ray can be locked against other users; set "
            "RAY_AUTH_MODE=token before Python starts, or call ray.init() first, whose cluster is then used"
        )
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN, UNANSWERED: "1000000"}
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)


_TOKEN = secrets.token_hex(32)  # one token for all that this process starts, since Ray reads it once


class LocalRay:
    """A Ray that only this process and its children can use.

    It ends with :meth:`end`, or when this process dies. Workers inherit the current environment and module path of this
    process. Ray lets every user of the machine write to its folder, so that folder is inside a private one.
    """

    def __init__(self) -> None:
        log.info("starting a local Ray")
        lock()
        self._lost = ""
        self._folder = _private_folder()
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "RAY_TMPDIR": self._folder}
        self._log = tempfile.TemporaryFile(prefix="opacc-ray-", suffix=".log")  # noqa: SIM115 (closed at its end)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "opacc_ray.cluster.local"],  # -P: not from the current folder
            env=os.environ | SETTINGS | paths,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for this process, which then ends it
        )

    def address(self) -> str:
        """Wait until it has started, and return its address.

        Raises LostRayError if one of its processes ended meanwhile, ClusterError if it could not start otherwise.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b"ray at "):
                return line.split()[-1].decode()
            raise _lost(line.decode().strip())
        text = os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace").strip()
        if "Traceback" not in text:  # it was killed
            raise _lost("process")
        raise ClusterError(f"no local Ray could be started: {text.splitlines()[-1]}; on a busy machine, run it again")

    def lost(self) -> str:
        """Return which process of Ray has ended, so that no work is done any more; empty if none has."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 0)
        if ready and not self._lost:
            self._lost = self._process.stdout.readline().decode().strip() or "process"
        return self._lost

    def end(self, *, wait: bool = True) -> None:
        """End its processes; those that are still starting end by themselves soon after."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if wait:
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._process.stdout.close()
        self._log.close()


def _private_folder() -> str:
    """Make a folder that only this user may enter, in RAY_TMPDIR or the folder of temporary files, if that is short."""
    place = os.environ.get("RAY_TMPDIR")
    if place:
        os.makedirs(place, exist_ok=True)
    elif len(os.fsencode(tempfile.gettempdir())) <= LONGEST:
        place = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="opacc-", dir=place or "/tmp")


_AHEAD: ContextVar[list[LocalRay] | None] = ContextVar("ahead", default=None)
"""The Ray that was started ahead, until it is taken; None outside :func:`ahead`."""


@contextlib.contextmanager
def ahead() -> Iterator[None]:
    """Let :func:`begin` start a Ray in the block; it ends with the block if it was not taken."""
    if _AHEAD.get() is not None:
        yield
        return
    own: list[LocalRay] = []
    token = _AHEAD.set(own)
    try:
        yield
    finally:
        _AHEAD.reset(token)
        for ray in own:
            ray.end(wait=False)


def begin() -> None:
    """Start a Ray that will be needed, and do not wait for it.

    Nothing happens outside :func:`ahead`, or if a cluster is named or joined already.
    """
    require("running a model", "ray")
    own = _AHEAD.get()
    if own == [] and named_address() == "local" and not is_joined():
        own.append(LocalRay())


def cancel() -> None:
    """End the Ray that was started ahead: it is not needed after all."""
    own = _AHEAD.get()
    while own:
        own.pop().end(wait=False)


def is_joined() -> bool:
    """Return whether this process has joined a cluster; does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


@contextlib.contextmanager
def started() -> Iterator[str]:
    """Yield the address of the Ray that was started ahead, or of one that starts now; it ends with the block."""
    own = _AHEAD.get()
    found = own.pop() if own else LocalRay()
    try:
        import ray  # noqa: F401  while it starts, since the caller needs both

        address = found.address()
        _USED.append(found)
        yield address
    finally:
        if found in _USED:
            _USED.remove(found)
        found.end()


_USED: list[LocalRay] = []  # those that threads of this process use now


def raise_if_lost() -> None:
    """Raise LostRayError if a local Ray that is in use has lost a process: calls to it may never end."""
    for ray in list(_USED):
        if name := ray.lost():
            raise _lost(name)


def unless_lost(call: Callable[..., Result], *args: Any, **options: Any) -> Result:
    """Return the result of a call to Ray that may wait; raises LostRayError if a local Ray is lost meanwhile.

    The call runs in a thread of its own, which is then left behind: nothing ends a call to a GCS that is gone.
    """
    if not _USED:
        return call(*args, **options)
    result: Future[Result] = Future()

    def run() -> None:
        try:
            result.set_result(call(*args, **options))
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    while not wait([result], TICK).done:
        raise_if_lost()
    return result.result()


def _lost(name: str) -> LostRayError:
    return LostRayError(
        f"the local Ray has ended, because its {name} was killed or failed; often memory runs out. Finished "
        "shards are kept: run the same command again"
    )


def main() -> None:
    """Keep a local Ray, whose files are in RAY_TMPDIR, until the input ends; then remove that folder."""
    import ray

    started = threading.Event()
    threading.Thread(target=_end_if_lost, args=(started,), daemon=True).start()
    try:
        ray.init(
            address="local",
            object_store_memory=OBJECT_STORE,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
        started.set()
        lost = ""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its input
        with contextlib.suppress(BrokenPipeError):  # the process at the other end is gone already
            print(f"ray at {ray.get_runtime_context().gcs_address}", flush=True)
            while not (select.select([0], [], [], TICK)[0] and not os.read(0, 1)):
                # the others run on until then: calls to a GCS that is gone take a minute
                if not lost and (lost := _lost_process()):
                    print(lost, flush=True)
        if not lost:
            threading.Timer(END_WITHIN, _end_all).start()
            ray.shutdown()
    except BaseException:
        traceback.print_exc()
    finally:
        _end_all()


def _end_if_lost(started: threading.Event) -> None:
    """End all if a process of Ray ends before it has started: Ray itself would wait for a minute."""
    while not started.wait(TICK):
        if (name := _lost_process()) in ("gcs_server", "raylet"):
            print(name, flush=True)
            _end_all()


def _lost_process() -> str:
    """Return the name of a child process that has ended; empty if none has."""
    ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if ended is None:
        return ""
    try:
        return Path(f"/proc/{ended.si_pid}/comm").read_text().strip()
    except OSError:  # this system does not list processes as files
        return "process"


def _end_all() -> None:
    """Remove Ray's folder, in which processes that are ending may still write, and end them and this process."""
    folder = os.environ["RAY_TMPDIR"]
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
        time.sleep(0.1)
    os.killpg(0, signal.SIGKILL)  # agents that had just started would look for the others for a minute


if __name__ == "__main__":
    main()
