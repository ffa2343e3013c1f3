"""Errors of predicted values: unbiased by the design, and covered by their intervals."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.design_numbers import estimate_error
from opacc_ray.estimation.sample import Rounds
from opacc_ray.metrics.metric import BIAS, ERRORS, MAE, RMSE
from opacc_ray.selection import Selection

ERROR = np.array([-3.0, 0.5, 8.0, -0.25, 1.0, -6.0])


def true_value(name: str, error: np.ndarray) -> float:
    return float({MAE: np.abs(error).mean(), BIAS: error.mean(), RMSE: np.sqrt((error**2).mean())}[name])


def drawn(index: tuple[int, ...], size: int = 6) -> Selection:
    """A simple random sample that consists of some examples."""
    pool = opacc.Pool(ids=map(str, range(size)), prediction=np.linspace(0, 1, size))
    first = opacc.select(pool, "srs", budget=len(index), seed=0)
    return replace(first, index=np.array(index), ids=tuple(map(str, index)))


def test_all_samples_of_a_pool_together_state_the_true_mean_of_each_error() -> None:
    samples = [(drawn(index), list(index)) for index in combinations(range(6), 3)]
    for name in ERRORS:
        found = [estimate_error(name, Rounds(own), ERROR[index], 0.95).value for own, index in samples]
        values = np.square(found) if name == RMSE else found
        expected = true_value(name, ERROR) ** (2 if name == RMSE else 1)
        assert np.mean(values) == pytest.approx(expected, abs=1e-12)


def test_a_pool_that_is_all_labelled_is_known_and_one_label_says_nothing() -> None:
    for name in ERRORS:
        found = estimate_error(name, Rounds(drawn(tuple(range(6)))), ERROR, 0.95)
        assert found.low == found.value == found.high == pytest.approx(true_value(name, ERROR))
        assert found.design_based
        with pytest.raises(LabelError, match=name):
            estimate_error(name, Rounds(drawn((2,))), ERROR[[2]], 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", "neyman"])
@pytest.mark.parametrize(
    ("shape", "least"),
    [("normal", (0.93, 0.93, 0.93)), ("relative", (0.93, 0.9, 0.93)), ("t3", (0.93, 0.9, 0.93))],
)
def test_the_intervals_cover(method: str, shape: str, least: tuple[float, float, float]) -> None:
    rng = np.random.default_rng(0)
    prediction = rng.lognormal(8, 0.7, 3000)
    noise = {
        "normal": rng.normal(20, 100, 3000),
        "relative": prediction * rng.normal(0.02, 0.2, 3000),
        "t3": rng.standard_t(3, 3000),
    }
    error, pool = noise[shape], opacc.Pool(prediction=prediction)
    covered = dict.fromkeys(ERRORS, 0)
    for seed in range(400):
        chosen = opacc.select(pool, method, budget=60, seed=seed)
        for name in ERRORS:
            found = estimate_error(name, Rounds(chosen), error[chosen.index], 0.95)
            covered[name] += found.low <= true_value(name, error) <= found.high
    assert all(covered[name] >= 400 * bar for name, bar in zip(ERRORS, least, strict=True)), covered


def test_python_states_the_errors_of_true_values_in_any_order_of_their_ids() -> None:
    rng = np.random.default_rng(1)
    prediction = rng.lognormal(3, 0.5, 300)
    truth = prediction * rng.normal(1.0, 0.1, 300)
    pool = opacc.Pool(ids=[f"e{i}" for i in range(300)], prediction=prediction)
    chosen = opacc.select(pool, budget=80)
    more = opacc.select(pool, budget=40, previous=[opacc.Labelled(chosen, outcomes=np.ones(80))])
    labels = {id: truth[int(id[1:])] for id in reversed(chosen.ids)}
    for name in ERRORS:
        error = (prediction - truth)[chosen.index]
        expected = estimate_error(name, Rounds(chosen), error, 0.9)
        assert opacc.estimate(chosen, labels=labels, pool=pool, metric=name, level=0.9) == expected
        rounds = [opacc.Labelled(part, labels=truth[part.index]) for part in (chosen, more)]
        both = opacc.estimate(rounds, pool=pool, metric=name)
        assert both.low <= true_value(name, prediction - truth) <= both.high
        for given in (
            {"labels": ["a", *truth[chosen.index][1:]]},
            {"outcomes": np.ones(80)},
            {"labels": [None, *truth[chosen.index][1:]]},
        ):
            with pytest.raises(LabelError):
                opacc.estimate(chosen, pool=pool, metric=name, **given)
        with pytest.raises(SpecError, match="whole pool"):
            opacc.estimate(chosen, labels=labels, pool=pool, metric=name, by="x")
        with pytest.raises(SpecError, match="not compared"):
            opacc.compare(chosen, labels=labels, pools=[pool, pool], metric=name)
