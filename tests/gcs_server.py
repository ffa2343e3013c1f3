"""A small Google Cloud Storage server in memory, in a process of its own: what pyarrow's client asks for.

It speaks the JSON API for listings, metadata, resumable uploads and deletions, and sends contents with ranges. A seeded
share of the requests fails with 503, as at a busy service. It is a process since pyarrow asks for the size of a file
while it holds the interpreter's lock. The package gcp-storage-emulator serves one connection at a time, and hangs.
"""

import base64
import hashlib
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen

from local_server import LocalServer, QuietHandler


class GcsServer(LocalServer):
    """The server, with its objects: (bucket, name) -> content and metadata."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.objects: dict[tuple[str, str], tuple[bytes, dict[str, Any]]] = {}
        self.buckets = {"lake"}
        self.uploads: dict[str, tuple[str, str, bytearray]] = {}
        self.share, self.random, self.met = 0.0, random.Random(0), 0  # of requests that fail; how many did
        self.lock = threading.Lock()

    def keep(self, bucket: str, name: str, data: bytes) -> dict[str, Any]:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        meta = {
            "kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(data)), "updated": now,
            "timeCreated": now, "generation": str(time.time_ns() // 1000), "metageneration": "1",
            "etag": str(time.time_ns()), "md5Hash": base64.b64encode(hashlib.md5(data).digest()).decode(),
        }  # fmt: skip
        self.objects[bucket, name] = data, meta
        return meta


class _Handler(QuietHandler):
    server: GcsServer

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.server.lock:
            if parts.path == "/faults":  # set their share, and tell how many there were
                self.server.share, self.server.random = float(query["share"]), random.Random(0)
                return self._send(200, {"met": self.server.met})
            if self.server.random.random() < self.server.share:
                self.server.met += 1
                return self._send(503, {"error": {"code": 503, "message": "busy"}})
            return self._answer(parts.path, query, body)

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> None:
        if path.startswith("/upload/"):
            return self._upload(path, query, body)
        if not path.startswith("/storage/v1/b/"):  # the XML API, for contents
            bucket, _, name = path.lstrip("/").partition("/")
            return self._content(unquote(bucket), unquote(name))
        bucket, _, rest = path.removeprefix("/storage/v1/b/").partition("/")
        if rest == "o":
            if bucket not in self.server.buckets:
                return self._send(404, {"error": {"code": 404, "message": "No such bucket"}})
            return self._list(bucket, query)
        name = unquote(rest.removeprefix("o/"))
        if not rest:
            if self.command == "POST" or bucket not in self.server.buckets:
                return self._send(404, {"error": {"code": 404, "message": "No such bucket"}})
            return self._send(200, {"kind": "storage#bucket", "name": bucket, "id": bucket})
        if (bucket, name) not in self.server.objects:
            return self._send(404, {"error": {"code": 404, "message": "No such object"}})
        if self.command == "DELETE":
            del self.server.objects[bucket, name]
            return self._send(204, None)
        if query.get("alt") == "media":
            return self._content(bucket, name)
        return self._send(200, self.server.objects[bucket, name][1])

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix = query.get("prefix", "")
        names = sorted(name for own, name in self.server.objects if own == bucket and name.startswith(prefix))
        start, most = int(query.get("pageToken") or 0), int(query.get("maxResults") or 1000)
        found: dict[str, Any] = {"kind": "storage#objects"}
        found["items"] = [self.server.objects[bucket, name][1] for name in names[start : start + most]]
        if start + most < len(names):
            found["nextPageToken"] = str(start + most)
        self._send(200, found)

    def _upload(self, path: str, query: dict[str, str], body: bytes) -> None:
        if self.command == "POST":
            bucket = path.split("/")[5]
            name = query.get("name") or json.loads(body or b"{}")["name"]
            id = f"{len(self.server.uploads)}"
            self.server.uploads[id] = bucket, name, bytearray()
            place = f"{self.server.endpoint}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={id}"
            return self._send(200, {}, {"Location": place})
        bucket, name, held = self.server.uploads[query["upload_id"]]
        span = self.headers.get("Content-Range", "bytes */*").removeprefix("bytes ")
        place, _, total = span.partition("/")
        if place != "*":
            start = int(place.partition("-")[0])
            held[start:] = body
        if total != "*" and len(held) == int(total):
            return self._send(200, self.server.keep(bucket, name, bytes(held)))
        return self._send(308, None, {"Range": f"bytes=0-{len(held) - 1}"} if held else {})

    def _content(self, bucket: str, name: str) -> None:
        if (bucket, name) not in self.server.objects:
            return self._send(404, {"error": {"code": 404, "message": "No such object"}})
        data, meta = self.server.objects[bucket, name]
        headers = {"x-goog-generation": meta["generation"], "x-goog-stored-content-length": str(len(data))}
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._send(200, data, headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else len(data) - int(last)
        stop = min(int(last) + 1, len(data)) if first and last else len(data)
        if start >= len(data):
            return self._send(416, b"", headers | {"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return self._send(206, data[start:stop], headers)

    def _send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def gcs_server() -> Iterator[str]:
    """Run a server with the bucket ``lake`` while the context lasts, and yield its address."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def set_faults(endpoint: str, share: float) -> int:
    """Let a share of the requests fail, the same ones each time; return how many failed so far."""
    with urlopen(f"{endpoint}/faults?share={share}") as answer:
        return int(json.load(answer)["met"])


if __name__ == "__main__":
    server = GcsServer()
    print(server.endpoint, flush=True)
    server.serve_forever()
