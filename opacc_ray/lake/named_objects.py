"""Objects that a column of a table names by URI.

A table is data that others wrote, so it leads to no file outside of the pool: a name is an s3:// URI, or a key below
the pool's prefix, or a path that begins with that prefix.
"""

from opacc_ray.errors import DataError, OpaccError, StorageError
from opacc_ray.lake.storage import open_store, split
from opacc_ray.lake.store import Store, check_key


class NamedObjects:
    """Reads what URIs name, relative to the pool's place."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @staticmethod
    def uri(store: Store, text: str) -> str:
        """The URI that a text stands for."""
        return text if "://" in text or text.startswith("/") else store.uri_of(text)

    def read(self, text: str | None) -> bytes | str:
        """The content of an object, or in words why there is none.

        Raises
        ------
        StorageError
            It is there, and cannot be read.
        """
        if not text:
            return "its uri is null"
        try:
            place, key = self._locate(text)
        except OpaccError as error:
            return str(error)
        try:
            return place.read(key)
        except StorageError:
            if not place.exists(key):
                return f"there is no object {place.uri_of(key)}"
            raise

    def _locate(self, text: str) -> tuple[Store, str]:
        key = text.removeprefix(f"{self._store.uri}/")
        if key.startswith("s3://"):
            parent, name = split(key)
            return open_store(parent), name
        if "://" in key or key.startswith("/"):
            raise DataError(f"its uri {text!r} is neither at s3:// nor below {self._store.uri}")
        check_key(key, self._store.uri)
        if self._store.is_linked(key):
            raise DataError(f"its uri {text!r} is a symbolic link; name the file, or set pool.follow_links: true")
        return self._store, key
