"""DeepEST: exact probabilities, exact unbiasedness, and its memory."""

import math
from collections import Counter

import numpy as np
import pytest
from oracles import deepest as reference
from unclipped import estimate_sample

import opacc_ray as opacc
from opacc_ray.designs.draw_probability import StepByStep
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import deepest
from opacc_ray.samplers.base import NO_PREVIOUS, Previous, Task

CONFIDENCE = np.array([0.95, 0.4, 0.99, 0.65, 1.0, 0.8])
OUTCOME = np.array([1.0, 0.0, 0.0, 1.0, 1.0, 0.0])
SCORE = np.array([0.9, 0.2, 0.55, 1.0, 0.7, 0.0])
RULES = ["released", "paper"]


def _matrix(confidence: np.ndarray, rule: str) -> np.ndarray:
    return reference.weights(1 - confidence, confidence < 0.7, rule)


@pytest.mark.parametrize("rule", RULES)
class TestExact:
    def test_draw_probabilities_are_those_of_equation_5(self, rule: str) -> None:
        rng = np.random.default_rng(1)
        for seed in range(60):
            confidence = np.round(rng.uniform(0.3, 1, 9), 2)
            chosen = opacc.select(Pool(confidence=confidence), "deepest", 7, seed=seed, rule=rule)
            w, sample = _matrix(confidence, rule), chosen.index.tolist()
            expected = [
                reference.draw_probability(w, sample[:k], 0.8, list(range(9)))[sample[k]] for k in range(len(sample))
            ]
            np.testing.assert_allclose(chosen.design.draw_probability, expected, rtol=1e-12)

    @pytest.mark.slow
    def test_samples_come_as_often_as_their_probability(self, rule: str) -> None:
        view, task = view_of(Pool(confidence=CONFIDENCE)), Task(3, deepest.Parameters(rule=rule), NO_PREVIOUS)
        rng, repetitions = np.random.default_rng(5), 6000
        seen = Counter(tuple(deepest.draw(view, task, rng).chosen.tolist()) for _ in range(repetitions))
        distance = degrees = 0.0
        for sample, q in reference.sequences(_matrix(CONFIDENCE, rule), 3, 0.8, list(range(6))):
            expected = repetitions * math.prod(q)
            distance += (seen[sample] - expected) ** 2 / expected
            degrees += 1
        assert degrees == 120
        assert distance < 119 + 4 * math.sqrt(2 * 119)  # chi-square of 119 degrees of freedom

    @pytest.mark.parametrize("outcome", [OUTCOME, SCORE], ids=["0/1", "score"])
    def test_estimator_is_unbiased(self, rule: str, outcome: np.ndarray) -> None:
        mean = total = 0.0
        for sample, q in reference.sequences(_matrix(CONFIDENCE, rule), 4, 0.8, list(range(6))):
            estimate = estimate_sample(StepByStep(np.array(q), np.arange(4), 6, 0.2 / 6), outcome[list(sample)], 0.95)
            assert estimate.value == pytest.approx(reference.estimate(1 - outcome[list(sample)], q, 6), abs=1e-12)
            mean += math.prod(q) * estimate.value
            total += math.prod(q)
        assert total == pytest.approx(1, abs=1e-12)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    def test_a_later_round_is_unbiased_for_what_was_not_labelled(self, rule: str) -> None:
        labelled = np.array([1, 4])
        pool, free = Pool(confidence=CONFIDENCE), [0, 2, 3, 5]
        w = _matrix(CONFIDENCE, rule)
        view, rng = view_of(pool), np.random.default_rng(0)
        task = Task(3, deepest.Parameters(rule=rule), Previous(labelled, OUTCOME[labelled]))
        for _ in range(40):
            drawn = deepest.draw(view, task, rng)
            sample = drawn.chosen.tolist()
            expected = [reference.draw_probability(w, sample[:k], 0.8, free)[sample[k]] for k in range(3)]
            np.testing.assert_allclose(drawn.design.draw_probability, expected, rtol=1e-12)
            assert drawn.design.population == 4
        mean = 0.0
        for sample, q in reference.sequences(w, 3, 0.8, free):
            value = estimate_sample(StepByStep(np.array(q), np.arange(3), 4, 0.05), OUTCOME[list(sample)], 0.95).value
            mean += math.prod(q) * value
        assert mean == pytest.approx(OUTCOME[free].mean(), abs=1e-12)


class TestDesign:
    def test_each_example_is_drawn_once_also_when_the_pool_is_drained(self) -> None:
        for rule in RULES:
            chosen = opacc.select(Pool(confidence=CONFIDENCE), "deepest", 6, seed=0, rule=rule)
            assert sorted(chosen.index.tolist()) == list(range(6))


@pytest.mark.slow
def test_interval_covers_where_failures_are_rare_and_confident() -> None:
    """Student's interval on the z covers in about half of these samples."""
    rng = np.random.default_rng(8)
    confidence = np.concatenate([rng.uniform(0.95, 1, 900), rng.uniform(0.3, 0.69, 100)])
    outcome = np.ones(1000)
    outcome[rng.choice(900, 15, replace=False)] = 0
    outcome[900 + rng.choice(100, 40, replace=False)] = 0
    view, task = view_of(Pool(confidence=confidence)), Task(60, deepest.Parameters(), NO_PREVIOUS)
    repetitions = 1000
    covered = plain = 0
    for _ in range(repetitions):
        drawn = deepest.draw(view, task, rng)
        found = estimate_sample(drawn.design, outcome[drawn.chosen], 0.95)
        covered += found.low <= outcome.mean() <= found.high
        plain += abs(found.value - outcome.mean()) <= 2 * found.standard_error
    assert covered / repetitions > 0.924  # 1e-4 quantile of a 95 % interval
    assert plain / repetitions < 0.8


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rule": "theirs"}, "rule='theirs': choose one of released, paper"),
        ({"weight_probability": 1.0}, "weight_probability=1.0: .* below 1"),
        ({"weight_probability": -0.1}, "weight_probability=-0.1"),
        ({"threshold": "high"}, "threshold='high': give a number in the units of confidence"),
        ({"threshold": True}, "threshold=True"),
        ({"threshold": math.nan}, "threshold=nan"),
    ],
)
def test_refuses_invalid_parameters(parameters: dict, message: str) -> None:
    with pytest.raises(opacc.OpaccError, match=message):
        opacc.select(Pool(confidence=CONFIDENCE), "deepest", 2, **parameters)
