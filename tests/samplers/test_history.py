"""History: it raises the precision where it is right, and the estimate is unbiased for any history."""

import numpy as np
import pytest
from oracles import cube
from scipy.stats import binom
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.errors import DataError, SpecError
from opacc_ray.history import History
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.forecast import forecast_labels
from opacc_ray.samplers.neyman.signals import signals_of_others


def make_pool(size: int, seed: int) -> tuple[opacc.Pool, np.ndarray]:
    """A classifier that always fails where it predicts 0 or 1, and rarely elsewhere."""
    rng = np.random.default_rng(seed)
    prediction, hidden = rng.integers(0, 6, size), rng.normal(size=(size, 5)).astype(np.float32)
    outcome = ((prediction > 1) & (rng.random(size) > 0.02)).astype(float)
    confidence = 1 - rng.beta(0.2, 8, size)
    return opacc.Pool(hidden=hidden, confidence=confidence, prediction=prediction, lsa=rng.gamma(2, 1, size)), outcome


def exact_variance(view: View, outcome: np.ndarray, history: History) -> float:
    """Of the share of failures in one round of 100, were examples drawn independently of each other."""
    plan = whole_plan(view, Task(100, neyman.Parameters(), NO_PREVIOUS, history=history))
    error = (1 - outcome)[plan.free] - plan.expected
    return float((error**2 * (1 / plan.probability - 1)).sum()) / len(outcome) ** 2


def test_signals_of_other_examples_are_on_the_scales_of_the_pool() -> None:
    pool, _ = make_pool(300, 1)
    view, some = view_of(pool), np.array([3, 200, 77])
    part = opacc.Pool(**{name: getattr(pool, name)[some] for name in pool.fields})
    signals = read_signals(view, 3)
    others, own = signals_of_others(view, signals, 3, part), signals.take(some)
    assert np.array(others.values) == pytest.approx(np.array(own.values), abs=1e-6)
    assert others.classes.tolist() == own.classes.tolist()
    foreign = signals_of_others(view, signals, 3, opacc.Pool(prediction=[99, 2]))
    assert foreign.classes.tolist() == [-1, 2]
    assert foreign.values[0] == pytest.approx(signals.values[0].mean())


def test_a_labelled_reference_is_used_before_the_first_label() -> None:
    (pool, outcome), (other, known) = make_pool(2000, 2), make_pool(800, 3)
    view = view_of(pool)
    history = opacc.History(labelled=[(other, known)])
    signals = read_signals(view, 6, history)
    p = predict_failure(signals, np.empty(0, int), np.empty(0)).failure
    assert p[outcome == 0].mean() > 6 * p[outcome == 1].mean()
    assert exact_variance(view, outcome, history) < 0.4 * exact_variance(view, outcome, opacc.History())


@pytest.mark.parametrize("num", [1, 3, 10])
@pytest.mark.parametrize("is_constant", [False, True])
def test_useless_prior_columns_change_nothing(num: int, is_constant: bool) -> None:
    pool, _ = make_pool(3000, 2)
    view = view_of(pool)
    columns = np.random.default_rng(4).normal(size=(3000, num)) * (not is_constant)
    history = opacc.History(prior=columns)
    alone, with_columns = (
        predict_failure(read_signals(view, 6, own), np.empty(0, int), np.empty(0)).failure.mean()
        for own in (opacc.History(), history)
    )
    assert with_columns == pytest.approx(alone, rel=0.1)
    bare = opacc.Pool(ids=[str(i) for i in range(3000)])
    assert forecast_labels(view_of(bare), 0.02, history=history).srs == pytest.approx(711, rel=0.2)


def test_many_useless_prior_columns_keep_the_bayes_factor_small() -> None:
    """Labels at random where hardly any fails, of a model that expects a third to: the Bayes factor stays modest."""
    rng = np.random.default_rng(5)
    pool = opacc.Pool(confidence=1 - rng.beta(2, 4, 3000), prediction=rng.integers(0, 10, 3000))
    signals = read_signals(view_of(pool), 6, opacc.History(prior=rng.normal(size=(3000, 10))))
    large = 0
    for _ in range(60):
        labelled = np.sort(rng.choice(3000, 150, replace=False))
        large += predict_failure(signals, labelled, 1.0 * (rng.random(150) < 0.002)).bayes_factor > 20
    assert large <= binom.ppf(1 - 1e-4, 60, 0.05)


