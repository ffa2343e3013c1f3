"""Models of `throughput.py`, in a module of their own so that actors import them: LeNet-5's shape, and ResNet-18."""

import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn


def small(note: str | None = None) -> nn.Module:
    """(B, 1, 28, 28) -> (B, 10). ``note`` names a file for the moment at which the first batch is computed."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
    return _noting(model, note)


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


def resnet18(note: str | None = None) -> nn.Module:
    """(B, 3, H, W) -> (B, 1000); ``note`` is that of :func:`small`."""
    torch.manual_seed(0)
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (Block(*width) for width in widths)
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))
    return _noting(model, note)


def _noting(model: nn.Module, note: str | None) -> nn.Module:
    """The model, which writes the monotonic second of its first batch into a file."""
    if note is not None:

        def write(*_: object) -> None:
            Path(note).write_text(str(time.monotonic()))
            hook.remove()

        hook = model.register_forward_hook(write)
    return model


def to_input(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W[, 3]) -> (channels, H, W) in [0, 1]; both sides of the comparison call it."""
    scaled = np.divide(image, 255, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]
