"""The estimate of neyman from all labels: its formula, its gain where rounds learn late, and what it needs."""

import numpy as np
import pytest
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.estimators.difference_estimator import label_effects
from opacc_ray.estimators.rounds import round_weights
from opacc_ray.estimators.totals import Groups
from opacc_ray.history import NO_HISTORY
from opacc_ray.parts.view import LocalParts, View, view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals
from opacc_ray.samplers.neyman.regression import combine_by_regression, gather_evidence, weights_by_variance
from opacc_ray.selection import Selection


def make_pool(size: int, seed: int) -> tuple[View, np.ndarray]:
    """A classifier that takes two classes for each other, confidently, and fails by doubt elsewhere."""
    rng = np.random.default_rng(seed)
    doubt, prediction = rng.beta(0.15, 20.0, size), rng.integers(0, 8, size)
    outcome = ((rng.random(size) >= doubt) & (prediction > 1)).astype(float)
    return view_of(opacc.Pool(confidence=1 - doubt, prediction=prediction)), outcome


def audit(view: View, outcome: np.ndarray, budgets: tuple[int, ...], seed: int, **given: str) -> tuple[list, list]:
    selections: list[Selection] = []
    for budget in budgets:
        previous = [(drawn, outcome[drawn.index]) for drawn in selections]
        selections.append(opacc.select(view, "neyman", budget, seed=seed, previous=previous, **given))
    return selections, [outcome[drawn.index] for drawn in selections]


@pytest.mark.parametrize(("budgets", "share"), [((12, 21), 1.0), ((8, 14), 0.5), ((4, 8), 0.0)])
def test_the_formula_written_out(budgets: tuple[int, int], share: float) -> None:
    view, outcome = make_pool(120, 1)
    selections, outcomes = audit(view, outcome, budgets, seed=3)
    labelled, failure = np.concatenate([part.index for part in selections]), 1 - np.concatenate(outcomes)
    forecast = predict_failure(read_signals(view, 6), labelled, failure)
    fitted, own = forecast.failure, dict(zip(labelled.tolist(), forecast.leverage, strict=True))
    before, z, V, measured, errors, foreseen = np.empty(0, dtype=int), [], [], [], [], []
    for part, outcomes_of_part in zip(selections, outcomes, strict=True):
        free = np.setdiff1d(np.arange(120), before)
        task = Task(len(part), neyman.Parameters(), Previous(np.sort(before), outcome[np.sort(before)]))
        plan = whole_plan(view, task)
        p = fitted.copy()
        p[plan.free] = share * fitted[plan.free] + (1 - share) * plan.expected
        total = (1 - outcome[before]).sum() + p[free].sum()
        for i, label, pi in zip(part.index, outcomes_of_part, part.design.inclusion_probability, strict=True):
            total += (1 - label - p[i]) / pi
        V.append(sum(p[i] * (1 - p[i]) * (1 / pi - 1) for i, pi in zip(plan.free, plan.probability, strict=True)))
        z.append(total / 120)
        error = [
            (1 - label - p[i]) / (1 - share * own[i]) ** 0.5
            for i, label in zip(part.index.tolist(), outcomes_of_part, strict=True)
        ]
        measured.append((len(free) / 120) ** 2 * part.design.variance(np.array(error)))
        errors += error
        foreseen += [p[i] for i in part.index]
        before = np.concatenate([before, part.index])
    found = opacc.estimate(selections, outcomes, pool=view)
    weight = share / np.array(V) / sum(1 / v for v in V) + (1 - share) * round_weights(selections)
    by_model = fitted.copy()
    by_model[labelled] = failure
    apart = weight @ z - by_model.mean()
    agreement = max(0, 1 - 2 * sum(errors) ** 2 / sum(p * (1 - p) for p in foreseen))
    assert (0 < agreement < 1) == (share == 1)
    moved = share * 0.5 * agreement * min(1, (weight**2 @ measured) / apart**2) * apart
    assert found.value == pytest.approx(1 - weight @ z + moved, abs=1e-12)
    assert abs(moved) <= 0.5 * found.standard_error
    assert found.standard_error == pytest.approx((weight**2 @ measured) ** 0.5, rel=1e-12)
    assert found.low < found.value < found.high
    assert found.design_based


