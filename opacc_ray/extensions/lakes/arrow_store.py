"""Objects on Google Cloud Storage and Azure, by the file systems of pyarrow.

``gs://bucket/prefix`` uses Google's default credentials (``GOOGLE_APPLICATION_CREDENTIALS``, the machine's account).
``abfss://container@account.dfs.core.windows.net/prefix`` uses ``AZURE_STORAGE_ACCOUNT_KEY``,
``AZURE_STORAGE_SAS_TOKEN`` or Azure's default credentials. ``STORAGE_EMULATOR_HOST`` and ``AZURE_STORAGE_ENDPOINT``
name an emulator.

A listing has no content digests: the tag of an object is its time and size, which are compared after each read of a
listed object. Azure's time has whole seconds. Azure is read only, since pyarrow writes an object there in two steps,
and a reader may see half of it. Google's storage gets whole objects, but without conditional writes: one command at a
time draws rounds of a run there.
"""

import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from opacc_ray.errors import OpaccError, StorageError, shortened
from opacc_ray.lake.store import Entries, Entry, Listing, Store, TableAccess, VendedTable, warn_of_one_writer

RETRIES = timedelta(seconds=60)  # for which a request to Google's storage is repeated

_SETTINGS = (
    "GOOGLE_",
    "AZURE_",
    "STORAGE_EMULATOR_HOST",
    "DATABRICKS_",
    "PYICEBERG_",
)  # variables that decide how storage is reached

_EARLY = 300  # seconds before vended credentials expire at which new ones are asked for


@dataclass(frozen=True)
class ArrowStore(Store):
    """A prefix of a bucket on Google Cloud Storage, or of a container on Azure."""

    scheme: str  # gs or abfss
    bucket: str  # or container
    prefix: str  # empty, or ends in '/'
    account: str = ""  # host of an Azure account
    anonymous: bool = False
    table: VendedTable | None = None  # whose catalog vends credentials

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.bucket}{self.account and f'@{self.account}'}/{self.prefix}".rstrip("/")

    def read(self, key: str) -> bytes:
        with self._explained("read", key) as files, files.open_input_stream(self._path(key)) as stream:
            found: bytes = stream.read()
            return found

    def read_range(self, key: str, start: int, stop: int, listed: Entry | None = None) -> bytes:
        if start >= stop:
            return b""
        with self._explained("read", key) as files, files.open_input_file(self._path(key)) as file:
            content = file.read_at(stop - start, start)
        if listed is not None and self.entry(key) != listed:
            raise self.changed(key, "its time or size differs")
        return self.whole_range(key, content, start, stop)

    def write(self, key: str, data: bytes) -> None:
        self.check_key(key)
        if self.scheme == "abfss":
            place = self.uri_of(key)
            raise StorageError(f"cannot write {place}: Azure is for pools only; write to s3://, gs:// or a folder")
        with self._explained("write", key) as files, files.open_output_stream(self._path(key)) as stream:
            stream.write(data)

    def _create(self, key: str, data: bytes) -> bool | None:
        warn_of_one_writer(f"storage at {self.scheme}:// has no conditional writes here")
        return None

    def entry(self, key: str) -> Entry | None:
        with self._explained("look for", key) as files:
            found = files.get_file_info(self._path(key))
            if found.is_file:
                return _entry(key, found)
            self._check_bucket(files)
            return None

    def delete(self, key: str) -> None:
        with self._explained("delete", key) as files:
            try:
                files.delete_file(self._path(key))
            except FileNotFoundError:
                return

    def store(self, sub: str) -> "ArrowStore":
        self.check_key(sub.rstrip("/"))
        return replace(self, prefix=f"{self.prefix}{sub.rstrip('/')}/")

    def list(self, prefix: str = "") -> Entries:
        return self.survey(prefix).entries

    def survey(self, prefix: str = "") -> Listing:
        from pyarrow.fs import FileSelector

        folder = f"{self.prefix}{prefix}".rpartition("/")[0]
        place = f"{self.bucket}/{folder}".rstrip("/")
        with self._explained("list", prefix) as files:
            found = files.get_file_info(FileSelector(place, recursive=True, allow_not_found=True))
            if not found:
                self._check_bucket(files)
        own = f"{self.bucket}/{self.prefix}"
        there = [item for item in found if item.is_file and item.path.startswith(f"{own}{prefix}")]
        entries = sorted(_entry(item.path.removeprefix(own), item) for item in there)
        return Listing(entries, [], max((item.mtime for item in there), default=None))

    def _check_bucket(self, files: Any) -> None:
        """Raise StorageError if the bucket or container does not exist."""
        from pyarrow.fs import FileType

        if files.get_file_info(self.bucket).type == FileType.NotFound:
            raise StorageError(f"cannot list {self.uri}: {self.bucket} does not exist; create it or correct the URI")

    def _path(self, key: str) -> str:
        return f"{self.bucket}/{self.prefix}{key}"

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[Any]:
        """Yield the file system, and raise its errors as StorageError."""
        place = f"cannot {action} {self.uri_of(key).rstrip('/')}"
        try:
            yield _files(self.scheme, self.account, self.anonymous, self.table)
        except OpaccError:
            raise
        except FileNotFoundError:
            raise StorageError(f"{place}: there is no such object") from None
        except (OSError, ValueError) as error:  # pyarrow's errors are of these
            raise StorageError(f"{place}: {_reason(error, self.scheme)}") from None


