"""Pictures of generated vectors: a linear decoder from features to images, and a contact sheet of some vectors.

The decoder is ridge regression of the pixels Y on the standardised features X of N examples, in its dual form:

    image(x) = mean image + (1/m) x Xᵀ (XXᵀ/m + λI)⁻¹ (Y - mean image)

Every tenth example is held out to measure its error. It returns an image for any vector, also for one that no real
image produces: a decoded vector is an illustration, not data.

Deviation: S. Mani et al. 2019, section 4.3, train a network of transposed convolutions, whose images are sharper. Both
minimise the mean squared error of pixels.

Legend: N images of H × W pixels, m neurons, λ ridge.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.linalg import solve

from opacc_ray.documents import Part
from opacc_ray.errors import DataError
from opacc_ray.lake.decode import encode_png
from opacc_ray.lake.store_uris import Store

Images = NDArray[np.float32]  # (n, H, W, channels) in [0, 1]
Features = NDArray[np.float32]  # (n, m)

RIDGE = 0.1
"""λ: the variance of a pixel that features do not explain, as a share of what they do."""

LEAST = 50
"""Least number of images for a decoder."""

SHEET = "contact-sheet.png"

LONGEST, COLUMNS, MARGIN = 64, 10, 4
"""Pixels of the longer side of images, vectors of a row, and pixels between pictures."""


class Pictures(Part):
    """Decoded vectors, and the accuracy of the decoder."""

    # URI of the contact sheet, PNG: two rows for each set, of decoded vectors and below them the nearest real images
    file: str
    vectors: list[list[int]]  # the vectors of each row: their numbers in the file of the set
    images: int = Field(ge=1)  # images that the decoder is fitted to, or that measure its error
    error: float = Field(ge=0)  # root mean squared error of images it is not fitted to; pixels in [0, 1]
    baseline: float = Field(ge=0)  # the same if each is taken for the mean image
    distance: float = Field(ge=0)  # median distance of a decoded vector from its nearest real image, as RMS


def draw_pictures(
    hidden: Features, arrays: Sequence[NDArray[Any]], sets: Sequence[tuple[Features, NDArray[np.int64]]], store: Store
) -> Pictures:
    """Decode some vectors of each set, and write a contact sheet with their nearest real images.

    Parameters
    ----------
    hidden, arrays : features (N, m) and the decoded examples that they belong to
    sets : vectors (n, m), and the class of each, (n,)
    store : where the sheet is written

    Raises
    ------
    DataError
        The examples are no images, their sizes differ, or there are fewer than LEAST.
    """
    images = as_images(arrays)
    held = np.arange(len(images)) % 10 == 0
    decode = fit_decoder(hidden[~held], images[~held])
    bands, shown, distances = list[Images](), list[list[int]](), list[NDArray[np.float64]]()
    for vectors, label in sets:
        picked = np.argsort(label, kind="stable")[np.linspace(0, len(label) - 1, min(COLUMNS, len(label))).astype(int)]
        decoded = decode(vectors[picked])
        nearest, distance = find_nearest(decoded, images)
        bands += [decoded, images[nearest]]
        shown.append(picked.tolist())
        distances.append(distance)
    store.write(SHEET, sheet(bands))
    return Pictures(
        file=store.uri_of(SHEET),
        vectors=shown,
        images=len(images),
        error=float(np.sqrt(((decode(hidden[held]) - images[held]) ** 2).mean())),
        baseline=float(np.sqrt(((images[~held].mean(axis=0) - images[held]) ** 2).mean())),
        distance=float(np.median(np.concatenate(distances))),
    )


def fit_decoder(hidden: Features, images: Images) -> Callable[[Features], Images]:
    """Return the decoder that is fitted to features (N, m) and their images: features (n, m) -> images (n, ...)."""
    mean, scale, middle = hidden.mean(axis=0), hidden.std(axis=0) + 1e-6, images.mean(axis=0)
    known = (hidden - mean) / scale / np.sqrt(hidden.shape[1])  # (N, m)
    gram = known @ known.T + RIDGE * np.eye(len(known), dtype=np.float32)  # (N, N)
    weight = solve(gram, (images - middle).reshape(len(images), -1), assume_a="pos")  # (N, pixels)

    def decode(vectors: Features) -> Images:
        similar = (vectors - mean) / scale / np.sqrt(vectors.shape[1]) @ known.T  # (n, N)
        return np.asarray(middle + (similar @ weight).reshape(-1, *middle.shape), dtype=np.float32)

    return decode


def find_nearest(decoded: Images, real: Images) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the nearest of N real pictures for each of k, (k,), and its RMS distance by pixels."""
    a, b = (images.reshape(len(images), -1) for images in (decoded, real))
    nearest = ((b**2).sum(axis=1) - 2 * a @ b.T).argmin(axis=1)  # of squared distances (k, N), less a² of each row
    return nearest, np.sqrt(((a - b[nearest]).astype(np.float64) ** 2).mean(axis=1))


def sheet(bands: Sequence[Images]) -> bytes:
    """Return a PNG with each band of images as a row, small images enlarged."""
    times = max(1, LONGEST // max(bands[0].shape[1:3]))
    rows = [np.hstack([_framed(image.repeat(times, axis=0).repeat(times, axis=1)) for image in band]) for band in bands]
    widest = max(row.shape[1] for row in rows)
    filled = [np.pad(row, ((0, 0), (0, widest - row.shape[1]), (0, 0)), constant_values=1) for row in rows]
    pixels = np.rint(255 * np.clip(np.vstack(filled), 0, 1)).astype(np.uint8)
    return encode_png(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def _framed(image: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.pad(image, ((MARGIN, 0), (MARGIN, 0), (0, 0)), constant_values=1)


def as_images(arrays: Sequence[NDArray[Any]]) -> Images:
    """Return examples as images of one size, at most LONGEST pixels on a side; raises DataError if they are none."""
    from PIL import Image

    images = []
    for array in arrays:
        if array.dtype != np.uint8 or array.ndim not in (2, 3) or array.shape[2:] not in ((), (1,), (3,)):
            shape = f"of shape {array.shape} and {array.dtype}"
            raise DataError(f"an example {shape} is no 8-bit image; leave --pictures out")
        image = Image.fromarray(array[..., 0] if array.shape[2:] == (1,) else array)
        image.thumbnail((LONGEST, LONGEST))  # does not enlarge
        images.append(np.atleast_3d(np.asarray(image)).astype(np.float32) / 255)
    shapes = sorted({image.shape for image in images})
    if len(shapes) > 1:
        raise DataError(
            f"the images of the pool differ in size, such as {shapes[:2]}, and a decoder makes one size; leave "
            "--pictures out"
        )
    if len(images) < LEAST:
        raise DataError(f"there are {len(images)} images for a decoder, which needs {LEAST}; leave --pictures out")
    return np.stack(images)
