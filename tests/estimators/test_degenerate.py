"""Pools of one to five examples, certain confidences, extreme levels: a finite interval, or one sentence."""

import math

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, OpaccError
from opacc_ray.estimators.design_based import confidence_sequence
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS

SMALL = {"ces": {"initial": 1, "group": 1, "candidates": 2}, "css": {"fractions": (0.5, 0.5), "allocation": (0.5, 0.5)}}
"""Parameters by which a method can choose from a handful."""


def tiny_pool(size: int, confidence: float) -> opacc.Pool:
    rng = np.random.default_rng(size)
    return opacc.Pool(
        hidden=rng.normal(size=(size, 2)),
        output=rng.normal(size=(size, 2)),
        prediction=np.arange(size) % 2,
        confidence=np.full(size, confidence, np.float32),
        coverage=rng.random((size, 3)) < 0.5,
    )


@pytest.mark.parametrize("confidence", [0, 0.5, 1, 1 + 5e-7])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_states_a_finite_interval_of_any_handful(method: str, confidence: float) -> None:
    stated = 0
    for size in (1, 2, 5):
        for budget in range(1, size + 1):
            try:
                chosen = opacc.select(tiny_pool(size, confidence), method, budget, **SMALL.get(method, {}))
            except OpaccError:  # fewer labels than strata, say
                continue
            again = opacc.Selection.from_json(chosen.to_json(), "file")
            for outcome in (np.ones(budget), np.zeros(budget), np.full(budget, 0.5), np.arange(budget) % 2):
                found = opacc.estimate(again, outcome[: len(chosen)])
                assert math.isfinite(found.value)
                assert math.isfinite(found.standard_error)
                assert 0 <= found.low <= found.value <= found.high <= 1
                if len(set(chosen.index.tolist())) == size:
                    assert found.low == found.high == pytest.approx(outcome.mean(), abs=1e-12)
                    assert found.value == pytest.approx(outcome.mean(), abs=1e-12)
                else:
                    assert found.low < found.high
                stated += 1
    assert stated


def test_failures_foreseen_only_where_all_is_drawn_leave_an_interval() -> None:
    """Of the doubtful examples all are drawn for sure; the sure ones are drawn by chance, and foresee no failure."""
    pool = tiny_pool(5, 0.5)
    pool.confidence = np.array([1.0, 0, 1, 0, 1])
    for seed in range(10):
        chosen = opacc.select(pool, "coverage", 4, seed)
        found = opacc.estimate(chosen, np.ones(4))
        assert 0.8 - 1e-12 <= found.low < found.high <= 1


@pytest.mark.parametrize("level", [0, 1, -0.5, 95, 1e-17, 1 - 1e-16, math.nan, "0.95", None, True])
@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_a_level_that_is_none_is_refused(method: str, level: object) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), method, 3)
    said = repr(level) if level in ("0.95", None) else str(level)
    with pytest.raises(LabelError, match=rf"level={said}: give a confidence level between 0 and 1, such as 0\.95"):
        opacc.estimate(chosen, [1, 0, 1], level)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["srs", "neyman", "sups"])
def test_a_round_without_a_label_is_refused(method: str) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), method, 3)
    none = chosen.restrict(np.zeros(3, dtype=bool))
    for rounds in ((none, []), ([chosen, none], [[1, 0, 1], []])):
        with pytest.raises(LabelError, match="round 1 has no label"):
            opacc.estimate(*rounds)


@pytest.mark.parametrize("method", ["srs", "neyman", "sups"])
def test_a_round_that_is_given_twice_is_refused(method: str) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), method, 3)
    again = opacc.Selection.from_json(chosen.to_json(), "file")
    with pytest.raises(LabelError, match="round 1 is given twice"):
        opacc.estimate([chosen, again], [[1, 0, 1], [1, 0, 1]])


def test_a_later_round_alone_does_not_pass_for_the_pool() -> None:
    pool = tiny_pool(5, 0.5)
    first = opacc.select(pool, "neyman", 2)
    second = opacc.select(pool, "neyman", 2, previous=[(first, np.zeros(2))])
    for state in (opacc.estimate, confidence_sequence):
        with pytest.raises(LabelError, match="round 2 was drawn when 2 more examples were labelled"):
            state(second, np.ones(2))


@pytest.mark.parametrize(("level", "stated"), [(0.95, "(95% exact"), (0.999, "(99.9% exact"), (0.975, "(97.5% exact")])
def test_an_estimate_states_its_level_as_it_is(level: float, stated: str) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), "srs", 3)
    assert stated in str(opacc.estimate(chosen, [1, 0, 1], level))


def test_the_least_floor_there_may_be_still_has_an_interval() -> None:
    """An example that is surely right has a weight of about 1e100."""
    pool = opacc.Pool(confidence=[1.0, *[0.5] * 9])
    chosen = opacc.select(pool, "sups", 5, floor=1e-100)
    for outcome in (np.zeros(5), np.ones(5)):
        found = opacc.estimate(chosen, outcome)
        assert 0 <= found.low <= found.high <= 1


def test_draws_that_repeat_and_show_the_whole_pool_leave_no_doubt() -> None:
    pool, right = Pool(confidence=np.array([0.5, 0.7, 0.9])), np.array([0.0, 1.0, 1.0])
    chosen = opacc.select(pool, "sups", 3, seed=next(s for s in range(1000) if _shows_all(pool, s)))
    found = opacc.estimate(chosen, right[chosen.index])
    assert (found.value, found.low, found.high) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def _shows_all(pool: Pool, seed: int) -> bool:
    return len(set(opacc.select(pool, "sups", 3, seed).index.tolist())) == 3
