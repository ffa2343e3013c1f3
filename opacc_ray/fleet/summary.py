"""Summarise a fleet: last estimates, changes, missing labels, failures and alerts."""

from collections.abc import Sequence, Set
from datetime import UTC, datetime
from typing import Literal

from opacc_ray.audit import accuracy
from opacc_ray.audit.number_rows import NumberRow, slice_row
from opacc_ray.audit.status import RunStatus, status
from opacc_ray.designs.grown import CARRIED
from opacc_ray.errors import OpaccError, counted
from opacc_ray.estimators.accuracy_estimate import Estimate
from opacc_ray.estimators.metrics import ACCURACY
from opacc_ray.estimators.model_comparison import INDEPENDENT
from opacc_ray.fleet.accuracy_history import point_of
from opacc_ray.fleet.alert_states import read_notice
from opacc_ray.fleet.alerts import Evidence, checks_of, rule_of
from opacc_ray.fleet.fleet_documents import (
    AlertRule,
    AuditFailure,
    AuditSummary,
    Change,
    FleetSummary,
    MetricGoal,
    WaitingRun,
)
from opacc_ray.fleet.fleet_spec import Fleet, FleetAudit
from opacc_ray.fleet.queue import Ended, ended
from opacc_ray.fleet.watched_audit import watch_state
from opacc_ray.lake.store_uris import Store, join, open_store
from opacc_ray.report.run_report import PAGE, make_report
from opacc_ray.report.stated_numbers import stated_number, worst_slice
from opacc_ray.runs.estimate_documents import AccuracyEstimate, StatedEstimate
from opacc_ray.runs.identity import Population, located, versions
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import runs_of

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
    before = read_notice(folder_of(fleet))
    raised = {item.key for item in (before.alerts if before else ())}
    found = [_held(_audit(fleet.spec.output, item, rule, now), raised) for item in done]
    audits = [_watched(fleet, item.audit, own, raised) for item, own in zip(done, found, strict=True)]
    return FleetSummary(
        name=fleet.spec.name,
        folder=folder_of(fleet).uri,
        made=now.isoformat(timespec="seconds"),
        answer=answer(audits),
        audits=audits,
        rule=rule,
        made_with=versions()["opacc_ray"],
    )


def folder_of(fleet: Fleet) -> Store:
    """Return the folder of the summary of a fleet."""
    return open_store(join(fleet.spec.output, "fleets", fleet.spec.name))


def _held(found: AuditSummary, raised: Set[str]) -> AuditSummary:
    """Return an audit whose alerts stay raised while they cannot be decided, such as for want of a withdrawn label."""
    keys = [" ".join(filter(None, (found.name, check.kind, check.of))) for check in found.alerts]
    alerts = [
        check.model_copy(update={"raised": check.raised or (check.value is None and key in raised)})
        for key, check in zip(keys, found.alerts, strict=True)
    ]
    return found.model_copy(update={"alerts": alerts})


def _watched(fleet: Fleet, audit: FleetAudit, found: AuditSummary, raised: Set[str]) -> AuditSummary:
    """Add the state of the watch of an audit: each one has an equal share of the false alarms of the fleet."""
    asked = fleet.spec.watch
    if asked is None:
        return found
    rate = asked.false_alarms / len(fleet.audits)
    was_raised = f"{audit.name} watch" in raised
    state, check, notes = watch_state(audit.name, fleet.spec.output, asked, rate, was_raised=was_raised)
    more = {"watch": state, "alerts": [*found.alerts, check], "notes": [*found.notes, *notes]}
    return found.model_copy(update=more)


def _audit(output: str, done: Ended, rule: AlertRule | None, now: datetime) -> AuditSummary:
    """Summarise an audit, or state why that failed."""
    found: list[AuditSummary] = []

    def look() -> Run | None:
        found.append(_look(output, done, rule, now))
        return done.run

    tried = ended(done.audit, look)
    if tried.error is None:
        return found[0]
    blank = _blank(done, done.error or tried.error)
    return blank.model_copy(update={"alerts": checks_of(rule, done.audit.limits, None, None) if rule else []})


def _blank(done: Ended, error: OpaccError | None) -> AuditSummary:
    failure = None if error is None else AuditFailure(error=str(error), exit_code=error.exit_code)
    least = done.audit.spec.least
    if done.outcome is not None and error is done.error:
        failure = done.outcome.failure
    return AuditSummary(
        name=done.audit.name,
        model=done.audit.model,
        pool=done.audit.pool,
        run=done.run.uri if done.run else None,
        failure=failure,
        attempt=done.outcome.attempt if done.outcome else None,
        goal=least.share if least and least.metric == ACCURACY else None,
        metric_goal=_metric_goal(done, None),
        last=None,
        change=None,
        waiting=[],
        alerts=[],
        history=[],
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
    history = [point_of(run, estimate) for run, estimate in reversed(stated)]
    return _blank(done, done.error).model_copy(
        update={
            "last": history[-1] if history else None,
            "report": _report(output, stated[0][0]) if stated else None,
            "change": _change(last, before) if last and before else None,
            "waiting": waiting[::-1],
            "notes": stated[0][1].notes if stated else [],
            "worst": _worst(stated[0][1]) if stated else [],
            "metric_goal": _metric_goal(done, stated[0][1] if stated else None),
            "alerts": checks_of(rule, done.audit.limits, last, before) if rule else [],
            "history": history,
            "apart": apart,
        }
    )


def _report(output: str, run: Run) -> str | None:
    """Return the report of a run as seen from the folder of a fleet below the same output; None if there is none."""
    if not run.results().exists(PAGE):
        return None
    is_below = run.uri == open_store(output).store(run.name).uri
    return f"../../{run.name}/{PAGE}" if is_below else None


def _metric_goal(done: Ended, estimate: AccuracyEstimate | None) -> MetricGoal | None:
    """Return a goal about another number than the accuracy, with that number; None without one."""
    least = done.audit.spec.least
    if least is None or least.metric == ACCURACY:
        return None
    number = None if estimate is None else stated_number(estimate, least.metric)
    found = None if number is None else StatedEstimate(**number.model_dump(include=set(StatedEstimate.model_fields)))
    return MetricGoal(metric=least.metric, least=least.share, number=found)


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
        how=apart if found.interval == INDEPENDENT else "paired",
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
