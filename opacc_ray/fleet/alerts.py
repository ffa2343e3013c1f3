"""Decide alerts, with a bound on the share of false ones.

An audit is asked whether its accuracy θ is at least a, and whether it has dropped by at most d since the audit before:

    min_accuracy: a     raised if the interval of θ lies below a
    max_drop: d         raised if the interval of the drop lies above d

where a and d are the limits of the fleet, or of the audit's own. Where θ >= a, or the drop is at most d, that takes an
interval which leaves out the truth. With α = ``false_alarms`` and K questions, those of all audits of the fleet, each
interval has the level 1 - α/K. So a summary raises any false alert with probability at most Σ α/K = α, whatever the
dependence between audits that share models and pools (C. E. Bonferroni, 1936; O. J. Dunn, "Multiple comparisons among
means", JASA 56, 1961). It is nearer to α/2, for an interval that errs does so on the harmless side as often. S. Holm's
rule (Scandinavian Journal of Statistics 6, 1979) would raise a few more where several alerts are due at once; but then
whether an audit alarms depends on the others, and no interval that one could show decides it. K is fixed by the fleet
and the questions, never by the labels.

That is for one look at the labels of each run. A summary that is made again of the same labels is the same look.
Whoever draws further rounds and looks after each takes ``decided_by: sequence``: confidence sequences, which hold at
all looks at a run at once (:mod:`opacc_ray.estimators.sequence`). A run of a later week is a new question of a new
summary.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opacc_ray.audit.results import (
    accuracy_to_state,
    circumstances_of,
    sample_of,
    whenever_stopped,
    whole_rounds,
    with_nonresponse,
)
from opacc_ray.audit.several_models import difference_by
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.base import Estimate
from opacc_ray.estimators.comparison import INDEPENDENT, independent
from opacc_ray.estimators.sequence import confidence_sequence
from opacc_ray.fleet.fleet_documents import AlertCheck, AlertRule
from opacc_ray.fleet.fleet_spec import AlertLimits, AlertSpec
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds
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
        return independent(self.accuracy(level), before.accuracy(level))

    def change_at_any_time(self, before: "Evidence", level: float) -> Estimate:
        """Return the change with an interval valid at any time; each sequence has half of the error."""
        own, other = (item.sequence((1 + level) / 2) for item in (self, before))
        found = independent(own, other)
        low, high = max(own.low - other.high, -1.0), min(own.high - other.low, 1.0)
        return replace(found, low=low, high=high, level=level, interval=f"difference of two: {own.interval}")

    def _shares_examples(self, before: "Evidence") -> bool:
        own, other = self.run.header.pool, before.run.header.pool
        return bool(own.digest) and own.digest == other.digest and self._size == before._size

    @property
    def _size(self) -> int:
        return self.rounds[0].selection.pool_size


def is_paired(change: Estimate) -> bool:
    """Return whether a change compares two models on the same labelled examples."""
    return change.interval != INDEPENDENT


def rule_of(asked: AlertSpec, audits: Sequence[AlertLimits]) -> AlertRule:
    """Return how the alerts of a fleet are decided, from the limits of its audits, and the error bound."""
    questions = sum(limits.num_questions for limits in audits)
    each = asked.false_alarms / questions
    looks = (
        "at one look at the labels of each run; a look after a further round is a further chance"
        if asked.decided_by == "interval"
        else "over all looks at the labels of its runs together"
    )
    return AlertRule(
        min_accuracy=asked.min_accuracy,
        max_drop=asked.max_drop,
        false_alarms=asked.false_alarms,
        decided_by=asked.decided_by,
        questions=questions,
        level=1 - each,
        guarantee=f"a summary raises a false alert with probability {asked.false_alarms:g} at most, {looks}: each of "
        f"{questions} intervals leaves out the truth with probability {each:.2g} at most (Bonferroni)",
    )


def checks_of(fleet: AlertRule, limits: AlertLimits, now: Evidence | None, before: Evidence | None) -> list[AlertCheck]:
    """Check the alerts of an audit, from the labels of its last run and of the one before."""
    rule = fleet.model_copy(update={"min_accuracy": limits.min_accuracy, "max_drop": limits.max_drop})
    checks = []
    if rule.min_accuracy is not None:
        stated = None if now is None else accuracy_for(rule, now)
        checks.append(least_accuracy(rule, stated))
    if rule.max_drop is not None:
        change = None if now is None or before is None else change_for(rule, now, before)
        checks.append(largest_drop(rule, change))
    return checks


def accuracy_for(rule: AlertRule, now: Evidence) -> Estimate:
    """Return the accuracy with the interval that decides."""
    return now.sequence(rule.level) if rule.decided_by == "sequence" else now.accuracy(rule.level)


def change_for(rule: AlertRule, now: Evidence, before: Evidence) -> Estimate:
    """Return the change with the interval that decides."""
    if rule.decided_by == "sequence":
        return now.change_at_any_time(before, rule.level)
    return now.change(before, rule.level)


def least_accuracy(rule: AlertRule, stated: Estimate | None) -> AlertCheck:
    """Check whether the accuracy is below its limit."""
    limit = rule.min_accuracy or 0.0
    if stated is None:
        return _undecided(rule, "min_accuracy", limit, "no round is labelled in full yet")
    return AlertCheck(
        kind="min_accuracy",
        limit=limit,
        value=stated.value,
        low=stated.low,
        high=stated.high,
        level=rule.level,
        raised=stated.high < limit,
        reason=stated.reason,
    )


def largest_drop(rule: AlertRule, change: Estimate | None) -> AlertCheck:
    """Check whether the accuracy dropped by more than its limit."""
    limit = rule.max_drop or 0.0
    if change is None:
        return _undecided(
            rule, "max_drop", limit, "there are no two runs of one population of which a round is labelled in full"
        )
    return AlertCheck(
        kind="max_drop",
        limit=limit,
        value=-change.value,
        low=-change.high,
        high=-change.low,
        level=rule.level,
        raised=-change.high > limit,
        reason=change.reason,
    )


def _undecided(rule: AlertRule, kind: str, limit: float, reason: str) -> AlertCheck:
    return AlertCheck.model_validate(
        {"kind": kind, "limit": limit, "level": rule.level, "raised": False, "reason": reason}
        | dict.fromkeys(("value", "low", "high"))
    )
