"""History: it raises the precision where it is right, and the estimate is unbiased for any history."""

import numpy as np
import pytest
from oracles import cube
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.forecast import AccuracyForecast
from opacc_ray.parts.view import View, view_of
from opacc_ray.pool import History
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import NO_PREVIOUS, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
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
    history = opacc.History(labelled=[{"pool": other, "outcomes": known}])
    signals = read_signals(view, 6, history)
    p = predict_failure(signals, np.empty(0, int), np.empty(0)).failure
    assert p[outcome == 0].mean() > 6 * p[outcome == 1].mean()
    assert exact_variance(view, outcome, history) < 0.4 * exact_variance(view, outcome, opacc.History())


@pytest.mark.parametrize("num", [1, 3, 10])
@pytest.mark.parametrize("is_constant", [False, True])
def test_useless_judges_change_nothing(num: int, is_constant: bool) -> None:
    pool, _ = make_pool(3000, 2)
    view = view_of(pool)
    scores = 0.8 + 0.2 * np.random.default_rng(4).random(size=(num, 3000)) * (not is_constant)
    history = opacc.History(judges=dict(enumerate(scores)))
    alone, judged = (
        predict_failure(read_signals(view, 6, own), np.empty(0, int), np.empty(0)).failure.mean()
        for own in (opacc.History(), history)
    )
    assert judged == pytest.approx(alone, abs=0.02)


def test_labels_of_the_pool_overrule_a_wrong_history() -> None:
    pool, outcome = make_pool(2000, 2)
    other, known = make_pool(800, 3)
    view, history = view_of(pool), opacc.History(labelled=[{"pool": other, "outcomes": 1 - known}])
    labelled = np.sort(np.random.default_rng(0).choice(2000, 60, replace=False))
    p = predict_failure(read_signals(view, 6, history), labelled, 1 - outcome[labelled]).failure
    assert p[outcome == 0].mean() > 0.5 > 0.2 > p[outcome == 1].mean()


def test_a_history_of_labels_may_cost_the_price() -> None:
    """And no more, for any history, as a judge without labels."""
    (pool, _), (other, known) = make_pool(2000, 2), make_pool(800, 3)
    view, parameters = view_of(pool), neyman.Parameters(price=0.05)
    for history in (
        opacc.History(),
        opacc.History(judges={"gpt": np.arange(2000) / 2000}),
        opacc.History(labelled=[{"pool": other, "outcomes": known}]),
        opacc.History(labelled=[{"pool": other, "outcomes": 1 - known}]),
    ):
        plan = whole_plan(view, Task(20, parameters, NO_PREVIOUS, history=history))
        cost = np.mean(plan.probability.mean() / plan.probability) - 1
        assert 0 < cost < 0.05 + 1e-3  # less where classes get their least share
        forecast = AccuracyForecast(view, parameters, history).labels(0.1)
        assert forecast.worthless == pytest.approx(1.05 * forecast.srs, abs=2)


def test_a_judge_of_a_history_is_used() -> None:
    rng = np.random.default_rng(5)
    doubt = rng.beta(0.3, 1.2, 3000)
    outcome = (rng.random(3000) >= doubt).astype(float)
    view = view_of(opacc.Pool(ids=[str(i) for i in range(3000)]))
    helped = exact_variance(view, outcome, opacc.History(judges={"gpt": 1 - doubt}))
    assert helped < 0.85 * exact_variance(view, outcome, opacc.History())


@pytest.mark.parametrize("reverse", [False, True])
def test_any_history_is_unbiased_over_all_samples(reverse: bool) -> None:
    (pool, _), (other, known) = make_pool(7, 4), make_pool(200, 5)
    outcome = np.array([1, 0, 1, 0.25, 1, 0.5, 0])
    told = {"pool": other, "outcomes": 1 - known if reverse else known}
    history = opacc.History(labelled=[told], judges={"gpt": np.arange(7) / 7})
    view = view_of(pool)
    plan = whole_plan(view, Task(3, neyman.Parameters(), NO_PREVIOUS, history=history))
    expanded = plan.balance[plan.order] / plan.probability[plan.order, None]
    mean = 0.0
    for share, batch, _ in cube.ways(plan.probability[plan.order].tolist(), np.column_stack([np.ones(7), expanded])):
        drawn = plan.draw(plan.order[sorted(batch)])
        mean += share * drawn.design.failure_share(1 - outcome[drawn.chosen])
    assert 1 - mean == pytest.approx(outcome.mean(), abs=1e-12)


