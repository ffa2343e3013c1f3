"""Transforms of the tests' users for the pictures of `small_pictures`: they fail at the picture 055. Without torch."""

import os
import signal
import time
from pathlib import Path

import numpy as np
from small_pictures import pixels, to_input


def channels(image: np.ndarray) -> np.ndarray:
    """(8, 8) -> (3, 8, 8), with the channels last in memory."""
    return np.moveaxis(np.stack([image] * 3, axis=-1).astype(np.float32) / 255, -1, 0)


def dying(image: np.ndarray) -> np.ndarray:
    if _is_55(image):
        os.kill(os.getpid(), signal.SIGKILL)
    return to_input(image)


def dying_once(image: np.ndarray) -> np.ndarray:
    """Its process dies unless another one has: a file in the folder of pictures says so."""
    marker = Path(os.environ["OPACC_TEST_MARKER"])
    if _is_55(image) and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return to_input(image)


def hanging(image: np.ndarray) -> np.ndarray:
    if _is_55(image):
        time.sleep(1000)
    return to_input(image)


def raising(image: np.ndarray) -> np.ndarray:
    if _is_55(image):
        raise ValueError("no 55")
    return to_input(image)


def greedy(image: np.ndarray) -> np.ndarray:
    if _is_55(image):
        raise MemoryError("no memory for 55")
    return to_input(image)


def _is_55(image: np.ndarray) -> bool:
    return np.array_equal(image, pixels(55))
