"""What the formats of tables share: data files, versions, credentials."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from opacc_ray.errors import DataError
from opacc_ray.lake.s3_store import S3Store, connection
from opacc_ray.lake.store import Entry, Store


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
