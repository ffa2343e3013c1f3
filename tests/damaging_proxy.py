"""A way to an S3 server that damages what it carries, with headers that fit the damage."""

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import urlsplit

Damage = Callable[[bytes], bytes]


class DamagingProxy(ThreadingHTTPServer):
    """Carries requests to ``endpoint``; the first ``times`` bodies of objects that come back go through ``damage``."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        self.server_of = urlsplit(endpoint).netloc
        self.damage: Damage | None = None
        self.times = 0
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

    def carried(self, body: bytes) -> bytes:
        if self.damage is None or self.times == 0:
            return body
        self.times -= 1
        return self.damage(body)


class _Handler(BaseHTTPRequestHandler):
    server: DamagingProxy
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        is_object = "list-type" not in self.path
        there = http.client.HTTPConnection(self.server.server_of)
        there.request("GET", self.path, headers=dict(self.headers))  # the signature covers the name of this host
        answer = there.getresponse()
        body = answer.read()
        if is_object and answer.status == 200:
            body = self.server.carried(body)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("content-length", "transfer-encoding", "date", "server", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        there.close()

    def log_message(self, format: str, *arguments: object) -> None:
        pass
