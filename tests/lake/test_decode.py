"""An image as the file holds it: every depth and colour space by its rule, and a reason for what has none."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from opacc_ray.lake.decode import ImageError, decode_image

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (6, 5), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (6, 5, 3), dtype=np.uint8)
DEEP = RNG.integers(0, 65536, (6, 5), dtype=np.uint16)


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def deep_colour_png() -> bytes:
    """2 x 1 pixels of 16 bits a channel, which Pillow can read but not write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    row = b"\0" + struct.pack(">6H", 1000, 2000, 3000, 40000, 50000, 60000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_stay_sixteen(kind: str) -> None:
    decoded = decode_image(encode(Image.fromarray(DEEP), kind))
    assert decoded.dtype == np.uint16
    assert np.array_equal(decoded, DEEP)


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP"])
@pytest.mark.parametrize("array", [GREY, COLOUR], ids=["grey", "colour"])
def test_eight_bits_are_as_they_are(array: np.ndarray, kind: str) -> None:
    decoded = decode_image(encode(Image.fromarray(array), kind))
    assert decoded.dtype == np.uint8
    assert np.array_equal(decoded, array)


def test_webp_and_gif_are_read() -> None:
    assert np.array_equal(decode_image(encode(Image.fromarray(COLOUR), "WEBP", lossless=True)), COLOUR)
    first, second = Image.fromarray(GREY), Image.fromarray(255 - GREY)
    decoded = decode_image(encode(first, "GIF", save_all=True, append_images=[second]))
    assert np.array_equal(decoded, np.repeat(GREY[..., None], 3, axis=2))  # the first frame, by its palette


def test_values_without_a_scale_keep_them() -> None:
    values = RNG.normal(size=(4, 3)).astype(np.float32)
    assert np.array_equal(decode_image(encode(Image.fromarray(values), "TIFF")), values)


def test_bits_and_palettes_become_grey_and_colour() -> None:
    bits = GREY > 128
    assert np.array_equal(decode_image(encode(Image.fromarray(bits))), bits * np.uint8(255))
    palette = Image.fromarray(COLOUR).quantize(7)
    assert np.array_equal(decode_image(encode(palette)), np.asarray(palette.convert("RGB")))


def test_cmyk_becomes_colour() -> None:
    image = Image.fromarray(COLOUR).convert("CMYK")
    assert np.array_equal(decode_image(encode(image, "TIFF")), np.asarray(image.convert("RGB")))


def test_opaque_alpha_is_dropped() -> None:
    opaque = np.dstack([COLOUR, np.full(GREY.shape, 255, np.uint8)])
    assert np.array_equal(decode_image(encode(Image.fromarray(opaque))), COLOUR)


def test_alpha_that_is_not_opaque_needs_a_rule() -> None:
    pixels = np.array([[[200, 100, 0, 255], [200, 100, 0, 0], [200, 100, 0, 51]]], dtype=np.uint8)
    content = encode(Image.fromarray(pixels))
    with pytest.raises(ImageError, match=r"alpha channel that is not opaque; set pool\.alpha to white or black"):
        decode_image(content)
    assert decode_image(content, alpha="keep").tolist() == pixels.tolist()
    assert decode_image(content, alpha="drop").tolist() == pixels[..., :3].tolist()
    assert decode_image(content, alpha="white").tolist() == [[[200, 100, 0], [255, 255, 255], [244, 224, 204]]]
    assert decode_image(content, alpha="black").tolist() == [[[200, 100, 0], [0, 0, 0], [40, 20, 0]]]


def test_transparent_colour_of_a_palette_is_alpha() -> None:
    palette = Image.fromarray(COLOUR).quantize(4)
    with pytest.raises(ImageError, match="not opaque"):
        decode_image(encode(palette, transparency=0))


def test_grey_with_alpha_stays_grey() -> None:
    pixels = np.dstack([GREY, np.full(GREY.shape, 255, np.uint8)])
    assert np.array_equal(decode_image(encode(Image.fromarray(pixels, "LA"))), GREY)


def test_deep_colour_is_refused_and_not_cut() -> None:
    with pytest.raises(ImageError, match="16 bits per channel of colour, which would be cut to 8"):
        decode_image(deep_colour_png())


def test_colour_space_without_a_rule_is_refused() -> None:
    with pytest.raises(ImageError, match="the colour mode LAB, which is not supported"):
        decode_image(encode(Image.new("LAB", (3, 3)), "TIFF"))


def test_size_is_checked_by_the_header() -> None:
    content = bytearray(encode(Image.fromarray(GREY)))
    with pytest.raises(ImageError, match=r"5 x 6 pixels, and pool\.max_pixels is 29; increase that"):
        decode_image(bytes(content), max_pixels=29)
    content[16:24] = struct.pack(">II", 13370, 13370)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    with pytest.raises(ImageError, match=r"13370 x 13370 pixels, and pool\.max_pixels"):
        decode_image(bytes(content))
    content[16:24] = struct.pack(">II", 60000, 60000)
    content[29:33] = struct.pack(">I", zlib.crc32(bytes(content[12:29])))
    with pytest.raises(ImageError, match=r"pool\.max_pixels"):
        decode_image(bytes(content))


@pytest.mark.parametrize("content", [b"", b"no image", encode(Image.fromarray(GREY))[:40], b"%PDF-1.4 " + b"x" * 90])
def test_bytes_that_are_no_image_have_a_reason(content: bytes) -> None:
    with pytest.raises(
        ImageError, match=f"^{len(content)} bytes that (are not an image in PNG|cannot be decoded as an image)"
    ):
        decode_image(content)
