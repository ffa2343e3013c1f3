"""The processes of a local Ray, started and ended by a process of their own: ``python -m opacc_ray.cluster.head``.

It prints the address, and later the name of a process of Ray that has ended and without which no work is done. It ends
all when its input ends, as it does when the process that holds the other end dies. Ray lets every user of the machine
write to its folder and the sockets in it, so that folder is inside a private one. One process makes the private folder,
and removes it when a second one has ended, which leads a session with all of Ray's processes.

What a run has no use for is left out: dashboard, autoscaler and the reader of logs, each a Python that takes half a
second of a CPU to start. ``ray.init`` has no switch for them.
"""

import contextlib
import logging
import os
import select
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import NamedTuple

OBJECT_STORE = 200 << 20
"""Bytes: what passes through it are reports of shards, and parts of a draw."""

NICENESS = "RAY_worker_niceness"
"""Variable for how far actors give way to other processes: 15 by Ray's own default, by which a model is interrupted."""

SETTINGS = {
    "enable_metrics_collection": False,  # the port of its metrics answers everyone, without the token
    "worker_niceness": int(os.environ.get(NICENESS, 0)),
}
"""Ray's own settings."""


LONGEST = 24
"""Bytes of the longest path that the folder may be made in: Ray's sockets add some 80 to it, of 107 (macOS: 103)."""

LOOK = 0.2
"""Seconds between two looks whether Ray's processes live."""

END_WITHIN = 10
"""Seconds in which Ray's processes must have ended by themselves."""


def main() -> None:
    """Hold a local Ray until the input ends; its folder is removed with it."""
    folder = _private_folder()
    try:
        held = os.fork()  # before anything has started a thread
        if held == 0:
            os.setsid()
            _hold(os.path.join(folder, "ray"))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the other one ends on it, or with the input
        os.waitpid(held, 0)
        with contextlib.suppress(OSError):
            os.killpg(held, signal.SIGKILL)  # what it has left
    finally:
        _remove(folder)


def _private_folder() -> str:
    """Make a folder that only this user may enter, where RAY_TMPDIR says or temporary files go, if that is short."""
    place = os.environ.get("RAY_TMPDIR")
    if place:
        os.makedirs(place, exist_ok=True)
    elif len(os.fsencode(tempfile.gettempdir())) <= LONGEST:
        place = tempfile.gettempdir()
    return tempfile.mkdtemp(prefix="opacc-", dir=place or "/tmp")


def _remove(folder: str) -> None:
    """Remove the folder, in which processes that are just ending may still write."""
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
        time.sleep(0.1)


def _hold(folder: str) -> None:
    """Start Ray, whose files go to ``folder``, and end it with the input; this process ends here."""
    try:
        try:
            ray = _start_least(folder)
        except (ImportError, AttributeError, TypeError):  # another version of Ray, which is built otherwise inside
            ray = _start_all(folder)
        with contextlib.suppress(BrokenPipeError):  # who started it is gone already
            print(f"ray at {ray.address}", flush=True)
            lost = ""
            while not _input_has_ended(LOOK):  # the others stay till then: calls to a GCS that is gone take a minute
                if not lost and (lost := ray.lost()):
                    print(lost, flush=True)
        signal.alarm(END_WITHIN)
        ray.end()
    except BaseException:
        traceback.print_exc()
    finally:
        os.killpg(0, signal.SIGKILL)  # agents that had just started would look for the others for a minute


def _input_has_ended(seconds: float) -> bool:
    ready, _, _ = select.select([0], [], [], seconds)
    return bool(ready) and not os.read(0, 1)


class _Started(NamedTuple):
    """A Ray of this process."""

    address: str
    end: Callable[[], None]
    lost: Callable[[], str] = str  # the first of its processes that has ended; empty if none has


def _start_least(folder: str) -> _Started:
    """Start what a run needs."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class Head(Node):  # type: ignore[misc]
        def start_api_server(self, **_: object) -> None:
            """Start none: the dashboard's server would hold up all that comes after it, and nobody asks it."""

    parameters = RayParams(
        temp_dir=folder,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        no_monitor=True,
        include_log_monitor=False,
        _system_config=SETTINGS,
    )
    head = Head(parameters, head=True, shutdown_at_exit=False, spawn_reaper=True)

    def end() -> None:
        head.destroy_external_storage()
        head.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)

    def lost() -> str:
        names = (name for name, _ in head.dead_processes())
        return next((name for name in names if name in ("gcs_server", "raylet")), "")

    return _Started(head.gcs_address, end, lost)


def _start_all(folder: str) -> _Started:
    """The same by Ray's public call, which starts more."""
    import ray

    ray.init(
        address="local",
        _temp_dir=folder,
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _system_config=SETTINGS,
    )
    return _Started(ray.get_runtime_context().gcs_address, ray.shutdown)


if __name__ == "__main__":
    main()
