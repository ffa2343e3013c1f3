"""ResNet-18, a model of the size of ViT-B/16, and their input for `gpu.py`, in a module that actors import."""

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


class Layer(nn.Module):
    """Attention and a perceptron, as in Dosovitskiy et al., "An image is worth 16x16 words" (2021)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(self.before(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # (3, B, heads, T, d)
        found = nn.functional.scaled_dot_product_attention(*mixed)
        x = x + self.join(found.transpose(1, 2).flatten(2))
        return x + self.perceptron(self.between(x))


class Transformer(nn.Module):
    """(B, 3, H, W) -> (B, 1000), by patches of 16×16."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, patches: int = 196) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.places = nn.Parameter(torch.randn(1, patches, width) / 50)
        self.layers = nn.Sequential(*(Layer(width, heads) for _ in range(layers)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.patches(x).flatten(2).transpose(1, 2) + self.places).mean(1))


def vit() -> nn.Module:
    """Return a model of 86 million parameters, as ViT-B/16 has for 224×224."""
    return Transformer()


def to_input(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """(H, W[, 3]) -> (channels, H, W) in [0, 1]; both sides of the comparison call it."""
    scaled = np.divide(image, 255, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]
