"""Doors before an S3 server that count what passes through them, damage it, or fail as a large server does."""

import http.client
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from local_server import LocalServer, QuietHandler

_OWN = ("content-length", "transfer-encoding", "date", "server", "connection")
"""Headers of an answer that the door writes itself."""

FAULTS = ("500", "503", "reset", "lost answer", "truncated", "slow")
"""What may happen to a request: two refusals, a connection reset before the server sees it, one after, half a body, and
an answer in drops."""

_REFUSALS = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
    "403": (403, "AccessDenied", "Access Denied"),
    "404": (404, "NoSuchKey", "The specified key does not exist."),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "skewed": (
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
}

Damage = Callable[[bytes], bytes]


class Proxy(LocalServer):
    """Carries requests to the server at ``endpoint`` while it is open; what happens on the way is up to its kind."""

    def __init__(self, endpoint: str) -> None:
        self.server_of = urlsplit(endpoint).netloc
        super().__init__(_Handler)

    def fault(self, request: "_Handler") -> str | None:
        """What happens to a request."""
        return None

    def passed(self, request: "_Handler", status: int, body: bytes) -> bytes:
        """The body that comes back for a request."""
        return body


class CountingProxy(Proxy):
    """Counts bytes and requests by the path that was asked for.

    Attributes
    ----------
    received : bytes of the bodies that the server sent, by path without query
    requests : by method and path
    """

    def __init__(self, endpoint: str) -> None:
        self._lock = threading.Lock()
        self.reset()
        super().__init__(endpoint)

    def reset(self) -> None:
        self.received: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str]] = Counter()

    def passed(self, request: "_Handler", status: int, body: bytes) -> bytes:
        path = request.path.partition("?")[0]
        with self._lock:
            self.requests[request.command, path] += 1
            self.received[path] += len(body)
        return body

    def total(self, pattern: str = "") -> int:
        """Bytes received from paths that contain the pattern."""
        return sum(num for path, num in self.received.items() if re.search(pattern, path))


class DamagingProxy(Proxy):
    """Lets the first ``times`` bodies of objects that come back go through ``damage``, with headers that fit it."""

    damage: Damage | None = None
    times = 0

    def passed(self, request: "_Handler", status: int, body: bytes) -> bytes:
        is_object = request.command == "GET" and "list-type" not in request.path and status == 200
        if not is_object or self.damage is None or self.times == 0:
            return body
        self.times -= 1
        return self.damage(body)


class FaultyProxy(Proxy):
    """Lets a share of the requests meet one of ``faults``: seeded.

    Attributes
    ----------
    share : of the requests that meet a fault, in [0, 1]; may be changed at any time
    met : how many requests met each fault
    """

    def __init__(self, endpoint: str, seed: int = 0, share: float = 0.0, faults: tuple[str, ...] = FAULTS) -> None:
        self.faults = faults
        self.met: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.draw(seed, share)
        super().__init__(endpoint)

    def draw(self, seed: int, share: float) -> None:
        """Begin another sequence of faults."""
        with self._lock:
            self._random, self.share = random.Random(seed), share

    def fault(self, request: "_Handler") -> str | None:
        with self._lock:
            if self._random.random() >= self.share:
                return None
            found = self._random.choice(self.faults)
            self.met[found] += 1
            return found

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away: they are what the tests kill."""


class FailingDoor(Proxy):
    """Lets the requests that a rule names meet a fault.

    A rule has ``fault``, one of `FAULTS` or a refusal; ``request``, an expression that is searched for in
    "GET /bucket/key"; and ``times`` that it applies (always, if it has none).
    """

    def __init__(self, endpoint: str, rules: list[dict[str, Any]]) -> None:
        self.rules = [{"times": -1, **rule} for rule in rules]
        super().__init__(endpoint)

    def fault(self, request: "_Handler") -> str | None:
        for rule in self.rules:
            if rule["times"] and re.search(rule["request"], f"{request.command} {request.path}"):
                rule["times"] -= 1
                return str(rule["fault"])
        return None

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


class _Handler(QuietHandler):
    server: Proxy

    def _carry(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault(self)
        if fault in _REFUSALS:
            return self._refuse(*_REFUSALS[fault])
        if fault == "reset":
            return self._reset()
        there = http.client.HTTPConnection(self.server.server_of)
        there.request(self.command, self.path, body=sent or None, headers=dict(self.headers))  # signed for this door
        answer = there.getresponse()
        body = self.server.passed(self, answer.status, answer.read())
        there.close()
        if fault == "lost answer":
            return self._reset()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _OWN:
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if fault == "slow":
            for start in range(0, len(body), max(1, len(body) // 4)):
                time.sleep(0.1)
                self.wfile.write(body[start : start + max(1, len(body) // 4)])
        elif fault == "truncated" and body:
            self.wfile.write(body[: len(body) // 2])
            self._reset()
        else:
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _carry

    def _refuse(self, status: int, code: str, message: str) -> None:
        head = self.command == "HEAD"
        body = b"" if head else f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _reset(self) -> None:
        """Close the connection with an RST, as a load balancer does."""
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True
