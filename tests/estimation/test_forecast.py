"""Labels that a goal takes, before there is any: by hand where it can be, and by what rounds then reach."""

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError
from opacc_ray.estimation.estimate import KnownPool, estimate_outcomes
from opacc_ray.estimation.forecast import AccuracyForecast, NumberForecast
from opacc_ray.metrics.metric import Metric
from opacc_ray.parts.view import view_of
from opacc_ray.samplers.select import parse_parameters, select


def make_pool(size: int, seed: int) -> tuple[opacc.Pool, np.ndarray]:
    rng = np.random.default_rng(seed)
    doubt = rng.beta(0.15, 2.0, size)
    return opacc.Pool(confidence=1 - doubt), (rng.random(size) >= doubt).astype(float)


def test_srs_takes_the_labels_of_the_formula() -> None:
    """z²·θ(1 - θ)/W² with the finite population: θ = ½ is the worst, and costs the price."""
    pool, _ = make_pool(100_000, 1)
    forecast = AccuracyForecast(view_of(pool))
    found = forecast.labels(0.02)
    share = 1 - forecast.value(found.srs, 0.95)
    plain = 1.959964**2 * share * (1 - share) / 0.02**2
    assert found.srs == pytest.approx(1 / (1 / plain + 1e-5), abs=1)
    assert found.worthless == pytest.approx(1.2 * found.srs, abs=2)
    assert found.at_worst == pytest.approx(1.2 / (1 / 2400.9 + 1e-5), abs=2)
    assert found.neyman < found.srs < found.worthless < found.at_worst


@pytest.mark.parametrize("half_width", [0.05, 0.02])
def test_a_confident_and_right_model_takes_the_labels_of_an_interval_without_failures(half_width: float) -> None:
    pool = view_of(opacc.Pool(confidence=np.full(20_000, 1 - 1e-6)))
    found = AccuracyForecast(pool).labels(half_width)

    def stated(labels: int) -> float:
        interval = estimate_outcomes(opacc.select(pool, "srs", labels), np.ones(labels))
        return (interval.high - interval.low) / 2

    assert stated(found.srs) <= half_width < stated(found.srs - 2)
    assert found.neyman == found.srs == found.worthless
    widths = AccuracyForecast(pool).half_widths(found.srs)
    assert widths.srs == widths.neyman == pytest.approx(stated(found.srs), rel=0.01)


def test_rounds_reach_the_goal_with_about_as_many_labels() -> None:
    """If the model's confidence is right; it is tempered, so nearly."""
    pool, outcome = make_pool(5000, 3)
    view = view_of(pool)
    num = AccuracyForecast(view).labels(0.03).neyman
    widths = []
    for seed in range(15):
        first = opacc.select(view, "neyman", num // 3, seed=seed)
        known = [(first, outcome[first.index])]
        rounds = [first, select(view, "neyman", num - num // 3, seed=seed, previous=known)]
        found = estimate_outcomes(rounds, [outcome[part.index] for part in rounds], pool=view)
        widths.append((found.high - found.low) / 2)
    assert 0.6 * 0.03 < np.mean(widths) < 1.4 * 0.03


@pytest.mark.parametrize("half_width", [0, -1, 1, np.nan])
def test_an_invalid_goal_is_refused(half_width: float) -> None:
    with pytest.raises(LabelError, match=r"half_width=.*: give a number between 0 and 1"):
        AccuracyForecast(view_of(make_pool(60, 3)[0])).labels(half_width)


@pytest.mark.parametrize("level", [0, 1, 1.5, -1, np.nan])
def test_an_invalid_level_is_refused(level: float) -> None:
    view = view_of(make_pool(60, 3)[0])
    for foresee in (
        lambda: AccuracyForecast(view).labels(0.05, level),
        lambda: AccuracyForecast(view).half_widths(5, level),
    ):
        with pytest.raises(LabelError, match=r"level=.*: give a confidence level"):
            foresee()


@pytest.mark.parametrize("labels", [0, 61])
def test_more_labels_than_there_are_examples_are_refused(labels: int) -> None:
    with pytest.raises(LabelError, match=f"labels={labels}: give numbers from 1 to the 60 examples of the pool"):
        AccuracyForecast(view_of(make_pool(60, 3)[0])).half_widths(labels)


@pytest.mark.parametrize("name", ["macro_f1", "macro_recall", "macro_precision"])
def test_the_mean_over_classes_gets_narrower_with_every_label(name: str) -> None:
    rng = np.random.default_rng(0)
    predicted, metric = rng.choice(20, 3000, p=(1 / np.arange(1, 21)) / (1 / np.arange(1, 21)).sum()), Metric(name)
    view = view_of(opacc.Pool(prediction=predicted, confidence=rng.uniform(0.4, 1, 3000)))
    known = KnownPool(view, predicted, tuple(map(str, range(20))))
    forecast = NumberForecast(
        known, metric, lambda own, level: own.estimate(metric, level), parse_parameters("neyman", {"serve": [name]})
    )
    found = np.array([forecast.half_widths(num, 0.95) for num in (50, 100, 199, 200, 201, 500, 1000, 2999)])
    assert (np.diff(found, axis=0) < 1e-3).all()
    assert found[-1].max() < 0.01
