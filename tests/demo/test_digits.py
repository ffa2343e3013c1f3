"""The demo's digits and the model trained on them."""

import io

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from opacc_ray.demo import digits, model
from opacc_ray.errors import SpecError
from opacc_ray.lake.decode import encode_png

SEED = 7


@pytest.fixture(scope="module")
def clean():
    return digits.load()


@pytest.fixture(scope="module")
def trained(clean):
    """The network with the weights the demo would use, and the half it has not seen."""
    images, labels = clean
    first, second = digits.halves(labels, SEED)
    network = model.digits_cnn()
    network.load_state_dict(model.train(images[first], labels[first], SEED))
    return network, images[second], labels[second]


def confidence_and_prediction(network, images):
    with torch.no_grad():
        confidence, prediction = network(model.to_input(images)).softmax(1).max(1)
    return confidence.numpy(), prediction.numpy()


def test_clean_digits_are_16_by_16_and_use_the_full_range(clean):
    images, labels = clean
    assert images.shape == (1797, 16, 16)
    assert images.dtype == np.uint8
    assert (images.min(), images.max()) == (0, 255)
    assert labels.dtype == np.int64
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_halves_are_a_seeded_stratified_partition(clean):
    _, labels = clean
    first, second = digits.halves(labels, SEED)
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(labels)))
    assert abs(np.bincount(labels[first]) - np.bincount(labels[second])).max() <= 1
    assert np.array_equal(first, digits.halves(labels, SEED)[0])
    assert not np.array_equal(first, digits.halves(labels, SEED + 1)[0])


def test_field_pool_depends_on_the_seed_alone(clean):
    scans, truth = digits.field_pool(*clean, seed=SEED)
    assert scans.shape == (6000, 16, 16)
    assert scans.dtype == np.uint8
    assert truth.shape == (6000,)
    assert truth.dtype == np.int64
    again, truth_again = digits.field_pool(*clean, seed=SEED)
    assert np.array_equal(scans, again)
    assert np.array_equal(truth, truth_again)
    assert not np.array_equal(scans, digits.field_pool(*clean, seed=SEED + 1)[0])


def test_field_pool_refuses_an_empty_size(clean):
    with pytest.raises(SpecError, match="size 0"):
        digits.field_pool(*clean, size=0)


def test_contrast_and_noise_differ_from_scan_to_scan(clean):
    scans, _ = digits.field_pool(*clean, size=500, seed=SEED)
    background = scans[:, :2, :2].reshape(500, -1).astype(float)
    assert np.ptp(background.mean(axis=1)) > 50
    assert np.ptp(background.std(axis=1)) > 10


def test_moving_follows_the_pixels_of_each_image():
    images = np.random.default_rng(SEED).random((3, 16, 16))
    moved = digits._move(images, np.array([0.0, 0.0, 180.0]), np.array([[0.0, 1.0, 0.0], [0.0, 2.0, 0.0]]))
    assert np.allclose(moved[0], images[0])
    assert np.allclose(moved[1, 1:, 2:], images[1, :-1, :-2])
    assert np.allclose(moved[1, 0], 0)
    # at half a turn, rounding may put the outermost pixels a hair outside the frame
    assert np.allclose(moved[2, 1:-1, 1:-1], images[2, ::-1, ::-1][1:-1, 1:-1])


def test_neither_keys_nor_positions_reveal_the_label(clean):
    images, labels = clean
    by_class = np.argsort(labels, kind="stable")
    _, truth = digits.field_pool(images[by_class], labels[by_class], seed=SEED)
    keys = [digits.key(position) for position in range(len(truth))]
    assert keys[42] == "scan-00042.png"
    assert keys == sorted(set(keys))
    assert abs((truth[1:] == truth[:-1]).mean() - 0.1) < 0.02  # five standard deviations
    assert abs(np.corrcoef(np.arange(len(truth)), truth)[0, 1]) < 0.065


def test_png_round_trip_is_exact(clean):
    scans, _ = digits.field_pool(*clean, size=5, seed=SEED)
    for scan in scans:
        picture = Image.open(io.BytesIO(encode_png(scan)))
        assert picture.mode == "L"
        assert picture.info == {}
        assert np.array_equal(np.asarray(picture), scan)


def test_the_head_reads_the_hidden_layer():
    network = model.digits_cnn(num_classes=7)
    seen = {}
    network.hidden.register_forward_hook(lambda layer, inputs, output: seen.update(hidden=output))
    scores = network(torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(SEED)))
    assert scores.shape == (3, 7)
    assert seen["hidden"].shape == (3, 64)
    assert (seen["hidden"] >= 0).all()
    assert torch.equal(network.head(seen["hidden"]), scores)


@pytest.mark.slow
def test_training_repeats_and_leaves_torch_as_it_was(clean, monkeypatch):
    images, labels = clean[0][:200], clean[1][:200]
    monkeypatch.setattr(model, "EPOCHS", 2)
    state, num_threads = torch.get_rng_state(), torch.get_num_threads()
    weights = model.train(images, labels, SEED)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == num_threads
    torch.rand(1)  # the caller's own draws must not matter
    again = model.train(images, labels, SEED)
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    other = model.train(images, labels, SEED + 1)
    assert not torch.equal(weights["head.weight"], other["head.weight"])


def test_saved_weights_load_as_they_were(tmp_path):
    weights = model.digits_cnn().state_dict()
    (tmp_path / "digits.safetensors").write_bytes(model.to_bytes(weights))
    loaded = load_file(tmp_path / "digits.safetensors")
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


@pytest.mark.slow
def test_the_model_is_good_in_the_laboratory(trained):
    network, images, labels = trained
    _, prediction = confidence_and_prediction(network, images)
    assert (prediction == labels).mean() > 0.96


@pytest.mark.slow
def test_the_field_costs_accuracy_and_confidence_knows_where(trained):
    network, images, labels = trained
    scans, truth = digits.field_pool(images, labels, seed=SEED)
    confidence, prediction = confidence_and_prediction(network, scans)
    failed = prediction != truth
    assert 0.80 < 1 - failed.mean() < 0.95
    least_confident = np.argsort(confidence)[: len(scans) // 5]
    assert failed[least_confident].sum() / failed.sum() > 0.5  # a fifth of the pool, most of its failures
