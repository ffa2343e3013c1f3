"""Alerts by simulation: falsely in at most the stated share of re-audits without change, surely after a drop.

An estimate by simple random sampling depends on the number of successes alone, which is hypergeometric: that number is
drawn, and the estimate of each number made once.
"""

from functools import cache

import numpy as np
import pytest

import opacc_ray as opacc
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import independent_difference
from opacc_ray.estimation.sample import join
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.extensions.fleet.alerts import AlertCheck, AlertRule, checks_of, decided, rule_of
from opacc_ray.extensions.fleet.fleet_spec import AlertLimits, AlertSpec, Limit

POOL, AUDITS = 4000, 3
"""Examples of each pool, and audits of the fleet."""


def pool_of(accuracy: float, rng: np.random.Generator) -> np.ndarray:
    """Outcomes (POOL,) whose mean is the accuracy."""
    outcome = np.zeros(POOL)
    outcome[rng.permutation(POOL)[: round(accuracy * POOL)]] = 1
    return outcome


def rule_for(asked: AlertSpec, num_audits: int = AUDITS) -> AlertRule:
    """The rule of a fleet whose audits have no limits of their own."""
    return rule_of(asked, [asked] * num_audits)


def check(rule: AlertRule, kind: str, found: Estimate | None) -> AlertCheck:
    """Check a limit that all audits have."""
    return decided(rule, next(limit for limit in rule.limits if limit.kind == kind), found)


@cache
def stated(successes: int, n: int, level: float) -> Estimate:
    """The estimate from so many successes of a simple random sample."""
    selection = opacc.select(opacc.Pool(prediction=np.zeros(POOL)), method="srs", budget=n, seed=0)
    return estimate_outcomes(selection, (np.arange(n) < successes).astype(float), level)


def sample(accuracy: float, n: int, level: float, rng: np.random.Generator) -> Estimate:
    right = round(accuracy * POOL)
    return stated(int(rng.hypergeometric(right, POOL - right, n)), n, level)


def alarms(rule: AlertRule, now: float, before: float, n: int, rng: np.random.Generator) -> list[bool]:
    """Whether each audit of a fleet raises an alert, whose accuracy is ``now`` and was ``before``, by n labels each."""
    raised = []
    for _ in range(AUDITS):
        new, old = sample(now, n, rule.level, rng), sample(before, n, rule.level, rng)
        found = {"min": new, "max_drop": independent_difference(new, old)}
        raised.append(any(decided(rule, limit, found[limit.kind]).raised for limit in rule.limits))
    return raised


def test_re_audits_without_change_raise_an_alert_in_at_most_the_stated_share() -> None:
    """The accuracy is just what is allowed, and has dropped by just what is allowed: nothing could alarm more often."""
    rng, repetitions = np.random.default_rng(3), 500
    rule = rule_for(AlertSpec(min={"accuracy": 0.92}, max_drop={"accuracy": 0.02}, false_alarms=0.2))
    assert (rule.questions, rule.level) == (6, 1 - 0.2 / 6)
    alerts = sum(any(alarms(rule, 0.92, 0.94, 200, rng)) for _ in range(repetitions))
    assert 0.02 * repetitions < alerts <= 0.2 * repetitions


@pytest.mark.slow
def test_a_sequence_keeps_the_share_over_all_analyses_where_the_interval_does_not() -> None:
    """Analyse after each of 15 rounds of 20 labels, and stop at the first alert."""
    rng, repetitions = np.random.default_rng(7), 100
    pool, outcome = opacc.Pool(prediction=np.zeros(POOL)), pool_of(0.9, np.random.default_rng(8))
    spec = AlertSpec(min={"accuracy": 0.9}, false_alarms=0.1)
    rule = rule_for(spec, 1)
    sequence = rule_for(spec.model_copy(update={"decided_by": "sequence"}), 1)
    assert "for all analyses of the labels of its runs together" in sequence.guarantee
    assert "for one analysis of the labels of each run" in rule.guarantee
    by_interval = by_sequence = 0
    for _ in range(repetitions):
        chosen = opacc.select(pool, method="srs", budget=300, seed=int(rng.integers(1 << 30)))
        answers = outcome[chosen.index]
        analyses = [stated(int(answers[:n].sum()), n, rule.level) for n in range(20, 301, 20)]
        if not any(check(rule, "min", one).raised for one in analyses):
            continue  # a sequence is wider
        by_interval += 1
        last = confidence_sequence(join(chosen, answers), rule.level)  # inside those of all earlier analyses
        by_sequence += check(sequence, "min", last).raised
    assert by_interval > 0.1 * repetitions
    assert by_sequence <= 0.1 * repetitions


def test_what_cannot_be_decided_raises_nothing_and_says_why() -> None:
    rule = rule_for(AlertSpec(min={"accuracy": 0.9}, max_drop={"accuracy": 0.1}), 1)
    low, drop = check(rule, "min", None), check(rule, "max_drop", None)
    assert (low.raised, low.value, low.reason) == (False, None, "no round is fully labelled yet")
    assert (drop.raised, drop.value) == (False, None)


def test_limits_of_an_audits_own_are_questions_among_those_of_the_fleet() -> None:
    asked = AlertSpec(min={"accuracy": 0.92}, false_alarms=0.1)
    own = asked.changed_by(AlertLimits(min={"accuracy": 0.8}, max_drop={"accuracy": 0.02}))
    never = asked.changed_by(AlertLimits(min={"accuracy": None}))
    rule = rule_of(asked, [asked, own, never])
    assert (rule.questions, rule.level) == (3, 1 - 0.1 / 3)
    assert rule.limits == [Limit(kind="min", limit=0.92)]
    assert [(check.kind, check.limit) for check in checks_of(rule, own, None, None)] == [
        ("min", 0.8),
        ("max_drop", 0.02),
    ]
    assert checks_of(rule, never, None, None) == []


@pytest.mark.parametrize(("value", "high", "raised"), [(0.91, 0.93, False), (0.85, 0.92, False), (0.85, 0.9, True)])
def test_the_interval_decides_and_not_the_estimate(value: float, high: float, raised: bool) -> None:
    rule = rule_for(AlertSpec(min={"accuracy": 0.92}), 1)
    stated = Estimate(value, 0.01, 0.8, high, rule.level, "wilson", 100, True)
    assert check(rule, "min", stated).raised is raised