def test_labels_of_the_pool_overrule_a_wrong_history() -> None:
    pool, outcome = make_pool(2000, 2)
    other, known = make_pool(800, 3)
    view, history = view_of(pool), opacc.History(labelled=[(other, 1 - known)])
    labelled = np.sort(np.random.default_rng(0).choice(2000, 60, replace=False))
    p = predict_failure(read_signals(view, 6, history), labelled, 1 - outcome[labelled]).failure
    assert p[outcome == 0].mean() > 0.5 > 0.2 > p[outcome == 1].mean()


def make_turned(size: int, seed: int) -> tuple[opacc.Pool, np.ndarray]:
    """A classifier that fails at one end of a direction in some classes, and at the other end in the others."""
    rng = np.random.default_rng(seed)
    prediction, hidden = rng.integers(0, 6, size), rng.normal(size=(size, 2)).astype(np.float32) * [3, 1]
    outcome = (hidden[:, 0] * np.where(prediction < 3, 1, -1) < 4).astype(float)
    return opacc.Pool(hidden=hidden, prediction=prediction), outcome


def test_a_signal_may_mean_one_thing_in_one_class_and_another_in_another() -> None:
    (pool, outcome), (other, known) = make_turned(2500, 2), make_turned(1500, 3)
    signals = read_signals(view_of(pool), 2, opacc.History(labelled=[(other, known)]))
    p = predict_failure(signals, np.empty(0, int), np.empty(0)).failure
    assert p[outcome == 0].mean() > 0.5 > 0.1 > p[outcome == 1].mean()


def test_classes_that_the_pool_lacks_inform_the_common_slopes() -> None:
    pool, _ = make_pool(500, 2)
    other, known = make_pool(400, 3)
    assert other.prediction is not None
    foreign = opacc.Pool(
        **{name: getattr(other, name) for name in other.fields} | {"prediction": other.prediction + 50}
    )
    found = []
    for given in (other, foreign):
        signals = read_signals(view_of(pool), 6, opacc.History(labelled=[(given, known)]))
        found.append(predict_failure(signals, np.empty(0, int), np.empty(0)).failure)
    of_classes = [[p[pool.prediction == own].mean() for own in range(6)] for p in found]
    assert np.ptp(of_classes[0]) > 0.5 > 0.1 > np.ptp(of_classes[1])


def test_a_history_of_labels_may_cost_three_times_the_price() -> None:
    """And no more, for any history; a column without labels costs the price once."""
    (pool, _), (other, known) = make_pool(2000, 2), make_pool(800, 3)
    view, parameters = view_of(pool), neyman.Parameters(price=0.05)
    for history, price in (
        (opacc.History(), 0.05),
        (opacc.History(prior=np.arange(2000)), 0.05),
        (opacc.History(labelled=[(other, known)]), 0.15),
        (opacc.History(labelled=[(other, 1 - known)]), 0.15),
    ):
        plan = whole_plan(view, Task(20, parameters, NO_PREVIOUS, history=history))
        cost = np.mean(plan.probability.mean() / plan.probability) - 1
        assert 0 < cost < price + 1e-3  # less where classes get their least share
        forecast = forecast_labels(view, 0.1, parameters=parameters, history=history)
        assert forecast.worthless == pytest.approx((1 + price) * forecast.srs, abs=2)


def test_a_prior_column_of_the_user_is_used() -> None:
    rng = np.random.default_rng(5)
    doubt = rng.beta(0.3, 1.2, 3000)
    outcome = (rng.random(3000) >= doubt).astype(float)
    view = view_of(opacc.Pool(ids=[str(i) for i in range(3000)]))
    helped = exact_variance(view, outcome, opacc.History(prior=doubt))
    assert helped < 0.85 * exact_variance(view, outcome, opacc.History())
    useless = exact_variance(view, outcome, opacc.History(prior=rng.random(3000)))
    assert useless < 1.3 * outcome.var() / 100


@pytest.mark.parametrize("reverse", [False, True])
def test_any_history_is_unbiased_over_all_samples(reverse: bool) -> None:
    (pool, _), (other, known) = make_pool(7, 4), make_pool(200, 5)
    outcome = np.array([1, 0, 1, 0.25, 1, 0.5, 0])
    history = opacc.History(labelled=[(other, 1 - known if reverse else known)], prior=np.arange(7))
    view = view_of(pool)
    plan = whole_plan(view, Task(3, neyman.Parameters(), NO_PREVIOUS, history=history))
    expanded = plan.balance[plan.order] / plan.probability[plan.order, None]
    mean = 0.0
    for share, batch, _ in cube.ways(plan.probability[plan.order].tolist(), np.column_stack([np.ones(7), expanded])):
        drawn = plan.draw(plan.order[sorted(batch)])
        mean += share * drawn.design.failure_share(1 - outcome[drawn.chosen])
    assert 1 - mean == pytest.approx(outcome.mean(), abs=1e-12)


