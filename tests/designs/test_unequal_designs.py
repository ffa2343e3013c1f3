"""sups, rhcs, two_ups, ssrs and gbs: exact unbiasedness on tiny pools, and what they draw."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest
from oracles import unequal_designs as reference
from scipy import stats
from unclipped import estimate_sample

import opacc_ray as opacc
from opacc_ray.designs.draw_probability import HansenHurwitz, RaoHartleyCochran
from opacc_ray.designs.simple_random import Stratified
from opacc_ray.estimation.intervals import Estimate, weighted_clopper_pearson
from opacc_ray.parts.view import view_of
from opacc_ray.pool import Pool
from opacc_ray.samplers import METHODS, gbs, parse_parameters, ssrs
from opacc_ray.samplers.auxiliary import kmeans_1d
from opacc_ray.samplers.base import NO_PREVIOUS, Draw, Previous, Task
from opacc_ray.samplers.select import select
from opacc_ray.samplers.sups import draw_probabilities

CONFIDENCE = np.array([1.0, 0.7, 0.95, 0.4, 0.9])
OUTCOME = np.array([0.0, 1.0, 1.0, 0.0, 1.0])
SCORE = np.array([0.3, 1.0, 0.8, 0.1, 0.95])
outcomes = pytest.mark.parametrize("outcome", [OUTCOME, SCORE], ids=["0/1", "score"])


def _p(floor: float = 0.2) -> list[float]:
    return draw_probabilities(1 - CONFIDENCE, floor, NO_PREVIOUS.chosen).tolist()


def _moments(
    samples: Iterable[reference.Sample], estimate: Callable[[reference.Sample], Estimate]
) -> tuple[float, float, float]:
    """Expected value, its variance, and the expected estimate of that variance."""
    pairs = [(sample.chance, estimate(sample)) for sample in samples]
    mean, variance = reference.moments([(chance, found.value) for chance, found in pairs])
    return mean, variance, reference.moments([(chance, found.standard_error**2) for chance, found in pairs])[0]


@outcomes
class TestUnbiased:
    """The mean over all samples is the truth; where said, so is that of the estimated variance."""

    def test_hansen_hurwitz(self, outcome: np.ndarray) -> None:
        p = _p()

        def estimate(sample: reference.Sample) -> Estimate:
            index = list(sample.index)
            return estimate_sample(HansenHurwitz(np.array(p)[index], 5, min(p)), outcome[index], 0.95)

        mean, variance, estimated = _moments(reference.independent_draws(p, 3), estimate)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)
        assert estimated == pytest.approx(variance, abs=1e-12)

    def test_rao_hartley_cochran(self, outcome: np.ndarray) -> None:
        p = _p()

        def estimate(sample: reference.Sample) -> Estimate:
            index = list(sample.index)
            total = np.array([sum(p[i] for i in group) for group in sample.group])
            size = np.array([len(group) for group in sample.group])
            return estimate_sample(RaoHartleyCochran(np.array(p)[index], total, size, min(p)), outcome[index], 0.95)

        mean, variance, estimated = _moments(reference.random_groups(p, 3), estimate)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)
        assert estimated == pytest.approx(variance, abs=1e-12)

    def test_stratified(self, outcome: np.ndarray) -> None:
        strata = [[0, 2, 4], [1, 3]]

        def estimate(sample: reference.Sample) -> Estimate:
            design = Stratified(np.array(sample.stratum), np.array([3, 2]))
            return estimate_sample(design, outcome[list(sample.index)], 0.95)

        mean, _, _ = _moments(reference.stratified_draws(strata, [2, 1]), estimate)
        assert mean == pytest.approx(outcome.mean(), abs=1e-12)

    def test_a_batch_of_gbs_for_what_was_not_labelled(self, outcome: np.ndarray) -> None:
        """Its sizes depend on outcomes, but on those of earlier rounds alone."""
        labelled = np.array([3])
        rest = np.delete(np.arange(5), labelled)
        parameters = parse_parameters("gbs", {"strata": 2})
        task = Task(3, parameters, Previous(labelled, outcome[labelled]))
        stratum = kmeans_1d(1 - CONFIDENCE, 2)
        members = [rest[stratum[rest] == h] for h in range(2)]
        sizes = np.array(list(map(len, members)))
        drawn = gbs.draw(view_of(Pool(confidence=CONFIDENCE)), task, np.random.default_rng(0)).chosen
        allocation = np.array([np.isin(drawn, own).sum() for own in members])

        def estimate(sample: reference.Sample) -> Estimate:
            return estimate_sample(Stratified(np.array(sample.stratum), sizes), outcome[list(sample.index)], 0.95)

        samples = reference.stratified_draws([own.tolist() for own in members], allocation.tolist())
        mean, _, _ = _moments(samples, estimate)
        assert mean == pytest.approx(outcome[rest].mean(), abs=1e-12)


def _draws(method: str, pool: Pool, budget: int, repetitions: int, seed: int = 0, **parameters: object) -> list[Draw]:
    sampler, view, rng = METHODS[method], view_of(pool), np.random.default_rng(seed)
    task = Task(budget, parse_parameters(method, parameters), NO_PREVIOUS)
    return [sampler.draw(view, task, rng) for _ in range(repetitions)]


class TestDraws:
    """The samplers draw what the estimators are told."""

    def test_sups_draws_with_its_probabilities(self) -> None:
        drawn = np.concatenate([d.chosen for d in _draws("sups", Pool(confidence=CONFIDENCE), 10, 3000, floor=0.2)])
        np.testing.assert_allclose(np.bincount(drawn) / len(drawn), _p(0.2), atol=0.01)

    def test_two_ups_draws_strata_by_their_total_belief(self) -> None:
        confidence = np.array([0.99, 0.98, 0.97, 0.5, 0.48, 0.1])
        p = np.array([0.02, 0.02, 0.02, 0.51, 0.51, 0.9]) / 1.98  # the mean of each stratum
        draws = _draws("two_ups", Pool(confidence=confidence), 10, 3000, strata=3, floor=0.01)
        drawn = np.concatenate([d.chosen for d in draws])
        np.testing.assert_allclose(draws[0].design.draw_probability, p[draws[0].chosen])
        np.testing.assert_allclose(np.bincount(drawn) / len(drawn), p, atol=0.01)

    @pytest.mark.slow
    def test_rhcs_splits_in_every_way_alike(self) -> None:
        """Beliefs are powers of two, so that a group's probability says who is in it."""
        pool = Pool(confidence=1 - 2.0 ** np.arange(-6, 0))
        draws = _draws("rhcs", pool, 3, 9000, floor=1e-6)
        groups = np.array([drawn.design.group_probability * 63 for drawn in draws])
        seen, counts = np.unique(np.rint(groups).astype(int), axis=0, return_counts=True)
        np.testing.assert_allclose(groups, np.rint(groups), atol=1e-9)
        assert len(seen) == 90  # 6! / (2! · 2! · 2!)
        assert (seen.sum(axis=1) == 63).all()
        assert {mask.bit_count() for mask in seen.ravel().tolist()} == {2}
        assert ((counts - 100) ** 2 / 100).sum() < stats.chi2.isf(1e-4, 89)

    def test_ssrs_without_any_spread_shares_by_size(self) -> None:
        chosen = opacc.select(Pool(confidence=np.repeat([0.2, 0.9], [300, 100])), "ssrs", 40, strata=2)
        assert np.bincount(chosen.design.stratum).tolist() == [10, 30]

    def test_a_stop_half_way_leaves_out_no_stratum_on_purpose(self) -> None:
        chosen = opacc.select(Pool(confidence=np.linspace(0, 1, 500)), "ssrs", 200, strata=4)
        assert len(set(chosen.design.stratum[:40].tolist())) == 4


