"""Decide alerts, with a bound on the share of false ones, and remember them, like failures, while they last.

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

Alerts and failures are firing or acknowledged until a summary no longer has them. The summary has them all. An
acknowledgement is an object of its own in the fleet's folder, so that a summary and an acknowledgement at the same time
never overwrite each other.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256

from opacc_ray.audit.accuracy import (
    accuracy_to_state,
    circumstances_of,
    sample_of,
    whenever_stopped,
    whole_rounds,
)
from opacc_ray.audit.comparison import difference_by
from opacc_ray.audit.run_numbers import RunNumbers, checked_metric, class_names, open_for_estimates, run_numbers
from opacc_ray.errors import DataError, SpecError, shortened, shown
from opacc_ray.estimation.intervals import Estimate, level_of_each
from opacc_ray.estimation.model_comparison import independent_difference
from opacc_ray.estimation.sequential import confidence_sequence
from opacc_ray.extensions.fleet.fleet_documents import (
    Acknowledgement,
    AlertCheck,
    AlertRule,
    AuditFailure,
    AuditSummary,
    FleetSummary,
    Limit,
    OpenAlerts,
    Problem,
)
from opacc_ray.extensions.fleet.fleet_spec import AlertLimits, AlertSpec
from opacc_ray.labels.labelled_rounds import LabelledRound, having_labels, read_rounds, with_nonresponse
from opacc_ray.lake.store import Store
from opacc_ray.lake.store_uris import open_store
from opacc_ray.metrics.metric import ACCURACY, Metric
from opacc_ray.report.facts import difference, digits_for, ends, in_percent, level_text, number
from opacc_ray.report.sentences import measure_of, metric_name, parts_name
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
        metric = checked_metric(name, class_names(self.run))
        with self.numbers(metrics=[metric]) as numbers:
            found = numbers.metric(metric, level)
        return with_nonresponse(found, self.rounds)

    def lowest_slice(self, by: str, level: float) -> tuple[Estimate, str]:
        """Return the accuracy of the slice whose interval has the lowest upper end, and its name.

        Intervals of all slices hold together at the level (Bonferroni).
        """
        with self.numbers(by) as numbers:
            each = level_of_each(level, len(numbers.numbers.pool.slicings[by].names))
            found = numbers.numbers.by(Metric(ACCURACY), by, each)
        name = min(found, key=lambda name: found[name].high)
        return with_nonresponse(found[name], self.rounds), name

    @contextmanager
    def numbers(self, *by: str, metrics: Sequence[Metric] = ()) -> Iterator[RunNumbers]:
        """Open the numbers of the run, with some of its slicings."""
        with open_for_estimates(self.run, [item.known for item in self.rounds]) as view:
            slicings = {name: view.slicing(name) for name in by}
            yield run_numbers(self.run, self.rounds, self.rounds, view, slicings, metrics)

    def sequence(self, level: float) -> Estimate:
        """Return the accuracy with an interval that is valid at any time."""
        found = with_nonresponse(confidence_sequence(sample_of(self.rounds), level), self.rounds)
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
        return replace(found, low=low, high=high, level=level, method=f"difference of two: {own.method}")

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
        limits=asked.all(),
        false_alarms=asked.false_alarms,
        decided_by=asked.decided_by,
        questions=questions,
        level=1 - each,
        guarantee=f"a summary raises a false alert with probability {asked.false_alarms:g} at most, {analyses}: "
        f"each of {questions} intervals misses the truth with probability {each:.2g} at most (Bonferroni)",
    )


def checks_of(rule: AlertRule, limits: AlertLimits, now: Evidence | None, before: Evidence | None) -> list[AlertCheck]:
    """Check the alerts of an audit, from the labels of its last run and of the one before."""
    return [decided(rule, limit, *_asked(rule, limit, now, before)) for limit in limits.all()]


def _asked(
    rule: AlertRule, limit: Limit, now: Evidence | None, before: Evidence | None
) -> tuple[Estimate | None, str | None]:
    """Return the number or the change that a limit is about, and its slice; None where labels are missing."""
    by_sequence, level, of = rule.decided_by == "sequence", rule.level, limit.of
    if now is None:
        return None, None
    if limit.kind == "max_drop":
        if before is None:
            return None, None
        return (now.change_at_any_time(before, level) if by_sequence else now.change(before, level, of)), None
    if limit.kind == "min_slices":
        return now.lowest_slice(of, level)
    return (now.sequence(level) if by_sequence else now.number(of, level)), None


def decided(rule: AlertRule, limit: Limit, found: Estimate | None, slice_name: str | None = None) -> AlertCheck:
    """Check whether a number is below its limit, or a change is a drop by more than its limit; None: undecided."""
    if found is None:
        reason = "no round is fully labelled yet"
        if limit.kind == "max_drop":
            reason = "there are no two runs of one population with a fully labelled round"
        return AlertCheck(**limit.model_dump(), level=rule.level, raised=False, reason=reason)
    is_drop, value, low, high = limit.kind == "max_drop", found.value, found.low, found.high
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
        reason=found.reason,
    )


# -- sentences -----------------------------------------------------------------------------------------------


def alert_text(audit: AuditSummary, check: AlertCheck) -> str:
    """Return a raised alert as one sentence."""
    measure = measure_of(ACCURACY if check.slice else check.of, audit.last.measure if audit.last else ACCURACY)
    if check.low is None or check.high is None:
        what = "alarm of its whole life" if check.kind == "watch" else f"alert {check.name}"
        return f"{audit.name}: the {what} stays raised, because it cannot be decided: {check.reason}."
    if check.kind == "watch" and audit.watch:
        return (
            f"{audit.name}: the accuracy has dropped by more than the {percent_text(check.limit)} allowed since "
            f"{audit.watch.reference}; the window {audit.watch.alarm} raised the alarm of its whole life."
        )
    digits, confidence = digits_for(check.low, check.high), f"at {level_text(check.level)} confidence"
    if check.kind != "max_drop":
        between = f"{ends(check.low, check.high, measure, digits)}{' %' * in_percent(measure)}"
        allowed = number(check.limit, measure, digits)
        return f"{audit.name}: the {_subject(check)} is {between} {confidence}, below {allowed}."
    low, high, limit = (
        difference(end, measure, digits).removeprefix("+") for end in (check.low, check.high, check.limit)
    )
    points = " points" * in_percent(measure)
    return (
        f"{audit.name}: the {_subject(check)} dropped by {low} to {high}{points} {confidence}, "
        f"more than the {limit} allowed."
    )


def _subject(check: AlertCheck) -> str:
    """Return what a check is about."""
    return f"accuracy in {check.slice} ({parts_name(check.of)})" if check.slice else metric_name(check.of)


def percent_text(limit: float) -> str:
    """Format a limit as it was written: 0.925 -> 92.5 %."""
    return f"{100 * limit:g} %"


FLEETS, SUMMARY, ACKNOWLEDGED = "fleets/", "summary.json", "acknowledged/"


def last_summary(folder: Store) -> FleetSummary | None:
    """Read the last summary of a fleet; None without one."""
    data = folder.read_if_there(SUMMARY)
    return None if data is None else FleetSummary.from_bytes(data, folder.uri_of(SUMMARY))


def problems_of(summary: FleetSummary) -> list[Problem]:
    """Return the alerts, then the failures, of the audits of a summary."""
    fleet, made = summary.name, summary.made
    alerts = [
        Problem(
            fleet=fleet,
            audit=audit.name,
            alert=f"{audit.name} {check.name}",
            text=alert_text(audit, check),
            since=made,
            check=check,
        )
        for audit in summary.audits
        for check in audit.alerts
        if check.raised
    ]
    return alerts + [failure_of(fleet, audit.name, audit.failure) for audit in summary.audits if audit.failure]


def with_problems(folder: Store, summary: FleetSummary, before: FleetSummary | None) -> FleetSummary:
    """Return a summary with all that is wrong, since when, and who knows of it; forget who knew of what is over."""
    since = {item.alert: item.since for item in (before.problems if before else ())}
    problems = [item.model_copy(update={"since": since.get(item.alert, item.since)}) for item in problems_of(summary)]
    places = {_place(item.alert) for item in problems}
    for entry in folder.list(ACKNOWLEDGED):
        if entry.key not in places:
            folder.delete(entry.key)
    return summary.model_copy(update={"problems": _acknowledged(folder, problems)})


def failure_of(fleet: str, name: str, failure: AuditFailure) -> Problem:
    """Return the failure of an audit, or of a fleet, as a problem."""
    text = f"{name} failed: {shortened(failure.error, 600)}"
    return Problem(fleet=fleet, audit=name, alert=f"{name} failure", text=text, since=failure.at, failure=failure)


def open_alerts(output: str) -> OpenAlerts:
    """Return the alerts and failures of all fleets of an output; raises DataError if there is no fleet."""
    store, alerts, unknown = open_store(output), list[Problem](), list[str]()
    names = sorted({entry.key.split("/")[1] for entry in store.list(FLEETS)})
    if not names:
        raise DataError(f"{store.uri} has no fleet; give the `output` of a fleet")
    for name in names:
        folder = store.store(f"{FLEETS}{name}")
        if summary := last_summary(folder):
            alerts += _acknowledged(folder, summary.problems)
            unknown += [item.name for item in summary.audits if item.last is None and item.failure is None]
    return OpenAlerts(output=store.uri, fleets=names, alerts=alerts, unknown=unknown)


def acknowledge(output: str, audit: str, by: str, note: str | None = None) -> OpenAlerts:
    """Acknowledge all that is wrong with an audit; returns it. Raises SpecError if nothing is."""
    found = open_alerts(output)
    problems = [item for item in found.alerts if audit in (item.audit, item.alert)]
    if not problems:
        wrong = ", ".join(dict.fromkeys(item.audit for item in found.alerts)) or "no audit"
        raise SpecError(f"nothing is wrong with an audit {shown(audit)} in {found.output}; {wrong} has an alert")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    alerts = list[Problem]()
    for item in problems:
        ack = Acknowledgement(alert=item.alert, by=by, at=at, note=note)
        open_store(output).store(f"{FLEETS}{item.fleet}").write(_place(item.alert), ack.to_bytes())
        alerts.append(item.model_copy(update={"acknowledged": ack}))
    return found.model_copy(update={"alerts": alerts})


def _acknowledged(folder: Store, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems, each with who knows of it."""
    keys = [entry.key for entry in folder.list(ACKNOWLEDGED)]
    acknowledgements = [Acknowledgement.from_bytes(folder.read(key), folder.uri_of(key)) for key in keys]
    by_alert = {ack.alert: ack for ack in acknowledgements}
    return [item.model_copy(update={"acknowledged": by_alert.get(item.alert)}) for item in problems]


def _place(alert: str) -> str:
    return f"{ACKNOWLEDGED}{sha256(alert.encode()).hexdigest()[:16]}.json"
