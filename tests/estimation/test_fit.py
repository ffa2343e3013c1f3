"""The estimate of neyman from all labels: its formula, its gain where rounds learn late, and what it needs."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from drawn_rounds import draw_rounds
from given_selections import selection_of
from numpy.typing import NDArray
from whole_plan import whole_plan

import opacc_ray as opacc
from opacc_ray.designs.inclusion_probability import InclusionProbability
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.estimation.estimate import estimate_outcomes, measure_failures
from opacc_ray.estimation.intervals import clopper_pearson
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
    before, z, V, rows = np.empty(0, dtype=int), [], [], []
    for part, outcomes_of_part in zip(selections, outcomes, strict=True):
        free = np.setdiff1d(np.arange(120), before)
        task = Task(len(part), neyman.Parameters(), Previous(np.sort(before), outcome[np.sort(before)]))
        plan = whole_plan(view, task)
        p = fitted.copy()
        p[plan.free] = share * fitted[plan.free] + (1 - share) * plan.expected
        z.append(((1 - outcome[before]).sum() + p[free].sum()) / 120)
        V.append(sum(p[i] * (1 - p[i]) * (1 / pi - 1) for i, pi in zip(plan.free, plan.probability, strict=True)))
        rows.append([])
        for i, label, pi in zip(part.index.tolist(), outcomes_of_part, part.design.inclusion_probability, strict=True):
            rows[-1].append((1 - label - p[i], p[i], pi, 1 - share * own[i]))
        before = np.concatenate([before, part.index])
    weight = share / np.array(V) / sum(1 / v for v in V) + (1 - share) * Rounds(selections).weight
    known, foreseen = weight @ z, weight**2 @ V / 120**2
    correction = sum(w * sum(r / pi for r, _, pi, _ in row) for w, row in zip(weight, rows, strict=True)) / 120
    total = sum(w * sum(1 / pi for _, _, pi, _ in row) for w, row in zip(weight, rows, strict=True)) / 120
    free_share = 1 - weight[1] * budgets[0] / 120
    measured = sum(
        w**2 * sum(r**2 * (1 - pi) / pi**2 / left for r, _, pi, left in row)
        for w, row in zip(weight, rows, strict=True)
    )
    every = [item for row in rows for item in row]
    error, spread = sum(r / left**0.5 for r, _, _, left in every), sum(q * (1 - q) for _, q, _, _ in every)
    agreement = max(0, 1 - error**2 / spread / 4) * max(0, 1 - error**2 / spread / 0.5)
    num = sum(budgets)
    variance = max((num * measured / 120**2 + 20 * agreement * foreseen) / (num + 20 * agreement), foreseen / 2)
    by_model = p.copy()
    by_model[labelled] = failure
    apart = by_model.mean() - known - correction
    moved = agreement * 0.5 * min(1, variance / apart**2) * apart
    moved += (1 - agreement) * correction * (free_share / total - 1) * num / (num + 1)
    found = estimate_outcomes(selections, outcomes, pool=view)
    assert found.value == pytest.approx(1 - known - correction - share * moved, abs=1e-12)
    assert found.standard_error == pytest.approx(variance**0.5, rel=1e-12)
    assert found.low < found.value < found.high
    assert found.design_based


def test_the_estimate_does_not_follow_a_level_that_labels_contradict() -> None:
    """A confidence of .05 to .3 foresees failures nearly everywhere; 2 % are there, and the labels find them."""
    rng = np.random.default_rng(0)
    outcome = (rng.random(4000) >= 0.02).astype(float)
    view = view_of(opacc.Pool(confidence=rng.uniform(0.05, 0.3, 4000)))
    selections, outcomes = draw_rounds(view, outcome, (100,), seed=0)
    failures, _ = measure_failures(view, join(selections, outcomes))
    assert failures.labels.expected.sum() > (1 - outcomes[0]).sum() + 1
    law = failures.total.law
    assert law.by_predictions > failures.total.value
    assert law.agreement == 0


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


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [3, 2, 0])
def test_the_interval_of_a_slice_covers_over_all_samples(wrong: int) -> None:
    """All samples of 3 of 12 examples; ``wrong`` of the 3 in the slice fail, with the model as sure as elsewhere."""
    outcome = np.ones(12)
    outcome[:wrong] = outcome[7] = 0
    pool = opacc.Pool(confidence=np.linspace(0.95, 0.8, 12), slices={"camera": ["dark"] * 3 + ["light"] * 9})
    design = InclusionProbability(np.full(3, 1 / 4), np.full(3, 0.125), 1.5, 12, 3, np.empty(0, dtype=np.int64))
    held, narrow = 0, 0
    for chosen in combinations(range(12), 3):
        sample = replace(selection_of(design, chosen), method="neyman", parameters={"combine": "labels"})
        found = opacc.estimate(sample, outcomes=outcome[list(chosen)], pool=pool, by="camera")["dark"]
        held += found.low <= 1 - wrong / 3 + 1e-9 and found.high >= 1 - wrong / 3 - 1e-9
        narrow += found.n == 2 and found.high - found.low < 0.9
        if found.n and not outcome[list(chosen)][np.array(chosen) < 3].any():
            assert found.low == 0
            assert found.value < 0.5
    assert held / 220 >= 0.95
    assert narrow or wrong


def test_what_labels_alone_prove_is_stated_where_they_contradict_the_predictions() -> None:
    """A camera of which all fails, with the model as sure as elsewhere."""
    view, outcome = make_pool(2000, 2)
    camera = np.where(np.arange(2000) < 200, "broken", "other")
    outcome[:200] = 0
    pool = opacc.Pool(confidence=view.column("confidence"), slices={"camera": camera})
    selections, outcomes = draw_rounds(view_of(pool), outcome, (20, 40), seed=1)
    rounds = [opacc.Labelled(part, outcomes=own) for part, own in zip(selections, outcomes, strict=True)]
    found = opacc.estimate(rounds, pool=pool, by="camera")["broken"]
    assert found.n >= 3
    assert found.low == 0
    assert found.value < 1 / (found.n + 1)
    assert found.high >= 1 - clopper_pearson(found.n, found.n, 0.95)[0] - 1e-9
    start = f"labels contradict the predictions: {found.n} of {found.n} labels here are failures"
    assert str(found.reason).startswith(start)


def test_another_pool_is_refused() -> None:
    (view, outcome), (other, _) = make_pool(300, 6), make_pool(200, 6)
    drawn = opacc.select(view, "neyman", 10)
    with pytest.raises(SpecError, match="the pool has 200 examples, and the selection was drawn from 300"):
        estimate_outcomes(drawn, outcome[drawn.index], pool=other)


def make_pool_with_hidden_positives() -> tuple[View, NDArray[np.float64]]:
    """A third of the positives is hidden among sure negatives, where a draw for F1 leaves few labels."""
    rng = np.random.default_rng(2)
    logit = 7 * rng.standard_normal(10_000) - 16
    truth = (rng.random(10_000) < 1 / (1 + np.exp(-logit))).astype(np.int64)
    truth[np.flatnonzero(logit < -12)[:40]] = 1
    confidence, predicted = 1 / (1 + np.exp(-np.abs(logit))), (logit > 0).astype(np.int64)
    return view_of(opacc.Pool(prediction=predicted, confidence=confidence)), (truth == predicted).astype(np.float64)


def test_an_interval_says_that_it_trusts_predictions_where_a_draw_for_f1_leaves_few_labels() -> None:
    view, outcome = make_pool_with_hidden_positives()
    found = estimate_outcomes(*draw_rounds(view, outcome, (20, 40, 60, 80), seed=3, serve=["f1@1"]), pool=view)
    assert found.low <= outcome.mean() <= found.high
    assert found.design_based
    assert "the interval trusts the predictions there" in str(found.reason)


def test_an_accuracy_holds_beside_a_draw_for_f1() -> None:
    view, outcome = make_pool_with_hidden_positives()
    rounds = (draw_rounds(view, outcome, (100, 200, 300, 400), seed, serve=["f1@1"]) for seed in range(20))
    found = [estimate_outcomes(*own, pool=view) for own in rounds]
    assert sum(own.low <= outcome.mean() for own in found) >= 19


def test_answers_that_are_all_right_against_the_confidence_have_nearly_the_exact_interval() -> None:
    view = view_of(opacc.Pool(confidence=np.random.default_rng(1).beta(8, 2, 3000)))
    found = estimate_outcomes(*draw_rounds(view, np.ones(3000), (10, 20, 30, 40), seed=1), pool=view)
    assert found.high == 1
    assert 1 - found.low <= 1.2 * clopper_pearson(0, 100, 0.95)[1]  # weights differ as far as the price allows
