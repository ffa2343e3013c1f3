"""Decide alerts, with a bound on the share of false ones.

An alert asks whether the accuracy θ of an audit is at least a, or whether it dropped by at most d since the last audit:

    min_accuracy: a     raised if the interval of θ is below a
    max_drop: d         raised if the interval of the drop is above d
    min_metrics: a      raised if the interval of a metric is below a
    max_drops: d        raised if the interval of the drop of a metric is above d
    min_slices: a       raised if the interval of the accuracy of any slice is below a

Limits belong to the fleet or to one audit. With α = ``false_alarms`` and K checks in the fleet, each interval has the
level 1 - α/K. The S slices of one name are one check, and each of their intervals has the level 1 - α/(K·S). A false
alert needs an interval that misses the truth, so a summary raises one with probability at most Σ α/K = α. That holds
whatever the dependence between audits that share models and pools (C. E. Bonferroni, 1936; O. J. Dunn, "Multiple
comparisons among means", JASA 56, 1961). In practice it is nearer to α/2: half of the errors are on the harmless side.
S. Holm's rule (Scandinavian Journal of Statistics 6, 1979) would raise a few more alerts when several are due at once.
But then an alert depends on the other audits, and no single interval explains it. K depends on the fleet, never on the
labels.

The bound holds for one interim analysis of the labels of each run; a summary of the same labels is the same analysis.
With ``decided_by: sequence`` it holds for all interim analyses of a run at once: alerts are decided by confidence
sequences (:mod:`opacc_ray.estimators.design_based`). A run of a later week belongs to a new summary with a bound
of its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from opacc_ray.audit.accuracy import (
    accuracy_to_state,
    circumstances_of,
    sample_of,
    whenever_stopped,
    whole_rounds,
)
from opacc_ray.audit.comparison import difference_by
from opacc_ray.audit.run_numbers import RunNumbers, checked_metric, class_names, open_for_estimates
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.design_based import confidence_sequence
from opacc_ray.estimators.intervals import level_of_each
from opacc_ray.estimators.metrics import ACCURACY, Metric
from opacc_ray.estimators.model_comparison import independent_difference
from opacc_ray.fleet.fleet_documents import AlertCheck, AlertRule, Limit
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

    def number(self, name: str, level: float) -> Estimate:
        """Return the accuracy as it is stated, or a metric of the pool."""
        if name == ACCURACY:
            return accuracy_to_state(self.run, self.rounds, self.rounds, level).estimate
        with self.numbers() as numbers:
            found = numbers.metric(checked_metric(name, class_names(self.run)), level)
        return with_nonresponse(found, self.rounds)

    def lowest_slice(self, by: str, level: float) -> tuple[Estimate, str]:
        """Return the accuracy of the slice whose interval has the lowest upper end, and its name.

        Intervals of all slices hold together at the level (Bonferroni).
        """
        with self.numbers(by) as numbers:
            each = level_of_each(level, len(numbers.slicings[by].names))
            found = numbers.estimates.by_slice(Metric(ACCURACY), by, each)
        name = min(found, key=lambda name: found[name].high)
        return with_nonresponse(found[name], self.rounds), name

    @contextmanager
    def numbers(self, *by: str) -> Iterator[RunNumbers]:
        """Open the numbers of the run, with some of its slicings."""
        with open_for_estimates(self.run, [item.known for item in self.rounds]) as view:
            yield RunNumbers(self.run, self.rounds, self.rounds, view, {name: view.slicing(name) for name in by})

    def sequence(self, level: float) -> Estimate:
        """Return the accuracy with an interval that is valid at any time."""
        found = with_nonresponse(confidence_sequence(*sample_of(self.rounds), level), self.rounds)
        return whenever_stopped(circumstances_of(self.run, self.rounds, level), found)

    def change(self, before: "Evidence", level: float, name: str = ACCURACY) -> Estimate:
        """Return the change of a number from an earlier run: paired on one pool, else from two independent samples."""
        if self._shares_examples(before):
            with suppress(DataError, SpecError):  # other classes, or examples or features that are gone
                found = difference_by(self.run, before.run, self.rounds, level, name)
                return with_nonresponse(found, self.rounds)
        return independent_difference(self.number(name, level), before.number(name, level))

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
    questions = sum(len(limits.all()) for limits in audits)
    each = asked.false_alarms / questions
    analyses = (
        "for one analysis of the labels of each run; an analysis after a further round adds to it"
        if asked.decided_by == "interval"
        else "for all analyses of the labels of its runs together"
    )
    return AlertRule(
        min_accuracy=asked.min_accuracy,
        max_drop=asked.max_drop,
        min_metrics=asked.min_metrics or {},
        max_drops=asked.max_drops or {},
        min_slices=asked.min_slices or {},
        false_alarms=asked.false_alarms,
        decided_by=asked.decided_by,
        questions=questions,
        level=1 - each,
        guarantee=f"a summary raises a false alert with probability {asked.false_alarms:g} at most, {analyses}: "
        f"each of {questions} intervals misses the truth with probability {each:.2g} at most (Bonferroni)",
    )


def checks_of(rule: AlertRule, limits: AlertLimits, now: Evidence | None, before: Evidence | None) -> list[AlertCheck]:
    """Check the alerts of an audit, from the labels of its last run and of the one before."""
    return [_checked(rule, limit, now, before) for limit in limits.all()]


def _checked(rule: AlertRule, limit: Limit, now: Evidence | None, before: Evidence | None) -> AlertCheck:
    by_sequence, level, of = rule.decided_by == "sequence", rule.level, limit.of or ACCURACY
    if limit.kind in ("max_drop", "max_metric_drop"):
        if now is None or before is None:
            return largest_drop(rule, limit, None)
        change = now.change_at_any_time(before, level) if by_sequence else now.change(before, level, of)
        return largest_drop(rule, limit, change)
    if now is None:
        return least_number(rule, limit, None)
    if limit.kind == "min_slice":
        return least_number(rule, limit, *now.lowest_slice(of, level))
    return least_number(rule, limit, now.sequence(level) if by_sequence else now.number(of, level))


def least_number(rule: AlertRule, limit: Limit, stated: Estimate | None, slice_name: str | None = None) -> AlertCheck:
    """Check whether the accuracy, or another number, is below its limit."""
    raised = stated is not None and stated.high < limit.limit
    return _check(rule, limit, stated, raised, "no round is fully labelled yet", slice_name)


def largest_drop(rule: AlertRule, limit: Limit, change: Estimate | None) -> AlertCheck:
    """Check whether the accuracy, or a metric, dropped by more than its limit."""
    drop = replace(change, value=-change.value, low=-change.high, high=-change.low) if change else None
    raised = drop is not None and drop.low > limit.limit
    return _check(rule, limit, drop, raised, "there are no two runs of one population with a fully labelled round")


def _check(
    rule: AlertRule, limit: Limit, found: Estimate | None, raised: bool, undecided: str, slice_name: str | None = None
) -> AlertCheck:
    return AlertCheck(
        **limit._asdict(),
        slice=slice_name,
        value=found.value if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        level=rule.level,
        raised=raised,
        reason=found.reason if found else undecided,
    )
