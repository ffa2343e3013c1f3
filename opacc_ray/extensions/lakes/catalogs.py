"""What the formats of tables share: data files, versions, and tables that a catalog names, with their credentials.

Iceberg tables are found by the package ``pyiceberg``, in any catalog of its configuration: REST (such as Polaris,
Unity's or Nessie's), Glue, SQL, Hive. Delta tables are found in Unity Catalog by its REST interface, at
``DATABRICKS_HOST`` with the token ``DATABRICKS_TOKEN``, if it needs one.

Credentials that a catalog vends are for one table, and expire. They are asked for in each process, again before they
expire, and never stored. If a catalog vends none, those of the environment are used.
"""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote
from urllib.request import Request, urlopen

from opacc_ray.errors import DataError, OpaccError, SpecError, StorageError, shortened
from opacc_ray.lake.s3_store import S3Store, connection, has_settings
from opacc_ray.lake.store import S3_OPTIONS, Entry, Store, TableAccess

# -- data files and versions -------------------------------------------------------------------------------------------


def entries_of(store: Store, paths: Iterable[str], version: str) -> dict[str, Entry]:
    """Return the listed object of each path in a log, which is a key of the store or a URI below it.

    Raises DataError, which names ``version``, if a file is gone or not below the store.
    """
    listed = {entry.key: entry for entry in store.list()}
    found = {}
    for path in paths:
        key = _key_of(store, path)
        entry = listed.get(key) or listed.get(unquote(key))
        if entry is None:
            raise DataError(
                f"{version} of the table {store.uri} needs the file {path}, which is gone; "
                "choose a version whose files were not vacuumed or expired"
            )
        found[path] = entry
    return found


def _key_of(store: Store, path: str) -> str:
    for scheme in ("s3a://", "s3n://"):
        path = path.replace(scheme, "s3://", 1) if path.startswith(scheme) else path
    key = path.removeprefix("file://").removeprefix(f"{store.uri}/")
    if "://" in key or key.startswith("/"):
        raise DataError(f"the table {store.uri} has the data file {path}, which is not below it; copy the table")
    return key


def access(store: Store, names: Sequence[str]) -> dict[str, str]:
    """Return the access to S3 as options of another client, by its names of what ``connection`` returns."""
    values = connection(store.access, store.table) if isinstance(store, S3Store) else ()
    return {name: value for name, value in zip(names, values, strict=False) if value is not None}


