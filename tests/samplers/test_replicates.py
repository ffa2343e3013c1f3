"""Replicates: how they are drawn, what they estimate, and how often their interval covers."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.stats import binom, t

import opacc_ray as opacc
from opacc_ray.designs.replicates import Replicates
from opacc_ray.designs.simple_random import SimpleRandom
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.class_totals import scaled
from opacc_ray.estimators.design_based import estimate_sample
from opacc_ray.estimators.rounds import linear_estimator
from opacc_ray.parts.subset import subset
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS, parse_parameters
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, Task
from opacc_ray.samplers.estimate import compare
from opacc_ray.samplers.metric_estimates import MetricEstimates, Sample
from opacc_ray.samplers.select import replicate
from opacc_ray.selection import Selection

N = 400
NOTHING = NO_PREVIOUS.chosen


@pytest.fixture(scope="module")
def pool() -> Pool:
    return _pool(0, N)


def _pool(first: int, last: int) -> Pool:
    rng = np.random.default_rng(0)
    output = rng.normal(size=(N, 4))
    features = {
        "hidden": np.maximum(rng.normal(size=(N, 6)), 0),
        "output": output,
        "prediction": output.argmax(axis=1),
        "confidence": rng.uniform(0.3, 1, N),
        "coverage": rng.random((N, 30)) < 0.2,
    }
    cut = {name: values[first:last] for name, values in features.items()}
    return Pool(ids=[f"scan/{i}" for i in range(first, last)], **cut)


def _draw(pool: Pool | View, method: str, num: int, budget: int | None, seed: int, **parameters) -> Selection:
    return opacc.select(pool, method, budget, seed, replicates=num, **parameters)


@pytest.mark.parametrize("method", METHODS)
class TestReplicatesOfEveryMethod:
    def test_are_disjoint_and_named_after_the_pool(self, method: str, pool: Pool) -> None:
        parameters = {"initial": 4} if method == "ces" else {}
        chosen = _draw(pool, method, 3, 62, seed=1, **parameters)
        assert np.bincount(chosen.design.replicate).tolist() == [21, 21, 20]
        assert chosen.design.replicate[:3].tolist() == [0, 1, 2]
        assert list(chosen.ids) == [pool.ids[i] for i in chosen.index]
        owner = {}
        for index, number in zip(chosen.index.tolist(), chosen.design.replicate.tolist(), strict=True):
            assert owner.setdefault(index, number) == number
        assert Selection.from_json(chosen.to_json(), "replicates").to_dict() == chosen.to_dict()

    def test_each_is_what_the_method_chooses_from_its_part(self, method: str, pool: Pool) -> None:
        parameters = {"initial": 4} if method == "ces" else {}
        drawn = []

        def choose(part: View, share: int | None, number: int) -> Draw:
            task = Task(share, parse_parameters(method, parameters), NO_PREVIOUS)
            drawn.append(METHODS[method].draw(part, task, np.random.default_rng(number)))
            return drawn[-1]

        chosen = replicate(view_of(pool), 2, 50, NOTHING, np.random.default_rng(0), choose)
        y = np.random.default_rng(1).random(50)
        estimates = []
        for part, original in zip(chosen.design.parts, drawn, strict=True):
            assert part.design.to_json() == original.design.to_json()
            estimates.append(estimate_sample(part.design, y[part.places], 0.95))
        found = estimate_sample(chosen.design, y, 0.95)
        values = [estimate.value for estimate in estimates]
        assert found.value == pytest.approx(np.mean(values))
        assert found.standard_error == pytest.approx(abs(values[0] - values[1]) / 2)
        assert found.design_based
        assert (found.reason is None) == estimates[0].design_based

    def test_does_not_depend_on_the_parts_of_the_pool(self, method: str, pool: Pool) -> None:
        parameters = {"initial": 4} if method == "ces" else {}
        whole = _draw(pool, method, 2, 44, seed=2, **parameters)
        cut = View(LocalParts([_pool(low, high) for low, high in itertools.pairwise([0, 1, 150, N])]))
        assert _draw(cut, method, 2, 44, seed=2, **parameters).to_dict() == whole.to_dict()


def test_estimate_is_unbiased_over_all_splits_and_samples_of_a_tiny_pool() -> None:
    """6 examples in parts of 3, one label in each; its variance is too large by S²/N, as the docstring says."""
    outcome = np.array([1, 0, 1, 0.25, 1, 0.5])
    values, variances = [], []
    for part in itertools.combinations(range(6), 3):
        rest = [i for i in range(6) if i not in part]
        for pair in itertools.product(part, rest):
            own = SimpleRandom(1, 3, replacement=False)
            found = estimate_sample(
                Replicates(np.array([0, 1]), np.array([3, 3]), (own, own)), outcome[list(pair)], 0.95
            )
            values.append(found.value)
            variances.append(found.standard_error**2)
    assert np.mean(values) == pytest.approx(outcome.mean(), abs=1e-12)
    assert np.mean(variances) == pytest.approx(np.var(values) + outcome.var(ddof=1) / 6, abs=1e-12)


def test_interval_is_student_at_the_spread_of_the_replicates(pool: Pool) -> None:
    """Where Wilson's interval is symmetric, around one half, and narrow."""
    chosen = _draw(pool, "srs", 4, 200, seed=3)
    y = np.zeros(200)
    for part, num in zip(chosen.design.parts, (24, 26, 25, 25), strict=True):
        y[part.places[:num]] = 1
    found = opacc.estimate(chosen, y)
    half = t.ppf(0.975, 3) * np.std([24 / 50, 26 / 50, 0.5, 0.5], ddof=1) / 2
    low, high = np.floor(400 * (0.5 - half)) / 400, np.ceil(400 * (0.5 + half)) / 400  # accuracies of a pool of 400
    assert (found.low, found.value, found.high) == pytest.approx((low, 0.5, high), abs=1e-12)
    assert found.interval == "4 replicates"


