"""Images of chosen examples for annotators: image files of the pool, and rows of other files as pictures.

An image is read by its key. A row of a table, an array or a tar file is read as extraction read it: with its shard,
whose chosen rows are then cached as pictures, up to `KEPT_BYTES`.

Pictures for browsers are encoded anew, so only pixels reach an annotator: no metadata, no script, no unusual format.
They are the pixels that the model was given, decoded by the pool's rules; values of more than 8 bits are scaled to the
grey levels, from the smallest to the largest. Copies show them too: a file that states an EXIF orientation, which some
viewers apply and others do not, is encoded anew. What a model saw whose stored features are audited is not known: its
image files are shown as browsers show them, upright and on white.
"""

import io
import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, StorageError, shortened
from opacc_ray.labels.label_rows import name_of_copy, quoted
from opacc_ray.lake.decode import FORMATS, MAX_PIXELS
from opacc_ray.lake.examples import Example, Plan, as_decoded, decoded, locate
from opacc_ray.lake.pools import read_chosen, read_in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.packages import require
from opacc_ray.runs.feature_store import unchanged_plan
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, rules_of

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")

KEPT_BYTES = 256 << 20  # bytes of cached pictures of rows

SMALL = 256  # most pixels of the longer side of a picture that is encoded without loss

THUMBNAIL, THUMBNAIL_BYTES = 800, 90_000
"""Most pixels a side, and most bytes, of a picture inside a task: in base64 it fits a cell of Python's CSV."""


class Picture(NamedTuple):
    """An encoded picture for a browser."""

    data: bytes
    kind: str  # image/png or image/jpeg
    width: int  # in pixels, of the original image, not of this copy
    height: int


class NoPictureError(DataError):
    """An example is no picture."""


def has_pictures(run: Run) -> bool:
    """Return whether the examples of a run are pictures.

    Rows of stored features are, if ``columns.uri`` names image files; arrays, if the first one has the shape of an
    image.
    """
    pool, rounds, found = run.spec.pool, run.rounds(), may_have_pictures(run)
    if not found or pool.holds_features or not rounds or (pool.format != "npy" and pool.columns.array is None):
        return found
    files = ExampleFiles(run, rounds[:1])
    with suppress(DataError):  # one that cannot be read may be a picture
        try:
            files.picture(next(iter(files.uris)))
        except NoPictureError:
            return False
    return True


def may_have_pictures(run: Run) -> bool:
    """Return :func:`has_pictures` without reading an example; an array may be one."""
    pool, rounds = run.spec.pool, run.rounds()
    if pool.holds_features:
        named = run.read_chosen(rounds[0]).uris if rounds and pool.columns.uri else ["none"]
        return all(uri.lower().endswith(IMAGE_SUFFIXES) for uri in named)
    return not (isinstance(pool.columns.array, list) and len(pool.columns.array) > 1)


class ExampleFiles:
    """Image files of the chosen examples of some rounds, by id; other examples cannot be read."""

    def __init__(self, run: Run, rounds: Iterable[int]) -> None:
        self._run, self._pool = run, run.spec.pool
        self._store = open_pool(self._pool)
        self._are_images = self._pool.format == "images" or self._pool.holds_features
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
        store, key = self._place(id)
        return store.link(key, seconds)

    def copy(self, id: str) -> tuple[str, bytes]:
        """Return the name and the content of a copy: the image file as the model saw it, or a picture of the row."""
        name = self.name_of_copy(id)
        if not self._are_images:
            return name, self.picture(id).data
        content = self._content(id)
        if self._pool.holds_features:
            return name, content
        found = as_decoded(content, rules_of(self._pool))
        if isinstance(found, str):
            raise DataError(f"{quoted(id)} cannot be copied: {found}")
        return name, found

    def name_of_copy(self, id: str) -> str:
        """Return the file name of a copy."""
        return name_of_copy(id, is_made=not self._are_images)

    def picture(self, id: str, longest: int | None = None) -> Picture:
        """Return the example as a picture whose longer side has at most ``longest`` pixels.

        Rows of files that are no images are never scaled. Raises DataError if the example is no picture.
        """
        try:
            if not self._are_images:
                return self._picture_of_row(id)
            content = self._content(id)
            if self._pool.holds_features:
                return render(content, longest=longest)
            found = decoded(content, rules_of(self._pool))
            if isinstance(found, str):
                raise DataError(found)
            return render_array(found.pixels, longest=longest)
        except DataError as error:
            raise type(error)(f"{quoted(id)} cannot be shown: {error}") from None

    def arrays(self, ids: Iterable[str]) -> dict[str, NDArray[Any]]:
        """Return examples as extraction decoded them, by id; raises DataError if one cannot be read any more."""
        rules, found, shards = rules_of(self._pool), dict[str, NDArray[Any]](), dict[int, list[str]]()
        for id in ids:
            shards.setdefault(self._shard_of(id), []).append(id)
        for shard, own in sorted(shards.items()):
            read = read_in_order(self._store, self._pool.format, self._plan.shards[shard], own, rules)
            found |= {item.id: item.array for item in read}
        return found

    def _shard_of(self, id: str) -> int:
        return int(np.searchsorted(self._ends, self._row[id], side="right"))

    def _content(self, id: str) -> bytes:
        try:
            store, key = self._place(id)
            if store.is_linked(key):  # it was no link when the pool was listed
                raise StorageError(f"cannot read {store.uri_of(key)}: it is a symbolic link now")
            return store.read(key)
        except StorageError as error:
            page = f"`opacc label {quote(self._run.uri)}`"
            raise StorageError(f"{error}; if it is lost, label the other examples with {page}") from None

    def _place(self, id: str) -> tuple[Store, str]:
        """Return the store and the key of an image file, which a table of stored features names by its URI."""
        return locate(self._store, self.uris[id]) if self._pool.holds_features else (self._store, id)

    def in_pool_order(self, ids: Iterable[str]) -> list[str]:
        """Return the ids in the order of the pool, so that each of its files is read once."""
        return sorted(ids, key=lambda id: self._row[id])

    def _picture_of_row(self, id: str) -> Picture:
        with self._lock:
            shard = self._shard_of(id)
            if shard not in self._kept:
                self._kept[shard] = self._read(shard)
                kept = self._kept.values()
                while len(kept) > 1 and sum(len(item.data) for shard in kept for item in shard.values()) > KEPT_BYTES:
                    self._kept.popitem(last=False)
            if id not in self._kept[shard]:
                raise DataError(f"{self._store.uri} does not have it any more; restore the file {self.uris[id]}")
            return self._kept[shard][id]

    @cached_property
    def _plan(self) -> Plan:
        return unchanged_plan(self._run)

    @cached_property
    def _ends(self) -> list[int]:
        """First row after each shard."""
        index = self._run.read_index()
        return np.cumsum([shard.examples for shard in index.shards] if index else []).tolist()

    def _read(self, shard: int) -> dict[str, Picture]:
        rules = rules_of(self._pool)
        found = read_chosen(self._store, self._pool.format, self._plan.shards[shard], self._row.keys(), rules)
        return {item.id: render_array(item.array) for item in found if isinstance(item, Example)}


