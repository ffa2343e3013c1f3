"""The decoder learns images that features tell, stops when it no longer does, and its sheet names the nearest image."""

import io

import numpy as np
import pytest
from PIL import Image

from opacc_ray.datasets import decoder as decoder_module
from opacc_ray.datasets.decoder import train_decoder
from opacc_ray.errors import DataError
from opacc_ray.report.vector_pictures import Decoded, find_nearest, sheet

pytestmark = pytest.mark.usefixtures("one_thread")


def stripes(num: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 6 x 9 pixels that three features tell: brightness of the left, the right and the top row."""
    hidden = np.random.default_rng(seed).random((num, 3)).astype(np.float32)
    images = np.zeros((num, 6, 9, 1), np.float32)
    images[:, :, :4, 0] = hidden[:, :1, None]
    images[:, :, 4:, 0] = hidden[:, 1:2, None]
    images[:, 0, :, 0] = hidden[:, 2:]
    return hidden, images


@pytest.mark.slow
def test_images_that_features_tell_are_decoded_and_the_error_is_of_images_not_learned_from() -> None:
    decoder = train_decoder(*stripes(600, 1), epochs=12)
    hidden, images = stripes(50, 2)
    made = decoder.images(hidden)
    assert made.shape == (50, 6, 9, 1)
    found = float(np.sqrt(((made - images) ** 2).mean()))
    assert found == pytest.approx(decoder.error, rel=0.35)
    assert decoder.error < 0.35 * decoder.baseline


@pytest.mark.slow
def test_training_ends_when_nothing_is_learned_any_more() -> None:
    hidden, images = stripes(300, 1)
    seen: list[tuple[int, int | None]] = []
    noise = np.random.default_rng(3).random(hidden.shape).astype(np.float32)  # tells nothing of the images
    decoder = train_decoder(noise, images, epochs=200, progress=lambda *step: seen.append(step))
    assert decoder.epochs == len(seen) < 100
    assert decoder.error > 0.9 * decoder.baseline


def test_the_same_seed_gives_the_same_decoder() -> None:
    data = stripes(120, 1)
    first, again = (train_decoder(*data, epochs=2, seed=7) for _ in range(2))
    assert np.array_equal(first.images(data[0]), again.images(data[0]))


def test_errors_are_those_of_a_tenth_of_the_images_held_out() -> None:
    hidden, images = stripes(120, 1)
    found = train_decoder(hidden, images, epochs=2, seed=7)
    order = np.random.default_rng(7).permutation(120)
    held, own = images[order[:12]], images[order[12:]]
    assert found.baseline == pytest.approx(np.sqrt(((held - own.mean(axis=0)) ** 2).mean()), rel=1e-5)
    assert found.error == pytest.approx(np.sqrt(((held - found.images(hidden[order[:12]])) ** 2).mean()), rel=1e-4)


def test_training_ends_three_epochs_after_the_best_which_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([3.0, 2.0, 2.5, 2.0, 2.1, 1.0])
    monkeypatch.setattr(decoder_module, "_error", lambda *_: next(errors))
    found = train_decoder(*stripes(120, 1), epochs=6, seed=7)
    assert (found.epochs, found.error) == (5, 2.0)
    monkeypatch.undo()
    assert np.array_equal(
        found.images(stripes(9, 2)[0]), train_decoder(*stripes(120, 1), epochs=2, seed=7).images(stripes(9, 2)[0])
    )


def test_too_few_images_are_refused() -> None:
    with pytest.raises(DataError, match="there are 20 images for 20 feature vectors; give 50 or more"):
        train_decoder(*stripes(20, 1))


def test_the_nearest_real_image_and_its_distance_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    decoded, real = rng.random((5, 4, 4, 1)).astype(np.float32), rng.random((40, 4, 4, 1)).astype(np.float32)
    nearest, distance = find_nearest(decoded, real)
    pairs = np.sqrt(((decoded[:, None].astype(float) - real[None]) ** 2).mean(axis=(2, 3, 4)))
    assert nearest.tolist() == pairs.argmin(axis=1).tolist()
    assert distance == pytest.approx(pairs.min(axis=1))


def test_a_sheet_has_a_row_for_each_set() -> None:
    _, images = stripes(10, 1)
    shown = [Decoded(name, images, ["a"] * 10, images[::-1], np.zeros(10)) for name in ("0-100", "100-0")]
    one, both = (Image.open(io.BytesIO(sheet(shown[:k], 0.1))) for k in (1, 2))
    assert both.height > one.height + 2 * 84
    assert both.width == one.width
    assert np.asarray(both).std() > 10
