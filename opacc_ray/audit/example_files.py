"""The content of chosen examples, for annotators: bytes of image files, and rows of other files as pictures."""

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from opacc_ray.audit.run import Run
from opacc_ray.errors import DataError
from opacc_ray.labelling import file_names
from opacc_ray.labelling.messages import quoted
from opacc_ray.labelling.pictures import Picture, render, render_array
from opacc_ray.lake.examples import Example, Rules, Shard
from opacc_ray.lake.pools import read_examples
from opacc_ray.lake.storage import Store, open_store


class ExampleFiles:
    """Where the chosen examples of some rounds lie in the pool. Ids that were not chosen are unknown to it."""

    def __init__(self, run: Run, rounds: Iterable[int]) -> None:
        self._pool = run.spec.pool
        self._store: Store = open_store(self._pool.uri, follow_links=self._pool.follow_links)
        self._are_images = self._pool.format == "images"
        self._objects: dict[str, str | None] = {}
        self.uris: dict[str, str] = {}
        for number in rounds:
            chosen = run.read_chosen(number)
            self._objects |= dict(zip(chosen.ids, chosen.objects, strict=True))
            self.uris |= dict(zip(chosen.ids, chosen.uris, strict=True))
        self._made: dict[str, Picture] = {}  # of the object that was read last
        self._made_of: str | None = None

    def link(self, id: str, seconds: int) -> str:
        """A link to the image that anyone may open for that long; raises DataError if the example is no file."""
        if not self._are_images:
            raise DataError(
                f"{quoted(id)} is a row of a file, which no link leads to; send copies, which are pictures of the rows"
            )
        return self._store.link(id, seconds)

    def copy(self, id: str) -> tuple[str, bytes]:
        """The name and the content of a copy: the image file itself, or a picture of the row."""
        if self._are_images:
            return file_names.name_of(id), self._store.read(id)
        return file_names.name_of(id, is_made=True), self.picture(id).data

    def picture(self, id: str, longest: int | None = None) -> Picture:
        """The example as a picture whose longer side has at most ``longest`` pixels; raises DataError if it is none."""
        try:
            if self._are_images:
                return render(self._store.read(id), longest=longest, max_pixels=self._pool.max_pixels)
            return self._row(id)
        except DataError as error:
            raise DataError(f"{quoted(id)} cannot be shown: {error}") from None

    def _row(self, id: str) -> Picture:
        """A row of a file, of which all chosen rows are kept until another file is asked for."""
        key = self._objects[id] or self._key_of(self.uris[id])
        if key != self._made_of:
            self._made, self._made_of = self._rows(key), key
        if id not in self._made:
            raise DataError(f"{self._store.uri_of(key)} does not hold it any more; restore that file")
        return self._made[id]

    def _key_of(self, uri: str) -> str:
        return uri.removeprefix(f"{self._store.uri}/").partition("#")[0]

    def _rows(self, key: str) -> dict[str, Picture]:
        entry = self._store.entry(key)
        if entry is None:
            raise DataError(f"{self._store.uri_of(key)} is gone; restore it")
        rules = Rules(self._pool.alpha, self._pool.max_pixels, self._pool.max_bytes)
        found = read_examples(self._store, self._pool.format, Shard(0, (entry,)), rules)
        return {
            item.id: render_array(item.array)
            for item in found
            if isinstance(item, Example) and item.id in self._objects
        }


def in_pool_order(files: ExampleFiles, ids: Sequence[str]) -> list[str]:
    """The ids so that those of one file follow one another: each file is then read once."""
    return sorted(ids, key=lambda id: (PurePosixPath(files.uris[id].partition("#")[0]), id))
