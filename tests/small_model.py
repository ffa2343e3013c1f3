"""The model of the tests' users, for the pictures of `small_pictures`."""

import math
import os
import time
import weakref
from pathlib import Path

import numpy as np
import torch
from small_pictures import pixels, to_input


class Net(torch.nn.Module):
    """(B, 1, 8, 8) -> (B, 4); the last hidden layer has 6 neurons."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 6)
        self.last = torch.nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x.flatten(1))))


def network() -> Net:
    torch.manual_seed(0)
    return Net()


def trained() -> Net:
    """Predicts the brightest quarter: class i % 4 for picture i."""
    torch.manual_seed(5)
    net = Net()
    quarters = torch.zeros(4, 8, 8)
    for number, (row, column) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
        quarters[number, row : row + 4, column : column + 4] = 1 / 4
    with torch.no_grad():
        net.first.weight[:4] = quarters.flatten(1)
        net.first.bias += 0.5
        net.last.weight[:] = 0
        net.last.weight[:, :4] = torch.eye(4)
        net.last.bias[:] = 0
    return net


def value_network() -> Net:
    """A regression: the same with one output."""
    net = network()
    net.last = torch.nn.Linear(6, 1)
    return net


def noted_network(folder: str, seconds: float = 5) -> Net:  # by default until all actors have started
    """The same, but every process that runs it leaves a file of its number, and takes its time."""
    net = network()

    def note(*_: object) -> None:
        Path(folder, str(os.getpid())).touch()
        time.sleep(seconds)

    net.register_forward_pre_hook(note)
    return net


def faster_in_half(seconds: float) -> Net:
    """The same, but it takes some seconds more in float32, or in bfloat16 if they are negative; NaN: it fails there."""
    net = network()

    def wait(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        is_half = inputs[0].dtype == torch.bfloat16
        if is_half and math.isnan(seconds):
            raise RuntimeError("not implemented for 'BFloat16'")
        time.sleep(max(0.01, -seconds if is_half else seconds))

    net.register_forward_pre_hook(wait)
    return net


def spoiled_network(folder: str, times: int) -> Net:
    """The same, but at the picture 055 it finds no memory: the first ``times`` times over all processes."""
    net = network()
    poison = to_input(pixels(55))

    def spoil(_: torch.nn.Module, inputs: tuple[torch.Tensor]) -> None:
        if any(np.array_equal(item.numpy(), poison) for item in inputs[0]) and len(os.listdir(folder)) < times:
            Path(folder, str(time.time_ns())).touch()
            torch.empty(1 << 60)

    net.register_forward_pre_hook(spoil)
    return net


def memory_used() -> int:
    """Bytes of this machine, or of this container, as Ray's monitor of memory counts them."""
    from ray._private import utils

    return int(utils.get_used_memory())


def greedy_network(folder: str, limit: int) -> Net:
    """The same, but one worker that loads it, and one that runs it, fills the memory above `limit` until it is killed.

    It goes a GB beyond the limit, and gives up after a quarter of an hour.
    """
    import ray

    def take(when: str) -> None:
        if ray.is_initialized() and not Path(folder, when).exists():
            Path(folder, when).touch()
            held, end = [], time.monotonic() + 900
            while time.monotonic() < end:
                if memory_used() < limit + (1 << 30):
                    held.append(np.ones(250 << 20, dtype=np.uint8))
                time.sleep(0.05)

    take("load")
    net = network()
    net.register_forward_pre_hook(lambda *_: take("run"))
    return net


def broken_network() -> Net:
    """The same, but it answers picture 033 with NaN."""
    net = network()
    bad = to_input(pixels(33))

    def spoil(_: torch.nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> torch.Tensor:
        hit = torch.tensor([np.array_equal(item.numpy(), bad) for item in inputs[0]])
        return torch.where(hit[:, None], torch.nan, output)

    net.register_forward_hook(spoil)
    return net


HELD: list[int] = []
"""By call of `shrink`: how many of the images that it was given are in memory."""

_given: list[weakref.ref[np.ndarray]] = []


def shrink(image: np.ndarray) -> np.ndarray:
    """8 x 8 of an image of any size."""
    _given.append(weakref.ref(image))
    HELD.append(sum(other() is not None for other in _given))
    return to_input(image[:8, :8]).copy()


def fit(image: np.ndarray) -> np.ndarray:
    """8 x 8 of an image of any size, repeated where it is smaller."""
    return to_input(np.resize(image[:8, :8], (8, 8)))


class Dropping(Net):
    """Forgets to be evaluated: its dropout stays on."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return super().forward(torch.nn.functional.dropout(batch, 0.5, training=True))


def dropping() -> Net:
    torch.manual_seed(0)
    return Dropping()
