"""An image as the file holds it: every depth and colour space by its rule, and a reason for what has none."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from opacc_ray.lake.decode import ImageError, decode_image

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (6, 5), dtype=np.uint16)


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def decode(content: bytes, **rules: Any) -> np.ndarray:
    return decode_image(content, **rules).pixels


def oriented(kind: str, orientation: int) -> bytes:
    """A picture as a camera stores it, 6 high and 5 wide, and the orientation with it."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"lossless": True} if kind == "WEBP" else {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    return encode(Image.fromarray(COLOUR), kind, exif=exif, **options)


def deep_colour_png() -> bytes:
    """2 x 1 pixels of 16 bits a channel, which Pillow can read but not write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    row = b"\0" + struct.pack(">6H", 1000, 2000, 3000, 40000, 50000, 60000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


PALETTE, PRINT = Image.fromarray(COLOUR).quantize(7), Image.fromarray(COLOUR).convert("CMYK")
GLASS = np.dstack([COLOUR, np.full(GREY.shape, 255, np.uint8)])
REAL = RNG.normal(size=(6, 5)).astype(np.float32)
FRAMES = {"save_all": True, "append_images": [Image.fromarray(255 - GREY)]}


@pytest.mark.parametrize(
    ("image", "kind", "options", "pixels"),
    [
        *((Image.fromarray(array), kind, {}, array) for kind in ("PNG", "TIFF", "BMP") for array in (GREY, COLOUR)),
        *((Image.fromarray(DEEP), kind, {}, DEEP) for kind in ("PNG", "TIFF")),
        (Image.fromarray(COLOUR), "WEBP", {"lossless": True}, COLOUR),
        (Image.fromarray(GREY), "GIF", FRAMES, np.repeat(GREY[..., None], 3, axis=2)),  # the first frame
        (Image.fromarray(REAL), "TIFF", {}, REAL),
        (Image.fromarray(GREY > 128), "PNG", {}, (GREY > 128) * np.uint8(255)),
        (PALETTE, "PNG", {}, np.asarray(PALETTE.convert("RGB"))),
        (PRINT, "TIFF", {}, np.asarray(PRINT.convert("RGB"))),
        (Image.fromarray(GLASS), "PNG", {}, COLOUR),
        (Image.fromarray(GLASS[..., 2:], "LA"), "PNG", {}, COLOUR[..., 2]),
    ],
)
def test_each_kind_of_image_has_its_pixels(
    image: Image.Image, kind: str, options: dict[str, Any], pixels: np.ndarray
) -> None:
    decoded = decode(encode(image, kind, **options))
    assert decoded.dtype == pixels.dtype
    assert np.array_equal(decoded, pixels)


def test_alpha_that_is_not_opaque_needs_a_rule() -> None:
    pixels = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], dtype=np.uint8)
    content = encode(Image.fromarray(pixels))
    with pytest.raises(ImageError, match=r"alpha channel that is not opaque; set pool\.alpha to white or black"):
        decode(content)
    assert decode(content, alpha="keep").tolist() == pixels.tolist()
    assert decode(content, alpha="drop").tolist() == pixels[..., :3].tolist()
    assert decode(content, alpha="white").tolist() == [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]
    assert decode(content, alpha="black").tolist() == [[[200, 100, 0], [0, 0, 0], [40, 20, 0]]]


def test_deep_colour_is_refused_and_not_cut() -> None:
    with pytest.raises(ImageError, match="16 bits per channel of colour, which would be cut to 8"):
        decode(deep_colour_png())


def test_colour_space_without_a_rule_is_refused() -> None:
    with pytest.raises(ImageError, match="the colour mode LAB, which is not supported"):
        decode(encode(Image.new("LAB", (3, 3)), "TIFF"))


def test_size_is_checked_by_the_header() -> None:
    content = bytearray(encode(Image.fromarray(GREY)))
    with pytest.raises(ImageError, match=r"5 x 6 pixels, and at most 29 are read; cut the image"):
        decode(bytes(content), max_pixels=29)
    content[16:24] = struct.pack(">II", 13370, 13370)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    with pytest.raises(ImageError, match=r"13370 x 13370 pixels, and at most"):
        decode(bytes(content))
    content[16:24] = struct.pack(">II", 60000, 60000)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    with pytest.raises(ImageError, match="and at most"):
        decode(bytes(content))


@pytest.mark.parametrize("content", [b"", b"no image", encode(Image.fromarray(GREY))[:40], b"%PDF-1.4 " + b"x" * 90])
def test_bytes_that_are_no_image_have_a_reason(content: bytes) -> None:
    with pytest.raises(
        ImageError, match=f"^{len(content)} bytes that (are not an image in PNG|cannot be decoded as an image)"
    ):
        decode(content)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", [1, 3, 5, 6])
def test_the_orientation_is_ignored_or_applied_but_always_applied_to_a_tiff(kind: str, orientation: int) -> None:
    content = oriented(kind, orientation)
    stored = np.asarray(Image.open(io.BytesIO(content))) if kind == "JPEG" else COLOUR  # which JPEG changes a little
    turned = Image.fromarray(stored)
    turned.getexif()[0x0112] = orientation
    upright = np.asarray(ImageOps.exif_transpose(turned))
    ignored, applied = decode_image(content), decode_image(content, orientation="apply")
    assert np.array_equal(ignored.pixels, upright if kind == "TIFF" else stored)
    assert np.array_equal(applied.pixels, upright)
    is_stated = orientation > 1 and kind != "TIFF"
    assert (ignored.is_turned, applied.is_turned, ignored.mode) == (is_stated, is_stated, "RGB")


def test_metadata_that_are_damaged_or_state_no_orientation_turn_nothing() -> None:
    whole = oriented("JPEG", 6)
    place = whole.index(b"Exif\0\0") + 6
    for content in (whole[:place] + b"??" + whole[place + 2 :], oriented("JPEG", 9), oriented("JPEG", 0)):
        decoded = decode_image(content, orientation="apply")
        assert (decoded.pixels.shape, decoded.is_turned) == (COLOUR.shape, False)
