"""S3 that refuses, breaks off or is not there, and the client that is made for it."""

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from botocore.exceptions import ClientError
from local_s3 import LocalS3
from local_server import LocalServer, QuietHandler
from moto.server import ThreadedMotoServer
from s3_proxies import FailingDoor

from opacc_ray.errors import StorageError
from opacc_ray.lake import s3_store
from opacc_ray.lake.store import warn_of_one_writer
from opacc_ray.lake.store_uris import Store, open_store


def every_call(store: Store) -> list[Callable[[], object]]:
    return [
        store.list,
        lambda: store.read("a"),
        lambda: store.write("a", b"x"),
        lambda: store.exists("a"),
        lambda: store.delete("a"),
    ]


def test_a_missing_bucket_is_an_error(s3: LocalS3) -> None:
    said = r"^cannot .* s3://no-such-bucket/x\S*: the bucket does not exist; create"
    for call in every_call(open_store("s3://no-such-bucket/x")):
        with pytest.raises(StorageError, match=said):
            call()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong-secret", "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "wrong-key", "the server does not have the access key; check AWS_ACCESS_KEY_ID"),
        ("AWS_ACCESS_KEY_ID", None, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (
            "AWS_ENDPOINT_URL_S3",
            "no-scheme:9000",
            "Invalid endpoint: AWS_ENDPOINT_URL_S3 is 'no-scheme:9000'; write https://host:port",
        ),
        ("AWS_PROFILE", "nobody", "config profile (nobody) could not be found"),
    ],
)
def test_wrong_credentials(
    bucket: str, monkeypatch: pytest.MonkeyPatch, variable: str, value: str | None, words: str
) -> None:
    store = open_store(bucket)
    store.write("a", b"x")
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    if value is None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setenv(variable, value)
    for call in every_call(store):
        with pytest.raises(StorageError) as caught:
            call()
        assert words in str(caught.value)
        assert bucket in str(caught.value)
        assert secret not in str(caught.value)
        assert "wrong-secret" not in str(caught.value)


