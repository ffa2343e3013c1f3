"""Objects on AWS S3, or on any server with its protocol.

Every answer is checked: its length against the headers and the listing, its checksums if the server keeps some, and its
MD5 if the ETag is one. An ETag is an MD5 if it has 32 hexadecimal digits and the object was uploaded in one part,
without a customer's key. A damaged answer is requested again. Set OPACC_OPAQUE_ETAGS=1 for servers whose ETags look
like an MD5 but are not. Importing this module does not import boto3.

An object is created once by a write with `If-None-Match: *`. Some servers ignore or refuse that condition. A process
finds out at its first such write, which it then repeats: the condition is honoured if the repetition fails.

Each process makes one client per configuration, when it first needs it, from the standard AWS variables and profile.
Requests may be made without keys, be paid by the requester, or have the credentials that a catalog vends for a table.
"""

import functools
import hashlib
import io
import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from opacc_ray.errors import SpecError, StorageError, redacted
from opacc_ray.lake.store import Entries, Entry, Listing, Store, TableAccess, VendedTable, warn_of_one_writer

log = logging.getLogger(__name__)

Call = TypeVar("Call", bound=Callable[..., Any])

ATTEMPTS = 8  # in all, unless AWS_MAX_ATTEMPTS or the profile says otherwise
CONNECTIONS = 64  # at most, per process

Access = Literal["anonymous", "requester-pays"]

_NO_ETAG = "modified "  # first word of the tag of an object without an ETag
LISTED = 100_000  # objects of a listing after which it is logged, which takes half a minute or so
LISTERS = 16  # threads that list folders
PAGE = 1000  # keys of a page
SMALL_FOLDERS = 4  # more of them in a first page are too small to be listed one by one
MULTIPART_BYTES = 64 << 20  # larger objects are uploaded in parts

_CONDITIONAL: dict[str, bool] = {}
"""Whether the server at an endpoint honours conditional writes, as far as this process knows."""


# -- outages ---------------------------------------------------------------------------------------------------

PATIENCE = "OPACC_STORAGE_PATIENCE"
"""Environment variable: most seconds that a request waits for storage; 0: none."""

DEFAULT, PAUSE, MOST_PAUSE = 180.0, 1.0, 10.0
"""Seconds: of patience, before the first further try, and at most before each."""

_answered: dict[str, float] = {}
"""Place -> monotonic seconds of its last answer; of the place "": every one is waited for."""

_lock, _down = threading.Lock(), dict[str, float]()


def expect_answers() -> None:
    """Wait for every outage, even if this process has had no answer yet."""
    _answered[""] = 0.0


def patience() -> float:
    """Return the most seconds that a request waits; raises SpecError if the environment has no such number."""
    text = os.environ.get(PATIENCE, "")
    try:
        seconds = float(text or DEFAULT)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 86400:
        raise SpecError(f"{PATIENCE} is {text!r}; set it to seconds, such as 180")
    return seconds


def patient(call: Call) -> Call:
    """Make a method of a store wait, within a budget of time, for a server that does not answer.

    A first request fails at once where the address itself is wrong, as a name that does not exist. Workers of a cluster
    wait for that one as well, since their driver has had answers. What waits for storage is no failed attempt of a
    shard. ``store.is_outage`` decides by the cause of an error, and by whether ``store.place`` answered before.
    """

    @functools.wraps(call)
    def waiting(store: Any, *arguments: Any, **options: Any) -> Any:
        begun, pause = time.monotonic(), PAUSE
        while True:
            tried = time.monotonic()
            try:
                result = call(store, *arguments, **options)
            except StorageError as error:
                left, known = begun + patience() - time.monotonic(), "" in _answered or store.place in _answered
                if left <= 0 or not store.is_outage(error.__cause__, known):
                    raise
                _begin(store.place, str(error), left, tried)
                time.sleep(min(pause, left))
                pause = min(2 * pause, MOST_PAUSE)
            else:
                _end(store.place)
                return result

    return waiting  # type: ignore[return-value]


def _begin(place: str, why: str, left: float, tried: float) -> None:
    """Note that a place does not answer, unless it has since the request that failed was made."""
    with _lock:
        if place not in _down and tried > _answered.get(place, -math.inf):
            _down[place] = time.monotonic()
            log.warning("%s; waiting up to %.0f s for it", why, left)


def _end(place: str) -> None:
    with _lock:
        _answered[place] = time.monotonic()
        since = _down.pop(place, None)
    if since is not None:
        log.info("%s answers again, after %.0f s", place, time.monotonic() - since)