def test_rounds_and_estimate_take_the_same_history() -> None:
    (pool, outcome), (other, known) = make_pool(1500, 6), make_pool(500, 7)
    history = opacc.History(labelled=[(other, known)], prior=np.arange(1500))
    view = view_of(pool)
    first = opacc.select(view, "neyman", 20, history=history)
    second = opacc.select(view, "neyman", 30, history=history, previous=[(first, outcome[first.index])])
    rounds = [first, second]
    found = opacc.estimate(rounds, [outcome[part.index] for part in rounds], pool=view, history=history)
    assert found.low <= outcome.mean() <= found.high
    assert found.high - found.low < 0.15


def test_a_history_does_not_change_after_it_is_made() -> None:
    """What is made of it is kept with the view, and would be stale if it changed."""
    (pool, _), (other, known), prior = make_pool(500, 6), make_pool(300, 7), np.arange(500.0)
    history, before = opacc.History(iter([(other, known)]), prior), known.copy()
    view = view_of(pool)
    first = opacc.select(view, "neyman", 20, history=history)
    prior[:], known[:] = prior[::-1].copy(), 1 - known
    assert history.columns(500)[:, 0].tolist() == list(range(500))
    assert history.failures()[0][1].tolist() == (1 - before).tolist()
    again = opacc.select(pool, "neyman", 20, history=history)
    assert again.index.tolist() == first.index.tolist()
    for kept in (history.prior, history.labelled[0][1]):
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 0.5  # type: ignore[index]
    assert opacc.History(prior=history.prior).prior is history.prior  # no second copy


def test_an_invalid_history_is_refused() -> None:
    pool, outcome = make_pool(20, 1)
    with pytest.raises(DataError, match=r"outcomes of shape \(19,\) .* for 20 labelled examples"):
        opacc.History(labelled=[(pool, outcome[:19])])
    with pytest.raises(DataError, match=r"an outcome is not in \[0, 1\]"):
        opacc.History(labelled=[(pool, outcome + 1)])
    with pytest.raises(DataError, match="prior is not finite"):
        opacc.History(prior=[np.nan])
    with pytest.raises(DataError, match=r"prior has shape \(3, 1\), and the pool has 20 examples"):
        opacc.select(pool, "neyman", 5, history=opacc.History(prior=[1, 2, 3]))


def test_a_history_is_refused_by_other_methods_and_by_replicates() -> None:
    pool, history = make_pool(20, 1)[0], opacc.History(prior=np.arange(20))
    with pytest.raises(SpecError, match="'css' does not use a history"):
        opacc.select(pool, "css", 5, history=history)
    with pytest.raises(SpecError, match="`replicates` cannot be combined with `history`"):
        opacc.select(pool, "neyman", 10, history=history, replicates=2)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"confidence": [0.5, np.nan]}, "confidence of example '1' is nan"),
        ({"confidence": [0.5, 7]}, r"confidence of example '1' is 7.0; it must be in \[0, 1\]"),
        ({"lsa": [np.inf, 1]}, "lsa of example '0' is inf"),
        ({"hidden": np.full((2, 5), np.nan)}, "neuron 0 of hidden is NaN or infinite"),
        ({"hidden": np.ones((2, 4))}, "hidden has 4 neurons, and the pool's 5"),
    ],
)
def test_invalid_features_of_a_history_are_refused(features: dict, message: str) -> None:
    """A NaN would make every signal of the history NaN, and the history would be ignored silently."""
    pool, _ = make_pool(60, 1)
    with pytest.raises(DataError, match=f"history: of the labelled examples, {message}"):
        opacc.select(pool, "neyman", 10, history=History(labelled=[(opacc.Pool(**features), [1, 0])]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prior": ["sure"] * 60}, "prior is not made of numbers"),
        ({"prior": [[1], [1, 2]]}, "prior is not made of numbers"),
        ({"labelled": [(opacc.Pool(confidence=[0.5, 0.6]), [[1], [1, 2]])]}, "outcomes is not made of numbers"),
        ({"labelled": (opacc.Pool(confidence=[0.5]), [1])}, "labelled is not a list of pairs"),
        ({"labelled": None}, "labelled is not a list of pairs"),
        ({"labelled": [(np.array([0.5, 0.6]), [1, 0])]}, r"a labelled pool is of type ndarray; give opacc.Pool\("),
    ],
)
def test_a_history_that_is_not_numeric_is_refused(given: dict, message: str) -> None:
    with pytest.raises(DataError, match=f"history: {message}"):
        History(**given)
