"""The demo's digits and the model trained on them."""

import numpy as np
import pytest
import torch

from opacc_ray.extensions.demo import digits, model

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


def test_neither_keys_nor_positions_reveal_the_label(clean):
    images, labels = clean
    by_class = np.argsort(labels, kind="stable")
    _, truth = digits.field_pool(images[by_class], labels[by_class], seed=SEED)
    keys = [digits.key(position) for position in range(len(truth))]
    assert keys[42] == "scan-00042.png"
    assert keys == sorted(set(keys))
    assert abs((truth[1:] == truth[:-1]).mean() - 0.1) < 0.02  # five standard deviations
    assert abs(np.corrcoef(np.arange(len(truth)), truth)[0, 1]) < 0.065


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


@pytest.mark.slow
def test_the_field_costs_accuracy_and_confidence_knows_where(trained):
    network, images, labels = trained
    scans, truth = digits.field_pool(images, labels, seed=SEED)
    confidence, prediction = confidence_and_prediction(network, scans)
    failed = prediction != truth
    assert 0.80 < 1 - failed.mean() < 0.95
    least_confident = np.argsort(confidence)[: len(scans) // 5]
    assert failed[least_confident].sum() / failed.sum() > 0.5  # a fifth of the pool, most of its failures