# -- the store ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class S3Store(Store):
    """A prefix of a bucket on AWS or another S3 server. An empty prefix is the whole bucket."""

    bucket: str
    prefix: str  # empty, or ends in '/'
    access: Access | None = None  # anonymous, or requester-pays; None: by keys
    table: VendedTable | None = None  # whose catalog vends credentials

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    @property
    def place(self) -> str:
        """The bucket, whose outages are those of all its prefixes."""
        return f"s3://{self.bucket}"

    @staticmethod
    def is_outage(cause: BaseException | None, known: bool) -> bool:
        """Return whether a request failed because no answer came, or the server is overloaded or broken.

        A server that is not ``known`` to have answered has a wrong address if its name or its certificate is refused.
        """
        from botocore.exceptions import ClientError, ConnectionError, HTTPClientError, SSLError
        from urllib3.exceptions import NameResolutionError

        reason = getattr(cause, "kwargs", {}).get("error")
        if not known and (isinstance(cause, SSLError) or isinstance(reason, NameResolutionError)):
            return False
        if isinstance(cause, ClientError):
            status = cause.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            return status >= 500 and status != 501
        return isinstance(cause, (ConnectionError, HTTPClientError))

    @patient
    def read(self, key: str) -> bytes:
        return self._get(key)

    @patient
    def read_entry(self, entry: Entry) -> bytes:
        return self._get(entry.key, entry)

    @patient
    def read_range(self, key: str, start: int, stop: int, listed: Entry | None = None) -> bytes:
        if start >= stop:
            return b""
        content = self._get(key, listed, Range=f"bytes={start}-{stop - 1}")
        if len(content) > stop - start:  # a server without ranges sends the whole object
            content = content[start:stop]
        return self.whole_range(key, content, start, stop)

    def _get(self, key: str, listed: Entry | None = None, **options: str) -> bytes:
        """Return the object's content; retry if the answer is truncated or damaged, which boto3 does not do."""
        from botocore.exceptions import FlexibleChecksumError, HTTPClientError, IncompleteReadError
        from urllib3.exceptions import HTTPError

        if "Range" not in options:
            options["ChecksumMode"] = "ENABLED"
        with self._client("read", key) as s3:
            attempts_left = s3.meta.config.retries["total_max_attempts"]
            while True:
                attempts_left -= 1
                try:
                    answer = s3.get_object(Bucket=self.bucket, Key=self.prefix + key, **options)
                except HTTPError as error:  # the text of a refusal was cut short, for which boto3 has no retry
                    if not attempts_left:
                        raise HTTPClientError(error=error) from error
                    time.sleep(0.5)
                    continue
                try:
                    content = bytes(answer["Body"].read())
                    _check(content, answer, listed)
                    break
                except (HTTPClientError, IncompleteReadError, FlexibleChecksumError, _Damaged):
                    if not attempts_left:
                        raise
                    time.sleep(0.5)
        tag = _tag(answer)
        if listed is not None and tag != listed.tag and _NO_ETAG not in tag + listed.tag:
            raise self.changed(key, "its ETag differs")
        return content

    @patient
    def write(self, key: str, data: bytes) -> None:
        self.check_key(key)
        with self._client("write", key) as s3:
            if len(data) < MULTIPART_BYTES:
                s3.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data)
            else:
                s3.upload_fileobj(io.BytesIO(data), self.bucket, self.prefix + key)

    @patient
    def _create(self, key: str, data: bytes) -> bool | None:
        self.check_key(key)
        with self._client("write", key) as s3:
            known = _CONDITIONAL.get(s3.meta.endpoint_url)
            if known is False:
                return None
            if known is None and self.exists(key):  # the server may ignore the condition
                return False
            put = functools.partial(_put_new, s3, self.bucket, self.prefix + key, data)
            created = put()
            if known is None:
                known = created is False or (created is True and put() is False)
                _CONDITIONAL[s3.meta.endpoint_url] = known
                if not known:
                    warn_of_one_writer("this S3 server has no conditional writes")
            return created

    @patient
    def entry(self, key: str) -> Entry | None:
        from botocore.exceptions import ClientError

        # Unlike HEAD, a listing distinguishes a missing bucket from a missing object. A key is its own first match.
        with self._client("look for", key) as s3:
            try:
                page = s3.list_objects_v2(Bucket=self.bucket, Prefix=self.prefix + key, MaxKeys=1)
            except ClientError as error:
                if error.response["Error"]["Code"] != "AccessDenied":
                    raise
                head = s3.head_object(Bucket=self.bucket, Key=self.prefix + key)  # allowed by s3:GetObject alone
                return Entry(key, head["ContentLength"], _tag(head))
        found = next((found for found in page.get("Contents", []) if found["Key"] == self.prefix + key), None)
        return None if found is None else Entry(key, found["Size"], _tag(found))

    def link(self, key: str, seconds: int) -> str:
        """Return a link signed with this process's credentials, without a request."""
        if {".", ".."} & set(key.split("/")):
            raise StorageError(
                f"{self.uri_of(key)} has no link that a browser opens: a browser resolves '.' and '..' in "
                "an address; send copies or thumbnails instead"
            )
        if self.access == "requester-pays":
            raise StorageError(f"{self.uri_of(key)} has no link: its reader pays; send copies or thumbnails instead")
        with self._client("sign", key):
            signing = client_for("s3v4", self.access, self.table)  # boto3's default for links is the signature of 2006
            asked = {"Bucket": self.bucket, "Key": self.prefix + key}
            return str(signing.generate_presigned_url("get_object", Params=asked, ExpiresIn=seconds))

    @patient
    def delete(self, key: str) -> None:
        with self._client("delete", key) as s3:
            s3.delete_object(Bucket=self.bucket, Key=self.prefix + key)

    def store(self, sub: str) -> "S3Store":
        self.check_key(sub.rstrip("/"))
        return replace(self, prefix=f"{self.prefix}{sub.rstrip('/')}/")

    def list(self, prefix: str = "") -> Entries:
        return self.survey(prefix).entries

    @patient
    def survey(self, prefix: str = "") -> Listing:
        """List objects, without keys that end in '/': consoles make them to show a folder.

        Folders below a prefix of more than one page are listed in parallel.
        """
        from botocore.exceptions import ClientError

        with self._client("list", prefix) as s3:
            try:
                return _Survey(self, s3, LISTERS).listing(self.prefix + prefix)
            except ClientError as error:
                if error.response["Error"]["Code"] != "AccessDenied":
                    raise
            return _Survey(self, s3, 1).listing(self.prefix + prefix)  # rights may be for this very prefix

    @contextmanager
    def _client(self, action: str, key: str) -> Iterator[Any]:
        """Yield the S3 client, and raise its errors as StorageError."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield client_for(None, self.access, self.table)
        except _Damaged as error:
            raise StorageError(
                f"cannot read {self.uri_of(key)}: {error}, also after retries; the object or the connection is "
                "damaged: restore it, or check proxies and the network (or set OPACC_OPAQUE_ETAGS=1, if this server's "
                "ETags only look like MD5s)"
            ) from None
        except (BotoCoreError, ClientError, ValueError) as error:
            reason = reason_of(error)
            raise StorageError(f"cannot {action} {self.uri_of(key).rstrip('/')}: {reason}") from error


class _Survey:
    """A listing in progress: pages of one prefix follow one another, and those of several come in parallel."""

    def __init__(self, store: S3Store, s3: Any, threads: int) -> None:
        self._store, self._s3, self._threads = store, s3, threads
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}  # by key, as a server may show an object twice while it is being replaced
        self._newest: datetime | None = None
        self._logged = 0

    def listing(self, prefix: str) -> Listing:
        folders = self._list(prefix)
        if folders:
            with ThreadPoolExecutor(self._threads, thread_name_prefix="opacc-listing") as pool:
                tasks = [pool.submit(self._list, folder) for folder in folders]
                try:
                    for task in tasks:  # which grows as folders of folders are met
                        tasks += [pool.submit(self._list, folder) for folder in task.result()]
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
        return Listing(sorted(self._entries.values()), [], self._newest)

    def _list(self, prefix: str) -> list[str]:
        """Take the objects of a prefix, and return its folders if those have to be listed instead."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._store.bucket, Prefix=prefix)
        for number, page in enumerate(pages):
            if number == 0 and page.get("IsTruncated") and (folders := self._folders(prefix, page)):
                return folders
            self._take(page)
        return []

    def _folders(self, prefix: str, first: Any) -> list[str]:
        """Return the folders of a prefix, and take the objects outside them; no folder if its pages have to be read.

        That is so if listing folders apart would take many more requests, or if the server does not tell all of them.
        """
        seen = {_folder_of(found["Key"], prefix) for found in first["Contents"]} - {""}
        if self._threads == 1 or not 0 < len(seen) <= SMALL_FOLDERS:
            return []
        page = self._s3.list_objects_v2(Bucket=self._store.bucket, Prefix=prefix, Delimiter="/")
        folders = [found["Prefix"] for found in page.get("CommonPrefixes", [])]
        if page.get("IsTruncated") or not seen <= set(folders):
            return []
        self._take(page)
        return folders

    def _take(self, page: Any) -> None:
        with self._lock:
            for found in page.get("Contents", []):
                if not found["Key"].endswith("/"):
                    key = found["Key"].removeprefix(self._store.prefix)
                    self._entries[key] = Entry(key, found["Size"], _tag(found))
                    self._newest = max(self._newest or found["LastModified"], found["LastModified"])
            if len(self._entries) // LISTED > self._logged:
                self._logged = len(self._entries) // LISTED
                log.info("listing %s: %s objects so far", self._store.uri, f"{len(self._entries):,}")


