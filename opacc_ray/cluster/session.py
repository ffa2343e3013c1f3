"""Joining a Ray cluster, or starting a local one that nobody else can use."""

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import ray
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]

from opacc_ray.cluster.failures import brief
from opacc_ray.errors import ClusterError

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
    address = os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {}
    if address is None:
        lock_local_cluster()
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        options = {"address": "local", "include_dashboard": False, "object_store_memory": 200 << 20}
    log.info("joining Ray at %s", address) if address else log.info("starting a local Ray")
    try:
        ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, RuntimeError, OSError) as error:
        raise ClusterError(f"no Ray cluster could be reached: {brief(error)}") from None
    try:
        yield
    finally:
        ray.shutdown()


def lock_local_cluster() -> None:
    """Let nobody into a cluster that this process starts, whose ports listen on all interfaces: Ray's token mode.

    The token is random, and in this process's environment alone, which its workers inherit.
    """
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    Config.initialize("")  # Ray read its settings when it was imported
    AuthenticationTokenLoader.instance().reset_cache()
