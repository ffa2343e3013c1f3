"""A catalog over HTTP: Iceberg's REST protocol over a catalog of pyiceberg, and Unity Catalog's for Delta tables.

It vends the credentials that ``vend`` returns, as ``(access key, secret key, expiry in seconds or None)``. A seeded
share of the requests fails with 503.
"""

import json
import random
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

from local_server import LocalServer, QuietHandler
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

Vend = Callable[[], tuple[str, str, float | None]]


class CatalogServer(LocalServer):
    """Serves while it is open.

    Attributes
    ----------
    delta : name of a Delta table -> its URI
    token : that requests must have
    share : of the requests that fail
    asked : paths of the requests
    lost : answers to commits that do not arrive
    """

    def __init__(self, vend: Vend, s3_endpoint: str, iceberg: Catalog | None = None) -> None:
        super().__init__(_Handler)
        self.vend, self.s3_endpoint, self.iceberg = vend, s3_endpoint, iceberg
        self.delta: dict[str, str] = {}
        self.token, self.share, self.random, self.met = "secret-token", 0.0, random.Random(0), 0
        self.asked: list[str] = []
        self.lost = 0


class _Handler(QuietHandler):
    server: CatalogServer

    def _handle(self) -> None:
        path, body = urlsplit(self.path).path, self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(f"{self.command} {path}")
        if self.server.random.random() < self.server.share:
            self.server.met += 1
            return self._send(503, {"error": {"message": "busy", "type": "ServiceUnavailableException", "code": 503}})
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            return self._send(401, {"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}})
        if path.startswith("/api/2.1/unity-catalog/"):
            return self._unity(unquote(path.removeprefix("/api/2.1/unity-catalog/")), body)
        return self._rest(path, body)

    do_GET = do_POST = do_HEAD = _handle

    def _rest(self, path: str, body: bytes) -> None:
        if path == "/v1/config":
            return self._send(200, {"defaults": {}, "overrides": {}})
        assert self.server.iceberg is not None
        try:
            table = self._table(path.split("/")[3:], body, self.server.iceberg)
        except (NoSuchTableError, CommitFailedException, NamespaceAlreadyExistsError) as error:
            status = 404 if isinstance(error, NoSuchTableError) else 409
            return self._send(status, {"error": {"message": str(error), "type": type(error).__name__, "code": status}})
        if table is None:
            return self._send(200, {"namespace": [], "properties": {}})
        if body and self.server.lost:
            self.server.lost -= 1
            return self._send(504, {"error": {"message": "lost", "type": "GatewayTimeoutException", "code": 504}})
        config = {}
        if self.headers.get("X-Iceberg-Access-Delegation") == "vended-credentials":
            key, secret, seconds = self.server.vend()
            config = {"s3.access-key-id": key, "s3.secret-access-key": secret, "s3.endpoint": self.server.s3_endpoint}
            if seconds is not None:
                config["s3.session-token-expires-at-ms"] = str(int((time.time() + seconds) * 1000))
        metadata = json.loads(table.metadata.model_dump_json())
        self._send(200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": config})

    def _table(self, place: list[str], body: bytes, catalog: Catalog) -> Table | None:
        """Make a namespace; make, load or change a table."""
        match [unquote(part) for part in place]:
            case []:
                catalog.create_namespace(tuple(json.loads(body)["namespace"]))
                return None
            case [space, "tables"]:
                wanted = json.loads(body)
                return catalog.create_table((space, wanted["name"]), Schema.model_validate(wanted["schema"]))
            case [space, "tables", name]:
                table = catalog.load_table((space, name))
                if body:
                    asked = CommitTableRequest.model_validate_json(body)
                    catalog.commit_table(table, asked.requirements, asked.updates)
                return catalog.load_table((space, name))
        raise AssertionError(place)

    def _unity(self, path: str, body: bytes) -> None:
        if path == "temporary-table-credentials":
            key, secret, seconds = self.server.vend()
            until = {} if seconds is None else {"expiration_time": int((time.time() + seconds) * 1000)}
            assert json.loads(body) == {"table_id": "id-1", "operation": "READ"}
            return self._send(
                200, {"aws_temp_credentials": {"access_key_id": key, "secret_access_key": secret}} | until
            )
        place = self.server.delta.get(path.removeprefix("tables/"))
        if place is None:
            return self._send(404, {"error_code": "TABLE_DOES_NOT_EXIST"})
        return self._send(200, {"table_id": "id-1", "storage_location": place, "data_source_format": "DELTA"})

    def _send(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
