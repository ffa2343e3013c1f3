"""Several models by one sample: the interval of a difference, worked by hand from the formulas of its module."""

import numpy as np
import pytest
from given_selections import selection_of
from scipy.stats import t

from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.estimation.distribution import LabelEffects, Total
from opacc_ray.estimation.failures import PoolFailures
from opacc_ray.estimation.model_comparison import compare_accuracies
from opacc_ray.estimation.sample import join

NUM, SIZE, LEVEL = 8, 1000, 0.9
EXPECTED = {
    "surely": np.array([[0.02, 0.1, 0.3, 0.05, 0.6, 0.2, 0.15, 0.4], [0.1, 0.3, 0.2, 0.25, 0.1, 0.05, 0.3, 0.2]]),
    "hardly": np.full((2, NUM), 1e-4),
}
OUTCOMES = np.array([[1, 1, 0, 1, 0, 1, 1, 1], [1, 0, 1, 1, 0, 1, 1, 0]], dtype=float)


@pytest.mark.parametrize("kind", EXPECTED)
def test_difference_has_the_width_of_its_formula(kind: str) -> None:
    p, a = EXPECTED[kind], np.linspace(0.05, 0.2, NUM)
    selection = selection_of(SimpleRandom(NUM, SIZE, False))
    samples, both = [join(selection, outcome) for outcome in OUTCOMES], list[PoolFailures]()
    for model, sample in enumerate(samples):
        labels = LabelEffects(a, p[model], sample.failure - p[model], np.ones(NUM), assisted=True)
        total = Total(0.2 + 0.1 * model, 0.01, SIZE, NUM, float(sample.failure.sum()), labels.law(0.0))
        both.append(PoolFailures(total, labels, is_binary=True, design_based=True, reason=None))
    [found] = compare_accuracies(samples, both, LEVEL, predicted=True).differences

    errors = [[1 - OUTCOMES[k][i] - p[k][i] for i in range(NUM)] for k in range(2)]
    apart = [errors[0][i] - errors[1][i] for i in range(NUM)]
    middle = sum(apart) / NUM
    measured = (1 - NUM / SIZE) * sum((x - middle) ** 2 for x in apart) / (NUM - 1) / NUM
    agreement = min(max(0, 1 - sum(errors[k]) ** 2 / sum(q * (1 - q) for q in p[k]) / 4) for k in range(2))
    foreseen = sum(a[i] ** 2 * p[k][i] * (1 - p[k][i]) for i in range(NUM) for k in range(2))
    half = sum(0.5 * sum(p[k][i] * a[i] ** 2 for i in range(NUM)) / sum(p[k]) for k in range(2))
    variance = max((NUM * measured + 20 * agreement * foreseen) / (NUM + 20 * agreement), foreseen / 2) + half
    width = 2 * t.ppf(0.5 + LEVEL / 2, NUM + 20 * agreement - 1) * variance**0.5
    assert (agreement > 0) == (kind == "surely")
    ends = np.array([found.difference.low, found.difference.high]) * SIZE
    middle = found.difference.value * SIZE
    expected = np.floor(middle - width / 2 * SIZE), np.ceil(middle + width / 2 * SIZE)  # a difference of this pool
    assert ends == pytest.approx(expected, abs=1e-6)
    assert width < 2  # it is not cut at -1 and 1
