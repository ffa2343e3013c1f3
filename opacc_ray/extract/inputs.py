"""Decoded examples as inputs of the model: the transform, and batches of what it gives."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.inference import user_code
from opacc_ray.lake.examples import Example
from opacc_ray.spec import Spec, load_function

_FIRST_BYTES = 1 << 30
"""Bytes of inputs that a batch has room for at first, which takes no memory until they come; then it grows."""


def load_transform(spec: Spec) -> Callable[[NDArray[Any]], Any]:
    """The spec's transform, or the default one."""
    return load_function(spec.transform, "transform") if spec.transform else default_transform


def default_transform(example: NDArray[Any]) -> NDArray[np.float32]:
    """uint8 and uint16 images to [0, 1] with the channel first, (H, W[, channels]) -> (channels, H, W).

    Other types are taken as they are.
    """
    if example.dtype not in (np.uint8, np.uint16):
        return example.astype(np.float32)
    scaled = np.divide(example, np.iinfo(example.dtype).max, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]


def transformed(transform: Callable[[NDArray[Any]], Any], example: Example) -> NDArray[np.float32]:
    """The model's input of one example."""
    array = example.array
    try:
        made = transform(array)
        if made is not None:
            return np.asarray(made, dtype=np.float32)
    except (Exception, SystemExit) as error:  # put into words here, and not for every example
        with user_code(f"transform, given {_described(example)},"):
            raise error
    raise DataError(f"transform returned None, given {_described(example)}; let it return the model's input")


def _described(example: Example) -> str:
    return f"example {example.id!r} of shape {example.array.shape} and type {example.array.dtype}"


class Batch:
    """Inputs of the model, all of one shape, and whose they are; at most ``most``.

    Each input is copied to its place when it comes: by who reads, while another thread computes. To stack them later,
    that thread would wait for this one at each of them, for NumPy's copies hand over Python's lock.
    """

    def __init__(self, most: int) -> None:
        self.ids: list[str] = []
        self.uris: list[str] = []
        self.own_ids = False
        self.coming = ""  # id of the example that is made an input now, or was last
        self.largest = 0  # bytes of the largest decoded example
        self._most = most
        self._room = np.empty(0, dtype=np.float32)
        self._shape: tuple[int, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self.ids) == self._most

    @property
    def span(self) -> tuple[str, str]:
        """First and last id that it has come to."""
        return self.ids[0] if self.ids else self.coming, self.coming

    @property
    def inputs(self) -> NDArray[np.float32]:
        """(B, ...), in memory as ``np.stack`` lays them."""
        return self._room[: len(self.ids)]

    def add(self, example: Example, value: NDArray[np.float32]) -> None:
        place = len(self.ids)
        if place == len(self._room) or value.shape != self._shape:
            self._make_room(example, value)
        self._room[place] = value
        self.ids.append(example.id)
        self.uris.append(example.uri)
        if example.array.nbytes > self.largest:
            self.largest = example.array.nbytes

    def _make_room(self, example: Example, value: NDArray[np.float32]) -> None:
        """Make room for the first value, or for more of its shape; raises DataError if this one has another."""
        if not self.ids:
            num = min(self._most, _FIRST_BYTES // max(value.nbytes, 1) + 1)
            self._room, self._shape, self.own_ids = _room_for(value, num), value.shape, example.own_id
        elif value.shape != self._shape:
            raise DataError(
                f"example {example.id!r} has shape {value.shape} and {self.ids[0]!r} {self._shape}; "
                "set transform to a function that makes them alike"
            )
        else:
            more = _room_for(value, min(self._most, 2 * len(self._room)))
            more[: len(self._room)] = self._room
            self._room = more

    def release(self) -> None:
        """Forget the inputs."""
        self._room = self._room[:0].copy()


def _room_for(value: NDArray[np.float32], num: int) -> NDArray[np.float32]:
    """Room for ``num`` inputs like ``value``, with the axes in memory in the order of ``np.stack``."""
    strides = np.stack([value, value]).strides[1:]
    order = sorted(range(value.ndim), key=lambda axis: -strides[axis])
    room = np.empty((num, *(value.shape[axis] for axis in order)), dtype=np.float32)
    return room.transpose(0, *(1 + order.index(axis) for axis in range(value.ndim)))
