"""Examples as pictures: upright, small enough, of pixels only, and nothing too large is decoded."""

import io

import numpy as np
import pytest
from PIL import Image

from opacc_ray.errors import DataError
from opacc_ray.labels.example_files import THUMBNAIL, THUMBNAIL_BYTES, Picture, render, render_array, thumbnail

RNG = np.random.default_rng(0)


def encoded(image: Image.Image, kind: str = "PNG", **settings: object) -> bytes:
    sink = io.BytesIO()
    image.save(sink, kind, **settings)
    return sink.getvalue()


def pixels(picture: Picture) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture.data)))


def noise(*shape: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, shape, dtype=np.uint8))


def test_an_image_is_rotated_by_its_exif_and_loses_its_metadata() -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "the secret place"  # orientation: turn right; description
    picture = render(encoded(noise(600, 900, 3), "JPEG", exif=exif), longest=450)
    assert (picture.width, picture.height) == (600, 900)
    assert pixels(picture).shape == (450, 300, 3)
    assert b"secret" not in picture.data


def test_deep_grey_is_spread_over_what_a_screen_shows() -> None:
    deep = Image.fromarray(np.array([[1000, 1100], [1200, 1255]], np.uint16))
    assert pixels(render(encoded(deep))).tolist() == [[0, 100], [200, 255]]


def test_transparent_parts_lie_on_white() -> None:
    assert pixels(render(encoded(Image.new("RGBA", (2, 2), (9, 9, 9, 0))))).tolist() == [[[255] * 3] * 2] * 2


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"])
def test_every_mode_of_a_file_is_shown(mode: str) -> None:
    image = Image.new("L", (5, 4), 77).convert("RGB").convert("CMYK") if mode == "CMYK" else Image.new(mode, (5, 4))
    assert pixels(render(encoded(image, "TIFF"))).shape[:2] == (4, 5)


def test_too_many_pixels_are_refused_before_they_are_decoded() -> None:
    with pytest.raises(DataError, match=r"5000 x 4000 pixels, and at most 1000000 are read"):
        render(encoded(Image.new("1", (5000, 4000))), max_pixels=1_000_000)


@pytest.mark.parametrize("content", [b"", b"<svg onload=alert(1)>", b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_image_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="that do not decode as an image"):
        render(content)


@pytest.mark.parametrize(
    ("shape", "shown"), [((8, 6), (8, 6)), ((8, 6, 1), (8, 6)), ((8, 6, 3), (8, 6, 3)), ((3, 8, 6), (8, 6, 3))]
)
def test_arrays_are_shown_in_either_order_of_axes(shape: tuple[int, ...], shown: tuple[int, ...]) -> None:
    for array in (RNG.integers(0, 256, shape, dtype=np.uint8), RNG.normal(size=shape).astype(np.float32)):
        assert pixels(render_array(array)).shape == shown


def test_an_array_that_is_no_picture_is_refused() -> None:
    with pytest.raises(DataError, match=r"an array of shape \(7,\) is no picture"):
        render_array(np.zeros(7))


def test_a_thumbnail_fits_a_task() -> None:
    small = thumbnail(render(encoded(noise(1500, 2000, 3), "JPEG"), longest=THUMBNAIL))
    assert len(small.data) <= THUMBNAIL_BYTES
    assert (small.width, small.height) == (2000, 1500)
