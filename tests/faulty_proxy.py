"""A door before an S3 server behind which requests fail as they do at a large one: seeded, by a stated share."""

import http.client
import random
import socket
import struct
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

FAULTS = ("500", "503", "reset", "lost answer", "truncated", "slow")
"""What may happen to a request: two refusals, a connection reset before the server sees it, one after, half a body, and
an answer in drops."""

_BODIES = {
    "500": (500, "InternalError", "We encountered an internal error. Please try again."),
    "503": (503, "SlowDown", "Please reduce your request rate."),
}


class FaultyProxy(ThreadingHTTPServer):
    """Carries requests to ``endpoint``; a share of them meets one of ``faults``.

    Attributes
    ----------
    share : of the requests that meet a fault, in [0, 1]; may be changed at any time
    met : how many requests met each fault
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, endpoint: str, seed: int = 0, share: float = 0.0, faults: tuple[str, ...] = FAULTS) -> None:
        self.server_of = urlsplit(endpoint).netloc
        self.share, self.faults = share, faults
        self.met: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=[0.01], daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

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


class _Handler(BaseHTTPRequestHandler):
    server: FaultyProxy
    protocol_version = "HTTP/1.1"

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
        there = http.client.HTTPConnection(self.server.server_of)
        there.request(self.command, self.path, body=sent or None, headers=dict(self.headers))
        answer = there.getresponse()
        body = answer.read()
        length = answer.getheader("Content-Length", str(len(body)))
        there.close()
        if fault == "lost answer":
            return self._reset()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "date", "server", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
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

    def log_message(self, format: str, *arguments: object) -> None:
        pass
