"""Train the network of the demo, and write the two bundled files that depend on it.

    python benchmarks/train_digits.py

``digits.safetensors`` has the weights; ``example.npz`` the network's answers on 2,000 scans. Another processor trains
slightly other weights. Letters: B images of a batch, D training images.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from opacc_ray.extensions.demo import digits

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
    images, labels = digits.load()
    first, second = digits.halves(labels, SEED)
    weights = train(images[first], labels[first], SEED)
    save_file(weights, folder / "digits.safetensors")
    network = digits.digits_cnn().requires_grad_(False)
    network.load_state_dict(weights)
    scans, truth = digits.field_pool(images[second], labels[second], EXAMPLE_SIZE, SEED)
    hidden = network.hidden(network.features(to_input(scans)))  # (N, 64)
    confidence, prediction = network.head(hidden).softmax(1).max(1)  # (N,)
    np.savez_compressed(
        str(digits.EXAMPLE),
        hidden=hidden.numpy().astype(np.float16),
        confidence=confidence.numpy(),
        prediction=prediction.numpy().astype(np.uint8),
        truth=truth.astype(np.uint8),
    )


if __name__ == "__main__":
    main()
