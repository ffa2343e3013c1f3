"""Run a fleet: its missing work, the summary, and the delivery of alerts.

A summary has the last estimates, changes, missing labels, failures and alerts.
"""

import logging
from collections.abc import Sequence, Set
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from opacc_ray.audit import accuracy
from opacc_ray.audit.status import RunStatus, status
from opacc_ray.designs.inclusion_probability import CARRIED
from opacc_ray.errors import AlertError, DataError, DeliveryError, OpaccError, counted, shortened
from opacc_ray.estimation.intervals import Estimate
from opacc_ray.estimation.model_comparison import INDEPENDENT
from opacc_ray.extensions.fleet.accuracy_history import point_of
from opacc_ray.extensions.fleet.alerts import (
    SUMMARY,
    Evidence,
    checks_of,
    failure_of,
    last_summary,
    rule_of,
    with_problems,
)
from opacc_ray.extensions.fleet.fleet_documents import (
    AlertNotice,
    AlertRule,
    AuditFailure,
    AuditGoal,
    AuditSummary,
    Change,
    Delivery,
    FleetSummary,
    WaitingRun,
)
from opacc_ray.extensions.fleet.fleet_spec import Fleet, FleetAudit
from opacc_ray.extensions.fleet.queue import Ended, Outcomes, failed, work_through
from opacc_ray.extensions.fleet.receivers import deliver, receiver_of
from opacc_ray.extensions.fleet.summary_page import page, summary_text
from opacc_ray.extensions.fleet.watched_audit import watch_state
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report.run_report import PAGE, make_report
from opacc_ray.report.sentences import lowest_first, stated_number
from opacc_ray.runs.estimate_documents import (
    AccuracyEstimate,
    NumberRow,
    SliceEstimate,
    SliceTable,
    StatedEstimate,
    slice_row,
)
from opacc_ray.runs.identity import Population, located, versions
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import runs_of
from opacc_ray.samplers.base import Report, unreported

log = logging.getLogger(__name__)

LEVEL = 0.95
"""Confidence level of the stated intervals; the alert rule sets that of the others."""


def summarise(fleet: Fleet, done: Sequence[Ended], now: datetime | None = None) -> FleetSummary:
    """Summarise a fleet; state and keep estimates of runs whose labels are complete.

    Parameters
    ----------
    done : outcome of each audit in order, of this run or the last one
    now : time of the summary; default: the current time

    Returns
    -------
    FleetSummary
        If an audit cannot be summarised, the error is its failure.
    """
    now = now or datetime.now(UTC)
    rule = rule_of(fleet.alerts, [item.limits for item in fleet.audits]) if fleet.alerts else None
    folder = folder_of(fleet)
    try:
        before = last_summary(folder)
    except DataError as error:
        log.warning("%s; alerts begin anew", error)
        before = None
    raised = {item.alert for item in (before.problems if before else ())}
    audits = [
        _watched(fleet, item.audit, _held(_audit(fleet.spec.output, item, rule, now), raised), raised) for item in done
    ]
    summary = FleetSummary(
        name=fleet.spec.name,
        folder=folder.uri,
        made=now.isoformat(timespec="seconds"),
        answer=answer(audits),
        audits=audits,
        rule=rule,
        made_with=versions()["opacc_ray"],
    )
    return with_problems(folder, summary, before)


def folder_of(fleet: Fleet) -> Store:
    """Return the folder of the summary of a fleet."""
    return open_store(join(fleet.spec.output, "fleets", fleet.spec.name))


def _held(found: AuditSummary, raised: Set[str]) -> AuditSummary:
    """Return an audit whose alerts stay raised while they cannot be evaluated, such as after a label was withdrawn."""
    alerts = [
        check.model_copy(update={"raised": True})
        if check.value is None and f"{found.name} {check.name}" in raised
        else check
        for check in found.alerts
    ]
    return found.model_copy(update={"alerts": alerts})


def _watched(fleet: Fleet, audit: FleetAudit, found: AuditSummary, raised: Set[str]) -> AuditSummary:
    """Add the state of the watch of an audit: each one has an equal share of the false alarms of the fleet."""
    asked = fleet.spec.watch
    if asked is None:
        return found
    share = asked.model_copy(update={"false_alarms": asked.false_alarms / len(fleet.audits)})
    was_raised = f"{audit.name} watch {ACCURACY}" in raised
    state, check, notes = watch_state(audit.name, fleet.spec.output, share, was_raised=was_raised)
    more = {"watch": state, "alerts": [*found.alerts, check], "notes": [*found.notes, *notes]}
    return found.model_copy(update=more)


def _audit(output: str, done: Ended, rule: AlertRule | None, now: datetime) -> AuditSummary:
    """Summarise an audit, or state why that failed."""
    try:
        return _look(output, done, rule, now)
    except (Exception, SystemExit) as error:
        failure = done.failure or failed(done.audit, error).failure
    alerts = checks_of(rule, done.audit.limits, None, None) if rule else []
    return _blank(done).model_copy(update={"failure": failure, "alerts": alerts})


