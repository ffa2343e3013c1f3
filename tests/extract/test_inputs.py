"""Batches of inputs equal NumPy's stacks, in values and memory layout."""

import numpy as np
import pytest
from numpy.typing import NDArray

from opacc_ray.errors import DataError
from opacc_ray.extract import inference
from opacc_ray.extract.inference import Batch, transformed
from opacc_ray.lake.examples import Example

RNG = np.random.default_rng(0)
PIXELS = RNG.random((8, 9, 3), dtype=np.float32)
INPUTS = {
    "rows": PIXELS,
    "grey": PIXELS[None, :, :, 0],
    "channels first": np.moveaxis(PIXELS, -1, 0),
    "one channel": np.moveaxis(PIXELS[:, :, :1], -1, 0),
    "Fortran": np.asfortranarray(PIXELS[0]),
    "every other": PIXELS[::2, ::2, 0],
    "a vector": PIXELS[0, :, 0],
    "a number": np.ones((), dtype=np.float32),
}


def example(number: int, bytes_: int = 8) -> Example:
    return Example(f"e{number}", f"s3://x/e{number}", np.zeros(bytes_, dtype=np.uint8))


@pytest.mark.parametrize("value", INPUTS.values(), ids=list(INPUTS))
@pytest.mark.parametrize("first_bytes", [1, 1 << 30], ids=["growing", "at once"])
def test_inputs_are_those_that_numpy_stacks(
    value: NDArray[np.float32], first_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "_FIRST_BYTES", first_bytes)
    batch, values = Batch(6), [value + number for number in range(5)]
    for number, own in enumerate(values):
        assert not batch.is_full
        batch.add(example(number, 10 - number), own)
    expected = np.stack([own if own.shape else np.float32(own) for own in values])
    np.testing.assert_array_equal(batch.inputs, expected)
    if value.size > 1:
        assert batch.inputs.strides == np.stack([value] * 5).strides
    assert (batch.ids[-1], batch.uris[-1], batch.largest) == ("e4", "s3://x/e4", 10)
    batch.add(example(5), value)
    assert batch.is_full


def test_an_input_of_another_shape_is_named() -> None:
    batch = Batch(4)
    batch.add(example(0), np.zeros((2, 3), np.float32))
    with pytest.raises(DataError, match=r"example 'e1' has shape \(3, 2\) and 'e0' \(2, 3\); set transform"):
        batch.add(example(1), np.zeros((3, 2), np.float32))


@pytest.mark.parametrize("error", [KeyError("mean"), SystemExit(0)])
def test_a_transform_that_raises_is_named_with_its_example(error: BaseException) -> None:
    def transform(array: NDArray[np.uint8]) -> None:
        raise error

    name = type(error).__name__
    with pytest.raises(DataError, match=rf"transform, given example 'e1' of shape \(8,\) .*, raised {name}"):
        transformed(transform, example(1))
