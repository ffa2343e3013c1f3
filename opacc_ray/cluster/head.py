"""The processes of a local Ray, started and ended by a process of their own: ``python -m opacc_ray.cluster.head``.

It leads a session. It prints the address, and ends all when its input ends, as it does when the process that holds the
other end dies. What a run has no use for is left out: dashboard, autoscaler and the reader of logs, each a Python that
takes half a second of a CPU to start. ``ray.init`` has no switch for them.
"""

import contextlib
import os
import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams

OBJECT_STORE = 200 << 20
"""Bytes: what passes through it are reports of shards, and parts of a draw."""


class _Head(Node):  # type: ignore[misc]
    def start_api_server(self, **_: object) -> None:
        """Start none: the dashboard's server would hold up all that comes after it, and nobody asks it."""


def main() -> None:
    """Hold a local Ray until the input ends."""
    quiet = {"enable_metrics_collection": False}  # its port answers everyone, without the token
    parameters = RayParams(
        object_store_memory=OBJECT_STORE,
        include_dashboard=False,
        no_monitor=True,
        include_log_monitor=False,
        _system_config=quiet,
    )
    head = _Head(parameters, head=True, shutdown_at_exit=False, spawn_reaper=True)
    with contextlib.suppress(BrokenPipeError):  # who started it is gone already
        print(f"ray at {head.gcs_address}", flush=True)
    sys.stdin.read()
    head.destroy_external_storage()
    head.kill_all_processes(check_alive=False, allow_graceful=True, wait=True)
    os.killpg(0, signal.SIGKILL)  # agents that had just started would look for the others for a minute


if __name__ == "__main__":
    main()
