"""The summary of a fleet: the last estimates, changes, missing labels, and what is wrong.

An alert or a failure is firing or acknowledged until a summary no longer has it. The summary has them all. An
acknowledgement is an object of its own in the fleet's folder, so that a summary and an acknowledgement at the same time
never overwrite each other.
"""

from collections.abc import Sequence, Set
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, ClassVar, Literal

from pydantic import Field

from opacc_ray.audit import accuracy
from opacc_ray.audit.status import RunStatus, status
from opacc_ray.designs.inclusion_probability import CARRIED
from opacc_ray.documents import Document, Part
from opacc_ray.errors import DataError, SpecError, counted, shortened, shown
from opacc_ray.estimation.model_comparison import INDEPENDENT
from opacc_ray.extensions.fleet import alerts
from opacc_ray.extensions.fleet.accuracy_history import HistoryPoint, point_of
from opacc_ray.extensions.fleet.alerts import AlertCheck, AlertRule, Evidence
from opacc_ray.extensions.fleet.fleet_spec import Fleet, FleetAudit
from opacc_ray.extensions.fleet.queue import Attempt, AuditFailure, Ended, failed
from opacc_ray.extensions.fleet.watched_audit import WatchedAudit, watch_state
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report import facts
from opacc_ray.runs.run import Run, located, versions
from opacc_ray.runs.run_documents import AccuracyEstimate, StatedEstimate
from opacc_ray.runs.series import Population, runs_of

LEVEL = 0.95
"""Confidence level of the stated intervals; the alert rule sets that of the others."""

FLEETS, SUMMARY, ACKNOWLEDGED = "fleets/", "summary.json", "acknowledged/"


class WaitingRun(Part):
    """A run that waits for labels."""

    run: str  # URI of the run
    round: int = Field(ge=1)  # number of the newest round that waits
    missing: int = Field(ge=1)  # number of examples that wait for a label
    since: str  # time at which that round was drawn: ISO 8601, UTC
    days: float = Field(ge=0)  # days between that time and the summary


class Change(StatedEstimate):
    """Change of the accuracy since the previous audit."""

    before: str  # URI of the run of the previous audit
    # paired: both models on the labelled examples of one pool; independent: two samples; carried: labels of the earlier
    # run count in this one as well, and the interval of two samples is wider than it need be
    how: Literal["paired", "independent", "carried"]
    significant: bool  # whether the interval excludes 0


class AuditGoal(Part):
    """The goal of an audit by its spec."""

    metric: str  # accuracy, or a metric such as recall@defect
    least: float  # least value by the spec
    number: StatedEstimate | None  # the number in the last estimate; null: it is not stated


class AuditSummary(Part):
    """State of an audit of a fleet."""

    name: str  # name of the audit
    model: str | None  # name of the model in the fleet; null: the fleet lists audits
    pool: str | None  # name of the pool in the fleet; null: the fleet lists audits
    run: str | None = None  # URI of the run on the current pool; null: it failed, or was not run
    failure: AuditFailure | None = None  # failure since the last success; null: none
    attempt: Attempt | None = None  # last attempt of the fleet to run it; null: unknown
    report: str | None = None  # report of the run of the last estimate, from the folder of the summary; null: none
    goal: AuditGoal | None = None  # least number by the spec; null: none
    change: Change | None = None  # change since the previous audit; null: there is no previous audit
    waiting: list[WaitingRun] = Field(default=[])  # runs that wait for labels, from the run of the last estimate on
    alerts: list[AlertCheck] = Field(default=[])  # checks of the alert limits
    notes: list[str] = Field(default=[])  # caveats about the last estimate, in sentences
    history: list[HistoryPoint] = Field(default=[])  # estimates of its runs, oldest first
    watch: WatchedAudit | None = None  # state of its watch; null: it has none, or no labels
    apart: str | None = None  # earlier runs that are left out because their population differs, and how; null: none

    @property
    def last(self) -> HistoryPoint | None:
        """The last estimate of any run of the audit; None without one."""
        return self.history[-1] if self.history else None


