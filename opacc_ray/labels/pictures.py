"""Examples as pictures that a browser shows: smaller copies of images, and arrays made visible.

Pictures are written anew, so nothing but pixels reaches an annotator: no metadata, no script, no odd format. They are
upright as EXIF says, which is how people see them everywhere else. Values of more than 8 bits are spread over the grey
levels from the smallest to the largest.
"""

import io
import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import DataError, shortened
from opacc_ray.lake.decode import FORMATS

SMALL = 256
"""Pixels of the longer side up to which a picture is kept without loss."""

THUMBNAIL, THUMBNAIL_BYTES = 800, 90_000
"""Longer side in pixels, and most bytes, of a picture inside a task: in base64 it fits a cell of Python's CSV."""


class Picture(NamedTuple):
    """A picture as a browser takes it."""

    data: bytes
    kind: str  # image/png or image/jpeg
    width: int  # in pixels, of the whole image, not of this copy of it
    height: int


def render(content: bytes, *, longest: int | None = None, max_pixels: int = 1 << 26) -> Picture:
    """Return an image file as a picture.

    Parameters
    ----------
    content : the whole file.
    longest : pixels of the longer side, at most; None: as many as there are.
    max_pixels : refuse larger images, by their header, before any pixel is decoded.

    Raises
    ------
    DataError : the bytes do not decode, or hold too many pixels.
    """
    from PIL import Image, ImageOps

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > max_pixels:
                raise DataError(
                    f"an image of {image.width} x {image.height} pixels, and pool.max_pixels is {max_pixels}"
                )
            size = image.size
            if longest:
                image.draft("RGB", (longest, longest))  # a JPEG is decoded at a fraction of its size
            upright = ImageOps.exif_transpose(image)
            if upright.size != image.size:
                size = size[::-1]
            return _encode(upright, size, longest)
    except DataError:
        raise
    except Exception as error:  # Pillow raises many kinds on damaged files
        reason = shortened(str(error), 200) or type(error).__name__
        raise DataError(f"{len(content)} bytes that do not decode as an image ({reason})") from None


def render_array(array: NDArray[Any], *, longest: int | None = None, lossless: int = SMALL) -> Picture:
    """Return (H, W) or (H, W, 1, 3 or 4), or the channel in front, as a picture; raises DataError for other shapes."""
    from PIL import Image

    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3, 4) and pixels.shape[0] in (1, 3):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim == 3 and pixels.shape[-1] == 1:
        pixels = pixels[..., 0]
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[-1] in (3, 4)):
        raise DataError(f"an array of shape {array.shape} is no picture: give annotators a link to what shows it")
    image = Image.fromarray(pixels if pixels.dtype == np.uint8 else _spread(pixels))
    return _encode(image, image.size, longest, lossless)


def thumbnail(picture: Picture) -> Picture:
    """Return a picture of at most `THUMBNAIL` pixels a side and `THUMBNAIL_BYTES` bytes."""
    small, longest = picture, THUMBNAIL
    while len(small.data) > THUMBNAIL_BYTES:
        small = render(picture.data, longest=longest, max_pixels=picture.width * picture.height)
        longest = longest * 4 // 5
    return small._replace(width=picture.width, height=picture.height)


def _encode(image: Any, size: tuple[int, int], longest: int | None, lossless: int = SMALL) -> Picture:
    plain = _plain(image)
    if longest and max(plain.size) > longest:
        plain.thumbnail((longest, longest), reducing_gap=2.0)
    small = max(plain.size) <= lossless
    sink = io.BytesIO()
    plain.save(sink, "PNG") if small else plain.save(sink, "JPEG", quality=90)
    return Picture(sink.getvalue(), "image/png" if small else "image/jpeg", *size)


def _plain(image: Any) -> Any:
    """8 bits, grey or RGB; transparent parts lie on white."""
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_spread(np.asarray(image)))
    if image.mode in ("L", "RGB"):
        return image.copy()
    if image.mode in ("1", "LA", "La", "PA", "P", "RGBA", "RGBa") or "transparency" in image.info:
        above = image.convert("RGBA")
        below = Image.new("RGBA", above.size, "white")
        return Image.alpha_composite(below, above).convert("RGB")
    return image.convert("RGB")


def _spread(values: NDArray[Any]) -> NDArray[np.uint8]:
    finite = np.nan_to_num(values.astype(np.float64))
    low, high = float(finite.min()), float(finite.max())
    return np.rint((finite - low) * (255 / (high - low) if high > low else 0)).astype(np.uint8)