def test_a_history_does_not_change_after_it_is_made() -> None:
    """What is made of it is kept with the view, and would be stale if it changed."""
    (pool, _), (other, known), score = make_pool(500, 6), make_pool(300, 7), np.arange(500) / 500
    history, before = opacc.History(iter([{"pool": other, "outcomes": known}]), {"gpt": score}), known.copy()
    view = view_of(pool)
    first = opacc.select(view, "neyman", 20, history=history)
    score[:], known[:] = score[::-1].copy(), 1 - known
    assert history.judges["gpt"].tolist() == score[::-1].tolist()
    assert history.failures()[0][1].tolist() == (1 - before).tolist()
    again = opacc.select(pool, "neyman", 20, history=history)
    assert again.index.tolist() == first.index.tolist()
    for kept in (history.judges["gpt"], history.labelled[0]["outcomes"]):
        with pytest.raises(ValueError, match="read-only"):
            kept[0] = 0.5


def test_an_invalid_history_is_refused() -> None:
    pool, outcome = make_pool(20, 1)
    with pytest.raises(DataError, match=r"outcomes of shape \(19,\) .* for 20 labelled examples"):
        opacc.History(labelled=[{"pool": pool, "outcomes": outcome[:19]}])
    with pytest.raises(DataError, match=r"an outcome is not in \[0, 1\]"):
        opacc.History(labelled=[{"pool": pool, "outcomes": outcome + 1}])
    for item in ((pool, outcome), {"pool": pool, "labels": outcome}):  # might be true classes of 0 and 1
        with pytest.raises(DataError, match=r'"outcomes": outcomes'):
            opacc.History(labelled=[item])  # type: ignore[list-item]
    with pytest.raises(DataError, match="judge 'gpt' has 3 scores, and the pool 20 examples"):
        opacc.select(pool, "neyman", 5, history=opacc.History(judges={"gpt": [1, 0, 1]}))


def test_a_history_is_refused_by_other_methods() -> None:
    pool, history = make_pool(20, 1)[0], opacc.History(judges={"gpt": np.arange(20) / 20})
    with pytest.raises(SpecError, match="'css' does not use a history"):
        opacc.select(pool, "css", 5, history=history)


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
        opacc.select(
            pool, "neyman", 10, history=History(labelled=[{"pool": opacc.Pool(**features), "outcomes": [1, 0]}])
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"judges": {"gpt": ["sure"] * 60}}, "judge 'gpt' says \"sure\""),
        ({"judges": {"gpt": [0.5, 17]}}, "judge 'gpt' says \"17\""),
        ({"judges": {"gpt": [[1], [1, 2]]}}, "judge 'gpt' says"),
        ({"judges": {"gpt": 1}}, r"judge 'gpt' has the shape \(\)"),
        (
            {"labelled": [{"pool": opacc.Pool(confidence=[0.5, 0.6]), "outcomes": [[1], [1, 2]]}]},
            "history: outcomes is not made of numbers",
        ),
        ({"labelled": (opacc.Pool(confidence=[0.5]), [1])}, "history: an item of labelled has the type Pool"),
        ({"labelled": None}, "history: labelled has the type NoneType"),
        (
            {"labelled": [{"pool": np.array([0.5, 0.6]), "outcomes": [1, 0]}]},
            r"history: a labelled pool is of type ndarray; give opacc.Pool\(",
        ),
    ],
)
def test_a_history_that_is_not_numeric_is_refused(given: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        History(**given)