class Acknowledgement(Document):
    """Somebody knows of an alert or a failure: it is not sent again until it is over.

    ``fleets/NAME/acknowledged/DIGEST.json``, and answer of `opacc fleet alerts ack`
    """

    remedy: ClassVar[str] = "delete it, and acknowledge the alert again"

    format: Literal["opacc-acknowledged/1"] = "opacc-acknowledged/1"
    alert: str  # the alert: audit, kind, and metric or slices; or audit and `failure`
    by: str  # who knows of it
    at: str  # time: ISO 8601, UTC
    note: str | None = None  # what is done about it

    def __str__(self) -> str:
        return f"acknowledged by {self.by} at {facts.minute(self.at)}{f': {self.note}' * bool(self.note)}"


class Problem(Part):
    """An alert or a failure that is not over."""

    fleet: str  # name of the fleet
    audit: str  # name of the audit, or of a fleet that has no summary
    alert: str  # what it is, whatever the run: audit, kind, and metric or slices
    text: str  # the alert or failure in one sentence
    since: str  # time at which it began: ISO 8601, UTC
    check: AlertCheck | None = None  # the check that raised the alert; null: a failure
    failure: AuditFailure | None = None  # the failure; null: an alert
    acknowledged: Acknowledgement | None = None  # who knows of it; null: nobody yet

    @property
    def news(self) -> str:
        """What it is sent again for: another error, or an acknowledgement."""
        if self.acknowledged:
            return f"acknowledged by {self.acknowledged.by}"
        return self.failure.error if self.failure else ""


class Delivery(Part):
    """Delivery of a notice to one receiver."""

    to: str  # receiver: $NAME of a variable, a URI, or a URL without its secret parts
    # known: nothing has changed since the last delivery, so nothing was sent
    state: Literal["delivered", "known", "failed"]
    error: str | None  # why it was not delivered, in one sentence; null: it was delivered


class FleetSummary(Document):
    """State of a fleet: estimates, changes, missing labels and failures; ``fleets/NAME/summary.json``."""

    remedy: ClassVar[str] = (
        "restore it; or delete it and run `opacc fleet` again: alerts that cannot be decided now, and who acknowledged "
        "them, are then forgotten"
    )

    format: Literal["opacc-fleet/1"] = "opacc-fleet/1"
    name: str  # name of the fleet
    folder: str  # URI of the folder that holds summary.html, summary.json and summary.md
    made: str  # time of the summary: ISO 8601, UTC
    answer: str  # state of the fleet in one sentence
    audits: list[AuditSummary]  # audits in the order of the fleet
    rule: AlertRule | None  # rule that raises alerts; null: none
    problems: list[Problem] = Field(default=[])  # alerts, then failures, that are not over
    made_with: str  # version of opacc_ray that made the summary
    deliveries: list[Delivery] = Field(default=[])  # delivery of the notice to each receiver
    # exit codes of everything that is wrong, that of the command first: failures, delivery, alerts
    exit_codes: list[int] = Field(default=[])


class OpenAlerts(Document):
    """What is wrong in the fleets of an output, by their last summaries: the answer of `opacc fleet alerts`."""

    format: Literal["opacc-alerts/1"] = "opacc-alerts/1"
    output: str  # URI of the output
    fleets: list[str]  # names of its fleets
    alerts: list[Problem]  # alerts and failures that are not over
    unknown: list[str] = Field(default=[])  # audits without an accuracy, of which no alert can be raised


def summarise(fleet: Fleet, ends: Sequence[Ended], before: FleetSummary | None) -> FleetSummary:
    """Summarise a fleet; state and keep estimates of runs whose labels are complete.

    Parameters
    ----------
    ends : end of each audit in order, of this run or the last one
    before : the last summary; None without one

    Returns
    -------
    FleetSummary
        If an audit cannot be summarised, the error is its failure.
    """
    now = datetime.now(UTC)
    rule = alerts.rule_of(fleet.alerts, [audit.limits for audit in fleet.audits]) if fleet.alerts else None
    raised = {problem.alert for problem in (before.problems if before else ())}
    audits = [_summarised(fleet, end, rule, raised, now) for end in ends]
    summary = FleetSummary(
        name=fleet.spec.name,
        folder=fleet.folder.uri,
        made=now.isoformat(timespec="seconds"),
        answer=answer(audits),
        audits=audits,
        rule=rule,
        made_with=versions()["opacc_ray"],
    )
    return _with_problems(fleet.folder, summary, before)