def test_the_estimate_does_not_follow_a_level_that_labels_contradict() -> None:
    """A confidence of .05 to .3 foresees failures nearly everywhere; 2 % are there, and the labels find them."""
    rng = np.random.default_rng(0)
    outcome = (rng.random(4000) >= 0.02).astype(float)
    view = view_of(opacc.Pool(confidence=rng.uniform(0.05, 0.3, 4000)))
    selections, outcomes = audit(view, outcome, (100,), seed=0)
    found = combine_by_regression(view, selections, outcomes)
    labels = label_effects(found.rounds, found.weight)
    assert labels.expected.sum() > (1 - outcomes[0]).sum() + 1
    assert found.predicted is not None
    assert found.predicted > found.share
    assert opacc.estimate(selections, outcomes, pool=view).value == pytest.approx(1 - found.share, abs=1e-12)


def test_a_dozen_labels_are_combined_by_rounds() -> None:
    """A fit to so few labels is biased: the estimate is that of rounds, which is exactly unbiased."""
    view, outcome = make_pool(400, 2)
    rounds = audit(view, outcome, (2, 4, 6), seed=3)
    found, by_rounds = opacc.estimate(*rounds, pool=view), opacc.estimate(*rounds)
    assert found.value == pytest.approx(by_rounds.value, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((by_rounds.low, by_rounds.high), abs=1e-12)


def test_a_round_without_variance_has_all_the_weight() -> None:
    assert weights_by_variance([0.2, 0.1]) == pytest.approx([1 / 3, 2 / 3])
    assert weights_by_variance([0.2, 0.0]).tolist() == [0, 1]


@pytest.mark.slow
def test_late_labels_improve_the_estimate_of_the_first_rounds() -> None:
    """Errors are below those of the rounds by themselves, without a bias to speak of, and the intervals hold."""
    view, outcome = make_pool(2000, 4)
    truth, by_rounds, by_labels, covered = outcome.mean(), [], [], 0
    for seed in range(100):
        selections, outcomes = audit(view, outcome, (10, 20, 30), seed)
        by_rounds.append(opacc.estimate(selections, outcomes).value - truth)
        found = opacc.estimate(selections, outcomes, pool=view)
        by_labels.append(found.value - truth)
        covered += found.low <= truth <= found.high
    assert np.mean(np.square(by_labels)) < 0.7 * np.mean(np.square(by_rounds))
    of_srs = np.sqrt(outcome.var() / 60)
    assert abs(np.mean(by_labels)) < 0.15 * of_srs
    assert covered / 100 >= 0.86


def test_rounds_are_combined_unbiased_on_request_or_without_the_pool() -> None:
    view, outcome = make_pool(300, 5)
    selections, outcomes = audit(view, outcome, (10, 20), seed=1)
    exact, asked = audit(view, outcome, (10, 20), seed=1, combine="rounds")
    without = opacc.estimate(selections, outcomes)
    assert opacc.estimate(exact, asked, pool=view) == without == opacc.estimate(exact, asked)
    assert opacc.estimate(selections, outcomes, pool=view) != without


def test_other_methods_ignore_the_pool() -> None:
    view, outcome = make_pool(300, 5)
    drawn = opacc.select(view, "css", 30)
    assert opacc.estimate(drawn, outcome[drawn.index], pool=view) == opacc.estimate(drawn, outcome[drawn.index])


def test_missing_labels_and_saved_selections_are_supported() -> None:
    view, outcome = make_pool(300, 6)
    selections, outcomes = audit(view, outcome, (10, 20), seed=1)
    saved = [Selection.from_json(part.to_json(), "a file") for part in selections]
    assert opacc.estimate(saved, outcomes, pool=view) == opacc.estimate(selections, outcomes, pool=view)
    part = selections[1].restrict(np.arange(20) < 15)
    found = opacc.estimate([selections[0], part], [outcomes[0], outcomes[1][:15]], pool=view)
    assert found.n == 25
    assert abs(found.value - outcome.mean()) < 0.3


def test_probabilities_stay_as_drawn_when_labels_are_corrected_or_lost() -> None:
    view, outcome = make_pool(300, 6)
    selections, outcomes = audit(view, outcome, (40, 20), seed=1)
    [evidence] = gather_evidence(view, selections, [1 - outcomes[0], outcomes[1]], NO_HISTORY, whole)
    assert evidence.labels[1].probability.tolist() == selections[1].design.inclusion_probability.tolist()
    keep = np.arange(40) != 3
    rounds, known = [selections[0].restrict(keep), selections[1]], [outcomes[0][keep], outcomes[1]]
    with pytest.raises(LabelError, match=r"1 more examples were labelled .* selection.forget\(index\) of this one"):
        opacc.estimate(rounds, known, pool=view)
    rounds[1] = selections[1].forget(selections[0].index[~keep])
    found = opacc.estimate(rounds, known, pool=view)
    assert found.n == 59
    assert abs(found.value - opacc.estimate(selections, outcomes, pool=view).value) < 0.1 * found.standard_error
    design = rounds[1].design
    by_round = [1 - part.design.failure_share(1 - own) for part, own in zip(rounds, known, strict=True)]
    weight, left = round_weights(rounds), 1 - 39 / 300  # the lost one counts with those that round 2 could draw
    first = weight[0] * by_round[0]
    second = weight[1] * (known[0].sum() / 300 + left * by_round[1])
    assert design.population == 260
    assert opacc.estimate(rounds, known).value == pytest.approx(first + second, abs=1e-12)


def whole(failure: np.ndarray) -> list[Groups]:
    return [Groups(np.zeros(len(failure), dtype=np.int64), 1)]


def test_a_fully_labelled_pool_has_a_zero_width_interval() -> None:
    view, outcome = make_pool(40, 7)
    found = opacc.estimate(*audit(view, outcome, (10, 30), seed=1), pool=view)
    assert (found.low, found.value, found.high) == pytest.approx([outcome.mean()] * 3)


def test_another_pool_is_refused() -> None:
    (view, outcome), (other, _) = make_pool(300, 6), make_pool(200, 6)
    drawn = opacc.select(view, "neyman", 10)
    with pytest.raises(SpecError, match="the pool has 200 examples, and the selection was drawn from 300"):
        opacc.estimate(drawn, outcome[drawn.index], pool=other)


@pytest.mark.parametrize("method", ["neyman", "srs"])
def test_a_pool_of_the_same_examples_in_another_order_is_refused(method: str) -> None:
    """Where ids differ: labels would go to other examples."""
    ids, confidence = [f"a{row}" for row in range(30)], np.linspace(0.5, 1, 30)
    pool = opacc.Pool(ids=ids, confidence=confidence)
    cut = View(LocalParts([opacc.Pool(ids=ids[a:b], confidence=confidence[a:b]) for a, b in ((0, 7), (7, 30))]))
    drawn = opacc.select(pool, method, 8)
    outcome, place, own = [1, 0] * 4, drawn.index[0], drawn.ids[0]
    others = [
        opacc.Pool(ids=ids[::-1], confidence=confidence[::-1]),
        View(LocalParts([opacc.Pool(ids=[*ids[1:], "b"], confidence=confidence)])),
    ]
    for other in others:
        refusal = f"example {place} is '{own}' in the selection and '{view_of(other).identify([place])[0]}' in"
        with pytest.raises(DataError, match=f"{refusal} the pool; give"):
            opacc.estimate(drawn, outcome, pool=other)
        with pytest.raises(DataError, match=f"{refusal} the pool; give"):
            opacc.select(other, method, 8, previous=[(drawn, outcome)])
        with pytest.raises(DataError, match=f"{refusal} pool 2; give"):
            opacc.compare(drawn, [outcome, outcome], pools=[pool, other])
    without = opacc.Pool(confidence=confidence)
    found = opacc.estimate(drawn, outcome, pool=pool)
    assert opacc.estimate(drawn, outcome, pool=cut) == opacc.estimate(drawn, outcome, pool=without) == found
