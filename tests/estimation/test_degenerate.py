"""Pools of one to five examples, certain confidences, extreme levels: a finite interval, or one sentence."""

import math

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.errors import LabelError, OpaccError
from opacc_ray.estimation.estimate import estimate_outcomes
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
                found = estimate_outcomes(again, outcome[: len(chosen)])
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


@pytest.mark.parametrize("method", ["srs", "neyman", "sups"])
def test_a_round_without_a_label_or_given_twice_is_refused(method: str) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), method, 3)
    none = chosen.restrict(np.zeros(3, dtype=bool))
    for rounds in ((none, []), ([chosen, none], [[1, 0, 1], []])):
        with pytest.raises(LabelError, match="round 1 has no label"):
            estimate_outcomes(*rounds)
    again = opacc.Selection.from_json(chosen.to_json(), "file")
    with pytest.raises(LabelError, match="round 1 is given twice"):
        estimate_outcomes([chosen, again], [[1, 0, 1], [1, 0, 1]])


@pytest.mark.parametrize(("level", "stated"), [(0.95, "(95% exact"), (0.999, "(99.9% exact"), (0.975, "(97.5% exact")])
def test_an_estimate_states_its_level_as_it_is(level: float, stated: str) -> None:
    chosen = opacc.select(tiny_pool(5, 0.5), "srs", 3)
    assert stated in str(estimate_outcomes(chosen, [1, 0, 1], level))
