"""Linear estimators against every method's own estimator; accuracy by class, confusion and costs."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import beta, binom

import opacc_ray as opacc
from opacc_ray.designs.hansen_hurwitz import HansenHurwitz
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.designs.stratified import Stratified, collapse
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.domain import by_class, calibrate, confusion, cost_of_every_error, cost_of_failures, mean_cost
from opacc_ray.estimators.intervals import MID_P, weighted_clopper_pearson
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS
from opacc_ray.samplers.estimate import compare
from opacc_ray.selection import Selection

N, C = 600, 4


@pytest.fixture(scope="module")
def pool() -> Pool:
    rng = np.random.default_rng(0)
    output = rng.normal(size=(N, C))
    return Pool(
        hidden=np.maximum(rng.normal(size=(N, 8)), 0),
        output=output,
        prediction=output.argmax(axis=1),
        confidence=rng.uniform(0.3, 1, N),
        coverage=rng.random((N, 30)) < 0.2,
    )


@pytest.fixture(scope="module")
def outcome(pool: Pool) -> NDArray[np.float64]:
    return (np.random.default_rng(1).random(N) < pool.confidence).astype(float)


@pytest.fixture(scope="module")
def truth(pool: Pool, outcome: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.where(outcome > 0, pool.prediction, (pool.prediction + 1) % C)


def _rounds(pool: Pool, method: str, outcome: NDArray[np.float64]) -> tuple[list[Selection], list[NDArray[np.float64]]]:
    first = opacc.select(pool, method, 40, seed=1)
    second = opacc.select(pool, method, 50, seed=1, previous=[(first, outcome[first.index])])
    return [first, second], [outcome[first.index], outcome[second.index]]


@pytest.mark.parametrize("method", METHODS)
class TestLinearEstimatorOfEveryMethod:
    def test_gives_the_estimate_and_variance_of_the_method(self, method: str, pool: Pool, outcome) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        own, design = opacc.estimate(chosen, outcome[chosen.index]), linear_estimator(chosen)
        failure = 1 - outcome[chosen.index]
        if _predicts(method):  # it adds predictions of the failures: without them both agree
            own = opacc.estimate(_without_predictions(chosen), outcome[chosen.index])
        assert 1 - design.mean(failure) == pytest.approx(own.value, abs=1e-12)
        assert np.sqrt(design.variance(failure)) == pytest.approx(own.standard_error, abs=1e-12)
        assert (design.reason is None) == own.design_based

    def test_combines_rounds_as_the_estimate_does(self, method: str, pool: Pool, outcome) -> None:
        rounds, outcomes = _rounds(pool, method, outcome)
        failure, design = 1 - np.concatenate(outcomes), linear_estimator(rounds)
        if _predicts(method):
            rounds = [_without_predictions(chosen) for chosen in rounds]
        own = opacc.estimate(rounds, outcomes)
        assert 1 - design.mean(failure) == pytest.approx(own.value, abs=1e-12)
        assert np.sqrt(design.variance(failure)) == pytest.approx(own.standard_error, abs=1e-12)

    def test_is_linear_with_the_weights_it_names(self, method: str, pool: Pool, outcome) -> None:
        rounds, _ = _rounds(pool, method, outcome)
        design, x = linear_estimator(rounds), np.random.default_rng(2).normal(size=(90, 3))
        assert design.mean(x) == pytest.approx(design.weights @ x)
        assert design.variance(x) == pytest.approx([design.variance(column) for column in x.T])
        assert design.variance(3 * x) == pytest.approx(9 * design.variance(x))
        assert 0 < design.largest_weight < 1

    def test_missing_labels_leave_the_estimate_of_the_method(self, method: str, pool: Pool, outcome) -> None:
        chosen = opacc.select(pool, method, 60, seed=1)
        part = chosen.restrict(np.random.default_rng(3).random(len(chosen)) < 0.8)
        if _predicts(method):
            part = _without_predictions(part)
        own = opacc.estimate(part, outcome[part.index])
        assert 1 - linear_estimator(part).mean(1 - outcome[part.index]) == pytest.approx(own.value, abs=1e-12)

    def test_calibration_agrees_with_the_pool(self, method: str, pool: Pool, outcome) -> None:
        rounds, _ = _rounds(pool, method, outcome)
        predicted = pool.prediction[np.concatenate([part.index for part in rounds])]
        counts = np.bincount(pool.prediction)
        design = calibrate(rounds, predicted, dict(enumerate(counts.tolist())))
        assert design.mean(np.eye(C)[predicted]) == pytest.approx(counts / N)
        assert design.variance(np.eye(C)[predicted]) == pytest.approx(np.zeros(C), abs=1e-20)
        assert design.reason == linear_estimator(rounds).reason


def _predicts(method: str) -> bool:
    return METHODS[method].Parameters().predicts_failures


def _without_predictions(selection: Selection) -> Selection:
    nothing = np.full(len(selection), 1e-15)
    return replace(selection, design=replace(selection.design, predicted_failure=nothing, predicted_failures=0.0))


def test_variance_of_any_variable_is_unbiased_over_all_samples_of_a_tiny_pool() -> None:
    x = np.array([0.3, -1.0, 0, 0.8, 0.5, -0.2])
    samples = [np.array(sample) for sample in itertools.combinations(range(6), 3)]
    designs = [SimpleRandom(3, 6, replacement=False) for sample in samples]
    means = [design.mean(x[sample]) for design, sample in zip(designs, samples, strict=True)]
    variances = [design.variance(x[sample]) for design, sample in zip(designs, samples, strict=True)]
    assert np.mean(means) == pytest.approx(x.mean(), abs=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(means), abs=1e-12)


def test_unequal_probabilities_are_unbiased_for_any_variable() -> None:
    x, p = np.array([0.3, -1.0, 0, 0.8]), np.array([0.1, 0.2, 0.3, 0.4])
    mean = variance = 0.0
    means, chances = [], []
    for pair in itertools.product(range(4), repeat=2):
        drawn = np.array(pair)
        design = HansenHurwitz(p[drawn], 4, 0.1)
        chance = float(p[drawn].prod())
        means.append(design.mean(x[drawn]))
        chances.append(chance)
        mean += chance * means[-1]
        variance += chance * design.variance(x[drawn])
    assert mean == pytest.approx(x.mean(), abs=1e-12)
    assert variance == pytest.approx(np.array(chances) @ (np.array(means) - x.mean()) ** 2, abs=1e-12)


@pytest.mark.parametrize(
    ("drawn", "group"),
    [
        ([3, 2, 5], [0, 1, 2]),
        ([1, 4, 1], [0, 0, 0]),
        ([1, 1, 3, 1], [0, 0, 1, 1]),
        ([2, 1, 1], [0, 1, 1]),
        ([1], [0]),
    ],
)
def test_a_stratum_with_one_label_joins_the_next(drawn: list[int], group: list[int]) -> None:
    assert collapse(np.array(drawn)).tolist() == group


def test_by_class_is_clopper_pearson_for_a_simple_random_sample(pool: Pool, outcome, truth) -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(100_000)]), "srs", 300, seed=2)
    classes, y = np.arange(300) % 3, (np.arange(300) % 7 > 0).astype(float)
    for c, estimate in by_class(chosen, y, classes).items():
        right = int(y[classes == c].sum())
        assert (estimate.value, estimate.n) == (pytest.approx(right / 100), 100)
        assert estimate.low == pytest.approx(beta.ppf(0.025, right, 101 - right), abs=0.01)
        assert estimate.high == pytest.approx(beta.ppf(0.975, right + 1, 100 - right), abs=0.01)


def test_classes_and_strata_by_hand() -> None:
    """Stratum 0 holds 8 examples, 2 labelled; stratum 1 holds 2, one labelled: weights 4, 4 and 2."""
    design = Stratified(np.array([0, 0, 1]), np.array([8, 2]))
    chosen = Selection("css", {}, 0, 10, np.arange(3), ("a", "b", "c"), design)
    found = by_class(chosen, np.array([1, 0.5, 0]), np.array(["x", "y", "x"]))
    assert found["x"].value == pytest.approx(4 / 6)
    assert found["y"].value == pytest.approx(0.5)
    matrix = confusion(chosen, np.array(["x", "y", "x"]), np.array(["x", "y", "y"]))
    assert matrix.classes == ("x", "y")
    assert matrix.share == pytest.approx(np.array([[0.4, 0.2], [0, 0.4]]))
    assert matrix.num.tolist() == [[1, 1], [0, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "css", "sups", "deepest", "rhcs"])
def test_class_intervals_cover(method: str, pool: Pool, outcome, truth) -> None:
    """500 repetitions of four classes; fails under the 1e-4 quantile of a 95 % interval's hits in any of them."""
    true = [outcome[truth == c].mean() for c in range(C)]
    hits, seen = np.zeros(C), np.zeros(C)
    for seed in range(500):
        chosen = opacc.select(pool, method, 50, seed)
        for c, estimate in by_class(chosen, outcome[chosen.index], truth[chosen.index]).items():
            hits[c] += estimate.low <= true[c] <= estimate.high
            seen[c] += 1
    assert (hits >= binom.ppf(1e-4, seen, 0.95)).all()


