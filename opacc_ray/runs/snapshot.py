"""Read-only view of a store at one moment: listed once, and each object read once."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from opacc_ray.errors import StorageError
from opacc_ray.lake.store import Entries, Entry
from opacc_ray.lake.store_uris import Store


class Snapshot(Store):
    """Read-only view of some folders of a store; other places are read directly.

    Parameters
    ----------
    store : the store
    entries : listings by folder; folders end with '/'
    held : contents that were read, by URI
    """

    def __init__(self, store: Store, entries: Mapping[str, Entries], held: dict[str, bytes] | None = None) -> None:
        self._store, self._entries = store, entries
        self._held: dict[str, bytes] = {} if held is None else held

    @classmethod
    def of(cls, store: Store, folders: Sequence[str]) -> "Snapshot":
        """Return a view of the present contents."""
        return cls(store, {folder: store.list(folder) for folder in folders})

    @property
    def uri(self) -> str:
        return self._store.uri

    def read(self, key: str) -> bytes:
        if self._listed(key) is None:
            return self._store.read(key)
        uri = self.uri_of(key)
        if uri not in self._held:
            self._held[uri] = self._store.read(key)
        return self._held[uri]

    def read_range(self, key: str, start: int, stop: int) -> bytes:
        return self._store.read_range(key, start, stop)

    def size(self, key: str) -> int:
        return self._store.size(key)

    def write(self, key: str, data: bytes) -> None:
        raise StorageError(f"{self.uri_of(key)} cannot be written: this is a read-only snapshot")

    def _create(self, key: str, data: bytes) -> bool | None:
        self.write(key, data)
        return None

    def delete(self, key: str) -> None:
        self.write(key, b"")

    def entry(self, key: str) -> Entry | None:
        entries = self._listed(key)
        if entries is None:
            return self._store.entry(key)
        return next((entry for entry in entries if entry.key == key), None)

    def exists(self, key: str) -> bool:
        return self._store.exists(key) if self._listed(key) is None else self.entry(key) is not None

    def written(self, key: str) -> datetime:
        return self._store.written(key)

    def list(self, prefix: str = "") -> Entries:
        entries = self._listed(prefix)
        if entries is None:
            return self._store.list(prefix)
        return [entry for entry in entries if entry.key.startswith(prefix)]

    def store(self, sub: str) -> Store:
        place, inside = self._store.store(sub), f"{sub.rstrip('/')}/"
        entries = self._listed(inside)
        if entries is None:
            return place
        own = [entry._replace(key=entry.key.removeprefix(inside)) for entry in entries if entry.key.startswith(inside)]
        return Snapshot(place, {"": own}, self._held)

    def read_entry(self, entry: Entry) -> bytes:
        return self._store.read_entry(entry)

    def read_entry_range(self, entry: Entry, start: int, stop: int) -> bytes:
        return self._store.read_entry_range(entry, start, stop)

    def _listed(self, key: str) -> Entries | None:
        return next((entries for folder, entries in self._entries.items() if key.startswith(folder)), None)
