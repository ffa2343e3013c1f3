"""Distort digits as scans in the field are, train the network of the demo, and write its two bundled files.

    python benchmarks/train_digits.py

``digits.npz`` holds the ``images`` and the ``target`` of scikit-learn's ``load_digits`` as uint8; ``digits.py`` of the
demo has their source. One half trains the network. The other half makes the pool: every scan is rotated, shifted, faded
and noisy, each by its own amount. Another processor trains slightly other weights.

Letters: B images of a batch, D digits, N scans of the pool, S = 16 pixels a side.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from scipy import ndimage
from torch import Tensor
from torch.nn import functional

from opacc_ray.extensions.demo import digits

FILE = Path(__file__).with_name("digits.npz")
SIDE = 16  # pixels a side of every image below
MARGIN = 2  # black pixels around a clean digit, so that a shifted one stays in the frame
ROTATION = 12.0  # standard deviation, degrees
SHIFT = 0.8  # standard deviation, pixels, per axis
CONTRAST = (0.4, 1.0)  # uniform; 1 keeps the full range of greys
NOISE = (0.0, 0.08)  # uniform; standard deviation per pixel, as a share of the full range

EPOCHS = 25
BATCH_SIZE = 32
LEARNING_RATE = 4e-3  # falls linearly to 0
LABEL_SMOOTHING = 0.02
MAX_ROTATION = 0.15  # radians
MAX_SHIFT = 1 / 8  # of half the image: one pixel
MIN_CONTRAST = 0.7
GRAIN = 0.03  # standard deviation of the noise


EXAMPLE_SIZE = 2000
SEED = 0

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]


def load() -> tuple[Pixels, Labels]:
    """Read the digits, enlarged from 8 x 8 to 16 x 16: images (1797, 16, 16), white on black, and labels (1797,)."""
    with np.load(FILE) as held:
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
    (N, 16, 16), and what a person would answer to each, (N,).
    """
    rng = np.random.default_rng(seed)
    source = rng.integers(len(images), size=size)
    scans = images[source] / 255.0  # (N, 16, 16) in [0, 1]
    scans = _move(scans, rng.normal(0, ROTATION, size), rng.normal(0, SHIFT, (2, size)))
    contrast = rng.uniform(*CONTRAST, size)[:, None, None]
    scans = 0.5 + contrast * (scans - 0.5)  # towards mid grey
    deviation = rng.uniform(*NOISE, size)[:, None, None]
    scans = scans + deviation * rng.standard_normal(scans.shape)
    return _to_pixels(scans), labels[source]


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


def to_input(images: NDArray[np.uint8]) -> Tensor:
    """Turn images (B, 16, 16) uint8 into the network's input (B, 1, 16, 16) float32 in [0, 1]."""
    return torch.from_numpy(images).unsqueeze(1).float() / 255


def train(images: NDArray[np.uint8], labels: NDArray[np.int64], seed: int) -> dict[str, Tensor]:
    """Train the network, in a few seconds, on images (D, 16, 16) and their labels (D,), and return its weights.

    They are the same for the same arguments. PyTorch's random state and threads are left alone.
    """
    with _reproducible(seed):
        network = digits.digits_cnn()
        inputs, targets = to_input(images), torch.from_numpy(labels)
        optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=EPOCHS)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(inputs)).split(BATCH_SIZE):
                scores = network(_jitter(inputs[batch]))
                loss = functional.cross_entropy(scores, targets[batch], label_smoothing=LABEL_SMOOTHING)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            decay.step()
        weights: dict[str, Tensor] = network.state_dict()
    return weights


def _jitter(inputs: Tensor) -> Tensor:
    """Vary (B, 1, 16, 16) images as careful scans vary: in place, angle, contrast and grain, all a little."""
    radians = torch.empty(len(inputs)).uniform_(-MAX_ROTATION, MAX_ROTATION)
    shift = torch.empty(2, len(inputs)).uniform_(-MAX_SHIFT, MAX_SHIFT)
    cos, sin = radians.cos(), radians.sin()
    affine = torch.stack([cos, -sin, shift[0], sin, cos, shift[1]], dim=1).view(-1, 2, 3)
    grid = functional.affine_grid(affine, list(inputs.shape), align_corners=False)
    moved = functional.grid_sample(inputs, grid, align_corners=False)
    contrast = torch.empty(len(inputs), 1, 1, 1).uniform_(MIN_CONTRAST, 1)
    return 0.5 + contrast * (moved - 0.5) + GRAIN * torch.randn_like(moved)


@contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Seed PyTorch and use one thread, so that sums have one order; restore both on the way out."""
    num_threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(num_threads)


def main() -> None:
    folder = Path(digits.__file__).parent
    images, labels = load()
    first, second = halves(labels, SEED)
    weights = train(images[first], labels[first], SEED)
    save_file(weights, folder / "digits.safetensors")
    network = digits.digits_cnn().requires_grad_(False)
    network.load_state_dict(weights)
    scans, truth = field_pool(images[second], labels[second], EXAMPLE_SIZE, SEED)
    hidden = network.hidden(network.features(to_input(scans)))  # (N, 64)
    confidence, prediction = network.head(hidden).softmax(1).max(1)  # (N,)
    np.savez_compressed(
        str(digits.EXAMPLE),
        hidden=hidden.numpy().astype(np.float16),
        confidence=confidence.numpy(),
        prediction=prediction.numpy().astype(np.uint8),
        truth=truth.astype(np.uint8),
        scans=scans,
    )


if __name__ == "__main__":
    main()