def test_confusion_sums_to_one_and_contains_the_accuracy(pool: Pool, outcome, truth) -> None:
    chosen = opacc.select(pool, "srs", 80, seed=4)
    matrix = confusion(chosen, truth[chosen.index], pool.prediction[chosen.index])
    own = opacc.estimate(chosen, outcome[chosen.index])
    assert matrix.share.sum() == pytest.approx(1)
    assert np.trace(matrix.share) == pytest.approx(own.value)
    assert matrix.num.sum() == 80
    share = matrix.share[0, 0]
    assert matrix.standard_error[0, 0] == pytest.approx(np.sqrt((1 - 80 / N) * share * (1 - share) / 79))
    assert matrix.to_dict()["share"] == matrix.share.tolist()


def test_confusion_is_right_on_average(pool: Pool, truth) -> None:
    """A design with unequal weights, averaged over 200 samples, against the pool."""
    true = np.zeros((C, C))
    np.add.at(true, (truth, pool.prediction), 1 / N)
    found = np.zeros((C, C))
    for seed in range(200):
        chosen = opacc.select(pool, "css", 100, seed)
        matrix = confusion(chosen, truth[chosen.index], pool.prediction[chosen.index])
        found[np.ix_(matrix.classes, matrix.classes)] += matrix.share / 200
    assert found == pytest.approx(true, abs=0.012)


