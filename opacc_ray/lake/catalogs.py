"""Tables that a catalog names: where they are, and the credentials that the catalog vends for them.

Iceberg tables are found by the package ``pyiceberg``, in any catalog of its configuration: REST (such as Polaris,
Unity's or Nessie's), Glue, SQL, Hive. Delta tables are found in Unity Catalog by its REST interface, at
``DATABRICKS_HOST`` with the token ``DATABRICKS_TOKEN``, if it needs one.

Credentials that a catalog vends are for one table, and expire. They are asked for in each process, again before they
expire, and never stored. If a catalog vends none, those of the environment are used.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from opacc_ray.errors import DataError, OpaccError, SpecError, StorageError, shortened

UNITY = "unity"
"""Name of the catalog of Delta tables."""

ATTEMPTS, SECONDS = 5, 30  # of a request to a catalog, and for an answer of Unity Catalog

S3_OPTIONS = ("s3.endpoint", "s3.region", "s3.access-key-id", "s3.secret-access-key", "s3.session-token")
"""pyiceberg's names of what ``s3_client.connection`` returns."""


class TableAccess(NamedTuple):
    """Where a table is, and how its files are read."""

    location: str  # URI
    options: Mapping[str, str] = {}  # by pyiceberg's names; empty: by the credentials of the environment
    expires: datetime | None = None


@dataclass(frozen=True)
class CatalogTable:
    """A table in a catalog; it is a small value that can be pickled."""

    format: str
    catalog: str
    name: str
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # options of the environment's credentials

    def access(self) -> TableAccess:
        """Return where the table is, with new credentials; raises DataError, SpecError or StorageError."""
        return _unity(self) if self.format == "delta" else _iceberg(self)


def load_iceberg(table: CatalogTable) -> Any:
    """Return an Iceberg table of a catalog; raises DataError, SpecError or StorageError."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        with refused(table):
            return _patiently(lambda: iceberg_catalog(table).load_table(table.name))
    except (NoSuchTableError, NoSuchNamespaceError):
        raise DataError(
            f"the catalog {table.catalog!r} has no table {table.name!r}; correct pool.table or pool.catalog"
        ) from None


def iceberg_catalog(table: CatalogTable) -> Any:
    """Return the catalog of an Iceberg table; its own configuration wins over the environment's credentials."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    options = {**dict(table.environment), **(Config().get_catalog_config(table.catalog) or {})}
    return load_catalog(table.catalog, **options)


@contextmanager
def refused(table: CatalogTable) -> Iterator[None]:
    """Raise the errors of an Iceberg catalog as SpecError or StorageError, but for a table that is not there."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    place = f"the catalog {table.catalog!r}"
    try:
        yield
    except (NoSuchTableError, NoSuchNamespaceError, OpaccError):
        raise
    except ImportError as error:
        raise SpecError(f"{place} needs a package that is not installed ({error}); install it") from None
    except Exception as error:  # of requests, boto3, SQLAlchemy and pyiceberg
        reason = shortened(" ".join(str(error).split()), 300)
        raise StorageError(
            f"{place} does not give the table {table.name!r} ({reason}); check its settings in .pyiceberg.yaml or in "
            f"PYICEBERG_CATALOG__{table.catalog.upper()}__…, and that it is reachable"
        ) from None


def busy() -> tuple[type[Exception], ...]:
    """Return the errors of a catalog that is busy or not reached; those of a connection are OSError."""
    from pyiceberg.exceptions import ServerError, ServiceUnavailableError

    return ServerError, ServiceUnavailableError, OSError


def _patiently(load: Callable[[], Any]) -> Any:
    """Return what ``load`` does, which is called again while a catalog is busy or not reached."""
    for attempt in range(ATTEMPTS - 1):
        try:
            return load()
        except busy():
            time.sleep(0.2 * 2**attempt)
    return load()


def _iceberg(table: CatalogTable) -> TableAccess:
    found = load_iceberg(table)
    options = {name: str(value) for name, value in found.io.properties.items()}
    environment = dict(table.environment)
    own = [name for name in options if _is_credential(name) and options[name] != environment.get(name)]
    expires = next((options[name] for name in options if name.endswith(("expires-at-ms", "expires-at"))), None)
    return TableAccess(
        found.location(),
        options if own else {},
        datetime.fromtimestamp(int(expires) / 1000, UTC) if own and expires else None,
    )


def _is_credential(name: str) -> bool:
    return name in ("s3.access-key-id", "gcs.oauth2.token") or name.startswith(("adls.sas-token", "adls.account-key"))


def _unity(table: CatalogTable) -> TableAccess:
    """Return a table of Unity Catalog with temporary credentials."""
    found = _ask(f"tables/{quote(table.name, safe='')}", table)
    kind = str(found.get("data_source_format", "DELTA")).upper()
    if kind != "DELTA":
        raise SpecError(f"the table {table.name} of Unity Catalog is {kind}, and pool.format is delta; correct it")
    body = {"table_id": found["table_id"], "operation": "READ"}
    vended = _ask("temporary-table-credentials", table, body)
    keys, sas, oauth = (
        vended.get(name) or {} for name in ("aws_temp_credentials", "azure_user_delegation_sas", "gcp_oauth_token")
    )
    named = {
        "s3.access-key-id": keys.get("access_key_id"),
        "s3.secret-access-key": keys.get("secret_access_key"),
        "s3.session-token": keys.get("session_token"),
        "adls.sas-token": sas.get("sas_token"),
        "gcs.oauth2.token": oauth.get("oauth_token"),
    }
    expires = vended.get("expiration_time")
    return TableAccess(
        str(found["storage_location"]),
        {name: value for name, value in named.items() if value},
        datetime.fromtimestamp(int(expires) / 1000, UTC) if expires else None,
    )


def _ask(path: str, table: CatalogTable, body: Mapping[str, str] | None = None) -> Any:
    """Return an answer of Unity Catalog, whose address is in the environment; failures of the server are retried."""
    host, token = os.environ.get("DATABRICKS_HOST", ""), os.environ.get("DATABRICKS_TOKEN")
    if not host:
        raise SpecError("pool.catalog unity needs its address; set DATABRICKS_HOST, and DATABRICKS_TOKEN for access")
    host = (host if "://" in host else f"https://{host}").rstrip("/")
    if not host.startswith(("https://", "http://")):
        raise SpecError(f"DATABRICKS_HOST is {host!r}; write https://HOST")
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    data = None if body is None else json.dumps(body).encode()
    asked = Request(f"{host}/api/2.1/unity-catalog/{path}", data, headers)
    for attempt in range(ATTEMPTS):
        try:
            with urlopen(asked, timeout=SECONDS) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code < 500 and error.code != 429:
                raise _refused(error, host, table) from None
            reason = f"it answers {error.code}"
        except (URLError, OSError, ValueError) as error:
            reason = shortened(str(getattr(error, "reason", error)), 200)
        time.sleep(0.2 * 2**attempt)
    raise StorageError(f"Unity Catalog at {host} gives no answer ({reason}); check DATABRICKS_HOST and the network")


def _refused(error: HTTPError, host: str, table: CatalogTable) -> Exception:
    if error.code == 404:
        return DataError(f"Unity Catalog at {host} has no table {table.name!r}; correct pool.table")
    if error.code in (401, 403):
        return StorageError(
            f"Unity Catalog at {host} refuses access to {table.name} ({error.code}); check DATABRICKS_TOKEN, and the "
            "grants SELECT and EXTERNAL USE SCHEMA"
        )
    return StorageError(f"Unity Catalog at {host} answers {error.code} {error.reason}; check pool.table")