def _blank(done: Ended) -> AuditSummary:
    """Return the summary of an audit without an estimate."""
    least = done.audit.spec.least
    return AuditSummary(
        name=done.audit.name,
        model=done.audit.model,
        pool=done.audit.pool,
        run=done.run.uri if done.run else None,
        failure=done.failure,
        attempt=done.attempt,
        goal=AuditGoal(metric=least.metric, least=least.share, number=None) if least else None,
    )


def _look(output: str, done: Ended, rule: AlertRule | None, now: datetime) -> AuditSummary:
    runs, apart = _of_population(runs_of(output, done.audit.name)[0], Population.of(located(done.audit.spec)))
    waiting: list[WaitingRun] = []
    stated: list[tuple[Run, AccuracyEstimate]] = []
    evidence: list[Evidence | None] = []
    for run in reversed(runs):  # the newest first
        if len(evidence) == 2:
            estimate = run.read_estimate()
        else:
            read = run.snapshot()  # for the status and the evidence
            own = status(read, with_warnings=False)
            if not stated:
                waiting += _waiting(run, own, now)
            estimate = _state(run, own)
            evidence += [Evidence.of(read)] if estimate is not None else []
        if estimate is not None:
            stated.append((run, estimate))
    last, before = (*evidence, None, None)[:2]
    blank = _blank(done)
    found: dict[str, Any] = {"waiting": waiting[::-1], "apart": apart}
    if rule:
        found["alerts"] = checks_of(rule, done.audit.limits, last, before)
    if last and before:
        found["change"] = _change(last, before)
    if stated:
        newest, estimate = stated[0]
        history = [point_of(run, estimate) for run, estimate in reversed(stated)]
        found |= {"history": history, "report": _report(output, newest), "notes": estimate.notes}
        found |= {"worst": _worst(estimate), "goal": _with_number(blank.goal, estimate)}
    return blank.model_copy(update=found)


def _report(output: str, run: Run) -> str | None:
    """Return the report of a run as seen from the folder of a fleet below the same output; None if there is none."""
    if not run.results().exists(PAGE):
        return None
    is_below = run.uri == open_store(output).store(run.name).uri
    return f"../../{run.name}/{PAGE}" if is_below else None


def _with_number(goal: AuditGoal | None, estimate: AccuracyEstimate) -> AuditGoal | None:
    """Return a goal with the number that an estimate states."""
    number = goal and stated_number(estimate, goal.metric)
    if goal is None or number is None:
        return goal
    stated = StatedEstimate(**number.model_dump(include=set(StatedEstimate.model_fields)))
    return goal.model_copy(update={"number": stated})


def worst_slice(table: SliceTable) -> tuple[str, SliceEstimate] | None:
    """Return the slice with the lowest value, of those with enough labels; None without one."""
    return next((item for item in lowest_first(table) if item[1].tells), None)


def _worst(estimate: AccuracyEstimate) -> list[NumberRow]:
    """Return the slice with the lowest value of each table."""
    found = [(table, worst_slice(table)) for table in estimate.by_slice]
    return [slice_row(part, table, name) for table, worst in found if worst for name, part in [worst]]


def _of_population(runs: Sequence[Run], wanted: Population) -> tuple[list[Run], str | None]:
    """Return the runs of the population that an audit asks for, and a sentence on its other runs."""
    populations = [Population.of(run.spec) for run in runs]
    others = [population for population in populations if population.digest != wanted.digest]
    apart = None
    if others:
        are = "run is" if len(others) == 1 else "runs are"
        apart = f"{len(others)} earlier {are} of another population, so not compared: {others[-1].differs(wanted)}"
    return [run for run, own in zip(runs, populations, strict=True) if own.digest == wanted.digest], apart


def _state(run: Run, own: RunStatus) -> AccuracyEstimate | None:
    """Return the last estimate of a run; make it first if labels are complete and it is missing or old.

    The report is written with it, for the links of the console.
    """
    is_whole = bool(own.rounds) and not any(item.missing for item in own.rounds)
    if is_whole and any(item.labelled for item in own.rounds) and not own.estimate_is_current:
        estimate = accuracy.estimate(run, level=LEVEL)
        make_report(run, level=LEVEL)
        return estimate
    return own.estimate


def _waiting(run: Run, own: RunStatus, now: datetime) -> list[WaitingRun]:
    """Return the run and its newest incomplete round, if it waits for labels."""
    rounds = [item for item in own.rounds if item.missing]
    if not rounds:
        return []
    since = run.drawn_at(rounds[-1].round)
    return [
        WaitingRun(
            run=run.uri,
            round=rounds[-1].round,
            missing=sum(item.missing for item in rounds),
            since=since.isoformat(timespec="seconds"),
            days=max((now - since).total_seconds() / 86400, 0.0),
        )
    ]


def _change(last: Evidence, before: Evidence) -> Change:
    found: Estimate = last.change(before, LEVEL)
    carried = last.rounds[0].selection.facts.get(CARRIED, {})
    apart: Literal["carried", "independent"] = "carried" if carried.get("run") == before.run.name else "independent"
    return Change(
        **found.to_dict(),
        before=before.run.uri,
        how=apart if found.method == INDEPENDENT else "paired",
        significant=found.low > 0 or found.high < 0,
    )


