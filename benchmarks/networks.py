"""ResNet-18 and its input for `gpu.py`, in a module of their own so that actors import them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


class Block(nn.Module):
    """Two convolutions and a shortcut, as in He et al., "Deep residual learning" (2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()),
            *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)),
        )
        fits = stride == 1 and before == after
        self.shortcut = nn.Identity() if fits else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """(B, 3, H, W) -> (B, 1000)."""
    torch.manual_seed(0)
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (Block(*width) for width in widths)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def to_input(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W[, 3]) -> (channels, H, W) in [0, 1]; both sides of the comparison call it."""
    scaled = np.divide(image, 255, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]
