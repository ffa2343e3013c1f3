"""A door before a server that counts what passes through it: bytes and requests, by the path that was asked for."""

import re
import threading
from collections import Counter

from carrying_proxy import CarryingHandler, CarryingProxy


class CountingProxy(CarryingProxy):
    """Carries requests to the server at ``endpoint`` while it is open.

    Attributes
    ----------
    received : bytes of the bodies that the server sent, by path without query
    requests : by method and path
    """

    def __init__(self, endpoint: str) -> None:
        self._lock = threading.Lock()
        self.reset()
        super().__init__(endpoint, _Handler)

    def reset(self) -> None:
        self.received: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str]] = Counter()

    def count(self, method: str, path: str, num_bytes: int) -> None:
        with self._lock:
            self.requests[method, path] += 1
            self.received[path] += num_bytes

    def total(self, pattern: str = "") -> int:
        """Bytes received from paths that contain the pattern."""
        return sum(num for path, num in self.received.items() if re.search(pattern, path))


class _Handler(CarryingHandler):
    server: CountingProxy

    def _carry(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer, body = self.carry(sent or None)
        self.server.count(self.command, self.path.partition("?")[0], len(body))
        self.send_head(answer.status, answer.getheaders(), answer.getheader("Content-Length", str(len(body))))
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _carry
