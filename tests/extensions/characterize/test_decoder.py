"""The decoder learns images that features tell, stops when it no longer does, and its sheet names the nearest image."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize import vector_pictures
from opacc_ray.extensions.characterize.generation import Vectors
from opacc_ray.extensions.characterize.vector_pictures import (
    Decoded,
    _captions,
    _pick,
    _pixels,
    find_nearest,
    learn_pictures,
    sheet,
    train_decoder,
)

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
    decoder = train_decoder(*stripes(600, 1), epochs=12, seed=0)
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
    decoder = train_decoder(noise, images, epochs=200, seed=0, progress=lambda *step: seen.append(step))
    assert decoder.epochs == len(seen) < 100
    assert decoder.error > 0.9 * decoder.baseline


@pytest.mark.slow
def test_the_same_seed_gives_the_same_decoder() -> None:
    data, made = stripes(120, 1), []
    for elsewhere in (1, 2):
        torch.manual_seed(elsewhere)
        made.append(train_decoder(*data, epochs=2, seed=7).images(data[0]))
    assert np.array_equal(*made)
    assert torch.initial_seed() == 2


@pytest.mark.slow
def test_errors_are_those_of_a_tenth_of_the_images_held_out() -> None:
    hidden, images = stripes(120, 1)
    hidden = np.column_stack([hidden * np.float32([1, 9, 0.1]), np.full(120, 5, np.float32)])  # and a dead neuron
    found = train_decoder(hidden, images, epochs=2, seed=7)
    assert found.error == pytest.approx(0.251612, rel=1e-4)  # of these layers, this rate and batches of 64
    assert found.scale[3] == pytest.approx(1e-6)
    order = np.random.default_rng(7).permutation(120)
    held, own = images[order[:12]], images[order[12:]]
    assert found.baseline == pytest.approx(np.sqrt(((held - own.mean(axis=0)) ** 2).mean()), rel=1e-5)
    assert found.error == pytest.approx(np.sqrt(((held - found.images(hidden[order[:12]])) ** 2).mean()), rel=1e-4)


def test_training_ends_three_epochs_after_the_best_which_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = iter([3.0, 2.0, 2.5, 2.0, 2.1, 1.0])
    monkeypatch.setattr(vector_pictures, "_error", lambda *_: next(errors))
    found = train_decoder(*stripes(120, 1), epochs=6, seed=7)
    assert (found.epochs, found.error) == (5, 2.0)
    monkeypatch.undo()
    assert np.array_equal(
        found.images(stripes(9, 2)[0]), train_decoder(*stripes(120, 1), epochs=2, seed=7).images(stripes(9, 2)[0])
    )


def test_the_epochs_of_pictures_are_reported_while_they_are_learned(caplog: pytest.LogCaptureFixture) -> None:
    hidden, images = stripes(60, 1)
    with caplog.at_level("INFO"):
        _, learned = learn_pictures(hidden, list(np.rint(255 * images).astype(np.uint8)), 3)
    assert "decode: 1 of 25 epochs" in caplog.text
    assert learned == pytest.approx(images, abs=0.003)


def test_too_few_images_are_refused() -> None:
    with pytest.raises(DataError, match="there are 20 images for 20 feature vectors; give 50 or more"):
        train_decoder(*stripes(20, 1), seed=0)
    with pytest.raises(DataError, match="there are 49 images for 49 feature vectors; give 50 or more, one per vector"):
        train_decoder(*stripes(49, 1), seed=0)
    with pytest.raises(DataError, match="there are 50 images for 51 feature vectors"):
        train_decoder(stripes(51, 1)[0], stripes(50, 1)[1], seed=0)
    assert train_decoder(*stripes(50, 1), epochs=1, seed=0).epochs == 1


def test_the_nearest_real_image_and_its_distance_are_those_of_all_pairs() -> None:
    rng = np.random.default_rng(0)
    decoded, real = rng.random((5, 4, 4, 1)).astype(np.float32), rng.random((40, 4, 4, 1)).astype(np.float32)
    nearest, distance = find_nearest(decoded, real)
    pairs = np.sqrt(((decoded[:, None].astype(float) - real[None]) ** 2).mean(axis=(2, 3, 4)))
    assert nearest.tolist() == pairs.argmin(axis=1).tolist()
    assert distance == pytest.approx(pairs.min(axis=1))


def test_a_sheet_shows_each_vector_above_its_nearest_image_in_a_row_for_each_set() -> None:
    """Pictures of 84 pixels a side, each plainly grey; a decoder may leave [0, 1]."""
    greys = np.random.default_rng(0).integers(1, 255, (2, 2, 10))
    images = np.ones((2, 2, 10, 6, 7, 1), np.float32) * (greys / 255)[..., None, None, None].astype(np.float32)
    images[0, 0, 0], greys[0, 0, 0] = 1.2, 255
    shown = [Decoded(f"set {k}", images[k, 0], [*"abcdefghij"], images[k, 1], np.arange(10) / 9) for k in range(2)]
    found = Image.open(io.BytesIO(sheet(shown, 0.125)))
    assert (found.format, found.mode, found.size) == ("PNG", "RGB", (996, 512))
    for (k, kind, i), grey in np.ndenumerate(greys):
        left, top = 90 + 90 * i, 44 + 234 * k + (16 if kind == 0 else 116)
        tile = np.asarray(found)[top : top + 84, left : left + 84]
        assert (tile == grey).all()


def test_pictures_of_a_set_are_of_all_classes_with_what_is_predicted_and_the_region() -> None:
    label = np.repeat(np.arange(4), 10)
    picked = _pick(label, np.random.default_rng(0))
    assert len(set(picked.tolist())) == 10
    assert np.array_equal(label[picked], np.sort(label[picked]))
    assert set(label[picked]) == {0, 1, 2, 3}
    assert picked.tolist() != _pick(label, np.random.default_rng(1)).tolist()
    assert sorted(_pick(label[:3], np.random.default_rng(0)).tolist()) == [0, 1, 2]
    names = ["a" * 20, "second", "third", "fourth"]
    numbers = np.zeros(40)
    made = Vectors(
        numbers, label, label != 1, numbers, numbers, numbers, np.where(label == 2, 1, label), numbers, numbers
    )
    assert _captions(made, np.array([0, 10, 20]), names) == ["aaaaaaaaaaa (c)", "second (b)", "third>secon (c)"]


def test_examples_become_images_of_a_limited_size() -> None:
    for shape in ((6, 9), (6, 9, 1), (6, 9, 3)):
        array = np.full(shape, 51, np.uint8)
        found = _pixels(array)
        assert found.shape == (6, 9, 3 if shape[-1] == 3 else 1)
        assert found == pytest.approx(0.2)
    assert _pixels(np.zeros((64, 20), np.uint8)).shape == (64, 20, 1)
    assert _pixels(np.zeros((32, 128, 3), np.uint8)).shape == (16, 64, 3)
    for wrong in (
        np.zeros((6, 9, 4), np.uint8),
        np.zeros((6, 9)),
        np.zeros(6, np.uint8),
        np.zeros((1, 1, 6, 9), np.uint8),
    ):
        with pytest.raises(DataError, match=r"is no 8-bit image; leave --pictures out"):
            _pixels(wrong)
    with pytest.raises(DataError, match=r"the images of the pool differ in size, such as \[\(6, 9, 1\), \(7, 9, 1\)\]"):
        learn_pictures(np.zeros((2, 3), np.float32), [np.zeros((6, 9), np.uint8), np.zeros((7, 9), np.uint8)], 0)