def _summarised(fleet: Fleet, end: Ended, rule: AlertRule | None, raised: Set[str], now: datetime) -> AuditSummary:
    """Summarise an audit, or state why that failed.

    Alerts that are ``raised`` stay so while they cannot be evaluated, such as after a label was withdrawn.
    """
    audit, least = end.audit, end.audit.spec.least
    fields: dict[str, Any] = {"run": end.run.uri if end.run else None, "failure": end.failure}
    goal = AuditGoal(metric=least.metric, least=least.share, number=None) if least else None
    try:
        fields |= _state(fleet.spec.output, audit, rule, goal, now)
    except (Exception, SystemExit) as error:
        fields["failure"] = end.failure or failed(audit, error).failure
        fields["alerts"] = alerts.checks_of(rule, audit.limits, None, None)
    fields["alerts"] = [
        check.model_copy(update={"raised": check.raised or (check.value is None and _alert(audit, check) in raised)})
        for check in fields["alerts"]
    ]
    if watch := fleet.spec.watch:  # each audit has an equal share of the false alarms of the fleet
        share = watch.model_copy(update={"false_alarms": watch.false_alarms / len(fleet.audits)})
        was_raised = f"{audit.name} watch {ACCURACY}" in raised
        state, check, notes = watch_state(audit.name, fleet.spec.output, share, was_raised=was_raised)
        fields |= {"watch": state, "alerts": [*fields["alerts"], check], "notes": [*fields.get("notes", ()), *notes]}
    summary = {"name": audit.name, "model": audit.model, "pool": audit.pool, "attempt": end.attempt, "goal": goal}
    return AuditSummary(**summary | fields)


def _state(
    output: str, audit: FleetAudit, rule: AlertRule | None, goal: AuditGoal | None, now: datetime
) -> dict[str, Any]:
    """Return the fields of a summary that the runs of an audit decide."""
    from opacc_ray.report.run_report import PAGE

    runs, apart = _of_population(runs_of(output, audit.name)[0], Population.of(located(audit.spec)))
    waiting: list[WaitingRun] = []
    stated: list[tuple[Run, AccuracyEstimate]] = []
    evidence: list[Evidence | None] = []
    for run in reversed(runs):  # the newest first
        if len(evidence) == 2:
            estimate = run.read_estimate()
        else:
            read = run.snapshot()  # for the status and the evidence
            state = status(read, with_warnings=False)
            if not stated:
                waiting += _waiting(run, state, now)
            estimate = _estimate(run, state)
            evidence += [Evidence.of(read)] if estimate is not None else []
        if estimate is not None:
            stated.append((run, estimate))
    last, before = (*evidence, None, None)[:2]
    fields: dict[str, Any] = {"waiting": waiting[::-1], "apart": apart}
    fields["alerts"] = alerts.checks_of(rule, audit.limits, last, before)
    if last and before:
        fields["change"] = _change(last, before)
    if stated:
        run, estimate = stated[0]
        fields["history"] = [point_of(*pair) for pair in reversed(stated)]
        fields["report"] = f"../../{run.name}/{PAGE}" if run.results().exists(PAGE) else None
        fields["notes"] = estimate.notes
        if goal and (number := facts.stated_number(estimate, goal.metric)):
            statement = StatedEstimate(**number.model_dump(include=set(StatedEstimate.model_fields)))
            fields["goal"] = goal.model_copy(update={"number": statement})
    return fields


def _of_population(runs: Sequence[Run], wanted: Population) -> tuple[list[Run], str | None]:
    """Return the runs of the population that an audit asks for, and a sentence on its other runs."""
    populations = [Population.of(run.spec) for run in runs]
    others = [population for population in populations if population.digest != wanted.digest]
    apart = None
    if others:
        are = "run is" if len(others) == 1 else "runs are"
        apart = f"{len(others)} earlier {are} of another population, so not compared: {others[-1].differs(wanted)}"
    return [run for run, its in zip(runs, populations, strict=True) if its.digest == wanted.digest], apart


