"""Networks (B, 1, 8, 8) -> (B, 4) that are cut at a layer."""

from typing import Any

import torch
from small_pictures import pixels, to_input
from torch import nn


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 2, 2), nn.Conv2d(2, 3, 2)
        self.idle, self.middle, self.last = nn.Linear(5, 5), nn.Linear(108, 5), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        maps = self.second(torch.relu(self.first(x)))
        return self.last(torch.tanh(self.middle(torch.relu_(maps).flatten(1))))


class Residual(nn.Module):
    """The input of the block goes around its middle."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Identity()
        self.middle, self.last = nn.Linear(64, 64), nn.Linear(64, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        return self.last(self.block(flat + torch.tanh(self.middle(flat))))


class Random(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 5), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(nn.functional.dropout(self.first(x.flatten(1)), 0.5, training=True))


class Deep(nn.Module):
    """Three layers in the reverse order of their definition."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.middle, self.first = nn.Linear(5, 4), nn.Linear(6, 5), nn.Linear(64, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.middle(torch.relu(self.first(x.flatten(1))))))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.last = nn.GRU(8, 5, batch_first=True), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.recurrent(x[:, 0])[0][:, -1])


def _seeded(kind: Any) -> Any:
    torch.manual_seed(0)
    return kind()


def convolutional() -> Any:
    """Predicts each class for some of the tests' pictures; some maps of the second convolution are below 0."""
    net = _seeded(Convolutional)
    pictures = torch.stack([torch.from_numpy(to_input(pixels(i))) for i in range(40)])
    with torch.no_grad():
        net.second.bias -= net.second(torch.relu(net.first(pictures))).mean(dim=(0, 2, 3))
        flat = torch.relu(net.second(torch.relu(net.first(pictures)))).flatten(1)
        net.middle.bias -= net.middle(flat).mean(dim=0)
        net.middle.weight *= 20
        net.middle.bias *= 20
        net.last.bias -= net(pictures).mean(dim=0)
        net.last.weight *= 3
        net.last.bias *= 3
    return net


def residual() -> Any:
    return _seeded(Residual)


def random() -> Any:
    return _seeded(Random)


def deep() -> Any:
    return _seeded(Deep)


def recurrent() -> Any:
    return _seeded(Recurrent)


def answer(batch: Any) -> Any:
    """A model that is no torch module."""
    flat = batch.reshape(len(batch), -1)
    return flat[:, 4:], flat[:, :4]  # the hidden layer and the output