def answer(audits: Sequence[AuditSummary]) -> str:
    """Return the state of a fleet in one sentence."""
    alerts = sum(any(check.raised for check in item.alerts) for item in audits)
    failed = sum(item.failure is not None for item in audits)
    stated = sum(item.last is not None for item in audits)
    missing = sum(part.missing for item in audits for part in item.waiting)
    parts = [f"{stated} of {counted(len(audits), 'audit')} have an accuracy"]
    if missing:
        parts.append(f"{counted(missing, 'label')} {'is' if missing == 1 else 'are'} missing")
    if alerts:
        parts.append(f"{counted(alerts, 'audit')} raised an alert")
    if failed:
        parts.append(f"{counted(failed, 'audit')} failed")
    return f"{', '.join(parts)}."


SUMMARY_PAGE, SUMMARY_TEXT = "summary.html", "summary.md"


class FleetError(OpaccError):
    """Something is wrong with a fleet; the exit code is that of the first failed audit, of delivery or of an alert."""


class Written(NamedTuple):
    """The summary of a fleet, its files, and what is wrong."""

    summary: FleetSummary
    files: list[str]  # URIs
    failure: FleetError | None


def run_fleet(fleet: Fleet, progress: Report = unreported, *, work: bool = True, trial: bool = True) -> Written:
    """Run what is missing of a fleet, write its summary, and deliver alerts even after errors.

    Parameters
    ----------
    progress : counts audits
    work : False: run nothing, report only how the audits stand, by their last outcomes
    trial : try each model on some examples here before Ray starts
    """
    receivers = [receiver_of(item) for item in (fleet.spec.alerts.receivers if fleet.spec.alerts else ())]
    store = folder_of(fleet)
    try:
        with Outcomes(store) as outcomes:
            done = (
                work_through(fleet.audits, fleet.spec.concurrency, progress, trial=trial, outcomes=outcomes)
                if work
                else [outcomes.last(audit) for audit in fleet.audits]
            )
        summary = summarise(fleet, done)
        contents = {
            SUMMARY_PAGE: page(summary).encode(),
            SUMMARY: summary.to_bytes(),
            SUMMARY_TEXT: summary_text(summary).encode(),
        }
        files = write_files(store, contents)
    except Exception as error:
        for item in deliver(store, _without_summary(fleet, error), receivers, is_whole=False):
            if item.error is not None:
                log.error("%s", item.error)
        raise
    deliveries = deliver(store, notice(summary), receivers)
    codes, failure = _failure(summary, done, deliveries)
    summary = summary.model_copy(update={"deliveries": deliveries, "exit_codes": codes})
    store.write(SUMMARY, summary.to_bytes())
    return Written(summary, files, failure)


def notice(summary: FleetSummary) -> AlertNotice:
    """Return what is wrong by a summary, as receivers get it."""
    return AlertNotice(
        fleet=summary.name,
        made=summary.made,
        summary=open_store(summary.folder).uri_of(SUMMARY_PAGE),
        problems=summary.problems,
        guarantee=summary.rule.guarantee if summary.rule else None,
    )


def _without_summary(fleet: Fleet, error: Exception) -> AlertNotice:
    """Return the notice to send if no summary can be written, for instance because storage is down."""
    code = error.exit_code if isinstance(error, OpaccError) else 1
    name, now = fleet.spec.name, datetime.now(UTC).isoformat(timespec="seconds")
    failure = AuditFailure(error=f"no summary could be written: {shortened(str(error))}", exit_code=code, at=now)
    problem = failure_of(name, name, failure)
    return AlertNotice(fleet=name, made=now, summary=folder_of(fleet).uri_of(SUMMARY_PAGE), problems=[problem])


def _failure(
    summary: FleetSummary, done: Sequence[Ended], deliveries: Sequence[Delivery]
) -> tuple[list[int], FleetError | None]:
    """Return the exit codes of all that is wrong, and one error of it: failures, delivery, alerts nobody knows of."""
    found = list[tuple[int, str]]()
    failures = [(item.name, item.failure.exit_code) for item in summary.audits if item.failure]
    if failures:
        names = ", ".join(name for name, _ in failures)
        failed = f"{counted(len(failures), 'audit')} of {len(summary.audits)} failed: {names}"
        found.append((failures[0][1], failed))
    if undelivered := "; ".join(item.error for item in deliveries if item.error):
        found.append((DeliveryError.exit_code, f"the notice was not delivered: {undelivered}"))
    raised = list(dict.fromkeys(item.audit for item in summary.problems if item.check and not item.acknowledged))
    if raised:
        found.append((AlertError.exit_code, f"{counted(len(raised), 'audit')} raised an alert: {', '.join(raised)}"))
    if not found:
        return [], None
    error = FleetError("; ".join(text for _, text in found) + "; see above")
    error.exit_code, error.details = found[0][0], "\n".join(item.details for item in done if item.details)
    return [code for code, _ in found], error
