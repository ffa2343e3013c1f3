"""Pictures of generated vectors: a decoder learns from features and their images, and a contact sheet shows some."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.audit.characterization_documents import GeneratedSet, Pictures
from opacc_ray.audit.progress import Progress
from opacc_ray.datasets.generation import Vectors
from opacc_ray.errors import DataError
from opacc_ray.lake.pools import read_in_order
from opacc_ray.lake.store_uris import Store
from opacc_ray.report.rest_of_network import MOST_EXAMPLES, choose_examples, stored_shards
from opacc_ray.runs.run import Run
from opacc_ray.spec import open_pool, rules_of

SHEET = "contact-sheet.png"

LONGEST = 64
"""Pixels of the longer side of images that a decoder learns from."""

COLUMNS, TILE, MARGIN = 10, 84, 6
"""Vectors of a row, pixels of a picture and between pictures."""


class Decoded(NamedTuple):
    """A set of vectors as pictures."""

    title: str
    images: NDArray[np.float32]  # (k, H, W, channels)
    labels: list[str]
    nearest: NDArray[np.float32]  # (k, H, W, channels) real ones
    distance: NDArray[np.float64]  # (k,) root mean squared difference of pixels


class Learned(NamedTuple):
    """A decoder with the images that it learned from."""

    decoder: Any  # opacc_ray.datasets.decoder.Decoder, which imports torch
    images: NDArray[np.float32]  # (N, H, W, channels) in [0, 1]


def learn_pictures(hidden: NDArray[np.float32], arrays: Sequence[NDArray[Any]], seed: int) -> Learned:
    """Train a decoder on features (N, m) and the decoded examples that they belong to.

    Raises
    ------
    DataError
        The examples are no images, or their sizes differ.
    """
    from opacc_ray.datasets.decoder import train_decoder

    images = [_pixels(array) for array in arrays]
    shapes = {image.shape for image in images}
    if len(shapes) != 1:
        raise DataError(
            f"the images of the pool differ in size, such as {sorted(shapes)[:2]}, and a decoder makes one size; leave "
            "--pictures and --suite out"
        )
    stacked = np.stack(images)
    with Progress("decode", "epochs") as progress:
        return Learned(train_decoder(hidden, stacked, seed=seed, progress=progress), stacked)


def draw_pictures(
    learned: Learned,
    sets: Sequence[tuple[GeneratedSet, Vectors]],
    names: Sequence[str],
    store: Store,
    seed: int,
) -> Pictures:
    """Decode some vectors of each set, and write a contact sheet with their nearest real images."""
    decoder, images = learned
    shown = []
    for own, vectors in sets:
        picked = _pick(vectors.label, np.random.default_rng(seed))
        decoded = decoder.images(vectors.hidden[picked])
        nearest, distance = find_nearest(decoded, images)
        title = f"{own.shares} (centroid-boundary), {own.count} vectors, accuracy {own.accuracy:.3f}"
        shown.append(Decoded(title, decoded, _captions(vectors, picked, names), images[nearest], distance))
    store.write(SHEET, sheet(shown, decoder.error))
    return Pictures(
        file=store.uri_of(SHEET),
        images=len(images),
        error=decoder.error,
        baseline=decoder.baseline,
        epochs=decoder.epochs,
        distance=float(np.median(np.concatenate([item.distance for item in shown]))),
    )


def read_images(run: Run, seed: int) -> tuple[NDArray[np.float32], list[NDArray[Any]]]:
    """Return features (N, m) and decoded examples (N) of a run's pool, chosen at random."""
    features, shards = stored_shards(run)
    pool, store = run.spec.pool, open_pool(run.spec.pool)
    index, chosen = choose_examples(features, shards, MOST_EXAMPLES, seed)
    arrays: list[NDArray[Any]] = []
    for shard, ids in chosen:
        arrays += [item.array for item in read_in_order(store, pool.format, shard, ids, rules_of(pool))]
    return features.rows(["hidden"], index)["hidden"], arrays


def find_nearest(
    decoded: NDArray[np.float32], real: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest of N real pictures for each of k, (k,), and its RMS distance by pixels."""
    a, b = (images.reshape(len(images), -1) for images in (decoded, real))
    nearest = ((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)  # of squared distances (k, N), less a² of each row
    return nearest, np.sqrt(((a - b[nearest]).astype(np.float64) ** 2).mean(axis=1))


def sheet(shown: Sequence[Decoded], error: float) -> bytes:
    """Return a PNG: for each set a row of decoded vectors, each above its nearest real image."""
    from PIL import Image, ImageDraw

    step, block = TILE + MARGIN, 2 * TILE + 66
    canvas = Image.new("RGB", (COLUMNS * step + MARGIN + 90, 44 + block * len(shown)), "white")
    draw = ImageDraw.Draw(canvas)
    notes = (
        "Decoded vectors are illustrations, not data. d: RMS distance to the nearest real image, shown below.",
        f"Error of the decoder on images that it did not learn from: {error:.3f}. "
        "(c) near centroid, (b) near a boundary; class > what the model predicts.",
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
    """Return some random vectors, in the order of their classes (n,)."""
    by_class = np.lexsort((rng.permutation(len(label)), label))
    return by_class[np.linspace(0, len(label) - 1, min(COLUMNS, len(label))).astype(int)]


def _captions(vectors: Vectors, picked: NDArray[np.int64], names: Sequence[str]) -> list[str]:
    """Return the class of each vector, a differing prediction, and its region."""
    captions = []
    for k in picked.tolist():
        own, predicted = names[vectors.label[k]], names[vectors.predicted[k]]
        text = own[:11] if vectors.label[k] == vectors.predicted[k] else f"{own[:5]}>{predicted[:5]}"
        captions.append(f"{text} ({'c' if vectors.near_centroid[k] else 'b'})")
    return captions


def _pixels(array: NDArray[Any]) -> NDArray[Any]:
    """Return an example as (H, W, channels) in [0, 1], at most LONGEST pixels on a side."""
    from PIL import Image

    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (1, 3)):
        raise DataError(
            f"an example of shape {array.shape} and {array.dtype} is no 8-bit image; leave --pictures and --suite out"
        )
    image = Image.fromarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array)
    image.thumbnail((LONGEST, LONGEST))  # does not enlarge
    scaled = np.asarray(image).astype(np.float32) / 255
    return scaled[..., None] if scaled.ndim == 2 else scaled


def _tile(image: NDArray[np.float32]) -> Any:
    from PIL import Image

    pixels = np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8)
    plain = Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return plain.resize((TILE, TILE), Image.Resampling.NEAREST).convert("RGB")
