"""Drift makers: the same data as another operation would deliver it, for studies and demos.

Each has a strength from 0, which changes nothing, to 1, and depends on a seed alone: of an image, on the seed and the
image's name, so that order and number of images do not matter. For images (H, W) or (H, W, 3) with values in [0, 1]:

    occlusion     a black square of strength · 60 % of the shorter side, at a random place
    dark          x · (1 - 0.9 · strength)
    bright        x + 0.9 · strength · (1 - x)
    contrast      0.5 + (1 - 0.9 · strength) · (x - 0.5)
    blur          Gaussian of standard deviation strength · 8 % of the shorter side
    resolution    averages of squares of up to 1 + strength · 25 % of the shorter side
    noise         + normal noise of standard deviation 0.5 · strength, clipped to [0, 1]

For labels (N,), of a pool or of training data:

    label_shift   examples drawn with replacement; the share of class c is multiplied by exp(2 · strength · z_c), z_c
                  standard normal: P(class) changes, P(input | class) does not
    class_shift   the examples without ⌊strength · (C - 1)⌋ random classes: classes disappear
    pollution     a share of the labels, ``strength``, become another random class, as in polluted training data
"""

import hashlib
import io
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from opacc_ray.documents import Document
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extensions.case_files import read_npz
from opacc_ray.lake.decode import ImageError, decode_image, encode_png
from opacc_ray.lake.pools import find_files
from opacc_ray.lake.store_uris import open_store, read_uri, write_object

Image = NDArray[np.float64]
Rng = np.random.Generator
Codes = NDArray[np.int64]
Arrays = dict[str, Any]

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif")
LARGEST_SQUARE, LARGEST_BLUR, LARGEST_BLOCK, FADED, LOUDEST, TILT = 0.6, 0.08, 0.25, 0.9, 0.5, 2.0


def occlusion(image: Image, strength: float, rng: Rng) -> Image:
    """Cover a square at a random place with black."""
    found = image.copy()
    side = round(LARGEST_SQUARE * strength * min(image.shape[:2]))
    row, column = (int(rng.integers(0, length - side + 1)) for length in image.shape[:2])
    found[row : row + side, column : column + side] = 0
    return found


def dark(image: Image, strength: float, rng: Rng) -> Image:
    """Darken."""
    return image * (1 - FADED * strength)


def bright(image: Image, strength: float, rng: Rng) -> Image:
    """Brighten."""
    return image + FADED * strength * (1 - image)


def contrast(image: Image, strength: float, rng: Rng) -> Image:
    """Fade towards mid grey."""
    return 0.5 + (1 - FADED * strength) * (image - 0.5)


def blur(image: Image, strength: float, rng: Rng) -> Image:
    """Blur with a Gaussian."""
    from scipy.ndimage import gaussian_filter

    deviation = LARGEST_BLUR * strength * min(image.shape[:2])
    return np.asarray(gaussian_filter(image, (deviation, deviation, *(0,) * (image.ndim - 2))))


def resolution(image: Image, strength: float, rng: Rng) -> Image:
    """Average squares of pixels."""
    side = 1 + round(LARGEST_BLOCK * strength * min(image.shape[:2]))
    for axis in (0, 1):
        starts = np.arange(0, image.shape[axis], side)
        sizes = np.diff(np.append(starts, image.shape[axis]))
        counts = sizes.reshape([-1 if own == axis else 1 for own in range(image.ndim)])
        image = np.repeat(np.add.reduceat(image, starts, axis=axis) / counts, sizes, axis=axis)
    return image


def noise(image: Image, strength: float, rng: Rng) -> Image:
    """Add normal noise."""
    return np.clip(image + LOUDEST * strength * rng.standard_normal(image.shape), 0, 1)


IMAGE_DRIFTS: Mapping[str, Callable[[Image, float, Rng], Image]] = {
    made.__name__: made for made in (occlusion, dark, bright, contrast, blur, resolution, noise)
}
"""Name -> drift of an image."""


def label_shift(labels: Codes, strength: float, rng: Rng) -> Codes:
    """Return the examples (N,) of a pool whose classes have other shares; some examples repeat."""
    classes, codes = np.unique(labels, return_inverse=True)
    weight = np.exp(TILT * strength * rng.standard_normal(len(classes)))[codes]
    if not strength:
        return np.arange(len(labels))
    return np.sort(rng.choice(len(labels), len(labels), p=weight / weight.sum()))


def class_shift(labels: Codes, strength: float, rng: Rng) -> Codes:
    """Return the examples of a pool from which some classes have disappeared."""
    classes = np.unique(labels)
    gone = rng.permutation(classes)[: int(strength * (len(classes) - 1))]
    return np.flatnonzero(~np.isin(labels, gone))


LABEL_DRIFTS: Mapping[str, Callable[[Codes, float, Rng], Codes]] = {
    "label_shift": label_shift,
    "class_shift": class_shift,
}
"""Name -> drift of a pool with labels: labels (N,) -> the examples that remain."""


