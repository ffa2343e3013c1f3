"""Decide alerts, with a bound on the share of false ones.

An alert asks whether the accuracy θ of an audit is at least a, or whether it dropped by at most d since the last audit:

    min_accuracy: a     raised if the interval of θ is below a
    max_drop: d         raised if the interval of the drop is above d

Limits belong to the fleet or to one audit. With α = ``false_alarms`` and K checks in the fleet, each interval has the
level 1 - α/K. A false alert needs an interval that misses the truth, so a summary raises one with probability at most
Σ α/K = α. That holds whatever the dependence between audits that share models and pools (C. E. Bonferroni, 1936;
O. J. Dunn, "Multiple comparisons among means", JASA 56, 1961). In practice it is nearer to α/2: half of the errors are
on the harmless side. S. Holm's rule (Scandinavian Journal of Statistics 6, 1979) would raise a few more alerts when
several are due at once. But then an alert depends on the other audits, and no single interval explains it. K depends
on the fleet, never on the labels.

The bound holds for one interim analysis of the labels of each run; a summary of the same labels is the same analysis.
With ``decided_by: sequence`` it holds for all interim analyses of a run at once: alerts are decided by confidence
sequences (:mod:`opacc_ray.estimators.confidence_sequence`). A run of a later week belongs to a new summary with a bound
of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from opacc_ray.audit.accuracy import (
    accuracy_to_state,
    circumstances_of,
    sample_of,
    whenever_stopped,
    whole_rounds,
)
from opacc_ray.audit.several_models import difference_by
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.confidence_sequence import confidence_sequence
from opacc_ray.estimators.model_comparison import independent_difference
from opacc_ray.fleet.fleet_documents import AlertCheck, AlertRule
from opacc_ray.fleet.fleet_spec import AlertLimits, AlertSpec
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, with_nonresponse
from opacc_ray.runs.run import Run


@dataclass(frozen=True)
class Evidence:
    """The whole rounds of a run, and their labels; at least one of them has labels."""

    run: Run
    rounds: Sequence[LabelledRound]

    @classmethod
    def of(cls, run: Run) -> "Evidence | None":
        """Read the whole rounds of a run; None without labels. Raise LabelError for labels in conflict."""
        known = having_labels(whole_rounds(read_rounds(run)))
        return cls(run, known) if known else None

    @property
    def measure(self) -> str:
        return self.rounds[0].measure

    def accuracy(self, level: float) -> Estimate:
        """Return the accuracy as it is stated."""
        return accuracy_to_state(self.run, self.rounds, self.rounds, level).estimate

    def sequence(self, level: float) -> Estimate:
        """Return the accuracy with an interval that is valid at any time."""
        found = with_nonresponse(confidence_sequence(*sample_of(self.rounds), level), self.rounds)
        return whenever_stopped(circumstances_of(self.run, self.rounds, level), found)

    def change(self, before: "Evidence", level: float) -> Estimate:
        """Return the change from an earlier run: paired on one pool, else from two independent samples."""
        if self._shares_examples(before):
            try:
                return with_nonresponse(difference_by(self.run, before.run, self.rounds, level), self.rounds)
            except (DataError, SpecError):  # other classes, or examples or features that are gone
                pass
        return independent_difference(self.accuracy(level), before.accuracy(level))

    def change_at_any_time(self, before: "Evidence", level: float) -> Estimate:
        """Return the change with an interval valid at any time; each sequence has half of the error."""
        own, other = (item.sequence((1 + level) / 2) for item in (self, before))
        found = independent_difference(own, other)
        low, high = max(own.low - other.high, -1.0), min(own.high - other.low, 1.0)
        return replace(found, low=low, high=high, level=level, interval=f"difference of two: {own.interval}")

    def _shares_examples(self, before: "Evidence") -> bool:
        digest, other = self.run.header.pool.digest, before.run.header.pool.digest
        own_size, size = (item.rounds[0].selection.pool_size for item in (self, before))
        return bool(digest) and digest == other and own_size == size


def rule_of(asked: AlertSpec, audits: Sequence[AlertLimits]) -> AlertRule:
    """Return how the alerts of a fleet are decided, from the limits of its audits, and the error bound."""
    questions = sum(limits.num_questions for limits in audits)
    each = asked.false_alarms / questions
    analyses = (
        "for one analysis of the labels of each run; an analysis after a further round adds to it"
        if asked.decided_by == "interval"
        else "for all analyses of the labels of its runs together"
    )
    return AlertRule(
        min_accuracy=asked.min_accuracy,
        max_drop=asked.max_drop,
        false_alarms=asked.false_alarms,
        decided_by=asked.decided_by,
        questions=questions,
        level=1 - each,
        guarantee=f"a summary raises a false alert with probability {asked.false_alarms:g} at most, {analyses}: "
        f"each of {questions} intervals misses the truth with probability {each:.2g} at most (Bonferroni)",
    )


def checks_of(fleet: AlertRule, limits: AlertLimits, now: Evidence | None, before: Evidence | None) -> list[AlertCheck]:
    """Check the alerts of an audit, from the labels of its last run and of the one before."""
    rule = fleet.model_copy(update={"min_accuracy": limits.min_accuracy, "max_drop": limits.max_drop})
    by_sequence = rule.decided_by == "sequence"
    checks = []
    if rule.min_accuracy is not None:
        accuracy = (now.sequence if by_sequence else now.accuracy)(rule.level) if now else None
        checks.append(least_accuracy(rule, accuracy))
    if rule.max_drop is not None:
        change = None
        if now and before:
            change = (now.change_at_any_time if by_sequence else now.change)(before, rule.level)
        checks.append(largest_drop(rule, change))
    return checks


def least_accuracy(rule: AlertRule, stated: Estimate | None) -> AlertCheck:
    """Check whether the accuracy is below its limit."""
    limit = rule.min_accuracy or 0.0
    raised = stated is not None and stated.high < limit
    return _check(rule, "min_accuracy", limit, stated, raised, "no round is fully labelled yet")


def largest_drop(rule: AlertRule, change: Estimate | None) -> AlertCheck:
    """Check whether the accuracy dropped by more than its limit."""
    limit = rule.max_drop or 0.0
    drop = replace(change, value=-change.value, low=-change.high, high=-change.low) if change else None
    raised = drop is not None and drop.low > limit
    undecided = "there are no two runs of one population with a fully labelled round"
    return _check(rule, "max_drop", limit, drop, raised, undecided)


def _check(
    rule: AlertRule,
    kind: Literal["min_accuracy", "max_drop"],
    limit: float,
    found: Estimate | None,
    raised: bool,
    undecided: str,
) -> AlertCheck:
    return AlertCheck(
        kind=kind,
        limit=limit,
        value=found.value if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        level=rule.level,
        raised=raised,
        reason=found.reason if found else undecided,
    )
