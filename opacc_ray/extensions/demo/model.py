"""The digit classifier of the demo's team: plain PyTorch, as any user would write it.

`digits_cnn` is what a specification names as `model.factory`; the input of its last layer, `head`, is the
output of `hidden`. Letters: B images of a batch, D training images.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

EPOCHS = 25
BATCH_SIZE = 32
LEARNING_RATE = 4e-3  # falls linearly to 0
LABEL_SMOOTHING = 0.02
NUM_HIDDEN = 64
MAX_ROTATION = 0.15  # radians
MAX_SHIFT = 1 / 8  # of half the image: one pixel
MIN_CONTRAST = 0.7
GRAIN = 0.03  # standard deviation of the noise


def digits_cnn(num_classes: int = 10) -> nn.Module:
    """Build the network, untrained: images (B, 1, 16, 16) float32 in [0, 1] to scores (B, num_classes)."""
    features = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 16, 8, 8)
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),  # (B, 32, 4, 4)
        nn.Flatten(),  # (B, 512)
    )
    hidden = nn.Sequential(nn.Linear(512, NUM_HIDDEN), nn.ReLU())  # (B, 64)
    head = nn.Linear(NUM_HIDDEN, num_classes)  # (B, C)
    return nn.Sequential(OrderedDict(features=features, hidden=hidden, head=head))


def to_input(images: NDArray[np.uint8]) -> Tensor:
    """Turn images (B, 16, 16) uint8 into the network's input (B, 1, 16, 16) float32 in [0, 1]."""
    return torch.from_numpy(images).unsqueeze(1).float() / 255


def train(images: NDArray[np.uint8], labels: NDArray[np.int64], seed: int) -> dict[str, Tensor]:
    """Train the network, in a few seconds, on images (D, 16, 16) and their labels (D,), and return its weights.

    They are the same for the same arguments. PyTorch's random state and threads are left alone.
    """
    with _reproducible(seed):
        network = digits_cnn()
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


def to_bytes(state_dict: dict[str, Tensor]) -> bytes:
    """The content of a safetensors file with the weights."""
    return save(state_dict)


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
