"""The pictures of the tests' users: 8x8 grey, picture i with its quarter i % 4 the brightest."""

import io
from functools import cache

import numpy as np
from PIL import Image


@cache
def picture(i: int) -> bytes:
    """PNG of picture i."""
    pixels = np.random.default_rng(i).integers(0, 120, (8, 8), dtype=np.uint8)
    row, column = divmod(i % 4, 2)
    pixels[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 120
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format="PNG")
    return sink.getvalue()


def pixels(i: int) -> np.ndarray:
    """The same as an array of bytes."""
    return np.asarray(Image.open(io.BytesIO(picture(i))))


def to_input(image: np.ndarray) -> np.ndarray:
    return image[None].astype(np.float32) / 255


def augmented(image: np.ndarray) -> np.ndarray:
    """A transform for training."""
    return to_input(image) + np.random.default_rng().normal(0, 0.1, to_input(image).shape).astype(np.float32)
