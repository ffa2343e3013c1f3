"""Assisted estimates: exact unbiasedness, the tuned strength, intervals, refusals; and guesses without labels."""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from drawn_rounds import draw_rounds, featured_pool, hold
from given_selections import selection_of
from numpy.typing import NDArray
from oracles import deepest as reference
from scipy.stats import beta, gamma
from unclipped import unclipped

import opacc_ray as opacc
from opacc_ray.designs.draw_probability import HansenHurwitz, StepByStep
from opacc_ray.designs.simple_random import SimpleRandom, Stratified
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation import intervals
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.failures import assisted_estimate, assisted_failures, tuned_strength
from opacc_ray.estimation.sample import Rounds, join
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS
from opacc_ray.selection import Selection

N = 600
TINY = np.array([1, 0, 1, 0.25, 1, 0.5])  # outcomes
GUESS = np.array([0.9, 0.3, 0.2, 0.6, 1, 0])
OTHERS = [method for method, sampler in METHODS.items() if not sampler.Parameters().predicts_failures]
Samples = Iterator[tuple[float, list[Selection]]]
"""Every sample that a design can draw, with its probability."""


@pytest.fixture(scope="module")
def pool() -> Pool:
    return featured_pool(lambda rng: rng.beta(4, 1, N))


@pytest.fixture(scope="module")
def outcome(pool: Pool) -> NDArray[np.float64]:
    return (np.random.default_rng(1).random(N) < pool.confidence).astype(float)


def _srs() -> Samples:
    for sample in itertools.combinations(range(6), 3):
        yield 1 / 20, [selection_of(SimpleRandom(3, 6, replacement=False), sample)]


def _css() -> Samples:
    design = Stratified(np.array([0, 0, 1]), np.array([4, 2]))
    for large, small in itertools.product(itertools.combinations(range(4), 2), (4, 5)):
        yield 1 / 12, [selection_of(design, (*large, small))]


def _sups() -> Samples:
    p = np.array([0.1, 0.1, 0.2, 0.3, 0.1, 0.2])
    for sample in itertools.product(range(6), repeat=3):
        own = p[list(sample)]
        yield float(own.prod()), [selection_of(HansenHurwitz(own, 6, 0.1), sample)]


def _deepest() -> Samples:
    confidence = np.array([0.95, 0.4, 0.99, 0.65, 1.0, 0.8])
    w = reference.weights(1 - confidence, confidence < 0.7, "released")
    for sample, q in reference.sequences(w, 3, 0.8, list(range(6))):
        yield math.prod(q), [selection_of(StepByStep(np.array(q), np.arange(3), 6, 0.04), sample)]


def _rounds() -> Samples:
    for first in itertools.combinations(range(6), 2):
        rest = [i for i in range(6) if i not in first]
        for second in itertools.combinations(rest, 2):
            # the second is drawn from the rest of the pool, which is one stratum
            designs = SimpleRandom(2, 6, replacement=False), Stratified(np.zeros(2, dtype=np.int64), np.array([4]))
            yield 1 / 90, [selection_of(designs[0], first, 6), selection_of(designs[1], second, 6, 2)]


DESIGNS = [_srs, _css, _sups, _deepest, _rounds]


@pytest.mark.parametrize("samples", DESIGNS)
class TestExact:
    @pytest.mark.parametrize("strength", [0, 0.4, 1])
    def test_unbiased_over_all_samples_of_a_tiny_pool(self, samples, strength: float) -> None:
        mean = total = 0.0
        for chance, rounds in samples():
            outcomes = [TINY[part.index] for part in rounds]
            mean += chance * unclipped(assisted_failures(join(rounds, outcomes), GUESS, strength), 0.95).value
            total += chance
        assert total == pytest.approx(1, abs=1e-12)
        assert mean == pytest.approx(TINY.mean(), abs=1e-12)


def test_variance_is_unbiased_for_a_fixed_strength() -> None:
    found = [
        unclipped(assisted_failures(join(*rounds, TINY[rounds[0].index]), GUESS, 0.7), 0.95) for _, rounds in _srs()
    ]
    variance = np.var([estimate.value for estimate in found])
    assert np.mean([estimate.standard_error**2 for estimate in found]) == pytest.approx(variance, abs=1e-12)


