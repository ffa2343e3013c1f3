"""A door before an S3 server that carries requests and answers; what happens on the way is up to its kind."""

import http.client
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

from local_server import LocalServer, QuietHandler

_OWN = ("content-length", "transfer-encoding", "date", "server", "connection")
"""Headers of an answer that the door writes itself."""


class CarryingProxy(LocalServer):
    """Serves while it is open, in front of the server at ``endpoint``."""

    def __init__(self, endpoint: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self.server_of = urlsplit(endpoint).netloc
        super().__init__(handler)


class CarryingHandler(QuietHandler):
    server: CarryingProxy

    def carry(self, sent: bytes | None = None) -> tuple[http.client.HTTPResponse, bytes]:
        """What the server answers to this request, and the body of that."""
        there = http.client.HTTPConnection(self.server.server_of)
        there.request(self.command, self.path, body=sent, headers=dict(self.headers))  # signed for this door's name
        answer = there.getresponse()
        body = answer.read()
        there.close()
        return answer, body

    def send_head(self, status: int, headers: Iterable[tuple[str, str]], length: str) -> None:
        """Begin the answer with the server's headers, and this length of its body."""
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _OWN:
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