def open_arrow(scheme: str, bucket: str, prefix: str, access: str | None = None) -> ArrowStore:
    """Return the store of a bucket, or of a container, which needs an account.

    Raises StorageError without an account, or if there is no such access: of public buckets it may be anonymous.
    """
    if access is not None and (scheme, access) != ("gs", "anonymous"):
        raise StorageError(f"{scheme}://{bucket}/{prefix} has no access {access!r}; remove pool.access")
    if scheme == "gs":
        return ArrowStore(scheme, bucket, prefix, anonymous=access is not None)
    container, _, account = bucket.partition("@")
    if not (container and account):
        raise StorageError(
            f"abfss://{bucket}/{prefix} has no account: write abfss://container@account.dfs.core.windows.net/prefix"
        )
    return ArrowStore(scheme, container, prefix, account)


def _entry(key: str, found: Any) -> Entry:
    return Entry(key, found.size, f"{found.mtime_ns}-{found.size}")


def _reason(error: Exception, scheme: str) -> str:
    """Return what an error means, and what to do about it."""
    text = shortened(str(error))
    fix = _CREDENTIALS[scheme]
    if any(word in text for word in ("403", "401", "PERMISSION_DENIED", "UNAUTHENTICATED", "AuthorizationFailure")):
        return f"access is denied ({shortened(text, 200)}); {fix}"
    if any(word in text for word in ("OUT_OF_RANGE", "InvalidRange", "416", "past end of file")):
        return "it is cut short, so it has changed; restore it or start again"
    if "credential" in text.lower():
        return f"no credentials ({shortened(text, 200)}); {fix}"
    return f"{text}; check the network, and {fix}"


_CREDENTIALS = {
    "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or pool.access: anonymous for a public bucket",
    "abfss": "set AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or log in to Azure",
}

_VENDED: dict[VendedTable, TableAccess] = {}
"""Credentials of this process that have not expired."""


def _vended(table: VendedTable | None) -> tuple[tuple[str, str], ...]:
    """Return the credentials that a catalog vends for a table, none without a catalog."""
    if table is None:
        return ()
    known = _VENDED.get(table)
    if known is None or (known.expires and known.expires.timestamp() < time.time() + _EARLY):
        known = _VENDED[table] = table.access()
    return tuple(sorted({"expires": str(known.expires.timestamp()) if known.expires else "", **known.options}.items()))


def _files(scheme: str, account: str, anonymous: bool, table: VendedTable | None) -> Any:
    """Return this process's file system for the present environment."""
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_SETTINGS)))
    return _new_files(os.getpid(), scheme, account, anonymous, _vended(table), settings)


@functools.lru_cache(maxsize=8)
def _new_files(
    process: int,
    scheme: str,
    account: str,
    anonymous: bool,
    vended: tuple[tuple[str, str], ...],
    settings: tuple[tuple[str, str], ...],
) -> Any:
    """Return a file system; the arguments are the cache's key, since it must not cross a fork."""
    options, environment = dict(vended), dict(settings)
    if scheme == "gs":
        return _google(options, environment.get("STORAGE_EMULATOR_HOST"), anonymous)
    return _azure(options, environment, account)


def _google(options: dict[str, str], emulator: str | None, anonymous: bool) -> Any:
    from pyarrow.fs import GcsFileSystem

    chosen: dict[str, Any] = {"retry_time_limit": RETRIES}
    if emulator:
        address = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
        chosen |= {"endpoint_override": address.netloc, "scheme": address.scheme}
    if token := options.get("gcs.oauth2.token"):
        until = float(options["expires"] or time.time() + 3600)
        chosen |= {"access_token": token, "credential_token_expiration": datetime.fromtimestamp(until, UTC)}
    elif anonymous or emulator:
        chosen["anonymous"] = True
    return GcsFileSystem(**chosen)


def _azure(options: dict[str, str], environment: dict[str, str], account: str) -> Any:
    from pyarrow.fs import AzureFileSystem

    name = account.partition(".")[0]
    chosen: dict[str, Any] = {}
    sas = options.get(f"adls.sas-token.{account}") or options.get("adls.sas-token")
    if endpoint := environment.get("AZURE_STORAGE_ENDPOINT"):
        address = urlsplit(endpoint)
        chosen |= {f"{kind}_storage_authority": address.netloc for kind in ("blob", "dfs")}
        chosen |= {f"{kind}_storage_scheme": address.scheme for kind in ("blob", "dfs")}
    if sas or (sas := environment.get("AZURE_STORAGE_SAS_TOKEN")):
        chosen["sas_token"] = f"?{sas.lstrip('?')}"
    elif key := options.get("adls.account-key") or environment.get("AZURE_STORAGE_ACCOUNT_KEY"):
        chosen["account_key"] = key
    return AzureFileSystem(name, **chosen)
