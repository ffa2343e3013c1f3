"""Objects in local folders: what a file system adds, and what may go wrong with it."""

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.errors import DataError, StorageError
from opacc_ray.lake.pools import plan_shards
from opacc_ray.lake.store import ChangedError
from opacc_ray.lake.store_uris import open_store


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

    def guarded(path: Any) -> Any:
        if str(path).endswith("closed"):
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


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Path]:
    """A folder with one file, and with what a file system holds beside files."""
    open_store(str(tmp_path / "elsewhere")).write("b.png", b"yy")
    pool = tmp_path / "pool"
    open_store(str(pool)).write("a.png", b"x")
    (pool / "link.png").symlink_to(tmp_path / "elsewhere" / "b.png")
    (pool / "dangling.png").symlink_to(tmp_path / "nowhere")
    (pool / "self.png").symlink_to("self.png")
    (pool / "folder").symlink_to(tmp_path / "elsewhere")
    (pool / "circle").symlink_to(pool)
    (pool / "zero.png").symlink_to("/dev/zero")
    os.mkfifo(pool / "fifo.png")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(pool, os.O_RDONLY)  # by a short name, as names of sockets must be
        listener.bind(f"/proc/self/fd/{here}/socket.png")
        os.close(here)
        yield pool


def test_pool_is_its_regular_files(odd: Path) -> None:
    found = open_store(str(odd)).survey()
    assert [entry.key for entry in found.entries] == ["a.png"]
    assert found.oddities == [
        ("circle", "symbolic link"),
        ("dangling.png", "symbolic link"),
        ("fifo.png", "FIFO"),
        ("folder", "symbolic link"),
        ("link.png", "symbolic link"),
        ("self.png", "symbolic link"),
        ("socket.png", "socket"),
        ("zero.png", "symbolic link"),
    ]


def test_links_are_followed_if_asked_and_each_folder_once(odd: Path) -> None:
    store = open_store(str(odd), follow_links=True)
    found = store.survey()
    assert [entry.key for entry in found.entries] == ["a.png", "folder/b.png", "link.png"]
    assert [store.read_entry(entry) for entry in found.entries] == [b"x", b"yy", b"yy"]
    assert found.oddities == [
        ("circle", "symbolic link to one of its parent folders"),
        ("dangling.png", "dangling symbolic link"),
        ("fifo.png", "FIFO"),
        ("self.png", "dangling symbolic link"),
        ("socket.png", "socket"),
        ("zero.png", "device"),
    ]


def test_a_file_removed_during_a_listing_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(str(tmp_path))
    store.write_many((name, b"x") for name in "abcde")
    scandir = os.scandir

    def removing(path: str) -> list[os.DirEntry[str]]:
        found = list(scandir(path))
        os.unlink(found[1].path)
        return found

    monkeypatch.setattr(os, "scandir", removing)
    assert len(store.list()) == 4


@pytest.mark.parametrize(("name", "kind"), [("fifo.png", "FIFO"), ("zero.png", "device")])
def test_what_is_no_file_is_not_read(odd: Path, name: str, kind: str) -> None:
    with pytest.raises(StorageError, match=f"cannot read {odd}/{name}: it is a {kind}, not a regular file"):
        open_store(str(odd)).read(name)


@pytest.mark.parametrize("change", ["longer", "same size", "link", "fifo"])
def test_file_that_changed_since_the_listing_is_refused(tmp_path: Path, change: str) -> None:
    store = open_store(str(tmp_path))
    store.write("a", b"xx")
    [entry] = store.list()
    (tmp_path / "a").unlink()
    if change == "link":
        (tmp_path / "b").write_bytes(b"yy")
        (tmp_path / "a").symlink_to("b")
    elif change == "fifo":
        os.mkfifo(tmp_path / "a")
    else:
        (tmp_path / "a").write_bytes(b"yyy" if change == "longer" else b"yy")
        os.utime(tmp_path / "a", ns=(1, 1))
    with pytest.raises((ChangedError, StorageError), match=r"has changed since the pool was|cannot read .*: it is"):
        store.read_entry(entry)


@pytest.mark.parametrize(("name", "what"), [("nowhere", "there is no such folder"), ("a", "it is a file")])
def test_a_pool_that_is_not_a_folder_is_an_error(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with pytest.raises(StorageError, match=f"cannot list {tmp_path}/{name}: {what}"):
        plan_shards(open_store(str(tmp_path / name)), "images", 10)


def test_name_that_is_no_unicode_is_one_sentence(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.txt")).write_bytes(b"x")
    (tmp_path / "a.png").write_bytes(b"x")
    store = open_store(str(tmp_path))
    assert str(plan_shards(store, "images", 10).ignored[0]) == "1 x .txt (\\udcff.txt)"
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")).write_bytes(b"x")
    with pytest.raises(DataError, match="holds a file whose name is not Unicode"):
        plan_shards(store, "images", 10)


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        open_store(str(tmp_path)).write("a", b"x")
    finally:
        os.umask(old)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