def render(content: bytes, *, longest: int | None = None, max_pixels: int = MAX_PIXELS) -> Picture:
    """Render an image file as a picture whose longer side has at most ``longest`` pixels; None: no limit.

    Raises DataError if the bytes do not decode; or, before any pixel is decoded, if there are more than ``max_pixels``.
    """
    require("a picture", "PIL")
    from PIL import Image, ImageOps

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise DataError(f"an image of {image.width} x {image.height} pixels, and at most {max_pixels} are read")
            size = image.size
            if longest:
                image.draft("RGB", (longest, longest))  # decodes a JPEG at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            size = size if upright.size == image.size else size[::-1]
            return _encode(upright, size, longest)
    except DataError:
        raise
    except Exception as error:  # Pillow raises many kinds on damaged files
        reason = shortened(str(error), 200) or type(error).__name__
        raise DataError(f"{len(content)} bytes that do not decode as an image ({reason})") from None


def render_array(array: NDArray[Any], *, longest: int | None = None, lossless: int = SMALL) -> Picture:
    """Render an array as a picture: (H, W), (H, W, 1|2|3|4) or (1|3, H, W); raises DataError for other shapes."""
    require("a picture", "PIL")
    from PIL import Image

    pixels = np.asarray(array)
    channels = (1, 2, 3, 4) if pixels.dtype == np.uint8 else (1, 3, 4)  # two: grey and alpha
    if pixels.ndim == 3 and pixels.shape[-1] not in channels and pixels.shape[0] in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[-1] in channels):
        raise NoPictureError(
            f"an array of shape {array.shape} is no picture: name columns for annotators in manifest.show"
        )
    image = Image.fromarray(pixels if pixels.dtype == np.uint8 else _spread(pixels))
    return _encode(image, image.size, longest, lossless)


def thumbnail(picture: Picture) -> Picture:
    """Scale a picture down to at most `THUMBNAIL` pixels a side and `THUMBNAIL_BYTES` bytes."""
    small, longest = picture, THUMBNAIL
    while len(small.data) > THUMBNAIL_BYTES:
        small = render(picture.data, longest=longest, max_pixels=picture.width * picture.height)
        longest = longest * 4 // 5
    return small._replace(width=picture.width, height=picture.height)


def _encode(image: Any, size: tuple[int, int], longest: int | None, lossless: int = SMALL) -> Picture:
    plain = _plain(image)
    if longest and max(plain.size) > longest:
        plain.thumbnail((longest, longest), reducing_gap=2.0)
    small = max(plain.size) <= lossless
    sink = io.BytesIO()
    plain.save(sink, "PNG") if small else plain.save(sink, "JPEG", quality=90)
    return Picture(sink.getvalue(), "image/png" if small else "image/jpeg", *size)


def _plain(image: Any) -> Any:
    """Convert an image to 8 bits, grey or RGB, on a white background."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_spread(np.asarray(image)))
    if image.mode in ("L", "RGB"):
        return image.copy()
    if image.mode in ("1", "LA", "La", "PA", "P", "RGBA", "RGBa") or "transparency" in image.info:
        above = image.convert("RGBA")
        below = Image.new("RGBA", above.size, "white")
        return Image.alpha_composite(below, above).convert("RGB")
    return image.convert("RGB")


def _spread(values: NDArray[Any]) -> NDArray[np.uint8]:
    finite = np.nan_to_num(values.astype(np.float64))
    low, high = float(finite.min()), float(finite.max())
    return np.rint((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
