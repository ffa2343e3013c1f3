"""The shift beside a divergence that is known, beside its floor, and in the direction of a drift."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.mixture import GaussianMixture

from opacc_ray.errors import DataError
from opacc_ray.extensions.characterize import covariate_shift
from opacc_ray.extensions.characterize.classes import Grouped
from opacc_ray.extensions.characterize.covariate_shift import divergence, measure_shift
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small mixtures, which are fast."""
    for name, value in (("COMPONENTS", 2), ("DIRECTIONS", 2), ("POINTS", 4000)):
        monkeypatch.setattr(covariate_shift, name, value)


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


@pytest.mark.slow
def test_the_value_is_that_of_mixtures_of_ten_components_along_five_directions_as_in_the_paper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(3)
    before, after = (rng.normal(size=(num, 8)) * (1 + 9 * (rng.random((num, 8)) < 0.3)) for num in (700, 500))
    centre, scatter = before.mean(axis=0), np.cov(before, rowvar=False)
    variances, directions = np.linalg.eigh(scatter)
    onto = directions[:, ::-1][:, :5] / np.sqrt(variances[::-1][:5])

    def fitted(points: np.ndarray) -> GaussianMixture:
        options = {"covariance_type": "diag", "reg_covar": 1e-3, "max_iter": 200, "random_state": 0}
        return GaussianMixture(10, **options).fit((points - centre) @ onto)

    expected, _ = divergence(fitted(before), fitted(after), 40_000, rng)
    sets = [Grouped(view_of(Pool(hidden=rows, prediction=np.zeros(len(rows)))), 1) for rows in (before, after)]
    [found] = measure_shift(*sets, 0)
    assert abs(found.value - expected) < 0.03
    assert covariate_shift._fit(before, 0).get_params() == fitted(before).get_params()
    for name in ("COMPONENTS", "DIRECTIONS"):
        with monkeypatch.context() as patch:
            patch.setattr(covariate_shift, name, 3)
            assert abs(measure_shift(*sets, 0)[0].value - expected) > 0.05


@pytest.mark.slow
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
