"""What the formats of tables share: keys of a pool next to ``pool.format``, data files, versions, credentials."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Self
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, model_validator

from opacc_ray.documents import Section
from opacc_ray.errors import DataError
from opacc_ray.lake.s3_store import S3Store, connection
from opacc_ray.lake.store import Entry, Store
from opacc_ray.spec.pool_spec import time_text


def _version(value: Any) -> Any:
    """Return the number of a version as one, also if it is quoted."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class SplitKeys(Section):
    """Keys of a dataset with splits."""

    split: str | None = Field(
        default=None, description="split of a dataset, such as test or train+test; required if there are several"
    )


class VersionKeys(Section):
    """Keys of a table with versions."""

    version: Annotated[Annotated[int, Field(ge=0)] | str | None, BeforeValidator(_version)] = Field(
        default=None,
        description="number of the version, id of the snapshot, or name of a branch or tag; default: the newest",
    )
    timestamp: Annotated[str, BeforeValidator(time_text)] | None = Field(
        default=None, description="the newest version at that time, such as 2026-01-31T12:00:00Z"
    )

    @model_validator(mode="after")
    def _chooses_once(self) -> Self:
        if self.version is not None and self.timestamp is not None:
            raise ValueError("version and timestamp both choose a version; remove one")
        return self


class TableKeys(VersionKeys):
    """Keys of a table with versions that may be in a catalog."""

    catalog: str | None = Field(
        default=None,
        description="tables in a catalog: its name in pyiceberg's configuration, or unity for Delta; default: by uri",
    )
    table: str | None = Field(default=None, description="tables in a catalog: name of the table")

    @model_validator(mode="after")
    def _has_both(self) -> Self:
        if (self.catalog is None) != (self.table is None):
            raise ValueError("catalog and table are only used together; give both or neither")
        return self


class DeltaKeys(TableKeys):
    """Keys of a Delta table, whose versions have numbers alone and whose only catalog is Unity."""

    @model_validator(mode="after")
    def _fits_delta(self) -> Self:
        if isinstance(self.version, str):
            raise ValueError(f"version {self.version!r} is a name, and format delta has numbers only; give one")
        if self.catalog not in (None, "unity"):
            raise ValueError(f"catalog {self.catalog!r} is unknown for format delta; give unity")
        return self


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
