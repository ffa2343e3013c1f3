"""The test of moved features: its false alarms, what it finds, and the smallest move that it says it would find."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom, norm

from opacc_ray.extensions.characterize.covariate_shift import (
    Exchanged,
    Moved,
    exchange,
    judge,
    variables,
)

Sample = Callable[[np.random.Generator, int], np.ndarray]


def relu(rng: np.random.Generator, num: int) -> np.ndarray:
    """Skewed features, two of them alike and one dead."""
    found = np.maximum(rng.standard_t(3, size=(num, 8)) + 0.3, 0)
    found[:, 6], found[:, 7] = found[:, 0], 0
    return found


def normal(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.normal(size=(num, 6)) * [6, 5, 4, 3, 2, 1]


def moves(pairs: list[tuple[np.ndarray, np.ndarray]], rng: np.random.Generator) -> list[Moved | None]:
    return judge(exchange(*pair, rng) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "sizes"), [(relu, (40, 40)), (relu, (200, 25)), (normal, (25, 120))])
def test_parts_of_one_set_alarm_in_any_class_as_often_as_the_level_says(sample: Sample, sizes: tuple[int, int]) -> None:
    rng, alarms, repetitions = np.random.default_rng(5), 0, 200
    for _ in range(repetitions):
        found = moves([(sample(rng, sizes[0]), sample(rng, sizes[1])) for _ in range(2)], rng)
        alarms += any(move is not None and move.p <= 0.05 for move in found)
    assert alarms <= binom.ppf(1 - 1e-4, repetitions, 0.05)
    assert alarms >= binom.ppf(1e-3, repetitions, 0.05)


@pytest.mark.slow
def test_a_move_as_large_as_is_stated_is_found_four_times_of_five() -> None:
    rng, found = np.random.default_rng(1), 0
    [stated] = [one.detects for one in moves([(normal(rng, 300), normal(rng, 150))], rng) if one]
    assert 0.2 < stated < 0.6
    for _ in range(120):
        after = normal(rng, 150)
        after[:, 3] += 3 * stated
        [move] = moves([(normal(rng, 300), after)], rng)
        found += move is not None and move.p <= 0.05
    assert 0.68 < found / 120 < 0.92


def test_a_move_along_any_direction_is_found_and_its_size_stated() -> None:
    rng = np.random.default_rng(2)
    for neuron, scale in enumerate([6, 5, 4, 3, 2, 1]):
        after = normal(rng, 400)
        after[:, neuron] += scale
        [move] = moves([(normal(rng, 600), after)], rng)
        assert move is not None
        assert move.p == 0.001
        assert 0.8 < move.sd < 1.3


@pytest.mark.parametrize("wider", [slice(0, 5), slice(5, 6)], ids=["within the main directions", "outside them"])
def test_another_spread_without_another_mean_is_found(wider: slice) -> None:
    rng = np.random.default_rng(4)
    after = normal(rng, 500)
    after[:, wider] *= 1.6
    [move] = moves([(normal(rng, 500), after)], rng)
    assert move is not None
    assert move.p <= 0.01


def test_more_neurons_than_examples_are_tested_alike() -> None:
    """Neurons that are sums of others add nothing, whether they make the layer wider than there are examples or not."""
    rng = np.random.default_rng(6)
    before, after = normal(rng, 60), normal(rng, 40) + np.array([0, 0, 4, 0, 0, 0])
    onto, _ = np.linalg.qr(rng.normal(size=(120, 6)))
    [narrow] = moves([(before, after)], np.random.default_rng(1))
    [wide] = moves([(before @ onto.T, after @ onto.T)], np.random.default_rng(1))
    assert narrow is not None
    assert wide is not None
    assert narrow.model_dump() == pytest.approx(wide.model_dump(), rel=1e-6)
    assert narrow.p <= 0.01


def test_few_or_equal_examples_are_not_tested() -> None:
    rng = np.random.default_rng(0)
    one, few = normal(rng, 20), normal(rng, 19)
    assert moves([(few, one), (one, few), (np.ones((30, 4)), np.ones((30, 4))), (one, one)], rng)[:3] == [None] * 3
    assert moves([(one, few)], rng) == [None]
    [move] = moves([(one, one)], rng)
    assert move is not None
    assert move.p > 0.9


def test_999_exchanges_along_256_directions_at_most() -> None:
    rng = np.random.default_rng(0)
    found = exchange(rng.normal(size=(20, 3)), rng.normal(size=(30, 3)), rng)
    assert found is not None
    assert (len(found.null), found.num_before, found.num_after) == (999, 20, 30)
    assert variables(rng.normal(size=(320, 300))).shape == (320, 258)  # and the length, and the distance
    assert variables(rng.normal(size=(300, 320))).shape == (300, 258)
    again = exchange(found.null[:20, None], found.null[20:60, None], np.random.default_rng(1))
    assert again is not None
    [move] = judge([again])
    assert move is not None
    k, n, critical = 20, 40, np.quantile(again.null, 0.95) + norm.ppf(0.8)
    both = critical * np.sqrt(1 / k + 1 / n)
    assert move.detects == pytest.approx(both / np.sqrt(1 - k * n / (k + n) ** 2 * both**2), rel=1e-4)


def test_a_split_as_far_apart_as_the_samples_counts_against_a_move_in_any_class() -> None:
    first, second = Exchanged(2.0, np.array([1.0, 2.0, 3.0]), 20, 30), Exchanged(9.0, np.array([0.0, 4.0, 1.0]), 20, 30)
    assert [move.p for move in judge([first]) if move] == [3 / 4]
    assert [move and move.p for move in judge([first, None, second])] == [3 / 4, None, 1 / 4]
    [one, _, other] = judge([first._replace(null=np.array([0.0, 4.0, 1.0])), None, second._replace(statistic=4.0)])
    assert one
    assert other
    assert (one.p, other.p, one.detects) == (2 / 4, 2 / 4, other.detects)


def test_exchanged_samples_have_the_sizes_of_the_samples() -> None:
    """Sums of 20 values of +1 and -1 are even, and those of 19 or 21 odd."""
    for after in (20, 40):
        values = np.tile([1.0, -1.0], 10 + after // 2)[:, None]
        found = exchange(values[:20], values[20:], np.random.default_rng(0))
        assert found is not None
        sums = found.null / np.sqrt(1 / 20 + 1 / after)
        assert sums / 2 == pytest.approx(np.round(sums / 2), abs=1e-6)
        assert (found.statistic, sums.max() > 4) == (pytest.approx(0, abs=1e-9), True)


def test_constant_features_that_differ_are_found() -> None:
    [move] = moves([(np.zeros((30, 3)), np.ones((30, 3)))], np.random.default_rng(0))
    assert move is not None
    assert (move.p, move.sd) == (0.001, pytest.approx(2000))  # of two, in deviations of a thousandth of one at least


def test_the_variables_are_positions_the_scaled_length_and_the_distance_from_the_main_directions() -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(60, 8)) * np.array([9, 7, 5, 4, 3, 2, 1, 0.5]) + 3
    centred = points - points.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(centred.T))
    along = centred @ directions[:, ::-1]
    main, deviation = along[:, :5], np.sqrt(variances[::-1][:5])
    expected = np.column_stack([along, np.linalg.norm(main / deviation, axis=1), np.linalg.norm(along[:, 5:], axis=1)])
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    found = variables(points)
    signs = np.sign((found * expected).sum(axis=0))
    assert found * signs == pytest.approx(expected, abs=1e-8)
    assert signs[-2:].tolist() == [1, 1]


@pytest.mark.parametrize("width", [8, 60, 80])  # fewer neurons than points, as many, and more
def test_directions_in_which_nothing_varies_are_no_variables(width: int) -> None:
    """Points of three directions: three positions and a length, which are those in three neurons."""
    rng = np.random.default_rng(4)
    points = rng.normal(size=(60, 3)) * np.array([9, 5, 2])
    onto, _ = np.linalg.qr(rng.normal(size=(width, 3)))
    found, expected = variables(points @ onto.T), variables(points)
    assert found.shape == expected.shape == (60, 4)
    assert np.abs(found) == pytest.approx(np.abs(expected), abs=1e-6)
