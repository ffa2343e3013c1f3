"""Images of feature vectors: a small decoder of transposed convolutions, trained on features and their images.

S. Mani et al. 2019, section 4.3, after A. Dosovitskiy, T. Brox, "Inverting Visual Representations with Convolutional
Networks", CVPR 2016: it maps features to their image and minimises the mean squared error of pixels.

    m features, standardised → linear → 48 maps of H/4 × W/4 → transposed convolutions ×2, ×2 → H × W × channels

A tenth of the images is held out: training ends when the error on them has not fallen for some epochs, and the best
epoch is kept. A decoder returns an image for any vector, also for one that no real image produces: a decoded vector is
an illustration, not data.

Legend: N images of H × W pixels, m neurons.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from opacc_ray.errors import DataError

Images = NDArray[np.float32]  # (n, H, W, channels) in [0, 1]

MAPS = 48, 24
"""Feature maps after the first layer and between the two transposed convolutions."""

BATCH = 64
PATIENCE = 3
"""Epochs without a lower error after which training ends."""

LEAST = 50
"""Least number of images for training."""


class Decoder(NamedTuple):
    """A trained decoder."""

    network: nn.Module
    mean: NDArray[np.float32]  # (m,)
    scale: NDArray[np.float32]  # (m,)
    error: float  # root mean squared error on the images held out
    baseline: float  # the same for the mean image as the prediction
    epochs: int

    def images(self, hidden: NDArray[np.float32]) -> Images:
        """Return the images (n, H, W, channels) of features (n, m)."""
        with torch.no_grad():
            made = self.network(torch.from_numpy((hidden - self.mean) / self.scale))
        return np.ascontiguousarray(made.permute(0, 2, 3, 1).numpy())


class _Network(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """The network from standardised features to images."""

    def __init__(self, width: int, shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.height, self.width, channels = shape
        self.low = -(-self.height // 4), -(-self.width // 4)
        self.first = nn.Linear(width, MAPS[0] * self.low[0] * self.low[1])
        self.layers = nn.Sequential(
            nn.ReLU(),
            nn.ConvTranspose2d(*MAPS, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(MAPS[1], channels, 4, stride=2, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        maps = self.first(hidden).reshape(-1, MAPS[0], *self.low)
        return self.layers(maps)[:, :, : self.height, : self.width]


def train_decoder(
    hidden: NDArray[np.float32],
    images: Images,
    *,
    epochs: int = 25,
    seed: int,
    progress: Callable[[int, int | None], None] = lambda done, total: None,
) -> Decoder:
    """Train on features (N, m) and their images (N, H, W, channels), for ``epochs`` at most.

    ``seed`` is that of the weights, the order and the images held out; ``progress`` is called with the number of epochs
    done and the maximum.

    Raises
    ------
    DataError
        Fewer images than LEAST, or a different number of features.
    """
    if len(images) < LEAST or len(images) != len(hidden):
        raise DataError(
            f"there are {len(images)} images for {len(hidden)} feature vectors; give {LEAST} or more, one per vector"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _train(hidden, images, epochs, np.random.default_rng(seed), progress)


def _train(
    hidden: NDArray[np.float32],
    images: Images,
    epochs: int,
    rng: np.random.Generator,
    progress: Callable[[int, int | None], None],
) -> Decoder:
    order = rng.permutation(len(images))
    held, own = order[: len(order) // 10], order[len(order) // 10 :]
    mean, scale = hidden[own].mean(axis=0), hidden[own].std(axis=0) + 1e-6
    inputs = torch.from_numpy(((hidden - mean) / scale).astype(np.float32))
    targets = torch.from_numpy(np.moveaxis(images, -1, 1).copy())
    network = _Network(hidden.shape[1], (images.shape[1], images.shape[2], images.shape[3]))
    optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
    best, kept, since, done = np.inf, network.state_dict(), 0, 0
    for done in range(1, epochs + 1):
        for rows in torch.from_numpy(rng.permutation(own)).split(BATCH):
            loss = nn.functional.mse_loss(network(inputs[rows]), targets[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        error = _error(network, inputs[held], targets[held])
        progress(done, epochs)
        since += 1
        if error < best:
            best, since = error, 0
            kept = {name: value.clone() for name, value in network.state_dict().items()}
        elif since == PATIENCE:
            break
    network.load_state_dict(kept)
    baseline = float(np.sqrt(((images[held] - images[own].mean(axis=0)) ** 2).mean()))
    return Decoder(network, mean.astype(np.float32), scale.astype(np.float32), best, baseline, done)


def _error(network: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the root mean squared error."""
    with torch.no_grad():
        parts = zip(inputs.split(1024), targets.split(1024), strict=True)
        squares = [float(((network(some) - target) ** 2).sum()) for some, target in parts]
    return float(np.sqrt(sum(squares) / targets.numel()))
