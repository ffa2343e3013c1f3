"""Objects in local folders: what a file system adds, and what may go wrong with it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.errors import StorageError
from opacc_ray.lake.storage import open_store


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
    assert open_store(str(tmp_path / "a")).list() == []
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
