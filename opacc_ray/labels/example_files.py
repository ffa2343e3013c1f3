"""Images of chosen examples for annotators: image files of the pool, and rows of other files as pictures.

An image is read by its key. A row of a table, an array or a tar file is read as extraction read it: with its shard,
whose chosen rows are then cached as pictures, up to `KEPT_BYTES`.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from functools import cached_property
from shlex import quote

import numpy as np

from opacc_ray.errors import DataError, StorageError
from opacc_ray.labels.formats import file_names
from opacc_ray.labels.messages import quoted
from opacc_ray.labels.picture_rendering import Picture, render, render_array
from opacc_ray.lake.examples import Example, Plan
from opacc_ray.lake.pools import plan_shards, read_chosen
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, rules_of

NO_PICTURES = (
    "the pool has features, but no pictures; label with `opacc manifest RUN --to csv`, with links by manifest.link"
)

KEPT_BYTES = 256 << 20
"""Bytes of cached pictures of rows."""

LONGEST, AT_ONCE, CACHED_BYTES = 1600, 2, 64 << 20
"""Of the page: pixels of a picture's longer side, pictures rendered at a time, and bytes of the cache."""


class ExampleFiles:
    """Image files of the chosen examples of some rounds, by id; other examples cannot be read."""

    def __init__(self, run: Run, rounds: Iterable[int]) -> None:
        self._run, self._pool = run, run.spec.pool
        self._store = open_pool(self._pool)
        self._are_images = self._pool.format == "images"
        self._row: dict[str, int] = {}  # id -> row in the pool
        self.uris: dict[str, str] = {}
        for number in rounds:
            chosen, selection = run.read_chosen(number), run.read_selection(number)
            self._row |= dict(zip(selection.ids, selection.index.tolist(), strict=True))
            self.uris |= dict(zip(chosen.ids, chosen.uris, strict=True))
        self._kept: OrderedDict[int, dict[str, Picture]] = OrderedDict()  # shard -> its chosen rows
        self._lock = threading.Lock()

    def link(self, id: str, seconds: int) -> str:
        """Return a public link to the image, valid for some seconds; raises DataError if the example is no file."""
        if not self._are_images:
            raise DataError(f"{quoted(id)} is a row of a file and has no link; send copies, which are pictures of rows")
        return self._store.link(id, seconds)

    def copy(self, id: str) -> tuple[str, bytes]:
        """Return the name and the content of a copy: the image file itself, or a picture of the row."""
        return self.name_of_copy(id), self._content(id) if self._are_images else self.picture(id).data

    def name_of_copy(self, id: str) -> str:
        """Return the file name of a copy."""
        return file_names.name_of(id, is_made=not self._are_images)

    def picture(self, id: str, longest: int | None = None) -> Picture:
        """Return the example as a picture whose longer side has at most ``longest`` pixels.

        Rows of files that are no images are never scaled. Raises DataError if the example is no picture.
        """
        try:
            if self._are_images:
                return render(self._content(id), longest=longest, max_pixels=self._pool.max_pixels)
            return self._picture_of_row(id)
        except DataError as error:
            raise DataError(f"{quoted(id)} cannot be shown: {error}") from None

    def _content(self, id: str) -> bytes:
        try:
            if self._store.is_linked(id):  # it was no link when the pool was listed
                raise StorageError(f"cannot read {self._store.uri_of(id)}: it is a symbolic link now")
            return self._store.read(id)
        except StorageError as error:
            page = f"`opacc label {quote(self._run.uri)}`"
            raise StorageError(f"{error}; restore the file, or label the other examples with {page}") from None

    def in_pool_order(self, ids: Iterable[str]) -> list[str]:
        """Return the ids in the order of the pool, so that each of its files is read once."""
        return sorted(ids, key=lambda id: self._row[id])

    def _picture_of_row(self, id: str) -> Picture:
        with self._lock:
            shard = int(np.searchsorted(self._ends, self._row[id], side="right"))
            if shard not in self._kept:
                self._kept[shard] = self._read(shard)
                while len(self._kept) > 1 and self._num_bytes() > KEPT_BYTES:
                    self._kept.popitem(last=False)
            if id not in self._kept[shard]:
                raise DataError(f"{self._store.uri} does not have it any more; restore the file {self.uris[id]}")
            return self._kept[shard][id]

    def _num_bytes(self) -> int:
        return sum(len(picture.data) for pictures in self._kept.values() for picture in pictures.values())

    @cached_property
    def _plan(self) -> Plan:
        """Shards as extraction read them; raises DataError if the pool has changed."""
        pool, extract = self._pool, self._run.spec.extract
        if pool.holds_features:
            raise DataError(NO_PICTURES)
        rules = rules_of(pool)
        plan = plan_shards(self._store, pool.format, extract.shard_size, extract.shard_bytes, rules=rules)
        if plan.digest != self._run.header.pool.digest:
            raise DataError(f"the pool {self._store.uri} has changed since it was listed; restore its files")
        return plan

    @cached_property
    def _ends(self) -> list[int]:
        """First row after each shard."""
        index = self._run.read_index()
        return np.cumsum([shard.examples for shard in index.shards] if index else []).tolist()

    def _read(self, shard: int) -> dict[str, Picture]:
        rules = rules_of(self._pool)
        found = read_chosen(self._store, self._pool.format, self._plan.shards[shard], self._row.keys(), rules)
        return {item.id: render_array(item.array) for item in found if isinstance(item, Example)}


class PictureCache:
    """Pictures of chosen examples for the labelling page, by id, rendered on request within bounded memory."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._files = ExampleFiles(run, run.rounds())
        self._gate = threading.Semaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, bool], Picture] = OrderedDict()

    def picture(self, id: str, *, whole: bool = False) -> Picture:
        """Return an example as a picture: with all its pixels if ``whole``, else with at most `LONGEST` a side.

        Raises
        ------
        DataError, StorageError
            It is no picture, or cannot be read.
        """
        key = (id, whole)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        with self._gate:
            if id not in self._files.uris:  # chosen by a round drawn since
                self._files = ExampleFiles(self._run, self._run.rounds())
            made = self._files.picture(id, None if whole else LONGEST)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > 1 and sum(len(item.data) for item in self._kept.values()) > CACHED_BYTES:
                self._kept.popitem(last=False)
        return made