def _folder_of(key: str, prefix: str) -> str:
    """Return the folder just below a prefix that holds a key; empty if it is the prefix itself."""
    return key[: key.find("/", len(prefix)) + 1]


def num_pages(keys: Sequence[str], prefix: str = "", size: int = PAGE) -> int:
    """Return the requests of a listing of sorted keys below a prefix, with pages of that size: see `_Survey`."""
    pages = max(1, -(-len(keys) // size))
    seen = {_folder_of(key, prefix) for key in keys[:size]} - {""}
    if pages == 1 or not 0 < len(seen) <= SMALL_FOLDERS:
        return pages
    if len({_folder_of(key, prefix) or key for key in keys}) > size:
        return pages + 1
    groups = groupby(keys, lambda key: _folder_of(key, prefix))
    return 2 + sum(num_pages(list(group), folder, size) for folder, group in groups if folder)


def _put_new(s3: Any, bucket: str, key: str, data: bytes) -> bool | None:
    """Write the object if it does not exist, and return whether it was written; None if the condition is refused."""
    from botocore.exceptions import ClientError

    for _ in range(ATTEMPTS):
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
            return True
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in ("PreconditionFailed", "412"):
                return False
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if status in (400, 501):
                return None
            if code not in ("ConditionalRequestConflict", "409"):  # two writers at once: try again
                raise
            time.sleep(0.1)
    return False


class _Damaged(Exception):
    """An answer that is not the object's content; the text names the evidence."""


def _check(content: bytes, answer: Any, listed: Entry | None) -> None:
    """Raise _Damaged if the content of a whole object does not match the size or the ETag."""
    if "ContentRange" in answer:
        return
    tag = _tag(answer)
    if listed is not None and tag == listed.tag and len(content) != listed.size:
        raise _Damaged(f"{len(content)} bytes arrived, and the listing has {listed.size}")
    if _is_md5(tag, answer) and hashlib.md5(content, usedforsecurity=False).hexdigest() != tag:
        raise _Damaged(f"{len(content)} bytes arrived whose MD5 is not the ETag {tag}")


def _is_md5(tag: str, answer: Any) -> bool:
    """Return whether an ETag is the MD5 of the content: see the S3 API reference, "Object", ETag."""
    customers_key = "SSECustomerAlgorithm" in answer or answer.get("ServerSideEncryption", "AES256") != "AES256"
    is_opaque = customers_key or bool(os.environ.get("OPACC_OPAQUE_ETAGS"))
    return not is_opaque and re.fullmatch(r"[0-9a-f]{32}", tag) is not None


def _tag(found: Any) -> str:
    """Return the change token of an object in a listing or an answer."""
    return str(found.get("ETag") or f"{_NO_ETAG}{found.get('LastModified', '')}").strip('"')


# -- clients ----------------------------------------------------------------------------------------------------

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

    life = (found.expires - datetime.now(UTC)).total_seconds()  # short ones are not to be asked for at each request
    early = {"advisory_timeout": min(300, life / 2), "mandatory_timeout": min(120, life / 4)}  # seconds before
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
    "AccessDenied 403": "access is denied; the credentials lack s3:ListBucket, s3:GetObject, s3:PutObject or, "
    "to remove something, s3:DeleteObject",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "InvalidAccessKeyId": "the server does not have the access key; check AWS_ACCESS_KEY_ID",
    "ExpiredToken TokenRefreshRequired": "the credentials have expired; renew them",
    "RequestTimeTooSkewed RequestExpired": "the clock of this machine is wrong; set it",
    "NoCredentialsError": "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
    "pool.access: anonymous for a public bucket",
    "PermanentRedirect AuthorizationHeaderMalformed": "the bucket is elsewhere; set AWS_REGION to its region",
    "SlowDown": "the server asks to slow down, also after retries; use fewer actors",
}
"""What to do about errors, by their codes."""
