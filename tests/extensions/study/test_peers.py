"""Methods of others: their formulas by values that their own packages gave, and that the study runs them."""

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import binom

from opacc_ray.errors import SpecError
from opacc_ray.extensions.study.f_measures import normal
from opacc_ray.extensions.study.peers import PEERS, POOL, Question, combined, power_tuned, weights
from opacc_ray.extensions.study.study_spec import MethodSpec


def make_case(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Confidence and outcome, by whole numbers."""
    k = np.arange(size)
    confidence = ((k * 37) % 101) / 101
    return confidence, (((k * 53) % 97) / 97 < confidence).astype(float)


def test_ppi_is_that_of_its_package() -> None:
    """ppi-python 0.2.3: ppi_mean_pointestimate and ppi_mean_ci with alpha=0.05."""
    confidence, outcome = make_case(200)
    labelled = np.arange(0, 200, 8)
    rest = np.setdiff1d(np.arange(200), labelled)
    value, variance = power_tuned(outcome[labelled], confidence[labelled], confidence[rest])
    assert value == pytest.approx(0.48970091160034623, rel=1e-12)
    found = normal(value, variance, labelled, 0.95)
    assert (found.low, found.high) == pytest.approx((0.3221808634572024, 0.65722095974349), rel=1e-12)


def test_stratified_estimate_is_that_of_its_package() -> None:
    """ssepy 0.1.1: compute_estimate(…, "ht") of three strata with 18, 24 and 18 labels."""
    confidence, outcome = make_case(300)
    text = (
        "1 2 5 14 15 16 22 24 37 41 48 52 59 61 62 64 70 71 72 78 83 92 "
        "95 105 121 130 142 152 159 160 161 164 166 168 174 193 195 207 216 220 223 227 243 246 "
        "247 253 256 259 261 265 269 274 275 276 282 284 288 290 291 296 "
    )
    index = np.array(text.split(), dtype=np.int64)
    stratum = np.minimum((confidence * 3).astype(int), 2)
    value, variance = combined(np.bincount(stratum), stratum[index], outcome[index])
    assert (value, variance) == pytest.approx((0.5580092592592593, 0.0028654084123137537), rel=1e-9)


def test_lure_is_exactly_unbiased_over_all_draws() -> None:
    """Every order of two draws from four examples, by hand."""
    size, failure, mean = np.array([1.0, 2, 3, 4]), np.array([1.0, 0, 1, 0]), 0.0
    for first in range(4):
        for second in set(range(4)) - {first}:
            q = np.array([size[first] / 10, size[second] / (10 - size[first])])
            mean += q.prod() * (weights(q, 4) * failure[[first, second]]).mean()
    assert mean == pytest.approx(0.5, abs=1e-12)


OF_POOL = [name for name, peer in PEERS.items() if peer.kind == POOL]


TRAINED = ("cross-ppi", "active-refit")
"""They take seconds here."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINED)) for name in OF_POOL])
def test_peers_are_nearly_unbiased_and_cover(name: str) -> None:
    rng = np.random.default_rng(3)
    confidence = 1 - rng.beta(0.6, 3, 2000)
    outcome = (rng.random(2000) < confidence).astype(float)
    asked = Question(confidence, outcome)
    num = 40 if name == "cross-ppi" else 150  # it trains 40 models for an estimate
    found = [PEERS[name].estimate(asked, 100, np.random.default_rng(seed), 0.95) for seed in range(num)]
    error = np.array([item.value for item in found]) - outcome.mean()
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(num)
    assert sum(item.low <= outcome.mean() <= item.high for item in found) >= binom.ppf(1e-4, num, 0.94)
    assert np.mean([len(set(item.chosen.tolist())) for item in found]) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("name", OF_POOL)
def test_the_least_budget_of_a_peer_is_enough_and_less_is_refused(name: str) -> None:
    confidence, outcome = make_case(60)
    least, asked = PEERS[name].least, Question(confidence, outcome)
    with np.errstate(all="raise"):
        found = [PEERS[name].estimate(asked, least, np.random.default_rng(seed), 0.95) for seed in range(20)]
    assert np.isfinite([(item.value, item.low, item.high) for item in found]).all()
    assert MethodSpec(method=name).batches(least) == [least]
    if least > 1:
        with pytest.raises(SpecError, match=f"budget={least - 1} of method .*: .*give at least {least}, or remove"):
            MethodSpec(method=name).batches(least - 1)


def test_a_peer_is_run_as_its_paper_has_it() -> None:
    assert MethodSpec(method="ppi++").name == "ppi++"
    with pytest.raises(ValidationError, match="rounds of method 'lure': it runs as in its paper"):
        MethodSpec(method="lure", rounds=4)


def test_ppi_of_a_pool_that_is_labelled_in_full_is_its_accuracy() -> None:
    confidence, outcome = make_case(40)
    found = PEERS["ppi++"].estimate(Question(confidence, outcome), 40, np.random.default_rng(0), 0.95)
    assert found.value == outcome.mean()
    assert found.low < found.value < found.high
