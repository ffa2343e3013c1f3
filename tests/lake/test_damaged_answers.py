"""What comes damaged from a real S3 server is noticed, asked for again, and never taken for the object."""

import time
from collections.abc import Iterator

import boto3
import pytest
from local_s3 import LocalS3
from s3_proxies import Damage, DamagingProxy

from opacc_ray.errors import StorageError
from opacc_ray.lake.s3_store import _is_md5
from opacc_ray.lake.store import ChangedError
from opacc_ray.lake.store_uris import Store, open_store

CONTENT = bytes(range(256)) * 40

DAMAGES: dict[str, Damage] = {
    "cut short": lambda body: body[:-1],
    "empty": lambda body: b"",
    "one bit": lambda body: body[:5000] + bytes([body[5000] ^ 4]) + body[5001:],
    "longer": lambda body: body + b"\0",
}


@pytest.fixture
def proxy(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[DamagingProxy]:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    with DamagingProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.fixture
def store(bucket: str, proxy: DamagingProxy, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = open_store(f"{bucket}/pool")
    store.write_many([("a", CONTENT), ("b", b"other")])
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
    return store


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_asked_for_again_and_an_error_of_storage_if_it_stays(
    store: Store, proxy: DamagingProxy, damage: str
) -> None:
    [entry, _] = store.list()
    for read in (lambda: store.read_entry(entry), lambda: store.read("a")):
        proxy.damage, proxy.times = DAMAGES[damage], 2
        assert read() == CONTENT
        assert proxy.times == 0
    proxy.times = -1
    with pytest.raises(StorageError, match=r"^cannot read s3://\S+/pool/a: \d+ bytes arrived.* also after retries"):
        store.read_entry(entry)


def test_object_that_was_replaced_since_the_listing_is_not_read(store: Store, s3: LocalS3) -> None:
    [entry, _] = store.list()
    bucket, _, key = store.uri_of("a").removeprefix("s3://").partition("/")
    client = boto3.client("s3", endpoint_url=s3.endpoint)
    client.put_object(Bucket=bucket, Key=key, Body=CONTENT[::-1])
    while client.get_object(Bucket=bucket, Key=key)["Body"].read() != CONTENT[::-1]:
        time.sleep(0.05)  # a busy rclone may show an object of the same size as it was, for a moment
    with pytest.raises(ChangedError, match=r"/pool/a has changed since the pool was listed \(its ETag differs\)"):
        store.read_entry(entry)


@pytest.mark.parametrize(
    ("tag", "answer", "expected"),
    [
        ("0" * 32, {}, True),
        ("0" * 32, {"ServerSideEncryption": "AES256"}, True),
        ("0" * 32, {"ServerSideEncryption": "aws:kms"}, False),
        ("0" * 32, {"SSECustomerAlgorithm": "AES256"}, False),
        (f"{'0' * 32}-2", {}, False),
        ("not-hex", {}, False),
    ],
)
def test_a_tag_is_an_md5_according_to_the_s3_reference(tag: str, answer: dict[str, str], expected: bool) -> None:
    assert _is_md5(tag, answer) == expected


def test_server_whose_tags_are_no_md5_can_be_used(
    store: Store, proxy: DamagingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPACC_OPAQUE_ETAGS", "1")
    proxy.damage, proxy.times = DAMAGES["one bit"], -1
    assert len(store.read("a")) == len(CONTENT)


def test_checksum_of_the_server_is_asked_for(moto_endpoint: str, s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps checksums sends them, and the client compares; ETags are set aside to show it."""
    with DamagingProxy(moto_endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setenv("OPACC_OPAQUE_ETAGS", "1")
        client = boto3.client("s3", endpoint_url=moto_endpoint)
        client.create_bucket(Bucket="checked")
        client.put_object(Bucket="checked", Key="a", Body=CONTENT, ChecksumAlgorithm="SHA256")
        proxy.damage, proxy.times = DAMAGES["one bit"], 1
        assert open_store("s3://checked").read("a") == CONTENT
        assert proxy.times == 0
