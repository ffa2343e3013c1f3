"""The processes of a local Ray, started and ended by a process of their own: ``python -m opacc_ray.cluster.head``.

It leads a session. It prints the address, and ends all when its input ends, as it does when the process that holds the
other end dies. What a run has no use for is left out: dashboard, autoscaler and the reader of logs, each a Python that
takes half a second of a CPU to start. ``ray.init`` has no switch for them.
"""

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable

import ray

OBJECT_STORE = 200 << 20
"""Bytes: what passes through it are reports of shards, and parts of a draw."""

NICENESS = "RAY_worker_niceness"
"""Variable for how far actors give way to other processes: 15 by Ray's own default, by which a model is interrupted."""

SETTINGS = {
    "enable_metrics_collection": False,  # the port of its metrics answers everyone, without the token
    "worker_niceness": int(os.environ.get(NICENESS, 0)),
}
"""Ray's own settings."""


def main() -> None:
    """Hold a local Ray until the input ends."""
    try:
        address, end = _start_least()
    except (ImportError, AttributeError, TypeError):  # another version of Ray, which is built otherwise inside
        address, end = _start_all()
    with contextlib.suppress(BrokenPipeError):  # who started it is gone already
        print(f"ray at {address}", flush=True)
    sys.stdin.read()
    end()
    os.killpg(0, signal.SIGKILL)  # agents that had just started would look for the others for a minute


def _start_least() -> tuple[str, Callable[[], None]]:
    """Start what a run needs; the address, and what ends it."""
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    class Head(Node):  # type: ignore[misc]
        def start_api_server(self, **_: object) -> None:
            """Start none: the dashboard's server would hold up all that comes after it, and nobody asks it."""

    parameters = RayParams(
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

    return head.gcs_address, end


def _start_all() -> tuple[str, Callable[[], None]]:
    """The same by Ray's public call, which starts more."""
    ray.init(
        address="local",
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _system_config=SETTINGS,
    )
    return ray.get_runtime_context().gcs_address, ray.shutdown


if __name__ == "__main__":
    main()
