"""A real S3 server whose door fails as a large one's does: what is read and written is whole, or an error."""

from collections.abc import Iterator

import pytest
from faulty_proxy import FAULTS, FaultyProxy
from local_s3 import LocalS3

from opacc_ray.errors import StorageError
from opacc_ray.lake.store_uris import open_store

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def door(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as proxy:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, proxy.endpoint)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "8")
        yield proxy


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_the_server_are_outlived(door: FaultyProxy, bucket: str, fault: str) -> None:
    store = open_store(f"{bucket}/here")
    door.faults, door.share = (fault,), 0.3
    for number in range(6):
        store.write(f"{number}", CONTENT[number:])
    assert [store.read(str(number)) for number in range(6)] == [CONTENT[number:] for number in range(6)]
    assert [entry.size for entry in store.list()] == [len(CONTENT) - number for number in range(6)]
    assert store.read_range("3", 5, 4000) == CONTENT[8:4003]
    assert door.met[fault] > 0


def test_a_refusal_that_is_cut_short_is_requested_again(door: FaultyProxy, bucket: str) -> None:
    store = open_store(f"{bucket}/here")
    store.write("a", b"before")
    door.faults, door.share = ("truncated",), 0.5
    assert [store.read_if_there(name) for name in "bcde"] == [None] * 4
    assert door.met["truncated"] > 2


@pytest.mark.parametrize(
    ("fault", "reason"), [("503", "asks to slow down, also after retries"), ("reset", "no answer")]
)
def test_faults_that_never_end_are_an_error(
    door: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    store = open_store(f"{bucket}/here")
    store.write("a", b"before")
    door.faults, door.share = (fault,), 1.0
    with pytest.raises(StorageError, match=f"cannot write .*/here/a: .*{reason}"):
        store.write("a", CONTENT)
    door.share = 0.0
    assert store.read("a") == b"before"
