"""A door before a server that counts what passes through it: bytes and requests, by the path that was asked for."""

import re
import socket
import threading
from collections import Counter
from typing import Self
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1\.1\r\n")


class CountingProxy:
    """Passes TCP to the server at ``endpoint`` while it is open; clients go to its own ``endpoint``.

    Attributes
    ----------
    received : bytes that the server sent, headers included, by path without query
    requests : by method and path
    """

    def __init__(self, endpoint: str) -> None:
        address = urlsplit(endpoint)
        self._server = address.hostname, address.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        self.received: Counter[str] = Counter()
        self.requests: Counter[tuple[str, str]] = Counter()

    def total(self, pattern: str = "") -> int:
        """Bytes received from paths that contain the pattern."""
        return sum(num for path, num in self.received.items() if re.search(pattern, path))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._server)
            asked: list[str] = [""]  # the path of the request under way
            for pump in (self._ask, self._answer):
                threading.Thread(target=pump, args=(client, server, asked), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, asked: list[str]) -> None:
        while data := _receive(client):
            if found := _REQUEST.match(data):
                asked[0] = found[2].decode().partition("?")[0]
                with self._lock:
                    self.requests[found[1].decode(), asked[0]] += 1
            server.sendall(data)
        _close(server)

    def _answer(self, client: socket.socket, server: socket.socket, asked: list[str]) -> None:
        while data := _receive(server):
            with self._lock:
                self.received[asked[0]] += len(data)
            client.sendall(data)
        _close(client)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _close(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # closed by the other end
        connection.close()
