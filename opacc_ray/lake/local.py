"""Objects in a local folder, or in one on a file system that all nodes share."""

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opacc_ray.errors import StorageError
from opacc_ray.lake.store import TEMPORARY_PREFIX, Entries, Entry, Store, check_key, whole_range


@dataclass(frozen=True)
class LocalStore(Store):
    """A local folder, or one on a file system that all nodes share. It need not exist yet."""

    root: str  # absolute

    @property
    def uri(self) -> str:
        return self.root.rstrip("/")

    def read(self, key: str) -> bytes:
        with self._explained("read", key):
            return self._path(key).read_bytes()

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        with self._explained("read", key), open(self._path(key), "rb") as file:
            file.seek(start)
            return whole_range(file.read(stop - start), start, stop, self.uri_of(key))

    def size(self, key: str) -> int:
        with self._explained("read", key):
            return self._path(key).stat().st_size

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
                    return None
                raise
        return True

    @contextmanager
    def _written(self, key: str, data: bytes) -> Iterator[Path]:
        """Yield a temporary file beside the object's place, which holds ``data`` and is gone afterwards."""
        path = self._path(key)
        temporary = path.with_name(f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}")
        with self._explained("write", key):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                yield temporary
            finally:
                temporary.unlink(missing_ok=True)

    def entry(self, key: str) -> Entry | None:
        with self._explained("look for", key):
            try:
                status = os.stat(self._path(key))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _entry(key, status) if stat.S_ISREG(status.st_mode) else None

    def exists(self, key: str) -> bool:
        with self._explained("look for", key):
            return self._path(key).is_file()

    def delete(self, key: str) -> None:
        with self._explained("delete", key):
            self._path(key).unlink(missing_ok=True)

    def store(self, sub: str) -> "LocalStore":
        return LocalStore(str(self._path(sub.rstrip("/"))))

    def list(self, prefix: str = "") -> Entries:
        parent = prefix.rpartition("/")[0]
        top = self._path(parent) if parent else self.root
        entries = []
        with self._explained("list", prefix):
            for folder, _, names in os.walk(top, onerror=_raise_unless_missing, followlinks=True):
                inside = folder.removeprefix(self.root).lstrip("/")
                for name in names:
                    key = f"{inside}/{name}".lstrip("/")
                    if key.startswith(prefix) and not name.startswith(TEMPORARY_PREFIX):
                        entries.append(_entry(key, os.stat(os.path.join(folder, name))))
        return sorted(entries)

    def _path(self, key: str) -> Path:
        check_key(key, self.uri)
        return Path(self.root, key)

    @contextmanager
    def _explained(self, action: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # A listing meets many files, so it names the one; a write would name its temporary file.
            place = (action == "list" and error.filename) or self.uri_of(key).rstrip("/")
            reason = _LOCAL_REASONS.get(error.errno or 0, error.strerror or str(error))
            raise StorageError(f"cannot {action} {place}: {reason}") from error


def _entry(key: str, status: os.stat_result) -> Entry:
    return Entry(key, status.st_size, f"{status.st_mtime_ns}-{status.st_size}")


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        raise error


_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)
"""Of file systems without hard links."""

_LOCAL_REASONS = {
    errno.EACCES: "permission is denied; check the owner and mode",
    errno.ENOSPC: "the disk is full; free some space or choose another place",
}
