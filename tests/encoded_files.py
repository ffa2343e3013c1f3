"""Arrays, pictures and archives of the tests' pools, as the bytes of files."""

import io
import tarfile

import numpy as np
from PIL import Image


def npy(array: np.ndarray) -> bytes:
    """An .npy file."""
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    """An .npz archive."""
    sink = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(sink, **arrays)
    return sink.getvalue()


def image(pixels: np.ndarray, kind: str = "PNG", **options: object) -> bytes:
    """An image file."""
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, format=kind, **options)
    return sink.getvalue()


def grey(level: int) -> bytes:
    """A PNG of one grey level."""
    return image(np.full((4, 5), level, np.uint8))


def tar(*members: tuple[str, bytes]) -> bytes:
    """A tar file of named members."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as file:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return sink.getvalue()
