"""The estimate of neyman from all labels: its formula, its gain where rounds learn late, and what it needs."""

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes, measure_failures
from opacc_ray.estimation.failures import weights_by_variance
from opacc_ray.estimation.sample import Rounds, join
from opacc_ray.parts.view import View, view_of
from opacc_ray.samplers import neyman
from opacc_ray.samplers.base import Previous, Task
from opacc_ray.samplers.neyman.failure_model import predict_failure, read_signals


def make_pool(size: int, seed: int) -> tuple[View, np.ndarray]:
    """A classifier that takes two classes for each other, confidently, and fails by doubt elsewhere."""
    rng = np.random.default_rng(seed)
    doubt, prediction = rng.beta(0.15, 20.0, size), rng.integers(0, 8, size)
    outcome = ((rng.random(size) >= doubt) & (prediction > 1)).astype(float)
    return view_of(opacc.Pool(confidence=1 - doubt, prediction=prediction)), outcome


@pytest.mark.parametrize(("budgets", "share"), [((12, 21), 1.0), ((8, 14), 0.5), ((4, 8), 0.0)])
def test_the_formula_written_out(budgets: tuple[int, int], share: float) -> None:
    view, outcome = make_pool(120, 1)
    selections, outcomes = draw_rounds(view, outcome, budgets, seed=3)
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
    found = estimate_outcomes(selections, outcomes, pool=view)
    weight = share / np.array(V) / sum(1 / v for v in V) + (1 - share) * Rounds(selections).weight
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
    selections, outcomes = draw_rounds(view, outcome, (100,), seed=0)
    failures, fit = measure_failures(view, join(selections, outcomes))
    assert failures.labels.expected.sum() > (1 - outcomes[0]).sum() + 1
    assert fit is not None
    assert fit.by_predictions > failures.total.value
    found = estimate_outcomes(selections, outcomes, pool=view)
    assert found.value == pytest.approx(1 - failures.total.value, abs=1e-12)


def test_a_round_without_variance_has_all_the_weight() -> None:
    assert weights_by_variance([0.2, 0.1]) == pytest.approx([1 / 3, 2 / 3])
    assert weights_by_variance([0.2, 0.0]).tolist() == [0, 1]


def test_rounds_are_combined_unbiased_on_request_or_without_the_pool() -> None:
    view, outcome = make_pool(300, 5)
    selections, outcomes = draw_rounds(view, outcome, (10, 20), seed=1)
    exact, asked = draw_rounds(view, outcome, (10, 20), seed=1, combine="rounds")
    without = estimate_outcomes(selections, outcomes)
    assert estimate_outcomes(exact, asked, pool=view) == without == estimate_outcomes(exact, asked)
    assert estimate_outcomes(selections, outcomes, pool=view) != without


def test_probabilities_stay_as_drawn_when_labels_are_corrected_or_lost() -> None:
    view, outcome = make_pool(300, 6)
    selections, outcomes = draw_rounds(view, outcome, (40, 20), seed=1)
    keep = np.arange(40) != 3
    rounds, known = [selections[0].restrict(keep), selections[1]], [outcomes[0][keep], outcomes[1]]
    with pytest.raises(LabelError, match=r"1 more examples were labelled .* selection.forget\(index\) of this one"):
        estimate_outcomes(rounds, known, pool=view)
    rounds[1] = selections[1].forget(selections[0].index[~keep])
    found = estimate_outcomes(rounds, known, pool=view)
    assert found.n == 59
    assert abs(found.value - estimate_outcomes(selections, outcomes, pool=view).value) < 0.1 * found.standard_error
    design = rounds[1].design
    by_round = [1 - part.design.failure_share(1 - own) for part, own in zip(rounds, known, strict=True)]
    weight, left = Rounds(rounds).weight, 1 - 39 / 300  # the lost one counts with those that round 2 could draw
    first = weight[0] * by_round[0]
    second = weight[1] * (known[0].sum() / 300 + left * by_round[1])
    assert design.population == 260
    assert estimate_outcomes(rounds, known).value == pytest.approx(first + second, abs=1e-12)


def test_a_fully_labelled_pool_has_a_zero_width_interval() -> None:
    view, outcome = make_pool(40, 7)
    found = estimate_outcomes(*draw_rounds(view, outcome, (10, 30), seed=1), pool=view)
    assert (found.low, found.value, found.high) == pytest.approx([outcome.mean()] * 3)


def test_another_pool_is_refused() -> None:
    (view, outcome), (other, _) = make_pool(300, 6), make_pool(200, 6)
    drawn = opacc.select(view, "neyman", 10)
    with pytest.raises(SpecError, match="the pool has 200 examples, and the selection was drawn from 300"):
        estimate_outcomes(drawn, outcome[drawn.index], pool=other)
