"""Generated vectors as pictures: decoded, each above the nearest real image and how far that is."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.characterization_documents import Pictures
from opacc_ray.audit.progress import Progress
from opacc_ray.characterize.generation import Vectors
from opacc_ray.errors import DataError
from opacc_ray.extract.source import open_pool, plan_pool, rules_of
from opacc_ray.lake.examples import Example
from opacc_ray.lake.pools import read_examples
from opacc_ray.report.generated import Made
from opacc_ray.runs.run import Run

SHEET = "contact-sheet.png"

MOST_IMAGES, LONGEST = 6000, 64
"""Images that a decoder learns from, and pixels of their longer side."""

COLUMNS, TILE, MARGIN = 10, 84, 6
"""Vectors of a row, pixels of a picture and between pictures."""


class Decoded(NamedTuple):
    """A set of vectors as pictures."""

    title: str
    images: NDArray[np.float32]  # (k, H, W, channels)
    labels: list[str]
    nearest: NDArray[np.float32]  # (k, H, W, channels) real ones
    distance: NDArray[np.float64]  # (k,) root mean squared difference of pixels


def draw_pictures(run: Run, made: Made, names: Sequence[str], seed: int = 0) -> Pictures:
    """Train a decoder on images of the run's pool, decode some vectors of each set, and write the contact sheet.

    Raises
    ------
    DataError
        The pool holds no images, or they changed since the run was made.
    """
    from opacc_ray.characterize.decoder import train_decoder

    hidden, images = read_images(run)
    with Progress("decode", "epochs") as progress:
        decoder = train_decoder(hidden, images, seed=seed, progress=progress)
    shown = []
    for own, vectors in zip(made.document.sets, made.vectors, strict=True):
        picked = _pick(vectors.label, np.random.default_rng(seed))
        decoded = decoder.images(vectors.hidden[picked])
        nearest, distance = find_nearest(decoded, images)
        title = f"{own.shares} (centroid-boundary), {own.count} vectors, accuracy {own.accuracy:.3f}"
        shown.append(Decoded(title, decoded, _captions(vectors, picked, names), images[nearest], distance))
    made.store.write(SHEET, sheet(shown, decoder.error))
    return Pictures(
        file=made.store.uri_of(SHEET),
        images=len(images),
        error=decoder.error,
        baseline=decoder.baseline,
        epochs=decoder.epochs,
        distance=float(np.median(np.concatenate([item.distance for item in shown]))),
    )


def read_images(run: Run) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Features (N, m) and images (N, H, W, channels) in [0, 1] of the first examples of a run's pool."""
    pool, there = run.spec.pool, run.read_features()
    if pool.holds_features or there is None:
        raise DataError(f"the pool of {run.uri} holds no images, which a decoder learns from; leave --pictures out")
    plan, features = plan_pool(pool, run.spec.extract), there.features
    if plan.digest != run.header.pool.digest or len(plan.shards) != len(there.index.shards):
        raise DataError(f"{pool.uri} has changed since it was listed for the run; leave --pictures out")
    store, rules = open_pool(pool), rules_of(pool)
    images: dict[str, NDArray[Any]] = {}
    ids: list[str] = []
    held = [shard for shard, own in zip(plan.shards, there.index.shards, strict=True) if own.examples]
    for part, shard in enumerate(held):
        ids += features.ids(part)
        for item in read_examples(store, pool.format, shard, rules):
            if isinstance(item, Example) and len(images) < MOST_IMAGES:
                images[item.id] = _pixels(item.array)
        if len(images) >= MOST_IMAGES:
            break
    known = [(place, images[id]) for place, id in enumerate(ids) if id in images]
    shapes = {image.shape for _, image in known}
    if len(shapes) != 1:
        raise DataError(f"the images of {pool.uri} differ in size, such as {sorted(shapes)[:2]}; leave --pictures out")
    places = np.array([place for place, _ in known], dtype=np.int64)
    return features.rows(["hidden"], places)["hidden"], np.stack([image for _, image in known])