def test_calibration_sharpens_the_confusion_matrix(pool: Pool, truth) -> None:
    chosen = opacc.select(pool, "srs", 120, seed=5)
    predicted = pool.prediction[chosen.index]
    design = calibrate(chosen, predicted, dict(enumerate(np.bincount(pool.prediction).tolist())))
    plain, sharp = (confusion(rounds, truth[chosen.index], predicted) for rounds in (chosen, design))
    assert sharp.share.sum(axis=0) == pytest.approx(np.bincount(pool.prediction) / N)
    assert (np.diag(sharp.standard_error) < np.diag(plain.standard_error)).all()


def test_classes_with_few_labels_are_calibrated_together() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(1000)]), "srs", 20, seed=1)
    predicted = np.array(["a"] * 14 + ["b"] * 4 + ["c"] * 2)
    design = calibrate(chosen, predicted, {"a": 500, "b": 300, "c": 150, "d": 50})
    assert design.weights == pytest.approx(np.repeat([0.5 / 14, 0.5 / 6], [14, 6]))
    with pytest.raises(LabelError, match="'c'"):
        calibrate(chosen, predicted, {"a": 500, "b": 500})


@pytest.mark.parametrize("method", METHODS)
def test_costs_of_one_give_the_share_of_failures(method: str, pool: Pool, outcome, truth) -> None:
    rounds, outcomes = _rounds(pool, method, outcome)
    index = np.concatenate([part.index for part in rounds])
    cost = mean_cost(rounds, truth[index], pool.prediction[index], {})
    own = opacc.estimate(rounds, outcomes)
    assert cost.value == pytest.approx(1 - own.value)
    assert cost.standard_error == pytest.approx(own.standard_error)
    assert cost.low <= cost.value <= cost.high


@pytest.mark.parametrize(
    ("costs", "classes", "every"),
    [
        ({}, "abc", 1),
        ({"a": 1.0, "b": {"a": 1}}, "abc", 1),
        ({"a": 2, "b": 2}, "abc", None),
        ({"a": 2, "b": 2, "c": {"a": 2, "b": 2}}, "abc", 2),
        ({"a": 2, "b": 2, "c": {"a": 2}}, "abc", None),
        ({"a": 0, "b": 0}, "ab", 0),
        ({"a": 1.0}, None, 1),
        ({"a": 2, "b": 2}, None, None),
        ({"a": {"b": 2}}, None, None),
    ],
)
def test_what_every_error_costs_is_known_if_all_cost_the_same(costs, classes: str | None, every: float | None) -> None:
    assert cost_of_every_error(costs, classes) == every


def test_errors_that_cost_the_same_cost_what_the_failures_do() -> None:
    found = cost_of_failures(Estimate(0.8, 0.05, 0.7, 0.88, 0.95, "any", 60, True), 10)
    assert (found.value, found.standard_error, found.low, found.high) == pytest.approx((2, 0.5, 1.2, 3))


def test_costs_by_class_and_by_confusion() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(50)]), "srs", 5, seed=1)
    truth, said = np.array(list("aabbc")), np.array(list("abaab"))
    cost = mean_cost(chosen, truth, said, {"a": 3, "b": {"a": 10.0}, "z": 40})
    assert cost.value == pytest.approx((0 + 3 + 10 + 10 + 1) / 5)
    assert 0 < cost.low < cost.value < cost.high < 40