def _estimate(run: Run, state: RunStatus) -> AccuracyEstimate | None:
    """Return the last estimate of a run; make it first if labels are complete and it is missing or old.

    The report is written with it, for the links of the console.
    """
    from opacc_ray.report.run_report import make_report  # not needed by lists of alerts, nor by metrics

    is_whole = bool(state.rounds) and not any(counts.missing for counts in state.rounds)
    if is_whole and any(counts.labelled for counts in state.rounds) and not state.estimate_is_current:
        estimate = accuracy.estimate(run, level=LEVEL)
        make_report(run, level=LEVEL)
        return estimate
    return state.estimate


def _waiting(run: Run, state: RunStatus, now: datetime) -> list[WaitingRun]:
    """Return the run and its newest incomplete round, if it waits for labels."""
    rounds = [counts for counts in state.rounds if counts.missing]
    if not rounds:
        return []
    since = run.drawn_at(rounds[-1].round)
    return [
        WaitingRun(
            run=run.uri,
            round=rounds[-1].round,
            missing=sum(counts.missing for counts in rounds),
            since=since.isoformat(timespec="seconds"),
            days=max((now - since).total_seconds() / 86400, 0.0),
        )
    ]


def _change(last: Evidence, before: Evidence) -> Change:
    change = last.change(before, LEVEL)
    carried = last.rounds[0].selection.facts.get(CARRIED, {})
    apart: Literal["carried", "independent"] = "carried" if carried.get("run") == before.run.name else "independent"
    return Change(
        **change.to_dict(),
        before=before.run.uri,
        how=apart if change.method == INDEPENDENT else "paired",
        significant=change.low > 0 or change.high < 0,
    )


def answer(audits: Sequence[AuditSummary]) -> str:
    """Return the state of a fleet in one sentence."""
    raised = sum(any(check.raised for check in audit.alerts) for audit in audits)
    failures = sum(audit.failure is not None for audit in audits)
    missing = sum(run.missing for audit in audits for run in audit.waiting)
    stated = sum(audit.last is not None for audit in audits)
    parts = [f"{stated} of {counted(len(audits), 'audit')} have an accuracy"]
    if missing:
        parts.append(f"{counted(missing, 'label')} {'is' if missing == 1 else 'are'} missing")
    if raised:
        parts.append(f"{counted(raised, 'audit')} raised an alert")
    if failures:
        parts.append(f"{counted(failures, 'audit')} failed")
    return f"{', '.join(parts)}."


# -- what is wrong -------------------------------------------------------------------------------------------


def last_summary(folder: Store) -> FleetSummary | None:
    """Read the last summary of a fleet; None without one, DataError if it is damaged."""
    data = folder.read_if_there(SUMMARY)
    return None if data is None else FleetSummary.from_bytes(data, folder.uri_of(SUMMARY))


def _alert(audit: FleetAudit | AuditSummary, check: AlertCheck) -> str:
    return f"{audit.name} {check.name}"


def problems_of(summary: FleetSummary) -> list[Problem]:
    """Return the alerts, then the failures, of the audits of a summary."""
    problems = [
        Problem(
            fleet=summary.name,
            audit=audit.name,
            alert=_alert(audit, check),
            text=alert_text(audit, check),
            since=summary.made,
            check=check,
        )
        for audit in summary.audits
        for check in audit.alerts
        if check.raised
    ]
    return problems + [failure_of(summary.name, audit.name, audit.failure) for audit in summary.audits if audit.failure]


def failure_of(fleet: str, name: str, failure: AuditFailure) -> Problem:
    """Return the failure of an audit, or of a fleet, as a problem."""
    text = f"{name} failed: {shortened(failure.error, 600)}"
    return Problem(fleet=fleet, audit=name, alert=f"{name} failure", text=text, since=failure.at, failure=failure)


def _with_problems(folder: Store, summary: FleetSummary, before: FleetSummary | None) -> FleetSummary:
    """Return a summary with all that is wrong, since when, and who knows of it; forget who knew of what is over."""
    since = {problem.alert: problem.since for problem in (before.problems if before else ())}
    problems = [item.model_copy(update={"since": since.get(item.alert, item.since)}) for item in problems_of(summary)]
    places = {_place(problem.alert) for problem in problems}
    for entry in folder.list(ACKNOWLEDGED):
        if entry.key not in places:
            folder.delete(entry.key)
    return summary.model_copy(update={"problems": acknowledged(folder, problems)})


