"""Decoding of an image file to an array.

    file                                       array
    grey, 8 bits; 1 bit                        (H, W) uint8; a bit as 0 or 255
    grey, 16 bits                              (H, W) uint16, not scaled
    grey, 32 bits or floating point (TIFF)     (H, W) int32 or float32, not scaled
    colour, 8 bits                             (H, W, 3) uint8
    palette                                    its colours: (H, W, 3) uint8
    CMYK, YCbCr                                (H, W, 3) uint8, by Pillow's conversion
    an opaque alpha channel                    the same without it
    another alpha channel                      by the spec's ``pool.alpha``: over white or black, dropped, or kept

Refused are: colour with more than 8 bits per channel, which Pillow reads as 8; other colour spaces; and transparency,
unless the spec has a rule for it. Of an animation the first frame is read. Pixels are as the file stores them, unless
``pool.orientation`` says to apply its EXIF orientation, with which a camera held sideways says how to turn them. A TIFF
is always upright, as Pillow reads it.
"""

import io
import warnings
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opacc_ray.errors import shortened
from opacc_ray.registry import require

Alpha = Literal["refuse", "drop", "white", "black", "keep"]
Orientation = Literal["apply", "ignore"]

MAX_PIXELS = 1 << 27
"""Pixels of an image that is read; a header that announces more is an attack on the memory, or a scan to be cut."""

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
"""Decoders that Pillow may try; no other one ever reads a pool's bytes."""

_DTYPE = {"L": np.uint8, "RGB": np.uint8, "I;16": np.uint16, "I": np.int32, "F": np.float32}
_CONVERTED = {"1": "L", "CMYK": "RGB", "YCbCr": "RGB"}
_SHADE = {"white": 255, "black": 0}

_ORIENTATION = 0x0112  # the tag of EXIF


class ImageError(ValueError):
    """The bytes are not a usable image; the text is the reason."""


class DecodedImage(NamedTuple):
    """A decoded image file."""

    pixels: NDArray[Any]  # by the table above
    mode: str  # of the file, as Pillow names it: RGB, P, I;16, ...
    is_turned: bool  # whether the file states an orientation that is not upright


def _pillow() -> Any:
    """Return Pillow's module for images; an extra installs it."""
    require("an image", "PIL")
    from PIL import Image

    return Image


def decode_image(
    content: bytes, *, alpha: Alpha = "refuse", orientation: Orientation = "ignore", max_pixels: int = MAX_PIXELS
) -> DecodedImage:
    """Return an image file decoded by the table above; ``alpha`` is for a channel that is not opaque.

    Raises ImageError if the bytes are not a valid image or have no rule, or if the header has more than
    ``max_pixels``, before any pixel is decoded.
    """
    Image = _pillow()

    # Pillow warns at a size of its own, whatever max_pixels is
    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            _check_header(image, content, max_pixels)
            mode, is_png = image.mode, image.format == "PNG"
            is_turned = image.format != "TIFF" and _is_turned(image)  # Pillow itself turns a TIFF
            if is_turned and orientation == "apply":
                from PIL import ImageOps

                image = ImageOps.exif_transpose(image)
            return DecodedImage(_pixels(image, alpha, is_png), mode, is_turned)
    except ImageError:
        raise
    except Image.DecompressionBombError:
        raise ImageError(_too_large("more than 178 million pixels", max_pixels)) from None
    except Image.UnidentifiedImageError:
        raise ImageError(f"{len(content)} bytes that are not an image in {', '.join(FORMATS)}") from None
    except Exception as error:  # Pillow raises many kinds for damaged files
        reason = shortened(str(error), 200) or type(error).__name__
        raise ImageError(f"{len(content)} bytes that cannot be decoded as an image ({reason})") from None


def encode_png(pixels: NDArray[Any]) -> bytes:
    """Return an image as PNG, without loss: uint8 (height, width), or with 3 or 4 channels behind."""
    Image = _pillow()

    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG")
    return sink.getvalue()


def is_turned(content: bytes) -> bool:
    """Return whether an image file states an orientation that is not upright, by its metadata alone."""
    Image = _pillow()

    with suppress(Exception), Image.open(io.BytesIO(content), formats=FORMATS) as image:
        return _is_turned(image)
    return False


def _is_turned(image: Any) -> bool:
    """Return whether a file's metadata state an orientation that is not upright; damaged ones state nothing."""
    with suppress(Exception):
        return image.getexif().get(_ORIENTATION) in range(2, 9)
    return False


def _check_header(image: Any, content: bytes, max_pixels: int) -> None:
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(_too_large(f"{width} x {height} pixels", max_pixels))
    bits = 8  # per channel in the file; Pillow has one mode for colour of 8 and 16 bits
    if image.format == "PNG":
        bits = content[24]  # IHDR: length, type, width, height, then the depth
    elif image.format == "TIFF":
        depths = image.tag_v2.get(258, 8)
        bits = max(depths) if isinstance(depths, tuple) else int(depths)
    if bits > 8 and image.mode not in ("I;16", "I;16B", "I;16L", "I", "F"):
        raise ImageError(
            f"{bits} bits per channel of colour, which would be cut to 8; convert it to 8 bits per channel, or store "
            "the pool as npy files"
        )


def _too_large(size: str, max_pixels: int) -> str:
    return f"{size}, and at most {max_pixels} are read; cut the image, or scale it down"


def _pixels(image: Any, alpha: Alpha, is_png: bool) -> NDArray[Any]:
    if "transparency" in image.info and image.mode in ("P", "L", "RGB", "1"):
        image = image.convert("RGBA")
    elif image.mode == "P":
        image = image.convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La"):
        return without_alpha(np.asarray(image.convert("LA" if image.mode[0] == "L" else "RGBA")), alpha)
    if image.mode in _CONVERTED:
        image = image.convert(_CONVERTED[image.mode])
    mode = "I;16" if image.mode.startswith("I;16") else image.mode
    if mode not in _DTYPE:
        raise ImageError(f"the colour mode {image.mode}, which is not supported; convert it to RGB or grey")
    is_deep_grey = mode == "I" and is_png  # older versions of Pillow read 16 bits so
    return np.asarray(image).astype(np.uint16 if is_deep_grey else _DTYPE[mode], copy=False)


def without_alpha(pixels: NDArray[np.uint8], alpha: Alpha) -> NDArray[np.uint8]:
    """Convert (H, W, 2 or 4) with the alpha channel last to (H, W) or (H, W, 3), unless alpha is kept."""
    colour, opacity = pixels[..., :-1], pixels[..., -1:]
    if alpha == "keep":
        return pixels
    if alpha == "refuse" and (opacity < 255).any():
        raise ImageError(
            "an alpha channel that is not opaque; set pool.alpha to white or black (the background), drop or keep"
        )
    if alpha in _SHADE:
        share = opacity / 255
        colour = np.rint(colour * share + _SHADE[alpha] * (1 - share)).astype(np.uint8)
    return colour[..., 0] if colour.shape[-1] == 1 else np.ascontiguousarray(colour)