def test_an_endpoint_that_does_not_answer(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://user:hidden@127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    with pytest.raises(StorageError) as caught:
        open_store("s3://lake/x").list()
    assert str(caught.value) == (
        "cannot list s3://lake/x: no answer from http://127.0.0.1:9 in 2 attempts (EndpointConnectionError);"
        " check AWS_ENDPOINT_URL and the network"
    )


class ScriptedS3(LocalServer):
    """Answers GET and HEAD with what the test put into `answers`: (status, body, how many bytes of it to send)."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes, int]] = []
        super().__init__(_ScriptedHandler)


class _ScriptedHandler(QuietHandler):
    server: ScriptedS3
    protocol_version = "HTTP/1.0"  # which ends the connection after each answer

    def do_GET(self) -> None:
        status, body, sent = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])

    do_HEAD = do_GET


@pytest.fixture
def scripted(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.endpoint)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
        yield server


def test_a_listing_asks_little_of_the_server(scripted: ScriptedS3) -> None:
    """No count, no ETag, out of order, and an object shown twice while it is being replaced."""
    body = b"<ListBucketResult><IsTruncated>false</IsTruncated>" + b"".join(
        b"<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>" % found
        for found in [(b"x/b", 1), (b"x/a", 2), (b"x/b", 3)]
    )
    body += b"</ListBucketResult>"
    scripted.answers = [(200, body, len(body))]
    tag = "modified 2026-01-01 00:00:00+00:00"
    assert open_store("s3://lake/x").list() == [("a", 2, tag), ("b", 3, tag)]


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[FailingDoor, str]]:
    """A server whose pages have 5 keys, behind a door, and a bucket there."""
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with FailingDoor("http://{}:{}".format(*server.get_host_and_port()), []) as door:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, door.endpoint)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "any")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "8")
        bucket = f"lake-{uuid4().hex}"  # servers of one process share their buckets
        s3_store.client_for().create_bucket(Bucket=bucket)
        yield door, bucket
    server.stop()


FOLDERS = ("", "a/", "a//", "b/c/", "b/c/ü &/", "b/d/", "x/")


@pytest.mark.parametrize(
    ("fault", "times", "request_"),
    [("truncated", 3, "delimiter="), ("403", -1, "delimiter="), ("403", -1, "prefix=pool%2F(b%2F)?[^&b]")],
)
def test_folders_listed_in_parallel_are_the_listing(
    short_pages: tuple[FailingDoor, str], fault: str, times: int, request_: str
) -> None:
    """As pages that follow one another, also where only the listing of the pool itself is allowed."""
    door, bucket = short_pages
    rng = np.random.default_rng(1)
    keys = {f"{rng.choice(FOLDERS)}{number}" for number in rng.integers(1000, size=60)} | {"a/", "b/c/"}
    for key in (*(f"pool/{key}" for key in keys), "pool-2/a/1", "poo"):
        s3_store.client_for().put_object(Bucket=bucket, Key=key, Body=key.encode())
    door.rules = [{"times": times, "fault": fault, "request": request_}]
    store = open_store(f"s3://{bucket}/pool")
    listing = store.survey()
    assert [entry.key for entry in listing.entries] == sorted(key for key in keys if not key.endswith("/"))
    assert all(entry.size == len(f"pool/{entry.key}".encode()) for entry in listing.entries)
    assert [entry.key for entry in store.list("b/")] == sorted(
        key for key in keys if key[:2] == "b/" and key[-1] != "/"
    )
    assert times != door.rules[0]["times"] <= 0  # the rule was applied


@pytest.mark.parametrize(
    "keys",
    [
        ["a"],
        [f"{number:02d}" for number in range(23)],
        [f"{folder}/{number}" for folder in "abc" for number in range(9)],
        [f"a/{folder}/{number}" for folder in "xyz" for number in range(12)] + ["b", "c/1"],
        [f"{folder}/{number}" for folder in "abcdefgh" for number in range(2)],  # too many folders in the first page
        [f"a/{number}" for number in range(6)] + [f"b{number}" for number in range(6)],  # or in all
    ],
)
def test_a_listing_makes_the_requests_that_are_forecast(short_pages: tuple[FailingDoor, str], keys: list[str]) -> None:
    door, bucket = short_pages
    for key in keys:
        s3_store.client_for().put_object(Bucket=bucket, Key=f"pool/{key}", Body=b"")
    asked, fault = list[str](), door.fault
    door.fault = lambda request: asked.append(request.path) or fault(request)  # type: ignore[func-returns-value, method-assign]
    assert len(open_store(f"s3://{bucket}/pool").list()) == len(keys)
    assert s3_store.num_pages(sorted(keys), size=5) == len(asked)


def test_an_object_is_found_without_the_right_to_list(scripted: ScriptedS3) -> None:
    refused = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
    scripted.answers = [(403, refused, len(refused)), (200, b"whole", 0)]
    found = open_store("s3://lake").entry("a")
    assert found is not None
    assert (found.key, found.size) == ("a", 5)
    scripted.answers = [(403, refused, len(refused)), (403, b"", 0)]
    with pytest.raises(StorageError, match="cannot look for s3://lake/a: access is denied; the credentials lack"):
        open_store("s3://lake").exists("a")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (403, "AccessDenied", "access is denied; the credentials lack s3:ListBucket"),
        (400, "ExpiredToken", "the credentials have expired; renew them"),
        (400, "AuthorizationHeaderMalformed", "set AWS_REGION"),
        (503, "SlowDown", "use fewer actors"),
        (418, "Teapot", "a message"),
    ],
)
def test_refusals_are_put_into_words(scripted: ScriptedS3, status: int, code: str, words: str) -> None:
    body = f"<Error><Code>{code}</Code><Message>a message</Message></Error>".encode()
    scripted.answers = [(status, body, len(body))] * 2
    with pytest.raises(StorageError, match=f"^cannot read s3://lake/a: .*{words}"):
        open_store("s3://lake").read("a")


def test_the_client_suits_its_endpoint(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    custom = s3_store.client_for().meta
    assert s3_store.client_for().meta is custom
    assert (custom.region_name, custom.endpoint_url) == ("us-east-1", s3.endpoint)
    assert custom.config.request_checksum_calculation == custom.config.response_checksum_validation == "when_required"
    assert custom.config.s3 == {"addressing_style": "path"}
    assert custom.config.retries["total_max_attempts"] == 3
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name)
    aws = s3_store.client_for().meta
    assert (aws.region_name, aws.endpoint_url) == ("us-east-1", "https://s3.amazonaws.com")
    assert aws.config.request_checksum_calculation == aws.config.response_checksum_validation == "when_supported"
    assert aws.config.s3 is None
    assert aws.config.retries["total_max_attempts"] == 8
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert s3_store.client_for().meta.region_name == "eu-west-1"


def test_a_server_that_does_not_know_ranges_sends_all(scripted: ScriptedS3) -> None:
    scripted.answers = [(200, b"0123456789", 10)]
    assert open_store("s3://lake").read_range("a", 2, 5) == b"234"


def test_a_key_that_a_browser_would_change_has_no_link_and_any_other_has(bucket: str) -> None:
    store = open_store(bucket)
    assert "/a//b%20%23.png?X-Amz-" in store.link("a//b #.png", 60)
    for key in ("a/../b.png", "./b.png"):
        with pytest.raises(StorageError, match=r"has no link that a browser opens: .*; send copies or thumbnails"):
            store.link(key, 60)


class ConditionalS3:
    """A client of a server that holds one object or none, and answers conditional writes with a status of its own."""

    def __init__(self, status: int, *keys: str) -> None:
        self.status, self.keys, self.writes = status, set(keys), 0
        self.meta = SimpleNamespace(endpoint_url=f"http://{uuid4().hex}")

    def put_object(self, Key: str, IfNoneMatch: str | None = None, **_: object) -> None:
        honoured = self.status == 412
        if IfNoneMatch and self.status != 200 and (not honoured or Key in self.keys):
            answer = {"Error": {"Code": str(self.status)}, "ResponseMetadata": {"HTTPStatusCode": self.status}}
            raise ClientError(answer, "PutObject")
        self.keys.add(Key)
        self.writes += 1

    def list_objects_v2(self, Prefix: str, **_: object) -> dict[str, Any]:
        return {"Contents": [{"Key": key, "Size": 1} for key in self.keys if key.startswith(Prefix)]}


def store_on(client: ConditionalS3, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(s3_store, "client_for", lambda *_: client)
    warn_of_one_writer.cache_clear()
    return open_store("s3://b/p")


@pytest.mark.parametrize("status", [200, 400, 501])
def test_a_server_without_conditional_writes_is_recognised_and_reported_once(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = ConditionalS3(status)
    store = store_on(client, monkeypatch)
    for key in "ab":
        assert store.create(key, b"1") == b"1"
    assert client.keys == {"p/a", "p/b"}
    assert [record.getMessage() for record in caplog.records] == [
        "this S3 server has no conditional writes: let one command at a time draw rounds of a run"
    ]


def test_a_server_with_conditional_writes_writes_each_object_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = ConditionalS3(412)
    store = store_on(client, monkeypatch)
    assert [store.create(key, b"1") for key in "ab"] == [b"1", b"1"]
    assert client.writes == 2
    assert not caplog.records


def test_an_unknown_server_never_overwrites_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    client = ConditionalS3(200, "p/a")
    store = store_on(client, monkeypatch)
    monkeypatch.setattr(s3_store.S3Store, "_get", lambda *_: b"first")
    assert store.create("a", b"second") == b"first"
    assert client.writes == 0


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_not_taken_for_one_without_conditional_writes(
    status: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = ConditionalS3(status)
    with pytest.raises(StorageError, match=r"^cannot write s3://b/p/a"):
        store_on(client, monkeypatch).create("a", b"1")
    assert client.writes == 0
    assert not caplog.records