def test_replicates_that_agree_leave_doubt(pool: Pool) -> None:
    chosen = _draw(pool, "srs", 5, 100, seed=4)
    found = opacc.estimate(chosen, np.ones(100))
    assert found.high == pytest.approx(1)
    assert found.low < 0.97
    design = linear_estimator(chosen)
    assert design.largest_weight > 0


@pytest.mark.parametrize("score", [0.1, 0.3, 0.7])
def test_replicates_of_equal_scores_leave_doubt_though_their_means_differ_by_rounding(score: float, pool: Pool) -> None:
    found = opacc.estimate(_draw(pool, "srs", 4, 35, seed=4), np.full(35, score))
    assert found.high - found.low > 0.05


def test_linear_estimator_of_replicates_is_their_estimate(pool: Pool) -> None:
    y = np.random.default_rng(5).random(60)
    for method in ("ces", "css", "deepest"):
        chosen = _draw(pool, method, 3, 60, seed=5, **({"initial": 4} if method == "ces" else {}))
        found, design = opacc.estimate(chosen, y), linear_estimator(chosen)
        assert 1 - design.mean(1 - y) == pytest.approx(found.value)
        assert np.sqrt(design.variance(1 - y)) == pytest.approx(found.standard_error, rel=0.01)  # shares nearly equal
        assert design.weights @ (1 - y) == pytest.approx(design.mean(1 - y))


def test_deepreduce_stops_itself_in_every_part(pool: Pool) -> None:
    chosen = _draw(pool, "deepreduce", 2, None, seed=6, alpha=0.02)
    assert (np.bincount(chosen.design.replicate) > 5).all()


@pytest.mark.slow
def test_ces_replicates_cover() -> None:
    """300 repetitions; fails under the 1e-4 quantile of a 95 % interval's hits."""
    rng = np.random.default_rng(7)
    hidden = rng.normal(size=(1000, 3))
    outcome = (rng.random(1000) < 1 / (1 + np.exp(-2 - 2 * hidden[:, 0]))).astype(float)
    pool = Pool(hidden=hidden)
    hits = 0
    for seed in range(300):
        chosen = _draw(pool, "ces", 5, 100, seed, initial=5, candidates=20)
        found = opacc.estimate(chosen, outcome[chosen.index])
        hits += found.low <= outcome.mean() <= found.high
    assert hits >= binom.ppf(1e-4, 300, 0.95)


@pytest.mark.parametrize(
    ("num", "budget", "message"), [(1, 50, "replicates=1"), (401, 50, "from 2 to 400"), (5, 4, "budget=4")]
)
def test_refuses_what_cannot_be_split(num: int, budget: int, message: str, pool: Pool) -> None:
    with pytest.raises(SpecError, match=message):
        _draw(pool, "srs", num, budget, seed=1)


def test_refuses_labels_of_one_replicate_only(pool: Pool) -> None:
    chosen = _draw(pool, "srs", 2, 40, seed=1)
    part = chosen.restrict(chosen.design.replicate == 0)
    with pytest.raises(LabelError, match="only 1 replicate has labels, and a variance needs two"):
        opacc.estimate(part, np.ones(20))


def test_leaves_out_what_is_taken(pool: Pool) -> None:
    taken = np.arange(0, N, 2)
    chosen = replicate(
        view_of(pool),
        2,
        100,
        taken,
        np.random.default_rng(0),
        lambda part, share, r: METHODS["srs"].draw(
            part, Task(share, parse_parameters("srs", {}), NO_PREVIOUS), np.random.default_rng(r)
        ),
    )
    assert (chosen.chosen % 2 == 1).all()
    assert len(set(chosen.chosen.tolist())) == 100