def find_nearest(
    decoded: NDArray[np.float32], real: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each picture (k, H, W, channels) the nearest of N real ones (k,), and its distance by pixels, as RMS."""
    a, b = (images.reshape(len(images), -1) for images in (decoded, real))
    squares = (a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1)  # (k, N)
    nearest = squares.argmin(axis=1)
    return nearest, np.sqrt(((a - b[nearest]).astype(np.float64) ** 2).mean(axis=1))


def sheet(shown: Sequence[Decoded], error: float) -> bytes:
    """The PNG: for each set a row of decoded vectors, and below each the nearest real image and its distance."""
    from PIL import Image, ImageDraw

    step, block = TILE + MARGIN, 2 * TILE + 66
    canvas = Image.new("RGB", (COLUMNS * step + MARGIN + 90, 44 + block * len(shown)), "white")
    draw = ImageDraw.Draw(canvas)
    notes = (
        "Decoded vectors are illustrations, not data. d: RMS distance to the nearest real image, shown below.",
        f"Error of the decoder on images that it did not learn from: {error:.3f}. "
        "(c) near centroid, (b) near a boundary; class > what the head says.",
    )
    for line, note in enumerate(notes):
        draw.text((MARGIN, 6 + 16 * line), note, "black")
    for row, item in enumerate(shown):
        top = 44 + block * row
        draw.text((MARGIN, top), item.title, "black")
        draw.text((MARGIN, top + 18 + TILE // 2), "decoded", "black")
        draw.text((MARGIN, top + 48 + TILE + TILE // 2), "nearest real", "black")
        for column, (image, real) in enumerate(zip(item.images, item.nearest, strict=True)):
            left = 90 + column * step
            canvas.paste(_tile(image), (left, top + 16))
            draw.text((left, top + 18 + TILE), item.labels[column], "black")
            canvas.paste(_tile(real), (left, top + 32 + TILE))
            draw.text((left, top + 34 + 2 * TILE), f"d = {item.distance[column]:.3f}", "black")
    sink = io.BytesIO()
    canvas.save(sink, "PNG")
    return sink.getvalue()


def _pick(label: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int64]:
    """Some vectors at random, in the order of their classes (n,)."""
    order = rng.permutation(len(label))
    by_class = order[np.argsort(label[order], kind="stable")]
    return by_class[np.linspace(0, len(label) - 1, min(COLUMNS, len(label))).astype(int)]


def _captions(vectors: Vectors, picked: NDArray[np.int64], names: Sequence[str]) -> list[str]:
    """The class of each vector, what the head says if that is another one, and whether it is near the centroid."""
    columns = (vectors.label[picked], vectors.predicted[picked], vectors.near_centroid[picked])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    places = {True: "c", False: "b"}
    return [
        f"{names[i][:11] if i == said else f'{names[i][:5]}>{names[said][:5]}'} ({places[near]})"
        for i, said, near in rows
    ]


def _pixels(array: NDArray[Any]) -> NDArray[Any]:
    """An example as (H, W, channels) in [0, 1], no longer than LONGEST pixels on a side."""
    from PIL import Image

    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (1, 3)):
        raise DataError(f"an example of shape {array.shape} and {array.dtype} is no 8-bit image; leave --pictures out")
    pixels = array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array
    if max(pixels.shape[:2]) > LONGEST:
        image = Image.fromarray(pixels)
        image.thumbnail((LONGEST, LONGEST))
        pixels = np.asarray(image)
    scaled = pixels.astype(np.float32) / 255
    return scaled[..., None] if scaled.ndim == 2 else scaled


def _tile(image: NDArray[np.float32]) -> Any:
    from PIL import Image

    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return plain.resize((TILE, TILE), Image.Resampling.NEAREST).convert("RGB")
