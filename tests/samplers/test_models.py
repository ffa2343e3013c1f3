"""Several models by one set of labels: the draw that serves all, their accuracies and differences, which is best."""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import binom, norm

import opacc_ray as opacc
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import within_interval
from opacc_ray.estimation.model_comparison import best_probability, compare_outcomes, paired_difference
from opacc_ray.samplers.select import select

N = 1200


class Models(NamedTuple):
    pools: list[opacc.Pool]
    outcomes: NDArray[np.float64]  # (models, N)


@pytest.fixture(scope="module")
def models() -> Models:
    """Three models that find some of the same examples hard, and some others."""
    rng = np.random.default_rng(0)
    shared = rng.normal(size=N)
    hardness = [2.5 - 1.5 * shared - 1.5 * rng.normal(size=N) - bias for bias in (0.0, 0.4, 1.0)]
    outcomes = np.array([(rng.random(N) < expit(own)).astype(float) for own in hardness])
    confidence = [np.clip(expit(own), 1e-6, 1) for own in hardness]
    prediction = rng.integers(0, 3, N)
    return Models([opacc.Pool(confidence=own, prediction=prediction) for own in confidence], outcomes)


def audit(models: Models, seed: int, sizes: tuple[int, ...]) -> tuple[list[opacc.Selection], list[NDArray[np.float64]]]:
    """Rounds for all models, and the outcomes (models, n) of each."""
    rounds: list[opacc.Selection] = []
    found: list[NDArray[np.float64]] = []
    for size in sizes:
        rounds.append(select(models.pools, "neyman", size, seed, previous=list(zip(rounds, found, strict=True))))
        found.append(models.outcomes[:, rounds[-1].index])
    return rounds, found


@pytest.mark.slow
def test_all_intervals_hold_together(models: Models) -> None:
    """Accuracies of three models and their differences, with 120 labels in two rounds or by SRS; 80 audits each."""
    truth, repetitions = models.outcomes.mean(axis=1), 80
    least = binom.ppf(1e-4, repetitions, 0.95)
    covered = {"neyman": 0, "srs": 0}
    of_models, errors = np.zeros(3), []
    for seed in range(repetitions):
        rounds, outcomes = audit(models, seed, (40, 80))
        drawn = opacc.select(models.pools[0], "srs", 120, seed)
        statements = {
            "neyman": compare_outcomes(rounds, outcomes, pools=models.pools),
            "srs": compare_outcomes(drawn, models.outcomes[:, drawn.index]),
        }
        for name, found in statements.items():
            differences = [(item.difference, truth[item.first] - truth[item.second]) for item in found.differences]
            covered[name] += all(own.low <= true <= own.high for own, true in differences)
        found = statements["neyman"]
        of_models += [own.low <= true <= own.high for own, true in zip(found.models, truth, strict=True)]
        errors.append([own.value - true for own, true in zip(found.models, truth, strict=True)])
    assert min(covered.values()) >= least
    assert of_models.min() >= least
    by_srs = truth * (1 - truth) * (1 / 120 - 1 / N)
    assert (np.mean(np.square(errors), axis=0) < 0.9 * by_srs).all()
    assert (np.abs(np.mean(errors, axis=0)) < 4 * np.std(errors, axis=0) / np.sqrt(repetitions)).all()


def test_a_difference_is_that_of_the_accuracies_whichever_model_comes_first(models: Models) -> None:
    rounds, outcomes = audit(models, 3, (30, 50))
    found = compare_outcomes(rounds, outcomes, pools=models.pools)
    back = compare_outcomes(rounds, [rows[::-1] for rows in outcomes], pools=models.pools[::-1])
    assert [(item.first, item.second) for item in found.differences] == [(0, 1), (0, 2), (1, 2)]
    for item, other in zip(found.differences, back.differences[::-1], strict=True):
        pair = found.models[item.first].value - found.models[item.second].value
        assert item.difference.value == pytest.approx(pair)
        assert -item.difference.value == pytest.approx(other.difference.value)
        assert (item.difference.low, item.difference.high) == pytest.approx(
            (-other.difference.high, -other.difference.low)
        )
        assert (item.num_first_better, item.num_second_better) == (other.num_second_better, other.num_first_better)
    assert found.best[::-1] == pytest.approx(back.best, abs=0.02)
    alone = estimate_outcomes(rounds, [rows[0] for rows in outcomes], pool=models.pools[0])
    assert found.models[0] == alone


