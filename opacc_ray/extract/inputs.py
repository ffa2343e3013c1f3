"""What a model gets and gives: the transform of decoded examples, batches of its results, activations, its errors."""

import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, OpaccError, shortened
from opacc_ray.lake.examples import Example
from opacc_ray.spec import Spec, load_function

_FIRST_BYTES = 1 << 30  # of a batch, reserved at first, which take no memory before they are written; then it grows


def load_transform(spec: Spec) -> Callable[[NDArray[Any]], Any]:
    """Return the spec's transform, or the default one."""
    return load_function(spec.transform, "transform") if spec.transform else default_transform


def default_transform(example: NDArray[Any]) -> NDArray[np.float32]:
    """Scale uint8 and uint16 images to [0, 1] with the channel first, (H, W[, channels]) -> (channels, H, W).

    Other types are only converted to float32.
    """
    if example.dtype not in (np.uint8, np.uint16):
        return example.astype(np.float32)
    scaled = np.divide(example, np.iinfo(example.dtype).max, dtype=np.float32)
    return np.moveaxis(scaled, -1, 0) if scaled.ndim == 3 else scaled[None]


def transformed(transform: Callable[[NDArray[Any]], Any], example: Example) -> NDArray[np.float32]:
    """Return the model's input for one example."""
    array = example.array
    try:
        made = transform(array)
        if made is not None:
            return np.asarray(made, dtype=np.float32)
    except (Exception, SystemExit) as error:  # described only if it fails
        with user_code(f"transform, given {_described(example)},"):
            raise error
    raise DataError(f"transform returned None, given {_described(example)}; let it return the model's input")


def _described(example: Example) -> str:
    return f"example {example.id!r} of shape {example.array.shape} and type {example.array.dtype}"


class Batch:
    """Inputs of the model, all of one shape, with the ids of their examples; at most ``most``.

    The thread that reads copies each input to its place, while another thread computes. Stacking them later would make
    the two wait for each other at every copy, since NumPy releases Python's lock.
    """

    def __init__(self, most: int) -> None:
        self.ids: list[str] = []
        self.uris: list[str] = []
        self.sources: list[int] = []  # digests of the parts of the shard that the examples are from
        self.own_ids = False
        self.coming = ""  # id of the example that is transformed now, or was last
        self.largest = 0  # bytes of the largest decoded example
        self._most = most
        self._array = np.empty(0, dtype=np.float32)
        self._shape: tuple[int, ...] = ()

    @property
    def is_full(self) -> bool:
        return len(self.ids) == self._most

    @property
    def span(self) -> tuple[str, str]:
        """First and last id so far."""
        return self.ids[0] if self.ids else self.coming, self.coming

    @property
    def inputs(self) -> NDArray[np.float32]:
        """(B, ...), with the memory layout of ``np.stack``."""
        return self._array[: len(self.ids)]

    def add(self, example: Example, value: NDArray[np.float32], source: int = 0) -> None:
        place = len(self.ids)
        if place == len(self._array) or value.shape != self._shape:
            self._reserve(example, value)
        self._array[place] = value
        self.ids.append(example.id)
        self.uris.append(example.uri)
        self.sources.append(source)
        if example.array.nbytes > self.largest:
            self.largest = example.array.nbytes

    def _reserve(self, example: Example, value: NDArray[np.float32]) -> None:
        """Reserve memory for the first value, or for more of its shape; raises DataError for another shape."""
        if not self.ids:
            num = min(self._most, _FIRST_BYTES // max(value.nbytes, 1) + 1)
            self._array, self._shape, self.own_ids = _empty_inputs(value, num), value.shape, example.own_id
        elif value.shape != self._shape:
            raise DataError(
                f"example {example.id!r} has shape {value.shape} and {self.ids[0]!r} {self._shape}; "
                "set transform to a function that returns one shape"
            )
        else:
            more = _empty_inputs(value, min(self._most, 2 * len(self._array)))
            more[: len(self._array)] = self._array
            self._array = more

    def release(self) -> None:
        """Free the memory of the inputs."""
        self._array = self._array[:0].copy()


def _empty_inputs(value: NDArray[np.float32], num: int) -> NDArray[np.float32]:
    """Return an array for ``num`` inputs like ``value``, with the memory layout of ``np.stack``."""
    strides = np.stack([value, value]).strides[1:]
    order = sorted(range(value.ndim), key=lambda axis: -strides[axis])
    room = np.empty((num, *(value.shape[axis] for axis in order)), dtype=np.float32)
    return room.transpose(0, *(1 + order.index(axis) for axis in range(value.ndim)))


class Activations(NamedTuple):
    """Activations of a model for a batch of B examples."""

    hidden: NDArray[np.float32] | None  # (B, m); None if the model returns its output alone
    output: NDArray[np.float32]  # (B, C)
    layers: tuple[NDArray[np.float32], ...]  # (B, neurons) each; empty unless coverage is extracted


@contextmanager
def user_code(what: str, remedy: str = "") -> Iterator[None]:
    """Convert errors of the user's code in the block to DataError; errors of this package and MemoryError pass.

    ``what`` names the function and its key in the spec, such as ``model.factory 'mypkg:net'``.
    """
    try:
        yield
    except (OpaccError, MemoryError):
        raise
    except (Exception, SystemExit) as error:  # the latter would end the process with the exit code of success
        reason = shortened(str(error))
        text = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(Path(frame.filename))]
        place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        failure = DataError(f"{what} raised {text}{place}" + (f"; {remedy}" if remedy else ""))
        failure.details = "".join(traceback.format_exception(error))
        raise failure from None


def is_users(file: Path) -> bool:
    """Return whether a file is neither installed nor of this package."""
    others = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), Path(__file__).parents[1])
    return file.exists() and not any(file.resolve().is_relative_to(Path(place).resolve()) for place in others)
