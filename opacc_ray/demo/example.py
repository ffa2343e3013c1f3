"""A small real case for a first try: the answers of a network on 2,000 distorted scans of handwritten digits.

The scans are those of the demo (:mod:`opacc_ray.demo.digits`): the handwritten digits of Alpaydin and Kaynak (UCI
Machine Learning Repository, 1998, CC BY 4.0), in the form that scikit-learn distributes (BSD-3-Clause), rotated,
shifted, faded and noisy. The network is trained on clean scans of the other half of the digits. The file holds its
outputs and the true classes, not the scans. ``python -m opacc_ray.demo.example`` makes it again; another processor
changes the last digits.
"""

from importlib.resources import files
from typing import NamedTuple

import numpy as np

from opacc_ray.pool import Pool

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FILE = files("opacc_ray.demo") / "example.npz"
SIZE = 2000
SEED = 0


class Example(NamedTuple):
    """A pool, and what is not known of it in practice."""

    pool: Pool
    truth: dict[str, str]  # id → name of the true class


def load_example() -> Example:
    """Return a pool of 2,000 examples with a model's answers, and the true class of each.

    The pool has the model's prediction (a digit in words), its confidence and its last hidden layer. Take the labels of
    the chosen examples from ``truth``, a mapping of ids to class names, as a person would give them.
    """
    with FILE.open("rb") as file, np.load(file) as held:
        arrays = {name: held[name] for name in held}
    ids = [f"scan-{number:04d}" for number in range(len(arrays["prediction"]))]
    truth = dict(zip(ids, (CLASSES[label] for label in arrays.pop("truth")), strict=True))
    return Example(Pool(ids, **arrays, classes=CLASSES), truth)


def write_example() -> None:
    """Train the network, apply it to the scans and write the file."""
    from opacc_ray.demo import digits, model

    images, labels = digits.load()
    first, second = digits.halves(labels, SEED)
    network = model.digits_cnn().requires_grad_(False)
    network.load_state_dict(model.train(images[first], labels[first], SEED))
    scans, truth = digits.field_pool(images[second], labels[second], SIZE, SEED)
    hidden = network.hidden(network.features(model.to_input(scans)))  # (N, 64)
    confidence, prediction = network.head(hidden).softmax(1).max(1)  # (N,)
    np.savez_compressed(
        str(FILE),
        hidden=hidden.numpy().astype(np.float16),
        confidence=confidence.numpy(),
        prediction=prediction.numpy().astype(np.uint8),
        truth=truth.astype(np.uint8),
    )


if __name__ == "__main__":
    write_example()