@pytest.mark.parametrize("method", OTHERS)
class TestEveryDesign:
    def test_strength_0_is_the_estimate_of_the_design(self, method: str, pool: Pool, outcome) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        y = outcome[chosen.index]
        assert assisted_estimate(join(chosen, y), pool.confidence, 0.9, strength=0) == estimate_outcomes(chosen, y, 0.9)

    def test_is_the_formula(self, method: str, pool: Pool, outcome) -> None:
        rounds, outcomes = draw_rounds(pool, outcome, (40, 50), method=method)
        design, q = Rounds(rounds), 1 - pool.confidence
        error = 1 - np.concatenate(outcomes) - 0.6 * q[np.concatenate([part.index for part in rounds])]
        found, plain = (
            assisted_estimate(join(rounds, outcomes), pool.confidence, strength=0.6),
            estimate_outcomes(rounds, outcomes),
        )
        assert 1 - found.value == pytest.approx(0.6 * q.mean() + design.mean(error))
        assert found.standard_error == pytest.approx(np.sqrt(design.variance(error)))
        assert 0 <= found.low < found.value < found.high <= 1
        assert (found.n, found.design_based, found.reason) == (90, plain.design_based, plain.reason)

    def test_tuned_strength_is_the_best_but_for_one_label(self, method: str, pool: Pool, outcome) -> None:
        """λ minimises v(f - λq) + λ²b²."""
        chosen = opacc.select(pool, method, 60, seed=2)
        failure, predicted = 1 - outcome[chosen.index], 1 - np.asarray(pool.confidence)
        design, q = Rounds(chosen), predicted[chosen.index]
        seen = (design.weights * q).max() * design.largest_weight / design.weights.max()
        one_label = max(seen, predicted.mean() - design.mean(q))
        assert one_label < design.largest_weight * predicted.max()
        grid = np.linspace(0, 1, 1001)
        loss = design.variance(failure[:, None] - q[:, None] * grid) + (grid * one_label) ** 2
        assert tuned_strength(join(chosen, outcome[chosen.index]), pool.confidence) == pytest.approx(
            grid[loss.argmin()], abs=1e-3
        )

    def test_without_failures_it_is_the_estimate_of_the_design(self, method: str, pool: Pool) -> None:
        chosen = opacc.select(pool, method, 60, seed=2)
        assert estimate_outcomes(chosen, np.ones(60), prediction=pool.confidence) == estimate_outcomes(
            chosen, np.ones(60)
        )


def test_by_hand() -> None:
    """Five labels of ten: the sample has predicted failures of 0.3 on average, the pool of 0.25."""
    chosen = opacc.select(Pool(ids=[str(i) for i in range(10)]), "srs", 5, seed=1)
    prediction = np.full(10, 0.8)
    prediction[chosen.index] = [1, 0.5, 0.5, 1, 0.5]
    y = np.array([1, 0, 1, 1, 0])
    found = unclipped(assisted_failures(join(chosen, y), prediction, 1), 0.95)
    d = np.array([0, 0.5, -0.5, 0, 0.5])  # f - q
    assert found.value == pytest.approx(0.6 + 0.3 - 0.25)
    assert found.standard_error == pytest.approx(np.sqrt(0.5 * d.var(ddof=1) / 5))
    w = np.sqrt(0.5) / 5
    share, alarm = 0.35, 0.5 * w  # 0.5 is the largest prediction of a failure, and the sample lacks none
    mean, variance = (share - alarm) / (1 + w), found.standard_error**2 + (w * share + alarm) ** 2
    spread = variance / ((1 + w) ** 2 * (1 + 2 * w))
    size = mean * (1 - mean) / spread - 1
    low = min(gamma.ppf(0.025, mean**2 / spread, scale=spread / mean), beta.ppf(0.025, mean * size, (1 - mean) * size))
    assert found.high == pytest.approx(1 - low)
    assert found.low == pytest.approx(
        1 - intervals.weighted_clopper_pearson(share, found.standard_error**2, w, 0.95)[1]
    )


@pytest.mark.slow
def test_assistance_saves_labels(pool: Pool, outcome) -> None:
    """400 samples: less error than the design by itself, tuned nearly as good as full strength, and next to no bias."""
    errors = []
    for seed in range(400):
        chosen = opacc.select(pool, "srs", 100, seed)
        y = outcome[chosen.index]
        strong, tuned = (
            assisted_estimate(join(chosen, y), pool.confidence, strength=strength) for strength in (1, None)
        )
        errors.append([item.value - outcome.mean() for item in (estimate_outcomes(chosen, y), strong, tuned)])
    plain, strong, tuned = np.square(errors).mean(axis=0)
    assert strong < 0.92 * plain
    assert tuned < 0.95 * plain
    assert abs(np.mean(errors, axis=0)[2]) < 0.2 * np.sqrt(plain)


