"""The shift beside a divergence that is known, beside its floor, and in the direction of a drift; and the test of moved
features: its false alarms, what it finds, and the smallest move that it would find."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm
from sklearn.mixture import GaussianMixture

from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize import covariate_shift
from opacc_ray.extensions.characterize.classes import Grouped
from opacc_ray.extensions.characterize.covariate_shift import (
    Exchanged,
    Moved,
    divergence,
    exchange,
    judge,
    measure_shift,
    variables,
)
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool


def normal(mean: float) -> GaussianMixture:
    """A mixture of one standard normal."""
    found = GaussianMixture(1, covariance_type="diag")
    found.weights_, found.means_ = np.ones(1), np.array([[mean]])
    found.covariances_ = found.precisions_ = found.precisions_cholesky_ = np.ones((1, 1))
    return found


@pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
def test_divergence_of_two_normals_is_the_integral_within_its_error(distance: float) -> None:
    def density(x: float) -> float:
        p, q = norm.pdf(x), norm.pdf(x - distance)
        return 0.5 * (p * np.log2(2 * p / (p + q)) + q * np.log2(2 * q / (p + q)))

    exact = quad(density, -8, 8 + distance)[0]
    value, error = divergence(normal(0), normal(distance), 20_000, np.random.default_rng(0))
    assert 0 <= error < 0.01
    assert abs(value - exact) <= 4 * error + 1e-12


def test_points_are_drawn_anew_for_each_divergence_and_each_mixture() -> None:
    rng = np.random.default_rng(0)
    first, again = (divergence(normal(0), normal(1), 500, rng) for _ in range(2))
    assert first != again
    seeds = np.random.default_rng(0).integers(2**31, size=2)
    p, q = normal(0), normal(1)
    divergence(p, q, 500, np.random.default_rng(0))
    assert [p.random_state, q.random_state] == seeds.tolist()


def grouped(num: int, seed: int, moved: float = 0.0) -> Grouped:
    """Class 0, and class 1 moved along the third neuron by ``moved`` standard deviations."""
    rng = np.random.default_rng(seed)
    classes = np.arange(num) % 2
    hidden = rng.normal(size=(num, 4)) * [3, 2, 2.5, 1]
    hidden[:, 2] += 2.5 * moved * classes
    return Grouped(view_of(Pool(hidden=hidden, prediction=classes)), 2)


@pytest.mark.usefixtures("few")
def test_a_drifted_class_is_far_above_its_floor_and_the_other_is_not() -> None:
    found = measure_shift(grouped(3000, 1), grouped(1500, 2, moved=1.5), 0)
    calm, moved = found
    assert calm.value - calm.floor < 0.03
    assert moved.value - moved.floor > 0.15
    assert moved.error < 0.01


@pytest.mark.usefixtures("few")
def test_the_floor_is_what_the_value_is_without_a_move() -> None:
    """Sets of equal size, of which the first does not hold two halves as large as the second."""
    values = [measure_shift(grouped(1000, seed), grouped(1000, 50 + seed), 0) for seed in range(4)]
    value, floor = (
        np.array([[getattr(one, name) for one in found] for found in values]) for name in ("value", "floor")
    )
    assert abs(value.mean() - floor.mean()) < 0.02


@pytest.mark.parametrize(("share", "used"), [(0.9, 1), (1.1, 2)])
def test_a_direction_is_used_that_has_a_billionth_of_the_variance(share: float, used: int) -> None:
    first, second = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 1.0, -1.0, -1.0])
    points = np.column_stack([3 * first, 3 * second * np.sqrt(share * 1e-9)])
    assert covariate_shift._directions(points, 5).shape == (2, used)


@pytest.mark.usefixtures("few")
def test_a_class_with_few_examples_is_not_measured() -> None:
    for reference, data in ((3000, 398), (798, 900)):
        found = measure_shift(grouped(reference, 1), grouped(data, 2), 0)
        assert [(shift.value, shift.error, shift.floor) for shift in found] == [(None, None, None)] * 2
        assert all(shift.move is not None for shift in found)  # the test needs no mixture
    assert None not in [shift.value for shift in measure_shift(grouped(800, 1), grouped(400, 2), 0)]
    assert [shift.move for shift in measure_shift(grouped(3000, 1), grouped(38, 2), 0)] == [None, None]
    assert None not in [shift.move for shift in measure_shift(grouped(3000, 1), grouped(40, 2), 0)]


@pytest.mark.usefixtures("few")
def test_of_many_examples_some_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert covariate_shift.MOST == 4000  # as docs/characterize.md states
    monkeypatch.setattr(covariate_shift, "MOST", 300)
    fitted: list[int] = []
    tested: list[tuple[int, int]] = []
    fit, exchange = covariate_shift._fit, covariate_shift.exchange
    monkeypatch.setattr(covariate_shift, "_fit", lambda points, how: fitted.append(len(points)) or fit(points, how))
    monkeypatch.setattr(
        covariate_shift, "exchange", lambda a, b, rng: tested.append((len(a), len(b))) or exchange(a, b, rng)
    )
    measure_shift(grouped(4000, 1), grouped(1800, 2), 0)
    assert fitted == [600, 300] * 2 * (1 + 3)  # for each class the samples, and three random splits of both
    assert tested == [(600, 600)] * 2


@pytest.mark.usefixtures("few")
def test_layers_of_different_widths_are_refused() -> None:
    wide = Grouped(view_of(Pool(hidden=np.ones((10, 6)), prediction=np.arange(10) % 2)), 2)
    with pytest.raises(DataError, match="6 neurons here and 4 in the reference"):
        measure_shift(grouped(900, 1), wide, 0)


# -- the test of moved features -------------------------------------------------------------------------------------

Sample = Callable[[np.random.Generator, int], np.ndarray]


def relu(rng: np.random.Generator, num: int) -> np.ndarray:
    """Skewed features, two of them alike and one dead."""
    found = np.maximum(rng.standard_t(3, size=(num, 8)) + 0.3, 0)
    found[:, 6], found[:, 7] = found[:, 0], 0
    return found


def spread(rng: np.random.Generator, num: int) -> np.ndarray:
    return rng.normal(size=(num, 6)) * [6, 5, 4, 3, 2, 1]


def moves(pairs: list[tuple[np.ndarray, np.ndarray]], rng: np.random.Generator) -> list[Moved | None]:
    return judge(exchange(*pair, rng) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize(("sample", "sizes"), [(relu, (40, 40)), (spread, (25, 50))])
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
    [stated] = [one.detects for one in moves([(spread(rng, 300), spread(rng, 150))], rng) if one]
    assert 0.2 < stated < 0.6
    for _ in range(120):
        after = spread(rng, 150)
        after[:, 3] += 3 * stated
        [move] = moves([(spread(rng, 300), after)], rng)
        found += move is not None and move.p <= 0.05
    assert 0.68 < found / 120 < 0.92


def test_a_move_along_any_direction_is_found_and_its_size_stated() -> None:
    rng = np.random.default_rng(2)
    for neuron, scale in enumerate([6, 5, 4, 3, 2, 1]):
        after = spread(rng, 400)
        after[:, neuron] += scale
        [move] = moves([(spread(rng, 600), after)], rng)
        assert move is not None
        assert move.p == 0.001
        assert 0.8 < move.sd < 1.3


@pytest.mark.parametrize("wider", [slice(0, 5), slice(5, 6)], ids=["within the main directions", "outside them"])
def test_another_spread_without_another_mean_is_found(wider: slice) -> None:
    rng = np.random.default_rng(4)
    after = spread(rng, 500)
    after[:, wider] *= 1.6
    [move] = moves([(spread(rng, 500), after)], rng)
    assert move is not None
    assert move.p <= 0.01


def test_more_neurons_than_examples_are_tested_alike() -> None:
    """Neurons that are sums of others add nothing, whether they make the layer wider than there are examples or not."""
    rng = np.random.default_rng(6)
    before, after = spread(rng, 60), spread(rng, 40) + np.array([0, 0, 4, 0, 0, 0])
    onto, _ = np.linalg.qr(rng.normal(size=(120, 6)))
    [narrow] = moves([(before, after)], np.random.default_rng(1))
    [wide] = moves([(before @ onto.T, after @ onto.T)], np.random.default_rng(1))
    assert narrow is not None
    assert wide is not None
    assert narrow.model_dump() == pytest.approx(wide.model_dump(), rel=1e-6)
    assert narrow.p <= 0.01


def test_few_or_equal_examples_are_not_tested() -> None:
    rng = np.random.default_rng(0)
    one, few = spread(rng, 20), spread(rng, 19)
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
