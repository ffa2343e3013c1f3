"""A real S3 server that fails as a large one does, or is gone for a while: content is whole, or there is an error."""

import logging
import re
import threading
import time
from collections.abc import Iterator
from typing import Self

import pytest
from local_s3 import LocalS3
from s3_proxies import FAULTS, FaultyProxy

from opacc_ray.errors import SpecError, StorageError
from opacc_ray.lake import s3_store as storage
from opacc_ray.lake.store_uris import open_store

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def door(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3.endpoint) as proxy:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, proxy.endpoint)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "8")
        yield proxy


@pytest.fixture
def outage(door: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> FaultyProxy:
    """The same with requests that are made once, and outages that are waited for."""
    door.faults = ("reset", "503")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv(storage.PATIENCE, "600")
    monkeypatch.setattr(storage, "_answered", {})
    monkeypatch.setattr(storage, "PAUSE", 0.05)
    return door


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


# -- outages ---------------------------------------------------------------------------------------------------


def end_after(outage: FaultyProxy, faults: int) -> None:
    while outage.met.total() < faults:
        time.sleep(0.01)
    outage.share = 0.0


def test_an_outage_is_waited_for_and_told_once(
    outage: FaultyProxy, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "opacc_ray")
    store = open_store(f"{bucket}/here")
    store.write("a", b"before")
    outage.share = 1.0
    threads = [threading.Thread(target=store.write, args=(name, b"during")) for name in "bcd"]
    threads.append(threading.Thread(target=end_after, args=(outage, 12)))
    for thread in threads:
        thread.start()
    assert store.create("e", b"during") == b"during"
    assert store.read("a") == b"before"
    for thread in threads:
        thread.join()
    assert [entry.key for entry in store.list()] == ["a", "b", "c", "d", "e"]
    told = [record.getMessage() for record in caplog.records if "no conditional writes" not in record.getMessage()]
    assert [text for text in told if re.search(r"waiting up to \d+ s for it", text)] == told[:1]
    assert [text for text in told if text.startswith(f"{bucket} answers again, after ")] == told[1:]


class Overtaken:
    """A store whose first read fails only when a later request has been answered."""

    place, tries = "s3://overtaken", 0
    is_outage = staticmethod(lambda cause, known: True)

    @storage.patient
    def write(self) -> None:
        pass

    @storage.patient
    def read(self) -> bytes:
        self.tries += 1
        if self.tries == 1:
            self.write()
            raise StorageError("no answer")
        return b"there"


@pytest.mark.usefixtures("outage")
def test_a_failure_that_comes_after_a_later_answer_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opacc_ray")
    store = Overtaken()
    assert (store.read(), store.tries) == (b"there", 2)
    assert caplog.records == []


class ShutDoor(FaultyProxy):
    """Refuses connections until it is opened."""

    opened = False

    def server_activate(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def open(self) -> None:
        if not self.opened:
            self.opened = True
            super().server_activate()
            super().__enter__()


def test_the_first_request_waits_for_a_server_that_refuses_connections(
    s3: LocalS3, outage: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_store(bucket).write("a", b"before")
    monkeypatch.setattr(storage, "_answered", {})
    begin = storage._begin
    with ShutDoor(s3.endpoint) as shut:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
            monkeypatch.setenv(name, shut.endpoint)
        monkeypatch.setattr(storage, "_begin", lambda *outage: (begin(*outage), shut.open()))
        assert open_store(bucket).read("a") == b"before"
    assert caplog.text.count("waiting up to") == 1


def test_an_address_that_does_not_exist_is_an_error_at_once(
    outage: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_store(bucket).write("a", b"")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, "http://no-such-host.invalid")
    monkeypatch.setattr(storage, "_answered", {})
    with pytest.raises(StorageError, match=r"no answer from http://no-such-host\.invalid"):
        open_store(bucket).read("a")
    assert "waiting up to" not in caplog.text
    storage.expect_answers()  # as workers do

    def begins(*outage: object) -> None:
        raise BeginsError

    monkeypatch.setattr(storage, "_begin", begins)
    with pytest.raises(BeginsError):
        open_store(bucket).read("a")


class BeginsError(Exception):
    """An outage begins."""


def test_patience_ends(outage: FaultyProxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"{bucket}/here")
    store.write("a", b"")
    monkeypatch.setenv(storage.PATIENCE, "0.3")
    outage.share = 1.0
    with pytest.raises(StorageError):
        store.read("a")
    monkeypatch.setenv(storage.PATIENCE, "long")
    with pytest.raises(SpecError, match="OPACC_STORAGE_PATIENCE is 'long'; set it to seconds, such as 180"):
        store.read("a")


def test_what_is_not_there_is_no_outage(outage: FaultyProxy, bucket: str, caplog: pytest.LogCaptureFixture) -> None:
    store = open_store(f"{bucket}/here")
    store.write("a", b"")
    assert store.read_if_there("b") is None
    with pytest.raises(StorageError, match="no such object"):
        store.read("b")
    assert "waiting up to" not in caplog.text