def test_costs_that_no_label_had_are_assumed_with_probability_one_half() -> None:
    """100 right answers, and an error that costs 40: the mid-P end for no loss of that size."""
    chosen = opacc.select(Pool(ids=[str(i) for i in range(10_000)]), "srs", 100, seed=1)
    right = np.zeros(100, dtype=int)
    cost = mean_cost(chosen, right, right, {0: 40})
    weight = chosen.design.largest_weight
    assert cost.high == pytest.approx(40 * weighted_clopper_pearson(0.0, 0.0, weight, 0.95, unseen=MID_P)[1])
    assert cost.high == pytest.approx(40 * (1 - 0.05**0.01), rel=0.02)  # half of (1 - θ)**100 is 2.5 %


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "css"])
def test_cost_intervals_cover(method: str, pool: Pool, outcome, truth) -> None:
    """Rare dear errors; 500 repetitions; fails under the 1e-4 quantile of a 95 % interval's hits."""
    costs = {3: 20.0}
    true = np.mean((1 - outcome) * np.where(truth == 3, 20, 1))
    hits = 0
    for seed in range(500):
        chosen = opacc.select(pool, method, 60, seed)
        estimate = mean_cost(chosen, truth[chosen.index], pool.prediction[chosen.index], costs)
        hits += estimate.low <= true <= estimate.high
    assert hits >= binom.ppf(1e-4, 500, 0.95)


def test_a_pool_labelled_in_full_leaves_no_doubt() -> None:
    chosen = opacc.select(Pool(ids=list("abcdefgh")), "srs", 8, seed=1)
    estimate = by_class(chosen, np.tile([1.0, 0, 1, 1], 2), np.repeat([0, 1], 4))[0]
    assert (estimate.low, estimate.value, estimate.high) == (0.75, 0.75, 0.75)


@pytest.mark.parametrize("cost", [-1, np.nan, np.inf, True, "3"])
def test_refuses_costs_that_are_none(cost: object, pool: Pool) -> None:
    chosen = opacc.select(pool, "srs", 2)
    with pytest.raises(SpecError, match="of an error"):
        mean_cost(chosen, np.array([0, 1]), np.array([0, 1]), {0: {1: cost}})


def test_refuses_rounds_and_classes_that_do_not_fit(pool: Pool, outcome) -> None:
    rounds, _ = _rounds(pool, "neyman", outcome)
    with pytest.raises(LabelError, match=r"round 2 .* 40 more examples"):
        linear_estimator(rounds[1:])
    with pytest.raises(LabelError, match=r"classes has shape \(3,\) and the rounds 40 labels"):
        by_class(rounds[0], np.ones(40), np.arange(3))
    other = opacc.select(Pool(ids=list("abcdefgh")), "srs", 2)
    with pytest.raises(LabelError, match=r"pools of \[8, 600\]"):
        linear_estimator([rounds[0], other])


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        (by_class, "outcome"),
        (by_class, "classes"),
        (confusion, "truth"),
        (confusion, "prediction"),
        (mean_cost, "truth"),
        (mean_cost, "prediction"),
    ],
)
def test_every_array_is_of_all_labels(pool: Pool, statement: Callable[..., object], name: str) -> None:
    chosen = opacc.select(pool, "srs", 9)
    names = ("outcome", "classes") if statement is by_class else ("truth", "prediction")
    arrays = {other: np.zeros(8 if other == name else 9) for other in names}
    costs = {"costs": {}} if statement is mean_cost else {}
    with pytest.raises(LabelError, match=rf"^{name} has shape \(8,\) and the rounds 9 labels"):
        statement(chosen, **arrays, **costs)


def test_an_error_may_cost_nothing_or_less_than_one() -> None:
    chosen = opacc.select(Pool(ids=[str(i) for i in range(50)]), "srs", 4, seed=1)
    cost = mean_cost(chosen, np.array(list("aabb")), np.array(list("bbaa")), {"a": 0, "b": 0.5})
    assert cost.value == pytest.approx(0.25)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sups", "rhcs", "two_ups"])
def test_cost_and_difference_are_covered_where_most_fail(method: str) -> None:
    """100 repetitions; bounded by the weighted failures alone they cover in 70 to 84 %."""
    rng = np.random.default_rng(0)
    confidence = np.clip(1 - rng.beta(0.5, 3, 2000), 0.2, 1)
    truth = np.where(rng.random(2000) < 0.95, 1 + (rng.random(2000) < 0.1), 0)  # all are taken for 0
    right, better, cost = (truth == 0).astype(float), np.ones(2000), np.array([0.0, 1.0, 1.5])[truth]
    pool, hits = Pool(confidence=confidence), np.zeros(2)
    for seed in range(100):
        chosen = opacc.select(pool, method, 30, seed)
        i = chosen.index
        stated = (
            mean_cost(chosen, truth[i], np.zeros(30, dtype=int), {2: 1.5}),
            compare(chosen, [better[i], right[i]]).differences[0].difference,
        )
        wanted = (cost.mean(), 1 - right.mean())
        hits += [found.low <= value <= found.high for found, value in zip(stated, wanted, strict=True)]
    assert (hits >= binom.ppf(1e-3, 100, 0.95)).all()
