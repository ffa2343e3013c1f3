"""Objects in a local folder, or in a folder on a file system that all nodes share.

An object is a regular file. A FIFO, a socket or a device is never opened, since reading it may block for ever. A
symbolic link is followed if a user named the file (weights, a file of labels). In a listed folder it is followed only
with ``follow_links``.
"""

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from opacc_ray.errors import StorageError
from opacc_ray.lake.store import TEMPORARY_PREFIX, Entries, Entry, Listing, Store, warn_of_one_writer


@dataclass(frozen=True)
class LocalStore(Store):
    """A folder, local or on a shared file system. It need not exist yet."""

    root: str  # absolute
    follow_links: bool = False  # whether listings follow symbolic links

    @property
    def uri(self) -> str:
        return self.root.rstrip("/")

    def read(self, key: str) -> bytes:
        with self._opened(key) as file:
            return file.read()

    def is_linked(self, key: str) -> bool:
        own = os.path.join(os.path.realpath(self.root), key)
        return not self.follow_links and os.path.realpath(self._path(key)) != own

    def read_range(self, key: str, start: int, stop: int, listed: Entry | None = None) -> bytes:
        with self._opened(key, os.O_NOFOLLOW if listed and not self.follow_links else 0) as file:
            file.seek(start)
            before = os.fstat(file.fileno())
            content = file.read(stop - start)
            tags = {_tag(before), _tag(os.fstat(file.fileno()))}
        if listed and (tags != {listed.tag} or len(content) != stop - start):
            raise self.changed(key, "its modification time or its size differs")
        return self.whole_range(key, content, start, stop)

    def write(self, key: str, data: bytes) -> None:
        with self._written(key, data) as temporary:
            os.replace(temporary, self._path(key))

    def _create(self, key: str, data: bytes) -> bool | None:
        with self._written(key, data) as temporary:
            try:
                os.link(temporary, self._path(key))
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    warn_of_one_writer("this file system has no hard links")
                    return None
                raise
        return True

    @contextmanager
    def _written(self, key: str, data: bytes) -> Iterator[str]:
        """Yield a temporary file with ``data`` in the object's folder, and remove it afterwards."""
        folder = os.path.dirname(self._path(key))
        temporary = f"{folder}/{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        with self._explained("write", key):
            os.makedirs(folder, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield temporary
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def try_writing(self) -> None:
        """Check write access to the folder, or to its nearest parent that exists."""
        there = next(path for path in (Path(self.root), *Path(self.root).parents) if os.path.lexists(path))
        Store.try_writing(LocalStore(str(there)))

    def entry(self, key: str) -> Entry | None:
        with self._explained("look for", key):
            try:
                status = os.stat(self._path(key))
            except OSError as error:
                if error.errno in _ABSENT:
                    return None
                raise
        return Entry(key, status.st_size, _tag(status)) if stat.S_ISREG(status.st_mode) else None

    def delete(self, key: str) -> None:
        with self._explained("delete", key), suppress(FileNotFoundError):
            os.unlink(self._path(key))

    def prune(self) -> None:
        for folder, _, _ in os.walk(self.root, topdown=False):
            with suppress(OSError):  # it holds something
                os.rmdir(folder)

    def store(self, sub: str) -> "LocalStore":
        return LocalStore(self._path(sub.rstrip("/")), self.follow_links)

    def list(self, prefix: str = "") -> Entries:
        parent = prefix.rpartition("/")[0]
        with self._explained("list", prefix):
            found = _below(self._path(parent) if parent else self.root, parent, self.follow_links)
        return [entry for entry in found.entries if entry.key.startswith(prefix)]

    def survey(self) -> Listing:
        if not os.path.isdir(self.root):
            what = "it is a file, and a folder is needed" if os.path.exists(self.root) else "there is no such folder"
            raise StorageError(f"cannot list {self.uri}: {what}; check the path")
        with self._explained("list", ""):
            return _below(self.root, "", self.follow_links)

    def _path(self, key: str) -> str:
        self.check_key(key)
        return f"{self.uri}/{key}"

    @contextmanager
    def _opened(self, key: str, more: int = 0) -> Iterator[IO[bytes]]:
        """Open a regular file; anything else is an error, since opening a FIFO would wait for a writer."""
        with (
            self._explained("read", key),
            open(self._path(key), "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK | more)) as file,
        ):
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise StorageError(f"cannot read {self.uri_of(key)}: it is a {_kind(mode)}, not a regular file")
            yield file

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # A listing names the file at fault; a write must not name its temporary file.
            place = (action == "list" and error.filename) or self.uri_of(key).rstrip("/")
            reason = _LOCAL_REASONS.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"cannot {action} {place}: {reason}") from error


def _below(top: str, key: str, follow_links: bool) -> Listing:
    """Return everything below the folder ``top`` with this key, at any depth; a missing folder is empty."""
    found, newest = Listing([], []), 0.0
    folders: list[tuple[str, str, frozenset[tuple[int, int]]]] = [(top, key, frozenset())]
    while folders:
        folder, inside, above = folders.pop()
        with suppress(FileNotFoundError, NotADirectoryError):
            above |= {_place(os.stat(folder))}  # device and inode of a folder and its parents
            for item in os.scandir(folder):
                own = f"{inside}/{item.name}".lstrip("/")
                kind = "temporary" if item.name.startswith(TEMPORARY_PREFIX) else _kind_of(item, follow_links, above)
                if kind == "file":
                    status = item.stat()
                    found.entries.append(Entry(own, status.st_size, _tag(status)))
                    newest = max(newest, status.st_mtime)
                elif kind == "folder":
                    folders.append((item.path, own, above))
                elif kind not in ("temporary", "gone"):
                    found.oddities.append((own, kind))
    found.entries.sort()
    found.oddities.sort()
    return found._replace(newest=datetime.fromtimestamp(newest, UTC) if found.entries else None)


def _kind_of(item: os.DirEntry[str], follow_links: bool, above: frozenset[tuple[int, int]]) -> str:
    """Return "file", "folder", "gone" if it was removed meanwhile, or what else an item of a folder is."""
    if item.is_symlink() and not follow_links:
        return "symbolic link"
    try:
        status = item.stat()
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return "dangling symbolic link" if item.is_symlink() else "gone"
    if stat.S_ISDIR(status.st_mode) and _place(status) in above:
        return "symbolic link to one of its parent folders"
    return _kind(status.st_mode)


def _place(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _tag(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns}-{status.st_size}"


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "file of an unknown kind")


_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # errors of paths that lead to no file

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
"""Errors of file systems without hard links."""

_LOCAL_REASONS = {
    errno.ENOENT: "there is no such file; check the path",
    errno.EACCES: "permission is denied; check the owner and mode",
    errno.ELOOP: "it is a symbolic link; name the file itself, or set pool.follow_links: true",
    errno.ENOSPC: "the disk is full; free some space or choose another place",
}
