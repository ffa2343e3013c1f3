"""Handwritten digits: scans, the network that reads them, and its answers.

The digits are the 1,797 that scikit-learn distributes (BSD-3-Clause): E. Alpaydin, C. Kaynak, "Optical Recognition of
Handwritten Digits", UCI Machine Learning Repository, 1998, CC BY 4.0. One half trained a small network, whose weights
are in ``digits.safetensors``. ``example.npz`` has 2,000 scans of the other half, each rotated, shifted, faded and noisy
by its own amount, with the answers of the network and the true classes. ``benchmarks/train_digits.py`` makes both.

Letters: B images of a batch, N scans.
"""

from collections import OrderedDict
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.pool import Pool

if TYPE_CHECKING:
    from torch import nn

FOLDER = files("opacc_ray.extensions.demo")
WEIGHTS, EXAMPLE = FOLDER / "digits.safetensors", FOLDER / "example.npz"

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


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


def load_scans() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return the scans (N, 16, 16), white on black, and the digit that each shows (N,)."""
    with EXAMPLE.open("rb") as file, np.load(file) as held:
        return held["scans"], held["truth"]


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
        arrays = {name: held[name] for name in held if name != "scans"}
    ids = [f"scan-{number:04d}" for number in range(len(arrays["prediction"]))]
    truth = dict(zip(ids, (CLASSES[label] for label in arrays.pop("truth")), strict=True))
    return Example(Pool(ids, **arrays, classes=CLASSES), truth)
