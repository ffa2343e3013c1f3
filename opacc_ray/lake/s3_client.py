"""The S3 client: boto3's, made for many parallel requests, and what its errors mean.

Each process makes one client per configuration, when it first needs it, from the standard AWS variables and profile.
Requests may be made without keys, be paid by the requester, or have the credentials that a catalog vends for a table.
Importing this module does not import boto3.
"""

import functools
import os
import threading
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from opacc_ray.lake.redaction import redacted
from opacc_ray.lake.store import TableAccess, VendedTable

ATTEMPTS = 8  # in all, unless AWS_MAX_ATTEMPTS or the profile says otherwise
CONNECTIONS = 64  # at most, per process

Access = Literal["anonymous", "requester-pays"]

_SETTINGS = ("AWS_", "DATABRICKS_", "PYICEBERG_")  # variables that decide how storage is reached

_client_lock = threading.Lock()


def connection(
    access: Access | None = None, table: VendedTable | None = None
) -> tuple[str | None, str, str | None, str | None, str | None]:
    """Return endpoint (None for AWS's own), region, access key, secret key and token, for other S3 clients.

    They are those of a store with this ``access`` and ``table``; never log or store the secrets.
    """
    import boto3

    meta = client_for(None, access, table).meta
    if access == "anonymous":
        found = None
    else:
        found = _vended(table.access()) if table else boto3.session.Session().get_credentials()
    keys = found.get_frozen_credentials() if found else (None, None, None)
    return meta.endpoint_url if _is_custom(meta) else None, meta.region_name, *keys[:3]


def has_settings() -> bool:
    """Return whether this environment has credentials or an address of S3."""
    import boto3

    return any(name.startswith("AWS_") for name in os.environ) or boto3.session.Session().get_credentials() is not None


def client_for(signature: str | None = None, access: Access | None = None, table: VendedTable | None = None) -> Any:
    """Return this process's client for the present environment, with a version of signatures or boto3's default.

    ``access`` and ``table`` are those of a store.

    Raises ValueError for an endpoint without a scheme, which boto3 would show with its credentials in an error.
    """
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        value = os.environ.get(name, "")
        if value and not value.startswith(("http://", "https://")):
            raise ValueError(f"Invalid endpoint: {name} is {redacted(value)!r}; write https://host:port")
    settings = tuple((name, os.environ[name]) for name in sorted(os.environ) if name.startswith(_SETTINGS))
    with _client_lock:
        return _new_client(os.getpid(), signature, settings, access, table)


@functools.lru_cache(maxsize=8)
def _new_client(
    process: int,
    signature: str | None,
    settings: tuple[tuple[str, str], ...],
    access: Access | None,
    table: VendedTable | None,
) -> Any:
    """Return a boto3 client for this environment and profile, with settings for long parallel jobs.

    The arguments are the cache's key: a client must not cross a fork, nor outlive its configuration.
    """
    import boto3
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    core = botocore.session.Session()
    vended = table.access() if table else None
    options = {} if vended is None else vended.options
    if vended is not None and table is not None:
        core._credentials = _vended(vended, table)
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
    session = boto3.session.Session(botocore_session=core)
    region = options.get("s3.region") or os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    endpoint = options.get("s3.endpoint")
    plain = session.client("s3", region_name=region, endpoint_url=endpoint).meta
    custom = _is_custom(plain)
    when = "when_required" if custom else None  # many servers do not know the newer checksums
    config = Config(
        retries={"total_max_attempts": ATTEMPTS, **(plain.config.retries or {})},
        max_pool_connections=CONNECTIONS,
        connect_timeout=10,  # seconds
        read_timeout=60,
        tcp_keepalive=True,
        s3={"addressing_style": "path"} if custom else None,
        request_checksum_calculation=when,
        response_checksum_validation=when,
        signature_version=UNSIGNED if access == "anonymous" else signature,
        user_agent=plain.config.user_agent,  # fixed, since botocore would build it again for each request
    )
    client = session.client("s3", region_name=region, endpoint_url=endpoint, config=config)
    if access == "requester-pays":
        client.meta.events.register("before-call.s3", _offer_to_pay)
    return client


def _offer_to_pay(params: dict[str, Any], **_: Any) -> None:
    params["headers"]["x-amz-request-payer"] = "requester"


def _vended(found: TableAccess, table: VendedTable | None = None) -> Any:
    """Return vended credentials for botocore, which asks the table's catalog for new ones before they expire."""
    from botocore.credentials import Credentials, RefreshableCredentials

    if table is None or found.expires is None:
        return Credentials(*_keys(found))

    def named(found: TableAccess) -> dict[str, Any]:
        keys = zip(("access_key", "secret_key", "token"), _keys(found), strict=True)
        return dict(keys) | {"expiry_time": found.expires.isoformat() if found.expires else None}

    early = {"advisory_timeout": 300, "mandatory_timeout": 120}  # seconds before
    return RefreshableCredentials.create_from_metadata(
        named(found), refresh_using=lambda: named(table.access()), method="catalog", **early
    )


def _keys(found: TableAccess) -> list[str | None]:
    return [found.options.get(f"s3.{name}") for name in ("access-key-id", "secret-access-key", "session-token")]


def _is_custom(meta: Any) -> bool:
    """Return whether a client's endpoint is not one of AWS."""
    return not (urlsplit(meta.endpoint_url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _parse_time(value: Any) -> datetime:
    """Parse a time in an answer as botocore does, a hundred times faster for the times of a listing."""
    with suppress(TypeError, ValueError):
        time = datetime.fromisoformat(value)
        if time.tzinfo is not None:
            return time
    from botocore.utils import parse_timestamp

    return cast(datetime, parse_timestamp(value))


def reason_of(error: Exception) -> str:
    """Return what an error means, and what to do about it."""
    from botocore.exceptions import ClientError, ConnectionError, HTTPClientError

    code = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
    if isinstance(error, (ConnectionError, HTTPClientError)):
        meta = client_for().meta
        address = urlsplit(meta.endpoint_url)
        endpoint = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
        attempts = meta.config.retries["total_max_attempts"]
        return f"no answer from {endpoint} in {attempts} attempts ({code}); check AWS_ENDPOINT_URL and the network"
    known = (reason for codes, reason in _REASONS.items() if code in codes.split())
    return next(known, redacted(" ".join(str(error).split())))


_REASONS = {
    "NoSuchBucket": "the bucket does not exist; create it or correct the URI",
    "NoSuchKey 404": "there is no such object",
    "InvalidRange 416": "it is cut short, so it has changed; restore it or start again",
    "AccessDenied 403": "access is denied; the credentials lack s3:ListBucket, s3:GetObject or s3:PutObject",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "InvalidAccessKeyId": "the server does not have the access key; check AWS_ACCESS_KEY_ID",
    "ExpiredToken TokenRefreshRequired": "the credentials have expired; renew them",
    "NoCredentialsError": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
    "pool.access: anonymous for a public bucket",
    "PermanentRedirect AuthorizationHeaderMalformed": "the bucket is elsewhere; set AWS_REGION to its region",
    "SlowDown": "the server asks to slow down, also after retries; use fewer actors",
}
"""What to do about errors, by their codes."""
