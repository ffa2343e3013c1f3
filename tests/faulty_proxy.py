"""A door before an S3 server behind which requests fail as they do at a large one: seeded, by a stated share."""

import random
import socket
import struct
import threading
import time
from collections import Counter

from carrying_proxy import CarryingHandler, CarryingProxy

FAULTS = ("500", "503", "reset", "lost answer", "truncated", "slow")
"""What may happen to a request: two refusals, a connection reset before the server sees it, one after, half a body, and
an answer in drops."""

_BODIES = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
}


class FaultyProxy(CarryingProxy):
    """Carries requests to ``endpoint``; a share of them meets one of ``faults``.

    Attributes
    ----------
    share : of the requests that meet a fault, in [0, 1]; may be changed at any time
    met : how many requests met each fault
    """

    def __init__(self, endpoint: str, seed: int = 0, share: float = 0.0, faults: tuple[str, ...] = FAULTS) -> None:
        self.share, self.faults = share, faults
        self.met: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        super().__init__(endpoint, _Handler)

    def draw(self, seed: int, share: float) -> None:
        """Begin another sequence of faults."""
        with self._lock:
            self._random, self.share = random.Random(seed), share

    def fault(self) -> str | None:
        """What happens to the next request."""
        with self._lock:
            if self._random.random() >= self.share:
                return None
            found = self._random.choice(self.faults)
            self.met[found] += 1
            return found

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away: they are what the tests kill."""


class _Handler(CarryingHandler):
    server: FaultyProxy

    def _carry(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.fault()
        if fault in _BODIES:
            self._refuse(*_BODIES[fault])
        elif fault == "reset":
            self._reset()
        else:
            self._answer(sent, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _carry

    def _answer(self, sent: bytes, fault: str | None) -> None:
        answer, body = self.carry(sent or None)
        if fault == "lost answer":
            return self._reset()
        length = answer.getheader("Content-Length", str(len(body)))
        self.send_head(answer.status, answer.getheaders(), length)
        if fault == "slow":
            for start in range(0, len(body), max(1, len(body) // 4)):
                time.sleep(0.1)
                self.wfile.write(body[start : start + max(1, len(body) // 4)])
        elif fault == "truncated" and body:
            self.wfile.write(body[: len(body) // 2])
            self._reset()
        else:
            self.wfile.write(body)

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
