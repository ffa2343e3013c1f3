"""Azure's blobs and Google's buckets as pools: listings, ranges, changes and failures; more is in test_store.py."""

import pickle
import secrets
import time
from typing import Any

import azurite
import pytest
from gcs_server import set_faults

from opacc_ray.errors import StorageError
from opacc_ray.extensions.lakes import arrow_store
from opacc_ray.extensions.lakes.arrow_store import ArrowStore
from opacc_ray.lake.store import ChangedError
from opacc_ray.lake.store_uris import Store, open_store


def put(store: ArrowStore, key: str, data: bytes) -> None:
    """Write an object as other programs do; stores do not write to Azure."""
    files = arrow_store._files(store.scheme, store.account, store.anonymous, store.table)
    with files.open_output_stream(f"{store.bucket}/{store.prefix}{key}") as stream:
        stream.write(data)


pytestmark = pytest.mark.processes


@pytest.fixture(params=["gs", "abfss"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ArrowStore:
    place = "gs://lake"
    if request.param == "gs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("gcs_endpoint"))
    else:
        place = azurite.PLACE
        for name, value in request.getfixturevalue("azure_environment").items():
            monkeypatch.setenv(name, value)
    found = open_store(f"{place}/{secrets.token_hex(4)}/pool")
    assert isinstance(found, ArrowStore)
    return found


def test_objects_are_listed_and_read_by_ranges(store: ArrowStore) -> None:
    for key in ("b c/1%20+.bin", "a.bin", "b.bin"):
        put(store, key, key.encode())
    listed: Store = pickle.loads(pickle.dumps(store))
    assert [(entry.key, entry.size) for entry in listed.list()] == [("a.bin", 5), ("b c/1%20+.bin", 13), ("b.bin", 5)]
    assert [entry.key for entry in listed.list("b")] == ["b c/1%20+.bin", "b.bin"]
    assert [entry.key for entry in listed.store("b c").list()] == ["1%20+.bin"]
    entry = listed.list()[1]
    assert listed.entry(entry.key) == entry
    assert listed.read_entry(entry) == b"b c/1%20+.bin"
    assert listed.read_range(entry.key, 2, 5, entry) == b"c/1"
    assert listed.survey().newest is not None
    assert listed.entry("none") is None


def test_an_object_that_changed_is_noticed(store: ArrowStore) -> None:
    put(store, "a", b"first")
    [before] = store.list()
    time.sleep(1.1 if store.scheme == "abfss" else 0.01)  # Azure's clock has whole seconds
    put(store, "a", b"other")
    for read in (store.read_entry, lambda entry: store.read_range(entry.key, 1, 3, entry)):
        with pytest.raises(ChangedError, match=r"/pool/a has changed since the pool was listed"):
            read(before)


def test_failures_say_what_to_do(store: ArrowStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match=r"^cannot read .*/pool/none: there is no such object$"):
        store.read("none")
    put(store, "a", b"abc")
    with pytest.raises(StorageError, match=r"^cannot read .*/pool/a: .*has changed.*restore it or start again"):
        store.read_range("a", 50, 60)
    nowhere = ArrowStore(store.scheme, "nowhere", "", store.account)
    with pytest.raises(StorageError, match=r"nowhere does not exist; create it or correct the URI"):
        nowhere.list()


def test_azure_is_for_pools_only() -> None:
    with pytest.raises(StorageError, match=r"Azure is for pools only; write to s3://, gs:// or a folder"):
        open_store(azurite.PLACE).write("a", b"")


def test_a_busy_service_is_asked_again(gcs_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_endpoint)
    store = open_store(f"gs://lake/{secrets.token_hex(4)}")
    before = set_faults(gcs_endpoint, 0.3)
    try:
        for number in range(2):
            store.write(f"{number}", b"x" * number)
        assert [store.read_entry(entry) for entry in store.list()] == [b"", b"x"]
    finally:
        assert set_faults(gcs_endpoint, 0) > before


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("abfss://lake/pool", r"has no account: write abfss://container@account.dfs.core.windows.net/prefix"),
        ("gs:///pool", r"has no bucket: write gs://bucket/prefix"),
        ("abfss://user:secret@account/pool", r"abfss://\*\*\*@account/pool contains credentials"),
        ("gs://key:secret@bucket/pool", r"contains credentials"),
        (
            "wasbs://c@a/p",
            r"contains credentials",
        ),
    ],
)
def test_a_wrong_address_is_one_sentence(uri: str, reason: str) -> None:
    with pytest.raises(StorageError, match=reason):
        open_store(uri)


def test_vended_tokens_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Azure by the account's SAS token, of Google by an OAuth token."""
    given: list[Any] = []
    monkeypatch.setattr("pyarrow.fs.AzureFileSystem", lambda *names, **options: given.append((*names, options)))
    monkeypatch.setattr("pyarrow.fs.GcsFileSystem", lambda **options: given.append(options))
    for name in ("AZURE_STORAGE_ENDPOINT", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    host = "account.dfs.core.windows.net"
    arrow_store._new_files(0, "abfss", host, False, ((f"adls.sas-token.{host}", "sig=1"), ("expires", "")), ())
    assert given.pop() == ("account", {"sas_token": "?sig=1"})
    arrow_store._new_files(0, "gs", "", False, (("expires", "5e9"), ("gcs.oauth2.token", "t")), ())
    assert given.pop()["access_token"] == "t"