def test_two_models_by_the_design_alone_are_the_paired_difference(models: Models) -> None:
    drawn = opacc.select(models.pools[0], "css", 80, 1)
    rows = models.outcomes[:2, drawn.index]
    found = compare_outcomes(drawn, rows)
    assert found.models == tuple(estimate_outcomes(drawn, row) for row in rows)
    own = paired_difference(drawn.design, rows[0] - rows[1], 0.95)
    assert found.differences[0].difference == within_interval(own, models.pools[0].size)


def test_labels_of_an_audit_serve_the_next_one(models: Models) -> None:
    """Of the first model alone, then of all three, by the same labels and some more."""
    first = opacc.select(models.pools[0], "neyman", 60, 5)
    rows = models.outcomes[:, first.index]
    then = select(models.pools, "neyman", 60, 5, previous=[(first, rows)])
    assert not set(first.index) & set(then.index)
    both = [rows, models.outcomes[:, then.index]]
    found = compare_outcomes([first, then], both, pools=models.pools)
    assert [own.n for own in found.models] == [120] * 3
    again = opacc.Selection.from_dict(then.to_dict())
    assert compare_outcomes([first, again], both, pools=models.pools) == found


def test_all_is_known_once_all_is_labelled() -> None:
    rng = np.random.default_rng(1)
    outcomes = (rng.random((3, 40)) < [[0.9], [0.8], [0.8]]).astype(float)
    outcomes[2] = outcomes[1][::-1]  # as good as the second
    pools = [opacc.Pool(confidence=rng.uniform(0.5, 1, 40)) for _ in range(3)]
    drawn = opacc.select(pools, "neyman", 40, 0)
    found = compare_outcomes(drawn, outcomes[:, drawn.index], pools=pools)
    truth = outcomes.mean(axis=1)
    assert [own.value for own in found.models] == pytest.approx(truth)
    for item in found.differences:
        own = item.difference
        assert (own.low, own.high) == pytest.approx([truth[item.first] - truth[item.second]] * 2)


def test_probability_to_be_best_is_that_of_the_normal_law() -> None:
    assert best_probability(np.array([0.9, 0.88]), np.diag([4e-4, 1e-4])) == pytest.approx(
        [norm.cdf(0.02 / np.sqrt(5e-4)), norm.sf(0.02 / np.sqrt(5e-4))], abs=0.01
    )
    moving_together = 4e-4 * (0.99 * np.ones((2, 2)) + 0.01 * np.eye(2))
    assert best_probability(np.array([0.9, 0.88]), moving_together)[0] > 0.999
    assert best_probability(np.array([0.8, 0.9, 0.9]), np.zeros((3, 3))) == [0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"method": "css"}, SpecError, "'css' chooses for one model"),
        ({"history": [opacc.History()]}, SpecError, "1 histories for 2 models"),
        ({"pool": []}, SpecError, "no pool is given"),
    ],
)
def test_what_cannot_serve_several_models_is_refused(
    change: dict[str, object], error: type[Exception], message: str, models: Models
) -> None:
    with pytest.raises(error, match=message):
        opacc.select(**{"pool": models.pools[:2], "method": "neyman", "budget": 20} | change)  # type: ignore[arg-type]


def test_models_of_other_examples_are_refused(models: Models) -> None:
    small = opacc.Pool(confidence=np.full(N - 1, 0.9))
    with pytest.raises(SpecError, match=f"pool 2 has {N - 1} examples and the first has {N}"):
        opacc.select([models.pools[0], small], budget=20)
    named = opacc.Pool(ids=[f"x{i}" for i in range(N)], confidence=np.full(N, 0.9))
    with pytest.raises(DataError, match=r"in the first pool and 'x.* in pool 2"):
        opacc.select([models.pools[0], named], budget=20)
    drawn = opacc.select(models.pools, budget=20)
    with pytest.raises(LabelError, match="outcomes of 2 models instead of 3"):
        select(models.pools, budget=20, previous=[(drawn, models.outcomes[:2, drawn.index])])
    with pytest.raises(SpecError, match="2 pools of 1200 examples, for 3 models"):
        compare_outcomes(drawn, models.outcomes[:, drawn.index], pools=models.pools[:2])
    with pytest.raises(LabelError, match="outcomes of \\[2, 3\\] models"):
        compare_outcomes([drawn, drawn], [models.outcomes[:, drawn.index], models.outcomes[:2, drawn.index]])