class _Elsewhere(LocalParts):
    """Parts that are reached by messages, and forget everything between two of them."""

    def call(self, calls):
        answers = [
            LocalParts([self.pools[part]]).call([(0, *rest)])[0] for part, *rest in pickle.loads(pickle.dumps(calls))
        ]
        return pickle.loads(pickle.dumps(answers))


def _hidden(part: Pool, rows):
    return part.hidden[rows]


class TestSubset:
    def test_reads_as_a_pool_of_its_own(self, pool: Pool) -> None:
        index = np.array([3, 4, 160, 399])
        cut = [_pool(0, 5), _pool(5, 150), _pool(150, N)]
        for view in (view_of(pool), View(LocalParts(cut)), View(_Elsewhere(cut))):
            part = subset(view, index)
            assert part.size == 4
            assert part.identify(np.arange(4)) == [pool.ids[i] for i in index]
            assert part.column("confidence") == pytest.approx(pool.confidence[index])
            rows = part.take(_hidden, np.array([2, 0]))
            assert rows == pytest.approx(pool.hidden[[160, 3]])
            assert part.fields == view.fields

    def test_two_of_them_do_not_mix(self, pool: Pool) -> None:
        view = view_of(pool)
        one, two = subset(view, np.arange(10)), subset(view, np.arange(10, 30))
        for _ in range(2):
            assert one.column("confidence") == pytest.approx(pool.confidence[:10])
            assert two.column("confidence") == pytest.approx(pool.confidence[10:30])

    def test_refuses_nothing(self, pool: Pool) -> None:
        with pytest.raises(DataError, match="no example"):
            subset(view_of(pool), NOTHING)


def test_rounds_say_all_that_they_rest_on() -> None:
    """Replicates alone are design-based with a caution; a round without makes the whole rest on more than that."""
    rng = np.random.default_rng(0)
    pool = opacc.Pool(hidden=rng.normal(size=(400, 4)))
    first = opacc.select(pool, "ces", 60, replicates=3, initial=5)
    rounds = [(first, np.arange(60) % 7 > 0)]
    second = opacc.select(pool, "ces", 40, previous=rounds)
    third = opacc.select(pool, "ces", 60, replicates=3, initial=5, previous=rounds)
    mixed = opacc.estimate([first, second], [rounds[0][1], np.arange(40) % 7 > 0])
    assert not mixed.design_based
    assert mixed.reason is not None
    assert "replicates" in mixed.reason
    assert "simple random sample" in mixed.reason
    replicated = opacc.estimate([first, third], [rounds[0][1], np.arange(60) % 7 > 0])
    assert replicated.design_based
    assert "replicates" in (replicated.reason or "")


@pytest.mark.slow
def test_classes_costs_and_differences_are_covered_with_few_replicates() -> None:
    """150 repetitions of 3 replicates; without Student's quantile they cover in 82 to 89 %."""
    rng = np.random.default_rng(11)
    right, other = (rng.random(2000) < 0.7).astype(float), (rng.random(2000) < 0.6).astype(float)
    said = rng.integers(0, 2, 2000)
    truth, costs = np.where(right > 0, said, 1 - said), np.array([[0.0, 4.0], [1.0, 0.0]])
    cost = np.where(right > 0, 0.0, np.where(truth == 0, 4.0, 1.0))
    wanted = (right[said == 0].mean(), cost.mean(), right.mean() - other.mean())
    pool, hits = Pool(confidence=np.full(2000, 0.9)), np.zeros(3)
    for seed in range(150):
        chosen = _draw(pool, "srs", 3, 200, seed)
        i = chosen.index
        totals = MetricEstimates(Sample([chosen], [right[i]], truth[i]), said, ["0", "1"], {}, None).totals()
        stated = (
            totals.by_prediction(0.95)[0],
            scaled(totals.mean_cost(costs, 0.95), 4.0),
            compare(chosen, [right[i], other[i]]).differences[0].difference,
        )
        hits += [found.low <= value <= found.high for found, value in zip(stated, wanted, strict=True)]
    assert (hits >= binom.ppf(1e-3, 150, 0.95)).all()


@pytest.mark.slow
def test_rounds_of_few_replicates_are_as_unsure_as_they() -> None:
    """200 repetitions of two rounds of 2 replicates; with the labels' degrees of freedom they cover in 84 %."""
    outcome = (np.random.default_rng(12).random(2000) < 0.7).astype(float)
    pool, hits = Pool(confidence=np.full(2000, 0.9)), 0
    for seed in range(200):
        first = _draw(pool, "srs", 2, 100, seed)
        second = opacc.select(pool, "srs", 100, seed, replicates=2, previous=[(first, outcome[first.index])])
        found = opacc.estimate([first, second], [outcome[first.index], outcome[second.index]])
        hits += found.low <= outcome.mean() <= found.high
    assert hits >= binom.ppf(1e-4, 200, 0.95)
