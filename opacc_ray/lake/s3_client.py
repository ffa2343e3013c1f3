"""S3 clients: endpoint, credentials, and the meaning of errors.

Each process makes one client per configuration, when it first needs it, from the standard AWS variables and profile.
Importing this module does not import boto3.
"""

import functools
import os
import threading
from datetime import datetime
from typing import Any, cast
from urllib.parse import urlsplit

from opacc_ray.lake.redaction import redacted

ATTEMPTS = 8  # in all, unless AWS_MAX_ATTEMPTS or the profile says otherwise
CONNECTIONS = 64  # at most, per process


def connection() -> tuple[str | None, str, str | None, str | None, str | None]:
    """Return endpoint (None for AWS's own), region, access key, secret key and token, for other S3 clients.

    They are those of this environment and profile; never log or store the secrets.
    """
    import boto3

    check_endpoint()
    meta = client_for().meta
    found = boto3.session.Session().get_credentials()
    keys = found.get_frozen_credentials() if found else (None, None, None)
    return meta.endpoint_url if _is_custom(meta) else None, meta.region_name, *keys[:3]


_client_lock = threading.Lock()


def client_for() -> Any:
    """Return this process's client for the present environment."""
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
    with _client_lock:
        return _new_client(os.getpid(), settings)


@functools.lru_cache(maxsize=8)
def _new_client(process: int, settings: tuple[tuple[str, str], ...]) -> Any:
    """Return a boto3 client for this environment and profile, with settings for long parallel jobs.

    The arguments are the cache's key: a client must not cross a fork, nor outlive its configuration.
    """
    import boto3
    import botocore.session
    from botocore.config import Config

    core = botocore.session.Session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
    session = boto3.session.Session(botocore_session=core)
    region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"
    plain = session.client("s3", region_name=region).meta
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
        user_agent=plain.config.user_agent,  # fixed, since botocore would build it again for each request
    )
    return session.client("s3", region_name=region, config=config)


def _is_custom(meta: Any) -> bool:
    """Return whether a client's endpoint is not one of AWS."""
    return not (urlsplit(meta.endpoint_url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))


@functools.lru_cache(maxsize=8)
def signing(s3: Any) -> Any:
    """Return the same client with signature version 4 for links, where boto3's default is the one of 2006."""
    import boto3
    from botocore.config import Config

    meta = s3.meta
    config = meta.config.merge(Config(signature_version="s3v4"))
    return boto3.session.Session().client(
        "s3", region_name=meta.region_name, endpoint_url=meta.endpoint_url, config=config
    )


def _parse_time(value: Any) -> datetime:
    """Parse a time in an answer as botocore does, a hundred times faster for times of listings and objects."""
    from email.utils import parsedate_to_datetime

    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = parse(value)
        except (TypeError, ValueError, AttributeError):
            continue
        if found.tzinfo is not None:
            return found
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


def check_endpoint() -> None:
    """Refuse an endpoint without a scheme, which boto3 would show with its credentials in an error."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        value = os.environ.get(name, "")
        if value and not value.startswith(("http://", "https://")):
            raise ValueError(f"Invalid endpoint: {name} is {redacted(value)!r}; write https://host:port")


_REASONS = {
    "NoSuchBucket": "the bucket does not exist; create it or correct the URI",
    "NoSuchKey 404": "there is no such object",
    "InvalidRange 416": "it is cut short, so it has changed; restore it or start again",
    "AccessDenied 403": "access is denied; the credentials lack s3:ListBucket, s3:GetObject or s3:PutObject",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "InvalidAccessKeyId": "the server does not have the access key; check AWS_ACCESS_KEY_ID",
    "ExpiredToken TokenRefreshRequired": "the credentials have expired; renew them",
    "NoCredentialsError": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
    "PermanentRedirect AuthorizationHeaderMalformed": "the bucket is elsewhere; set AWS_REGION to its region",
    "SlowDown": "the server asks to slow down, also after retries; use fewer actors",
}
"""What to do about errors, by their codes."""
