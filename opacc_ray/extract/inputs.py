"""Decoded examples as inputs of the model: the transform, and batches of what it gives."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract.user_code import user_code
from opacc_ray.lake.examples import Example
from opacc_ray.spec import Spec, load_function


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
        return np.asarray(transform(array), dtype=np.float32)
    except Exception as error:  # put into words here, and not for every example
        with user_code(f"transform, given example {example.id!r} of shape {array.shape} and type {array.dtype},"):
            raise error


@dataclass
class Batch:
    """Inputs of the model, all of one shape, and whose they are."""

    ids: list[str] = field(default_factory=list)
    uris: list[str] = field(default_factory=list)
    inputs: list[NDArray[np.float32]] = field(default_factory=list)
    own_ids: bool = False
    largest: int = 0  # bytes of the largest decoded example

    def add(self, example: Example, value: NDArray[np.float32]) -> None:
        if self.inputs and value.shape != self.inputs[0].shape:
            raise DataError(
                f"example {example.id!r} has shape {value.shape} and {self.ids[0]!r} {self.inputs[0].shape}; "
                "set transform to a function that makes them alike"
            )
        self.ids.append(example.id)
        self.uris.append(example.uri)
        self.inputs.append(value)
        self.own_ids = example.own_id
        if example.array.nbytes > self.largest:
            self.largest = example.array.nbytes
