"""The decoder makes images that features determine, and its sheet has each vector above the nearest real image."""

import io

import numpy as np
import pytest
from PIL import Image

from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize.vector_pictures import as_images, draw_pictures, find_nearest, fit_decoder, sheet
from opacc_ray.lake.store_uris import open_store


def stripes(num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 6 x 9 pixels that three features tell: brightness of the left, the right and the top row."""
    hidden = np.random.default_rng(seed).random((num, 3)).astype(np.float32)
    images = np.zeros((num, 6, 9, 1), np.float32)
    images[:, :, :4, 0] = hidden[:, :1, None]
    images[:, :, 4:, 0] = hidden[:, 1:2, None]
    images[:, 0, :, 0] = hidden[:, 2:]
    return hidden, images


@pytest.mark.parametrize("dead", [0, 200])  # fewer neurons than images, and more
def test_images_that_features_determine_are_decoded(dead: int) -> None:
    (hidden, images), (others, expected) = stripes(150, 1), stripes(50, 2)
    decode = fit_decoder(np.pad(hidden * np.float32([1, 9, 0.1]), ((0, 0), (0, dead))), images)
    made = decode(np.pad(others * np.float32([1, 9, 0.1]), ((0, 0), (0, dead))))
    assert made.shape == (50, 6, 9, 1)
    assert np.sqrt(((made - expected) ** 2).mean()) < 0.15 * expected.std()


def test_a_set_is_drawn_by_class_and_the_error_is_that_of_every_tenth_image(tmp_path) -> None:
    hidden, images = stripes(200, 1)
    arrays, label = list(np.rint(255 * images[..., 0]).astype(np.uint8)), np.tile(np.arange(4), 10)
    store, rows = open_store(str(tmp_path)), np.arange(40) + 100
    found = draw_pictures(hidden, arrays, [(hidden[rows], label), (hidden[:3], label[:3])], store)
    assert [label[one].tolist() for one in found.vectors] == [[0, 0, 0, 1, 1, 2, 2, 3, 3, 3], [0, 1, 2]]
    assert (found.images, found.distance < 0.05) == (200, True)
    held, own = images[::10], images[np.arange(200) % 10 > 0]
    assert found.baseline == pytest.approx(np.sqrt(((held - own.mean(axis=0)) ** 2).mean()), rel=1e-2)
    assert found.error < 0.1 * found.baseline
    sheet = Image.open(found.file)
    assert (sheet.format, sheet.mode, sheet.size) == ("PNG", "L", (10 * (63 + 4), 4 * (42 + 4)))  # seven times as large
    noise = np.random.default_rng(3).random((200, 3)).astype(np.float32)
    blind = draw_pictures(noise, arrays, [(noise[:5], label[:5])], store)
    assert blind.error > 0.9 * blind.baseline


def test_the_nearest_real_image_and_its_distance_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    decoded, real = rng.random((5, 4, 4, 1)).astype(np.float32), rng.random((40, 4, 4, 1)).astype(np.float32)
    nearest, distance = find_nearest(decoded, real)
    pairs = np.sqrt(((decoded[:, None].astype(float) - real[None]) ** 2).mean(axis=(2, 3, 4)))
    assert nearest.tolist() == pairs.argmin(axis=1).tolist()
    assert distance == pytest.approx(pairs.min(axis=1))


def test_a_sheet_has_a_row_for_each_band_and_keeps_pixels_within_their_range() -> None:
    greys = np.random.default_rng(0).integers(1, 255, (2, 4))
    bands = [np.ones((4, 64, 32, 1), np.float32) * (row / 255)[:, None, None, None].astype(np.float32) for row in greys]
    bands[0][0], greys[0, 0] = 1.2, 255  # a decoder may leave [0, 1]
    found = np.asarray(Image.open(io.BytesIO(sheet([bands[0], bands[1][:2]]))))
    assert found.shape == (2 * 68, 4 * 36)
    assert [found[4 + 68 * k, 4 + 36 * i] for k, i in np.ndindex(2, 4)] == [*greys[0], *greys[1, :2], 255, 255]


def test_examples_become_images_of_a_limited_size() -> None:
    for shape in ((6, 9), (6, 9, 1), (6, 9, 3)):
        found = as_images([np.full(shape, 51, np.uint8)] * 50)
        assert found.shape == (50, 6, 9, 3 if shape[-1] == 3 else 1)
        assert found == pytest.approx(0.2)
    assert as_images([np.zeros((32, 128, 3), np.uint8)] * 50).shape == (50, 16, 64, 3)
    for wrong in (np.zeros((6, 9, 4), np.uint8), np.zeros((6, 9)), np.zeros(6, np.uint8), np.zeros((1,) * 4, np.uint8)):
        with pytest.raises(DataError, match="is no 8-bit image"):
            as_images([wrong])
    with pytest.raises(DataError, match=r"differ in size, such as \[\(6, 9, 1\), \(7, 9, 1\)\]"):
        as_images([np.zeros((6, 9), np.uint8), np.zeros((7, 9), np.uint8)])
    with pytest.raises(DataError, match="there are 49 images for a decoder, which needs 50"):
        as_images([np.zeros((6, 9), np.uint8)] * 49)
