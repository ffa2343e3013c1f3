"""The demo's digits and the bundled network."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from opacc_ray.extensions.demo import digits

SEED = 7


@pytest.fixture(scope="module")
def clean():
    return digits.load()


def test_halves_are_a_seeded_stratified_partition(clean):
    _, labels = clean
    first, second = digits.halves(labels, SEED)
    assert np.array_equal(np.sort(np.concatenate([first, second])), np.arange(len(labels)))
    assert abs(np.bincount(labels[first]) - np.bincount(labels[second])).max() <= 1
    assert np.array_equal(first, digits.halves(labels, SEED)[0])
    assert not np.array_equal(first, digits.halves(labels, SEED + 1)[0])


def test_the_field_depends_on_the_seed_alone_and_neither_keys_nor_positions_reveal_the_label(clean):
    images, labels = clean
    by_class = np.argsort(labels, kind="stable")
    scans, truth = digits.field_pool(images[by_class], labels[by_class], seed=SEED)
    assert (scans.shape, scans.dtype, truth.shape, truth.dtype) == ((6000, 16, 16), np.uint8, (6000,), np.int64)
    again, truth_again = digits.field_pool(images[by_class], labels[by_class], seed=SEED)
    assert np.array_equal(scans, again)
    assert np.array_equal(truth, truth_again)
    keys = [digits.key(position) for position in range(len(truth))]
    assert keys[42] == "scan-00042.png"
    assert keys == sorted(set(keys))
    assert abs((truth[1:] == truth[:-1]).mean() - 0.1) < 0.02  # five standard deviations
    assert abs(np.corrcoef(np.arange(len(truth)), truth)[0, 1]) < 0.065


def test_the_field_costs_accuracy_and_confidence_knows_where(clean):
    images, labels = clean
    _, second = digits.halves(labels, 0)  # which the bundled network has not seen
    scans, truth = digits.field_pool(images[second], labels[second], seed=SEED)
    network = digits.digits_cnn()
    network.load_state_dict(load_file(digits.WEIGHTS))
    with torch.inference_mode():
        confidence, prediction = network(torch.from_numpy(scans).unsqueeze(1) / 255).softmax(1).max(1)
    failed = prediction.numpy() != truth
    assert 0.80 < 1 - failed.mean() < 0.95
    least_confident = np.argsort(confidence.numpy())[: len(scans) // 5]
    assert failed[least_confident].sum() / failed.sum() > 0.5  # a fifth of the pool, most of its failures
