"""Stores and their URIs: one body of tests for a folder, rclone's S3 server, moto's, and Google Cloud Storage."""

import errno
import itertools
import os
import pickle
import secrets
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import boto3
import pytest
from local_s3 import LocalS3

from opacc_ray import registry
from opacc_ray.errors import StorageError
from opacc_ray.lake import s3_store as s3_module
from opacc_ray.lake.store import LocalStore, warn_of_one_writer
from opacc_ray.lake.store_uris import Store, join, open_store, read_uri, split, write_object

ODD_NAMES = [
    "a b.txt",
    "a+b.txt",
    "100%.txt",
    "a%20b.txt",
    "a#b?c=d&e.txt",
    "naïve-日本-🙂.txt",
    "quote'\"<&>.txt",
    "~tilde;(1)@[x]=,$!.txt",
    "CASE.txt",
    "case.txt",
    "dots..and.dots",
    ".hidden",
]


@pytest.fixture(params=["folder", "rclone", "gcs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, two levels below the root of what holds it."""
    if request.param == "folder":
        return open_store(join(str(tmp_path), "audits/digits"))
    if request.param == "rclone":
        return open_store(join(request.getfixturevalue("bucket"), "audits/digits"))
    if request.param == "gcs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("gcs_endpoint"))
        return open_store(f"gs://lake/{secrets.token_hex(4)}/audits/digits")
    request.getfixturevalue("s3")  # for its isolated environment
    endpoint = request.getfixturevalue("moto_endpoint")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    name = f"bucket-{secrets.token_hex(4)}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return open_store(f"s3://{name}/audits/digits")


def test_an_object_lives_and_dies(store: Store) -> None:
    assert not store.exists("deep/er/a.bin")
    store.write("deep/er/a.bin", b"first")
    assert store.exists("deep/er/a.bin")
    assert not store.exists("deep/er/a")
    assert not store.exists("deep/er")
    assert store.read("deep/er/a.bin") == b"first"
    assert read_uri(store.uri_of("deep/er/a.bin")) == b"first"
    [before] = store.list()
    time.sleep(0.02)  # some file systems' clocks are coarse
    store.write("deep/er/a.bin", b"other")
    [after] = store.list()
    assert store.read("deep/er/a.bin") == b"other"
    assert (before.key, before.size) == (after.key, after.size) == ("deep/er/a.bin", 5)
    assert (store.entry("deep/er/a.bin"), store.entry("deep"), store.entry("deep/b")) == (after, None, None)
    assert before.tag != after.tag
    assert after == store.list()[0]
    store.delete("deep/er/a.bin")
    store.delete("deep/er/a.bin")
    assert not store.exists("deep/er/a.bin")
    assert store.list() == []


def test_listing_is_sorted_and_by_prefix(store: Store) -> None:
    keys = ["z", "a/b", "a-b/c", "a/b0", "a/c/d", "ab"]
    for key in keys:
        store.write(key, b"x")
    assert [entry.key for entry in store.list()] == sorted(keys)
    assert [entry.key for entry in store.list("a/")] == ["a/b", "a/b0", "a/c/d"]
    assert [entry.key for entry in store.list("a/b")] == ["a/b", "a/b0"]
    assert [entry.key for entry in store.list("a")] == ["a-b/c", "a/b", "a/b0", "a/c/d", "ab"]
    assert store.list("q") == store.list("a/q/") == store.list("z/z") == []


def test_a_store_inside_a_store_sees_its_own_only(store: Store) -> None:
    inner = store.store("a/c/")
    assert inner.uri == f"{store.uri}/a/c" == join(store.uri, "a", "c")
    inner.write("d", b"x")
    store.write("a/cc", b"y")  # begins like the inner store, but lies outside it
    assert [entry.key for entry in inner.list()] == ["d"]
    assert store.read("a/c/d") == b"x"
    assert inner == open_store(inner.uri + "/")


def test_odd_names_come_back_as_they_are(store: Store) -> None:
    for name in ODD_NAMES:
        store.write(f"odd & even/{name}", name.encode())
    expected = sorted(f"odd & even/{name}" for name in ODD_NAMES)
    assert [entry.key for entry in store.list()] == expected
    assert [content.decode() for content in store.read_many(expected)] == [key.split("/")[1] for key in expected]
    assert all(store.exists(key) for key in expected)
    for name in ODD_NAMES:
        assert read_uri(store.uri_of(f"odd & even/{name}")) == name.encode()
        store.delete(f"odd & even/{name}")
    assert store.list() == []


@pytest.mark.parametrize("store", ["rclone", "moto"], indirect=True)  # others write at once
def test_large_objects_travel_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "MULTIPART_BYTES", 1)
    data = bytes(range(256)) * (17 << 12)  # 17 MiB: three parts
    store.write("weights.bin", data)
    assert store.read("weights.bin") == data
    assert store.list()[0].size == len(data)


def test_many_objects_come_in_order(store: Store) -> None:
    keys = [f"{i:03d}" for i in range(50)]
    store.write_many(((key, key.encode()) for key in keys), threads=4)
    wanted = keys[::-1] + keys[:3]
    assert list(store.read_many(wanted, threads=4)) == [key.encode() for key in wanted]
    assert list(store.read_many([])) == []
    with pytest.raises(StorageError, match="is not a key below"):
        store.write_many([("a", b"x"), ("../b", b"x")])
    contents = store.read_many(["000", "001", "none", "003"])
    assert [next(contents), next(contents)] == [b"000", b"001"]
    with pytest.raises(StorageError, match=r"^cannot read \S+/audits/digits/none: ((?i:no such)|there is no such)"):
        next(contents)


def test_a_store_travels_without_its_client(store: Store) -> None:
    store.write("a", b"x")
    packed = pickle.dumps(store)
    assert len(packed) < 300
    assert pickle.loads(packed) == store
    assert pickle.loads(packed).read("a") == b"x"
    secret = os.environ.get("AWS_SECRET_ACCESS_KEY")
    assert secret is None or secret not in repr(store)


def test_keys_that_leave_the_store_are_refused(store: Store) -> None:
    others = (store.read, store.delete, store.exists) if isinstance(store, LocalStore) else ()
    for key in ("", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", ".", "./a", "a\0b", ".opacc-tmp-1"):
        for method in (lambda key: store.write(key, b"x"), *([store.store] if key != "a/" else []), *others):
            with pytest.raises(StorageError, match="is not a key below"):
                method(key)
    if isinstance(store, LocalStore):
        with pytest.raises(StorageError, match="is not a key below"):
            store.list("../")


@pytest.mark.parametrize("store", ["folder"], indirect=True)
def test_readers_never_see_half_an_object(store: Store) -> None:
    size = 300_000
    store.write("a", b"0" * size)
    done, enough = threading.Event(), threading.Event()

    def read_whole_contents() -> None:
        for seen in itertools.count(1):
            content = store.read("a")
            assert len(content) == size
            assert content == content[:1] * size
            assert [entry.key for entry in store.list()] == ["a"]
            if seen > 1:
                enough.set()
            if done.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        reader = pool.submit(read_whole_contents)
        for written, digit in enumerate(itertools.cycle(b"123456789")):
            if reader.done() or (written >= 27 and enough.is_set()):
                break
            store.write("a", bytes([digit]) * size)
        done.set()
        reader.result()


@pytest.mark.processes
def test_a_listing_has_every_page(s3: LocalS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [f"{i:04d}" for i in range(1300)]
    for folder in ("lake/pool", "lake/pool-2"):
        (tmp_path / folder).mkdir(parents=True)
        for number in numbers:
            (tmp_path / folder / number).write_bytes(b"12")
    with LocalS3(tmp_path) as server:  # which finds the files when it starts
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        open_store("s3://lake/pool").write("x/y", b"1")
        for uri in ("s3://lake/pool", f"{tmp_path}/lake/pool"):
            entries = open_store(uri).list()
            assert [entry.key for entry in entries] == [*numbers, "x/y"]
            assert [entry.size for entry in entries] == [2] * 1300 + [1]


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_folder_made_by_a_console_is_not_an_object(store: Store) -> None:
    bucket = store.uri.split("/")[2]
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    client.put_object(Bucket=bucket, Key="audits/digits/")
    client.put_object(Bucket=bucket, Key="audits/digits/a//b", Body=b"x")  # others may write what we would not
    assert [entry.key for entry in store.list()] == ["a//b"]
    assert store.read("a//b") == b"x"


def test_a_range_is_exactly_its_bytes(store: Store) -> None:
    data = bytes(range(256)) * 40
    store.write("deep/a.bin", data)
    assert store.size("deep/a.bin") == len(data)
    for start, stop in [(0, 1), (5, 5), (250, 700), (len(data) - 3, len(data)), (0, len(data))]:
        assert store.read_range("deep/a.bin", start, stop) == data[start:stop]
    for start in (0, len(data) - 2, len(data), len(data) + 50):
        with pytest.raises(
            StorageError, match=r"^cannot read \S+/deep/a.bin: .*has changed.*restore it or start again"
        ):
            store.read_range("deep/a.bin", start, len(data) + 60)
    for call in (lambda: store.read_range("gone", 0, 3), lambda: store.size("gone")):
        with pytest.raises(StorageError, match=r"^cannot read \S+/audits/digits/gone: ((?i:no such)|there is no such)"):
            call()


def test_an_object_opens_as_a_file(store: Store) -> None:
    data = b"id,label\n1,cat\n2,dog\n"
    store.write("a.csv", data)
    with store.open("a.csv") as file:
        assert file.read(2) == b"id"
        assert file.seek(-4, os.SEEK_END) == len(data) - 4
        assert file.read() == b"dog\n"
    with store.open("a.csv", len(data)) as file:
        assert list(file) == data.splitlines(keepends=True)


# -- created once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["folder", "moto"], indirect=True)
def test_an_object_is_created_once_and_all_writers_are_given_its_content(store: Store) -> None:
    contents = [f"{writer}".encode() for writer in range(6)]
    start = threading.Barrier(len(contents))

    def create(data: bytes) -> bytes:
        start.wait()
        return store.create("deep/er/a.json", data)

    with ThreadPoolExecutor(len(contents)) as pool:
        found = list(pool.map(create, contents))
    assert len(set(found)) == 1
    assert found[0] in contents
    assert store.read("deep/er/a.json") == found[0]
    assert store.create("deep/er/a.json", b"later") == found[0]


def test_a_file_system_without_hard_links_is_for_one_writer(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    warn_of_one_writer.cache_clear()
    store = open_store(str(tmp_path))
    assert [store.create("a", b"1"), store.create("a", b"2"), store.create("b", b"3")] == [b"1", b"1", b"3"]
    assert [store.read("a"), store.read("b")] == [b"1", b"3"]
    assert [record.getMessage() for record in caplog.records] == [
        "this file system has no hard links: let one command at a time draw rounds of a run"
    ]


# -- URIs -----------------------------------------------------------------------------------------------


def test_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_store("s3://lake/").uri == "s3://lake"
    assert open_store("s3://lake//a/b#1//").uri == "s3://lake/a/b#1"
    assert open_store("runs/").uri == open_store("./runs").uri == f"{tmp_path}/runs"
    assert open_store(f"file://{tmp_path}/a%20b").uri == f"{tmp_path}/a b"
    assert open_store((tmp_path / "50% off").as_uri()).uri == f"{tmp_path}/50% off"
    assert open_store("~/runs").uri == os.path.expanduser("~/runs")
    assert join("s3://lake/", "a/", "/b.json") == "s3://lake/a/b.json"
    assert join("/", "a") == "/a"
    assert join(f"file://{tmp_path}/x", "50% off") == f"{tmp_path}/x/50% off"
    assert split("s3://lake/models/a.bin") == ("s3://lake/models", "a.bin")
    assert split("s3://lake/a.bin") == ("s3://lake", "a.bin")
    assert split("a.bin") == (str(tmp_path), "a.bin")
    assert split("/a.bin") == ("/", "a.bin")


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "https://host/a", "file://host/a", "a\0b"])
def test_uris_that_cannot_be_opened(uri: str) -> None:
    with pytest.raises(StorageError, match=r"s3://bucket/prefix|contains a null character"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://lake", "s3://lake/", "/"])
def test_uris_that_name_no_object(uri: str) -> None:
    with pytest.raises(StorageError, match="is not the URI of an object"):
        split(uri)


def open_twin(scheme: str, bucket: str, prefix: str, access: str | None) -> Store:
    """What a package of others registers: `twin://FOLDER` is a folder on this disk."""
    assert (scheme, access) == ("twin", None)
    return LocalStore(f"/{bucket}/{prefix}".rstrip("/"))


def test_a_package_of_others_adds_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("twin", f"{__name__}:open_twin", "opacc.stores")
    monkeypatch.setattr(EntryPoint, "load", lambda _: open_twin)
    monkeypatch.setattr(registry, "_others", lambda kind: {"twin": point} if kind == "stores" else {})
    write_object(f"twin:/{tmp_path}/a/b.txt", b"content")
    assert (tmp_path / "a" / "b.txt").read_bytes() == read_uri(f"twin:/{tmp_path}/a/b.txt") == b"content"
    with pytest.raises(StorageError, match="cannot be opened"):
        open_store(f"other:/{tmp_path}")


@pytest.mark.processes
def test_folders_need_no_boto3(tmp_path: Path) -> None:
    script = (
        "import sys; from opacc_ray.lake.store_uris import open_store; store = open_store(sys.argv[1]);"
        "store.write('a', b'x'); store.list(); open_store('s3://lake').store('a');"
        "assert not {'boto3', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