def alert_text(audit: AuditSummary, check: AlertCheck) -> str:
    """Return a raised alert as one sentence."""
    if check.low is None or check.high is None:
        what = "alarm of its whole life" if check.kind == "watch" else f"alert {check.name}"
        return f"{audit.name}: the {what} stays raised, because it cannot be decided: {check.reason}."
    if check.kind == "watch" and audit.watch:
        return (
            f"{audit.name}: the accuracy has dropped by more than the {percent_text(check.limit)} allowed since "
            f"{audit.watch.reference}; the window {audit.watch.alarm} raised the alarm of its whole life."
        )
    metric = ACCURACY if check.slice else check.of
    subject = facts.metric_name(metric)
    if check.slice:
        subject += f" in {check.slice} ({facts.parts_name(check.of)})"
    measure = facts.measure_of(metric, audit.last.measure if audit.last else ACCURACY)
    digits, confidence = facts.digits_for(check.low, check.high), f"at {facts.level_text(check.level)} confidence"
    is_percent = facts.in_percent(measure)
    if check.kind != "max_drop":
        between = f"{facts.ends(check.low, check.high, measure, digits)}{' %' * is_percent}"
        allowed = facts.number(check.limit, measure, digits)
        return f"{audit.name}: the {subject} is {between} {confidence}, below {allowed}."
    low, high, limit = (
        facts.difference(end, measure, digits).removeprefix("+") for end in (check.low, check.high, check.limit)
    )
    dropped = f"dropped by {low} to {high}{' points' * is_percent} {confidence}"
    return f"{audit.name}: the {subject} {dropped}, more than the {limit} allowed."


def percent_text(limit: float) -> str:
    """Format a limit as it was written: 0.925 -> 92.5 %."""
    return f"{100 * limit:g} %"


def open_problems(folder: Store) -> tuple[list[Problem], list[str]]:
    """Return what is wrong in a fleet, and its audits without an accuracy; raises DataError if a file is damaged."""
    summary = last_summary(folder)
    if summary is None:
        return [], []
    unknown = [audit.name for audit in summary.audits if audit.last is None and audit.failure is None]
    return acknowledged(folder, summary.problems), unknown


def open_alerts(output: str) -> OpenAlerts:
    """Return the alerts and failures of all fleets of an output; raises DataError if there is no fleet."""
    store, problems, unknown = open_store(output), list[Problem](), list[str]()
    names = sorted({entry.key.split("/")[1] for entry in store.list(FLEETS)})
    if not names:
        raise DataError(f"{store.uri} has no fleet; give the `output` of a fleet")
    for name in names:
        wrong, without = open_problems(store.store(f"{FLEETS}{name}"))
        problems, unknown = problems + wrong, unknown + without
    return OpenAlerts(output=store.uri, fleets=names, alerts=problems, unknown=unknown)


def acknowledge(output: str, audit: str, by: str, note: str | None = None) -> OpenAlerts:
    """Acknowledge all that is wrong with an audit; returns it. Raises SpecError if nothing is."""
    wrong, problems = open_alerts(output), list[Problem]()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    for problem in wrong.alerts:
        if audit in (problem.audit, problem.alert):
            ack = Acknowledgement(alert=problem.alert, by=by, at=at, note=note)
            open_store(output).store(f"{FLEETS}{problem.fleet}").write(_place(problem.alert), ack.to_bytes())
            problems.append(problem.model_copy(update={"acknowledged": ack}))
    if not problems:
        names = ", ".join(dict.fromkeys(problem.audit for problem in wrong.alerts)) or "no audit"
        raise SpecError(f"nothing is wrong with an audit {shown(audit)} in {wrong.output}; {names} has an alert")
    return wrong.model_copy(update={"alerts": problems})


def acknowledged(folder: Store, problems: Sequence[Problem]) -> list[Problem]:
    """Return problems, each with who knows of it."""
    keys = [entry.key for entry in folder.list(ACKNOWLEDGED)]
    acknowledgements = [Acknowledgement.from_bytes(folder.read(key), folder.uri_of(key)) for key in keys]
    by_alert = {ack.alert: ack for ack in acknowledgements}
    return [problem.model_copy(update={"acknowledged": by_alert.get(problem.alert)}) for problem in problems]


def _place(alert: str) -> str:
    return f"{ACKNOWLEDGED}{sha256(alert.encode()).hexdigest()[:16]}.json"
