"""Objects on AWS S3, or on any server with its protocol.

Every answer is checked: its length against the headers and the listing, its checksums if the server keeps some, and its
MD5 if the ETag is one. An ETag is an MD5 if it has 32 hexadecimal digits and the object was uploaded in one part,
without a customer's key. A damaged answer is requested again. Set OPACC_OPAQUE_ETAGS=1 for servers whose ETags look
like an MD5 but are not. Importing this module does not import boto3.

An object is created once by a write with `If-None-Match: *`. Some servers ignore or refuse that condition. A process
finds out at its first such write, which it then repeats: the condition is honoured if the repetition fails.
"""

import functools
import hashlib
import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from opacc_ray.errors import StorageError
from opacc_ray.lake.s3_client import ATTEMPTS, Access, client_for, reason_of
from opacc_ray.lake.store import (
    Entries,
    Entry,
    Listing,
    Store,
    VendedTable,
    changed,
    check_key,
    patient,
    warn_of_one_writer,
    whole_range,
)

_NO_ETAG = "modified "  # first word of the tag of an object without an ETag
MULTIPART_BYTES = 64 << 20  # larger objects are uploaded in parts

_CONDITIONAL: dict[str, bool] = {}
"""Whether the server at an endpoint honours conditional writes, as far as this process knows."""


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
        return whole_range(content, start, stop, self.uri_of(key))

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
            raise changed(self.uri_of(key), "its ETag differs")
        return content

    @patient
    def write(self, key: str, data: bytes) -> None:
        check_key(key, self.uri)
        with self._client("write", key) as s3:
            if len(data) < MULTIPART_BYTES:
                s3.put_object(Bucket=self.bucket, Key=self.prefix + key, Body=data)
            else:
                s3.upload_fileobj(io.BytesIO(data), self.bucket, self.prefix + key)

    @patient
    def _create(self, key: str, data: bytes) -> bool | None:
        check_key(key, self.uri)
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
        check_key(sub.rstrip("/"), self.uri)
        return replace(self, prefix=f"{self.prefix}{sub.rstrip('/')}/")

    def list(self, prefix: str = "") -> Entries:
        return self.survey(prefix).entries

    @patient
    def survey(self, prefix: str = "") -> Listing:
        """List objects, without keys that end in '/': consoles make them to show a folder."""
        entries = {}  # by key, as a server may show an object twice while it is being replaced
        newest: datetime | None = None
        with self._client("list", prefix) as s3:
            pages = s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=self.prefix + prefix):
                for found in page.get("Contents", []):
                    if not found["Key"].endswith("/"):
                        key = found["Key"].removeprefix(self.prefix)
                        entries[key] = Entry(key, found["Size"], _tag(found))
                        newest = max(newest or found["LastModified"], found["LastModified"])
        return Listing(sorted(entries.values()), [], newest)

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