def pollute(labels: Codes, strength: float, rng: Rng) -> Codes:
    """Return labels (N,) of which a share is another random class; raises DataError if there is only one class."""
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise DataError("all labels are of one class, so none can be another; give labels of at least two classes")
    wrong = rng.permutation(len(labels))[: round(strength * len(labels))]
    codes = codes.copy()
    codes[wrong] = (codes[wrong] + rng.integers(1, len(classes), len(wrong))) % len(classes)
    return np.asarray(classes[codes])


KINDS = (*IMAGE_DRIFTS, *LABEL_DRIFTS, "pollution")


def drift_image(pixels: NDArray[Any], kind: str, strength: float, seed: int, name: str) -> NDArray[Any]:
    """Return a drifted image of the same shape and type; whole numbers are taken as shares of their type's largest."""
    digest = hashlib.blake2b(f"{seed}:{kind}:{name}".encode(), digest_size=8).digest()
    rng, whole = np.random.default_rng(int.from_bytes(digest)), pixels.dtype.kind in "ui"
    scale = np.iinfo(pixels.dtype).max if whole else 1
    found = IMAGE_DRIFTS[kind](pixels.astype(np.float64) / scale, strength, rng) * scale
    return (np.rint(np.clip(found, 0, scale)) if whole else found).astype(pixels.dtype)


class Drifted(Document):
    """A drifted copy."""

    format: Literal["opacc-drifted/1"] = "opacc-drifted/1"
    source: str  # folder or file that was copied
    out: str  # folder or file of the copy
    kind: str  # drift
    strength: float = Field(ge=0, le=1)  # strength, from 0, no drift, to 1
    seed: int  # seed that the copy depends on
    examples: int = Field(ge=0)  # number of examples in the copy


def drift(source: str, out: str, kind: str, strength: float, seed: int = 0) -> Drifted:
    """Write a drifted copy of a folder of images, or of an .npz file with images ``x`` and labels ``label``.

    Images keep their names and become PNG files.

    Raises
    ------
    SpecError
        An unknown kind, a strength outside [0, 1], or a kind that needs labels for a folder of images.
    DataError
        A file that cannot be read, or arrays that are missing.
    """
    if kind not in KINDS:
        raise SpecError(f"there is no drift {kind!r}; give one of {', '.join(KINDS)}")
    if not 0 <= strength <= 1:
        raise SpecError(f"strength {strength:g}: give a number from 0, no drift, to 1")
    if source.endswith(".npz"):
        arrays = drift_arrays(read_arrays(source), kind, strength, seed, source)
        write_arrays(out, arrays)
        number = len(arrays["x" if kind in IMAGE_DRIFTS else "label"])
    else:
        number = _drift_folder(source, out, kind, strength, seed)
    return Drifted(source=source, out=out, kind=kind, strength=strength, seed=seed, examples=number)


def _drift_folder(source: str, out: str, kind: str, strength: float, seed: int) -> int:
    """Write a drifted copy of each image of a folder, and return their number."""
    if kind not in IMAGE_DRIFTS:
        raise SpecError(f"drift {kind} needs labels, and {source} is a folder of images; give an .npz with x and label")
    store, target = open_store(source), open_store(out)
    entries = find_files(store, SUFFIXES, "pool").entries
    for entry in entries:
        try:
            pixels = decode_image(store.read_entry(entry), alpha="drop").pixels
        except ImageError as error:
            raise DataError(f"{store.uri_of(entry.key)}: {error}") from None
        drifted = drift_image(pixels, kind, strength, seed, entry.key)
        target.write(f"{entry.key.rpartition('.')[0]}.png", encode_png(drifted))
    return len(entries)


def drift_arrays(arrays: Arrays, kind: str, strength: float, seed: int, source: str) -> Arrays:
    """Return drifted arrays; raises DataError if ``source`` lacks the one that drifts."""
    needed = "x" if kind in IMAGE_DRIFTS else "label"
    if needed not in arrays:
        raise DataError(f"{source} has no array {needed!r}, only {', '.join(arrays)}; drift {kind} needs it")
    size, rng = len(arrays[needed]), np.random.default_rng(seed)
    if kind in IMAGE_DRIFTS:
        images = [drift_image(own, kind, strength, seed, str(row)) for row, own in enumerate(arrays["x"])]
        return arrays | {"x": np.stack(images)}
    if kind == "pollution":
        return arrays | {"label": pollute(arrays["label"], strength, rng)}
    rows = LABEL_DRIFTS[kind](arrays["label"], strength, rng)
    return {key: own[rows] if own.ndim and len(own) == size else own for key, own in arrays.items()}


def read_arrays(uri: str) -> Arrays:
    """Return the arrays of an .npz file; raises DataError if it is none, or has pickled objects."""
    try:
        return dict(read_npz(read_uri(uri)))
    except (DataError, ValueError) as error:
        raise DataError(f"{uri}: {error}") from None


def write_arrays(uri: str, arrays: Arrays) -> None:
    """Write an .npz file; equal arrays give equal bytes."""
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    write_object(uri, sink.getvalue())
