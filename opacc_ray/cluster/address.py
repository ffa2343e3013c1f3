"""Whether anybody listens where a cluster is said to be: Ray itself would try for minutes."""

import socket
from urllib.parse import urlsplit

from opacc_ray.errors import ClusterError
from opacc_ray.lake.redaction import redacted

CONNECTED_IN = 5.0
"""Seconds in which a cluster must answer."""


def check_address(address: str) -> None:
    """Raise ClusterError if nobody listens at a host and port; other addresses, such as auto, are Ray's to look up."""
    try:
        place = urlsplit(address if "://" in address else f"//{address}")
        host, port = place.hostname, place.port
    except ValueError as error:
        raise ClusterError(
            f"{redacted(address)} is no address ({error}); write http://HEAD:8265, or HOST:PORT"
        ) from None
    if host is None or port is None:
        return
    try:
        socket.create_connection((host, port), timeout=CONNECTED_IN).close()
    except OSError as error:
        raise ClusterError(
            f"nobody answers at {redacted(address)} ({error}); check the address and the network"
        ) from None
