"""Decide alerts, with a bound on the share of false ones.

An alert asks whether the accuracy θ of an audit is at least a, or whether it dropped by at most d since the last audit:

    min: {f1@defect: a}       raised if the interval of the metric is below a
    max_drop: {f1@defect: d}  raised if the interval of the drop of the metric is above d
    min_slices: {camera: a}   raised if the interval of the accuracy of any slice is below a

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
sequences (:mod:`opacc_ray.estimation.sequential`). A run of a later week belongs to a new summary with a bound
of its own.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from opacc_ray.audit import accuracy
from opacc_ray.audit.accuracy import checked_metric
from opacc_ray.audit.comparison import difference_by
from opacc_ray.audit.run_numbers import RunNumbers, class_names, measure_run, open_for_estimates, sample_of
from opacc_ray.documents import Part
from opacc_ray.errors import DataError, SpecError
from opacc_ray.estimation.intervals import Estimate, level_of_each
from opacc_ray.estimation.model_comparison import independent_difference
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.extensions.fleet.fleet_spec import AlertLimits, AlertSpec, Limit
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, with_nonresponse
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.runs.run import Run


class AlertCheck(Limit):
    """Check of an alert limit, and the interval that decided it."""

    slice: str | None = None  # the slice whose interval has the lowest upper end; null: no slices, or undecided
    value: float | None = None  # the number, or the drop; null: undecided
    low: float | None = None  # lower end of the interval
    high: float | None = None  # upper end of the interval
    level: float = Field(gt=0, lt=1)  # confidence level of the interval, as in the rule
    raised: bool  # whether the whole interval is on the wrong side of the limit
    reason: str | None  # why the check is undecided, or assumptions in addition to the sampling design


class AlertRule(Part):
    """When alerts are raised, and the bound on false ones."""

    limits: list[Limit]  # limits of audits without their own
    false_alarms: float  # maximum share of summaries with a false alert
    decided_by: Literal["interval", "sequence"]  # kind of interval that decides
    questions: int = Field(ge=1)  # number of checks of all audits; each gets an equal share of false_alarms
    level: float = Field(gt=0, lt=1)  # confidence level of each check: 1 - false_alarms / questions
    guarantee: str  # error bound in words


@dataclass(frozen=True)
class Evidence:
    """The whole rounds of a run, and their labels; at least one of them has labels."""

    run: Run
    rounds: Sequence[LabelledRound]

    @classmethod
    def of(cls, run: Run) -> "Evidence | None":
        """Read the whole rounds of a run; None without labels. Raise LabelError for labels in conflict."""
        labelled = having_labels(accuracy.whole_rounds(read_rounds(run)))
        return cls(run, labelled) if labelled else None

    def number(self, name: str, level: float) -> Estimate:
        """Return the accuracy as it is stated, or a metric of the pool."""
        if name == ACCURACY:
            return accuracy.accuracy_to_state(self.run, self.rounds, self.rounds, level).estimate
        metric = checked_metric(name, class_names(self.run))
        with self.numbers(metrics=[metric]) as numbers:
            return with_nonresponse(numbers.metric(metric, level), self.rounds)

    def lowest_slice(self, by: str, level: float) -> tuple[Estimate, str]:
        """Return the accuracy of the slice whose interval has the lowest upper end, and its name.

        Intervals of all slices hold together at the level (Bonferroni).
        """
        with self.numbers(by) as numbers:
            each = level_of_each(level, len(numbers.numbers.pool.slicings[by].names))
            accuracies = numbers.numbers.by(Metric(ACCURACY), by, each)
        name = min(accuracies, key=lambda name: accuracies[name].high)
        return with_nonresponse(accuracies[name], self.rounds), name

    @contextmanager
    def numbers(self, *by: str, metrics: Sequence[Metric] = ()) -> Iterator[RunNumbers]:
        """Open the numbers of the run, with some of its slicings."""
        with open_for_estimates(self.run, [labelled.known for labelled in self.rounds]) as view:
            slicings = {name: view.slicing(name) for name in by}
            yield measure_run(self.run, self.rounds, self.rounds, view, slicings, metrics)

    def sequence(self, level: float) -> Estimate:
        """Return the accuracy with an interval that is valid at any time."""
        estimate = with_nonresponse(confidence_sequence(sample_of(self.rounds), level), self.rounds)
        return accuracy.whenever_stopped(accuracy.circumstances_of(self.run, self.rounds, level), estimate)

    def change(self, before: "Evidence", level: float, name: str = ACCURACY) -> Estimate:
        """Return the change of a number from an earlier run: paired on one pool, else from two independent samples."""
        if self._pool[0] and self._pool == before._pool:
            with suppress(DataError, SpecError):  # other classes, or examples or features that are gone
                return with_nonresponse(difference_by(self.run, before.run, self.rounds, level, name), self.rounds)
        return independent_difference(self.number(name, level), before.number(name, level))

    def change_at_any_time(self, before: "Evidence", level: float) -> Estimate:
        """Return the change with an interval valid at any time; each sequence has half of the error."""
        now, then = (evidence.sequence((1 + level) / 2) for evidence in (self, before))
        change = independent_difference(now, then)
        low, high = max(now.low - then.high, -1.0), min(now.high - then.low, 1.0)
        return replace(change, low=low, high=high, level=level, method=f"difference of two: {now.method}")

    @property
    def _pool(self) -> tuple[str, int]:
        """Digest and size of the pool."""
        return self.run.header.pool.digest, self.rounds[0].selection.pool_size


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
        limits=asked.all(),
        false_alarms=asked.false_alarms,
        decided_by=asked.decided_by,
        questions=questions,
        level=1 - each,
        guarantee=f"a summary raises a false alert with probability {asked.false_alarms:g} at most, {analyses}: "
        f"each of {questions} intervals misses the truth with probability {each:.2g} at most (Bonferroni)",
    )


def checks_of(
    rule: AlertRule | None, limits: AlertLimits, now: Evidence | None, before: Evidence | None
) -> list[AlertCheck]:
    """Check the alerts of an audit, from the labels of its last run and of the one before; no rule, no limits."""
    return [] if rule is None else [_checked(rule, limit, now, before) for limit in limits.all()]


def _checked(rule: AlertRule, limit: Limit, now: Evidence | None, before: Evidence | None) -> AlertCheck:
    by_sequence, level = rule.decided_by == "sequence", rule.level
    number: Estimate | None = None
    name: str | None = None
    if now is None:
        return decided(rule, limit, None)
    if limit.kind == "min_slices":
        number, name = now.lowest_slice(limit.of, level)
    elif limit.kind == "min":
        number = now.sequence(level) if by_sequence else now.number(limit.of, level)
    elif before is not None:
        number = now.change_at_any_time(before, level) if by_sequence else now.change(before, level, limit.of)
    return decided(rule, limit, number, name)


def decided(rule: AlertRule, limit: Limit, estimate: Estimate | None, slice_name: str | None = None) -> AlertCheck:
    """Check whether a number is below its limit, or a change is a drop by more than its limit; None: undecided."""
    is_drop = limit.kind == "max_drop"
    if estimate is None:
        reason = "no round is fully labelled yet"
        if is_drop:
            reason = "there are no two runs of one population with a fully labelled round"
        return AlertCheck(**limit.model_dump(), level=rule.level, raised=False, reason=reason)
    value, low, high = estimate.value, estimate.low, estimate.high
    if is_drop:
        value, low, high = -value, -high, -low
    return AlertCheck(
        **limit.model_dump(),
        slice=slice_name,
        value=value,
        low=low,
        high=high,
        level=rule.level,
        raised=low > limit.limit if is_drop else high < limit.limit,
        reason=estimate.reason,
    )