class TestGradient:
    def test_first_batch_is_proportional(self) -> None:
        confidence = np.repeat([0.1, 0.5, 0.9], [100, 300, 600])
        chosen = opacc.select(Pool(confidence=confidence), "gbs", 50, strata=3)
        assert np.bincount(chosen.design.stratum).tolist() == [30, 15, 5]

    def test_stops_where_a_stratum_is_used_up(self) -> None:
        given = gbs.allocate_by_gradient(12, np.array([2, 40]), np.array([0, 900]), np.array([0.0, 0.0]))
        assert given.tolist() == [2, 10]

    @pytest.mark.parametrize("seed", range(20))
    def test_follows_the_gradient_step_by_step(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        sizes, counted = rng.integers(1, 40, 6), rng.integers(0, 12, 6)
        failures = np.floor(rng.random(6) * (counted + 1))
        rate = (failures + 1) / (counted + 2)
        given = np.ones(6, dtype=int)
        for _ in range(min(30, sizes.sum()) - 6):
            gradient = (sizes / sizes.sum()) ** 2 * rate * (1 - rate) / (counted + given) ** 2
            given[np.argmax(np.where(given < sizes, gradient, -1))] += 1
        assert gbs.allocate_by_gradient(min(30, sizes.sum()), sizes, counted, failures).tolist() == given.tolist()


@pytest.mark.parametrize("method", ["sups", "rhcs", "two_ups", "ssrs", "gbs"])
class TestEveryDesign:
    def test_examples_of_zero_belief_can_be_drawn(self, method: str) -> None:
        pool = Pool(confidence=np.repeat([1.0, 0.5], [80, 20]))
        chosen = np.concatenate([opacc.select(pool, method, 20, seed=seed).index for seed in range(30)])
        assert (chosen < 80).any()

    def test_rounds_share_no_example(self, method: str) -> None:
        pool = Pool(confidence=np.linspace(0.2, 1, 60))
        strata = {} if method in ("sups", "rhcs") else {"strata": 3}
        rounds: list = []
        for _ in range(3):
            chosen = select(pool, method, 12, previous=rounds, **strata)
            assert not set(chosen.index) & {i for earlier, _ in rounds for i in earlier.index}
            rounds.append((chosen, np.ones(12)))

    def test_refuses_an_auxiliary_there_is_not(self, method: str) -> None:
        with pytest.raises(opacc.OpaccError, match="auxiliary='margin': choose one of confidence, dsa, lsa, combined"):
            opacc.select(Pool(confidence=CONFIDENCE), method, 2, auxiliary="margin")


class TestWeightedInterval:
    def test_reckons_with_the_failure_it_has_not_met(self) -> None:
        narrow = weighted_clopper_pearson(0.01, 1e-6, 0.005, 0.95)
        wide = weighted_clopper_pearson(0.01, 1e-6, 0.05, 0.95)
        assert narrow[1] < 0.04 < 0.1 < wide[1]


def test_ssrs_and_gbs_stop_where_told() -> None:
    assert ssrs.Parameters is gbs.Parameters
    with pytest.raises(opacc.OpaccError, match="strata=0: give at least 1"):
        opacc.select(Pool(confidence=CONFIDENCE), "gbs", 3, strata=0)
