"""Handwritten digits, clean and as distorted scans.

``digits.npz`` holds the 1,797 digits that scikit-learn distributes (BSD-3-Clause): E. Alpaydin, C. Kaynak, "Optical
Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998, CC BY 4.0: the ``images`` and ``target`` of
its ``load_digits`` as uint8. One half trained the model. The other half makes the pool: every scan is rotated, shifted,
faded and noisy, each by its own amount.

``digits.safetensors`` has the weights of a small network, trained on clean digits of one half. ``example.npz`` is a
small real case for a first try: the answers of this network on 2,000 scans of the other half, and the true classes.
``benchmarks/train_digits.py`` makes both again.

Letters: B images of a batch, D digits, N scans of the pool, S = 16 pixels a side.
"""

from collections import OrderedDict
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from opacc_ray.errors import SpecError
from opacc_ray.pool import Pool

if TYPE_CHECKING:
    from torch import nn

FOLDER = files("opacc_ray.extensions.demo")
FILE, WEIGHTS, EXAMPLE = FOLDER / "digits.npz", FOLDER / "digits.safetensors", FOLDER / "example.npz"
SIDE = 16  # pixels a side of every image below
MARGIN = 2  # black pixels around a clean digit, so that a shifted one stays in the frame
ROTATION = 12.0  # standard deviation, degrees
SHIFT = 0.8  # standard deviation, pixels, per axis
CONTRAST = (0.4, 1.0)  # uniform; 1 keeps the full range of greys
NOISE = (0.0, 0.08)  # uniform; standard deviation per pixel, as a share of the full range

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


def load() -> tuple[Pixels, Labels]:
    """Read the digits, enlarged from 8 x 8 to 16 x 16: images (1797, 16, 16), white on black, and labels (1797,)."""
    with FILE.open("rb") as file, np.load(file) as held:
        images, labels = held["images"] / 16.0, held["labels"]  # (D, 8, 8) in [0, 1], (D,)
    zoom = (SIDE - 2 * MARGIN) / images.shape[1]
    images = ndimage.zoom(images, (1, zoom, zoom), order=3, mode="grid-constant", grid_mode=True)
    images = np.pad(images, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))  # (D, 16, 16)
    return _to_pixels(images), labels.astype(np.int64)


def halves(labels: Labels, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Split labels (D,) at random into two halves that hold every class alike: (ceil(D/2),) and (floor(D/2),).

    They are ascending positions, disjoint, together all of them; per class they differ by at most one.
    """
    shuffled = np.random.default_rng(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]  # random order inside a class
    return np.sort(by_class[0::2]), np.sort(by_class[1::2])


def field_pool(images: Pixels, labels: Labels, size: int = 6000, seed: int = 0) -> tuple[Pixels, Labels]:
    """Simulate what the field delivers: digits drawn with replacement, each distorted by its own amount.

    Of clean images (D, 16, 16) that the model was not trained on, and their labels (D,), it returns N = `size` scans,
    (N, 16, 16), and what a person would answer to each, (N,). Raises SpecError if `size` is not positive.
    """
    if size < 1:
        raise SpecError(f"the field pool has size {size}: ask for at least 1 scan")
    rng = np.random.default_rng(seed)
    source = rng.integers(len(images), size=size)
    scans = images[source] / 255.0  # (N, 16, 16) in [0, 1]
    scans = _move(scans, rng.normal(0, ROTATION, size), rng.normal(0, SHIFT, (2, size)))
    contrast = rng.uniform(*CONTRAST, size)[:, None, None]
    scans = 0.5 + contrast * (scans - 0.5)  # towards mid grey
    deviation = rng.uniform(*NOISE, size)[:, None, None]
    scans = scans + deviation * rng.standard_normal(scans.shape)
    return _to_pixels(scans), labels[source]


def key(position: int) -> str:
    """Name the object of the scan at a position in the pool, from 0; the name says nothing about the digit."""
    return f"scan-{position:05d}.png"


def _move(images: Floats, degrees: Floats, shift: Floats) -> Floats:
    """Rotate (N, S, S) images about the centre by (N,) degrees, then shift by (2, N) pixels: down, right."""
    centre = (SIDE - 1) / 2
    number, row, column = np.ogrid[: len(images), :SIDE, :SIDE]
    row = row - centre - shift[0][:, None, None]  # (N, S, 1)
    column = column - centre - shift[1][:, None, None]  # (N, 1, S)
    angle = np.radians(degrees)[:, None, None]
    source_row = np.cos(angle) * row + np.sin(angle) * column + centre  # (N, S, S)
    source_column = np.cos(angle) * column - np.sin(angle) * row + centre
    number = np.broadcast_to(number, images.shape)  # a whole number: images never blend into each other
    moved: Floats = ndimage.map_coordinates(images, (number, source_row, source_column), order=1)
    return moved


def _to_pixels(images: Floats) -> Pixels:
    """Round images in [0, 1] to 0..255; what lies outside is clipped."""
    return np.rint(255 * np.clip(images, 0, 1)).astype(np.uint8)


def digits_cnn(num_classes: int = 10) -> "nn.Module":
    """Build the network, untrained: images (B, 1, 16, 16) float32 in [0, 1] to scores (B, num_classes).

    A specification names it as ``model.factory``; the input of its last layer, ``head``, is the output of ``hidden``.
    """
    from torch import nn

    features = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 16, 8, 8)
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 32, 4, 4)
        nn.Flatten(),  # (B, 512)
    )
    hidden = nn.Sequential(nn.Linear(512, 64), nn.ReLU())  # (B, 64)
    head = nn.Linear(64, num_classes)  # (B, C)
    return nn.Sequential(OrderedDict(features=features, hidden=hidden, head=head))


CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Example(NamedTuple):
    """A pool, and what is not known of it in practice."""

    pool: Pool
    truth: dict[str, str]  # id → name of the true class


def load_example() -> Example:
    """Return a pool of 2,000 examples with a model's answers, and the true class of each.

    The pool has the model's prediction (a digit in words), its confidence and its last hidden layer. Take the labels of
    the chosen examples from ``truth``, a mapping of ids to class names, as a person would give them.
    """
    with EXAMPLE.open("rb") as file, np.load(file) as held:
        arrays = {name: held[name] for name in held}
    ids = [f"scan-{number:04d}" for number in range(len(arrays["prediction"]))]
    truth = dict(zip(ids, (CLASSES[label] for label in arrays.pop("truth")), strict=True))
    return Example(Pool(ids, **arrays, classes=CLASSES), truth)