@pytest.mark.slow
def test_a_worthless_prediction_does_little_harm(pool: Pool, outcome) -> None:
    """Of random numbers tuning leaves it out, and the error is that of the design within 5 %."""
    worthless = np.random.default_rng(2).uniform(pool.confidence.min(), 1, pool.size)
    errors = []
    for seed in range(300):
        chosen = opacc.select(pool, "srs", 100, seed)
        y = outcome[chosen.index]
        pair = estimate_outcomes(chosen, y), estimate_outcomes(chosen, y, prediction=worthless)
        errors.append([item.value - outcome.mean() for item in pair])
    plain, tuned = np.square(errors).mean(axis=0)
    assert tuned < 1.05 * plain


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sups", "deepest", "css"])
def test_alarms_that_the_sample_lacks_are_not_believed(method: str) -> None:
    """False alarms of 15 % where the design seldom looks: without b² the squared error is above that of SRS."""
    rng = np.random.default_rng(5)
    confidence = np.where(rng.random(5000) < 0.97, 0.9999, rng.uniform(0.3, 0.9, 5000))
    outcome = (rng.random(5000) < confidence).astype(float)
    alarm = np.where(rng.random(5000) < 0.85, outcome, 1 - outcome)
    errors = []
    for seed in range(150):
        chosen = opacc.select(Pool(confidence=confidence), method, 50, seed)
        y = outcome[chosen.index]
        pair = estimate_outcomes(chosen, y), estimate_outcomes(chosen, y, prediction=alarm)
        errors.append([item.value - outcome.mean() for item in pair])
    plain, tuned = np.square(errors).mean(axis=0)
    assert tuned < max(plain, outcome.var() / 50)


def _alarms(pool: Pool, outcome) -> NDArray[np.float64]:
    """Another model's disagreement: 0 or 1, right in 97 %, unrelated to how the designs weigh."""
    right = np.random.default_rng(3).random(N) < 0.97
    return np.where(right, outcome, 1 - outcome)


@pytest.mark.slow
@pytest.mark.parametrize("strength", [1, None])
@pytest.mark.parametrize("kind", ["confidence", "other"])
@pytest.mark.parametrize(("method", "budget"), [("srs", 40), ("css", 40), ("sups", 40), ("rhcs", 40), ("deepest", 60)])
def test_interval_covers(method: str, budget: int, kind: str, strength, pool: Pool, outcome) -> None:
    """200 repetitions; fails under the 1e-4 quantile of a 95 % interval's hits."""
    prediction = pool.confidence if kind == "confidence" else _alarms(pool, outcome)
    drawn = [opacc.select(pool, method, budget, seed) for seed in range(200)]
    labelled = [join(chosen, outcome[chosen.index]) for chosen in drawn]
    assert hold((assisted_estimate(own, prediction, strength=strength) for own in labelled), outcome.mean())


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        (np.ones(599), r"shape \(599,\) .* pool 600 examples"),
        (np.ones((600, 1)), r"shape \(600, 1\)"),
        (np.full(600, "1"), "type <U1"),
        ([[1], [1, 0]], "prediction is not made of numbers"),
        (np.where(np.arange(600) == 7, np.nan, 1), r"prediction nan of example number 7 .* not in \[0, 1\]"),
        (np.where(np.arange(600) == 9, 1.5, 1), r"prediction 1.5 of example number 9"),
    ],
)
def test_refuses_predictions_that_do_not_fit(prediction: NDArray, message: str, pool: Pool) -> None:
    chosen = opacc.select(pool, "srs", 5)
    with pytest.raises(DataError, match=message):
        estimate_outcomes(chosen, np.ones(5), prediction=prediction)


@pytest.mark.parametrize("strength", [-0.1, 1.2, math.nan, True])
def test_refuses_a_strength_that_is_none(strength: float, pool: Pool) -> None:
    chosen = opacc.select(pool, "srs", 5)
    with pytest.raises(SpecError, match=f"strength={strength}"):
        assisted_estimate(join(chosen, np.ones(5)), pool.confidence, strength=strength)


def test_refuses_neyman_which_assists_itself(pool: Pool, outcome) -> None:
    rounds = draw_rounds(pool, outcome, (40, 40), method=("srs", "neyman"))
    with pytest.raises(SpecError, match="neyman predicts every outcome itself"):
        assisted_estimate(join(*rounds), pool.confidence)
