"""Joining a Ray cluster, or starting a local one that nobody else can use."""

import contextlib
import logging
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from opacc_ray.cluster.failures import brief
from opacc_ray.errors import ClusterError
from opacc_ray.lake.redaction import redacted

log = logging.getLogger(__name__)


@contextlib.contextmanager
def connected() -> Iterator[None]:
    """Join the cluster that RAY_ADDRESS or an enclosing ``ray.init`` names, else start a local one and end it after.

    Workers of a local cluster inherit this process's environment and module path. On a cluster that is joined they
    use their own credentials: those of the driver are never sent, since Ray would show them to every user.
    """
    if ray.is_initialized():
        yield
        return
    address = os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"address": address}
    if address == "local":
        lock_local_cluster()
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        options |= {"include_dashboard": False, "object_store_memory": 200 << 20}
    log.info("starting a local Ray" if address == "local" else f"joining Ray at {redacted(address)}")
    try:
        with _same_end_on_sigterm():
            ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise ClusterError(f"no Ray cluster could be reached: {brief(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _same_end_on_sigterm() -> Iterator[None]:
    """Keep this process's own answer to SIGTERM: ``ray.init`` replaces it by an exit that leaves a trace."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def lock_local_cluster() -> None:
    """Let nobody into a cluster that this process starts, whose ports listen on all interfaces: Ray's token mode.

    The token is random, and in this process's environment alone, which its workers inherit.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    Config.initialize("")  # Ray read its settings when it was imported
    AuthenticationTokenLoader.instance().reset_cache()