def storage_options(store: Store) -> dict[str, str]:
    """Return the options of Rust's object_store for the same access to S3; none for a folder."""
    keys = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    options = access(store, ("AWS_ENDPOINT_URL", *keys))
    endpoint = options.get("AWS_ENDPOINT_URL")
    if endpoint is not None:
        plain = "true" if endpoint.startswith("http://") else "false"
        options |= {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false", "AWS_ALLOW_HTTP": plain}
    return options


def time_of(milliseconds: Any) -> datetime:
    """Return a time by its milliseconds since 1970."""
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def moment(text: str, what: str) -> datetime:
    """Return a time in ISO 8601, in UTC if it has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise DataError(f"{what}.timestamp {text!r} is not a time; write it as 2026-01-31T12:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def version_at(store: Store, timestamp: str, versions: Iterable[tuple[datetime, int]], what: str) -> int:
    """Return the newest of some versions at a time, each with its own; raises DataError if all are younger."""
    wanted, ordered = moment(timestamp, what), sorted(versions)
    number = max((number for time, number in ordered if time <= wanted), default=None)
    if number is None:
        time, oldest = ordered[0]
        reason = f"version {oldest}, the oldest, was written at {time.isoformat(timespec='seconds')}"
        raise unknown_version(store, f"version at {timestamp}", reason, what)
    return number


def unknown_version(store: Store, wanted: str, reason: str, what: str) -> DataError:
    """Return the error for a version that a table does not have."""
    return DataError(f"the table {store.uri} has no {wanted} ({reason}); correct {what}.version or {what}.timestamp")


# -- catalogs ----------------------------------------------------------------------------------------------------------

ATTEMPTS, SECONDS = 5, 30  # of a request to a catalog, and for an answer of Unity Catalog


_UNITY_OPTIONS = {
    "s3.access-key-id": ("aws_temp_credentials", "access_key_id"),
    "s3.secret-access-key": ("aws_temp_credentials", "secret_access_key"),
    "s3.session-token": ("aws_temp_credentials", "session_token"),
    "adls.sas-token": ("azure_user_delegation_sas", "sas_token"),
    "gcs.oauth2.token": ("gcp_oauth_token", "oauth_token"),
}
"""Where Unity Catalog has the options of pyiceberg."""


@dataclass(frozen=True)
class UnityTable:
    """A Delta table in Unity Catalog."""

    catalog: str
    name: str

    def access(self) -> TableAccess:
        """Return where the table is, with temporary credentials; raises DataError, SpecError or StorageError."""
        if self.catalog != "unity":
            raise SpecError(f"pool.catalog {self.catalog!r} is unknown for format delta; give unity")
        found = _ask(f"tables/{quote(self.name, safe='')}", self)
        kind = str(found.get("data_source_format", "DELTA")).upper()
        if kind != "DELTA":
            raise SpecError(f"the table {self.name} of Unity Catalog is {kind}, and pool.format is delta; correct it")
        vended = _ask("temporary-table-credentials", self, {"table_id": found["table_id"], "operation": "READ"})
        expires = vended.get("expiration_time")
        options = {
            name: value for name, (kind, key) in _UNITY_OPTIONS.items() if (value := (vended.get(kind) or {}).get(key))
        }
        return TableAccess(str(found["storage_location"]), options, time_of(expires) if expires else None)


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table in a catalog of pyiceberg's configuration."""

    catalog: str
    name: str
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # options of the environment's credentials

    def access(self) -> TableAccess:
        """Return where the table is, with new credentials; raises DataError, SpecError or StorageError."""
        found = load_iceberg(self)
        options = {name: str(value) for name, value in found.io.properties.items()}
        environment = dict(self.environment)
        if not any(_is_credential(name) and options[name] != environment.get(name) for name in options):
            return TableAccess(found.location())
        expires = next((options[name] for name in options if name.endswith(("expires-at-ms", "expires-at"))), None)
        return TableAccess(found.location(), options, time_of(expires) if expires else None)


def iceberg_table(catalog: str, name: str) -> IcebergTable:
    """Return an Iceberg table, with the access of this environment to S3 if it has keys."""
    keys = dict(zip(S3_OPTIONS, connection(), strict=True)) if has_settings() else {}
    return IcebergTable(catalog, name, tuple((key, value) for key, value in keys.items() if value is not None))


def load_iceberg(table: IcebergTable) -> Any:
    """Return an Iceberg table of a catalog; raises DataError, SpecError or StorageError."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        with refused(table):
            return _patiently(lambda: iceberg_catalog(table).load_table(table.name))
    except (NoSuchTableError, NoSuchNamespaceError):
        raise DataError(
            f"the catalog {table.catalog!r} has no table {table.name!r}; correct pool.table or pool.catalog"
        ) from None


def iceberg_catalog(table: IcebergTable) -> Any:
    """Return the catalog of an Iceberg table; its own configuration wins over the environment's credentials."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    options = {**dict(table.environment), **(Config().get_catalog_config(table.catalog) or {})}
    return load_catalog(table.catalog, **options)


@contextmanager
def refused(table: IcebergTable) -> Iterator[None]:
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
        reason = shortened(str(error))
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


def _is_credential(name: str) -> bool:
    return name in ("s3.access-key-id", "gcs.oauth2.token") or name.startswith(("adls.sas-token", "adls.account-key"))


def _ask(path: str, table: UnityTable, body: Mapping[str, str] | None = None) -> Any:
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


def _refused(error: HTTPError, host: str, table: UnityTable) -> Exception:
    if error.code == 404:
        return DataError(f"Unity Catalog at {host} has no table {table.name!r}; correct pool.table")
    if error.code in (401, 403):
        return StorageError(
            f"Unity Catalog at {host} refuses access to {table.name} ({error.code}); check DATABRICKS_TOKEN, and the "
            "grants SELECT and EXTERNAL USE SCHEMA"
        )
    return StorageError(f"Unity Catalog at {host} answers {error.code} {error.reason}; check pool.table")
