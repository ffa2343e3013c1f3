"""Every grouping and every draw of pools of six to eight examples: expectations and variances are exact."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from oracles import cube
from oracles import neyman as reference

from opacc_ray.designs.draw_probability import RaoHartleyCochran
from opacc_ray.designs.inclusion_probability import InclusionProbability, inclusion_probabilities

POOLS = [(6, 2, 1), (7, 3, 2), (8, 3, 3), (8, 4, 4)]
"""N, n and a seed."""


def make_pool(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw probabilities and a variable, both (N,)."""
    rng = np.random.default_rng(seed)
    probability = rng.gamma(2, 1, size)
    return probability / probability.sum(), rng.random(size).round(2)


def groupings(examples: frozenset[int], sizes: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """Every split in groups of ``sizes``, groups told apart by their place."""
    if not sizes:
        yield []
        return
    for group in itertools.combinations(sorted(examples), sizes[0]):
        for rest in groupings(examples - set(group), sizes[1:]):
            yield [group, *rest]


@pytest.mark.parametrize(("size", "num", "seed"), [(6, 2, 1), (7, 3, 2), (6, 3, 4)])
def test_rao_hartley_cochran_is_unbiased_and_so_is_its_variance(size: int, num: int, seed: int) -> None:
    p, x = make_pool(size, seed)
    sizes = tuple(size // num + (g < size % num) for g in range(num))
    splits = list(groupings(frozenset(range(size)), sizes))
    mean = square = variance = 0.0
    for groups in splits:
        total = np.array([p[list(group)].sum() for group in groups])
        for drawn in itertools.product(*groups):
            chosen = list(drawn)
            chance = float(np.prod(p[chosen] / total)) / len(splits)
            design = RaoHartleyCochran(p[chosen], total, np.array(sizes), float(p.min()))
            found = float(design.mean(x[chosen]))
            mean += chance * found
            square += chance * found**2
            variance += chance * float(design.variance(x[chosen]))
    squares = sum(n * n for n in sizes)
    stated = (squares - size) / (size * (size - 1)) * (float((x**2 / p).sum()) - x.sum() ** 2) / size**2
    assert mean == pytest.approx(x.mean(), abs=1e-12)
    assert square - mean**2 == pytest.approx(stated, abs=1e-12)  # Rao, Hartley and Cochran (1962)
    assert variance == pytest.approx(stated, abs=1e-12)


@pytest.mark.parametrize("kind", ["systematic", "balanced"])
@pytest.mark.parametrize(("size", "num", "seed"), POOLS)
def test_unequal_samples_and_the_difference_estimator_are_unbiased(size: int, num: int, seed: int, kind: str) -> None:
    """Whatever the predictions are; and the error is that of f - p, with the variance of the joint probabilities."""
    p, x = make_pool(size, seed)
    predicted = np.random.default_rng(seed).random(size)
    probability = inclusion_probabilities(p, num)
    if kind == "systematic":
        samples = reference.samples(probability.tolist())
    else:
        balanced = np.column_stack([np.ones(size), x / probability])
        samples = {}
        for chance, sample, _ in cube.ways(probability.tolist(), balanced):
            samples[sample] = samples.get(sample, 0.0) + chance
    together, plain, corrected, square = np.zeros((size, size)), 0.0, 0.0, 0.0
    for sample, chance in samples.items():
        index = sorted(sample)
        design = InclusionProbability(
            probability[index], predicted[index], float(predicted.sum()), size, num, np.empty(0, dtype=np.int64)
        )
        together[np.ix_(index, index)] += chance
        plain += chance * float(design.mean(x[index]))
        found = design.failure_share(x[index])
        corrected += chance * found
        square += chance * found**2
    error = (x - predicted) / probability
    variance = error @ (together - np.outer(probability, probability)) @ error / size**2
    assert np.diag(together) == pytest.approx(probability, abs=1e-12)
    assert plain == pytest.approx(x.mean(), abs=1e-12)
    assert corrected == pytest.approx(x.mean(), abs=1e-12)
    assert square - corrected**2 == pytest.approx(variance, abs=1e-12)
