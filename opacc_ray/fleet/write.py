"""A fleet from its file to its summary: run what is missing, summarise, write what people and other tools read."""

from collections.abc import Sequence
from typing import NamedTuple

from opacc_ray.errors import AlertError, OpaccError, counted
from opacc_ray.fleet.documents import AlertNotice, FleetSummary, RaisedAlert
from opacc_ray.fleet.markdown import summary_text
from opacc_ray.fleet.page import page
from opacc_ray.fleet.queue import Ended, work_through
from opacc_ray.fleet.sentences import alert_text
from opacc_ray.fleet.spec import Fleet
from opacc_ray.fleet.summary import summarise
from opacc_ray.lake.storage import open_store, split
from opacc_ray.lake.store import write_files
from opacc_ray.samplers.base import Report, unreported

PAGE, DOCUMENT, TEXT, NOTICE = "summary.html", "summary.json", "summary.md", "alerts.json"


class FleetError(OpaccError):
    """Audits of a fleet failed; the exit code is that of the first one."""


class Written(NamedTuple):
    """The summary of a fleet, where it is, and what is wrong."""

    summary: FleetSummary
    files: list[str]  # URIs
    failure: OpaccError | None


def run_fleet(
    fleet: Fleet, progress: Report = unreported, *, work: bool = True, trial: bool = True, alert_to: str | None = None
) -> Written:
    """Run what is missing of a fleet, and write its summary.

    Parameters
    ----------
    progress : counts audits
    work : False: run nothing, say only how it stands
    trial : try each model on one example here before Ray starts
    alert_to : URI of a file to write alerts to, if any is raised; beside the one in the fleet's folder
    """
    if work:
        done = work_through(fleet.audits, fleet.spec.concurrency, progress, trial=trial)
    else:
        done = [Ended(audit) for audit in fleet.audits]
    summary = summarise(fleet, done)
    files = _write(summary)
    files += _write_notice(summary, alert_to)
    return Written(summary, files, _failure(summary, done))


def _write(summary: FleetSummary) -> list[str]:
    contents = {PAGE: page(summary).encode(), DOCUMENT: summary.to_bytes(), TEXT: summary_text(summary).encode()}
    return write_files(open_store(summary.folder), contents)


def _write_notice(summary: FleetSummary, alert_to: str | None) -> list[str]:
    """Write the alerts, or remove those of an earlier summary: the file is there while there is an alert."""
    store, found = open_store(summary.folder), notice(summary)
    if found is None:
        store.delete(NOTICE)
        return []
    store.write(NOTICE, found.to_bytes())
    if alert_to is None:
        return [store.uri_of(NOTICE)]
    folder, name = split(alert_to)
    open_store(folder).write(name, found.to_bytes())
    return [store.uri_of(NOTICE), open_store(folder).uri_of(name)]


def notice(summary: FleetSummary) -> AlertNotice | None:
    """The alerts of a summary; None if none is raised."""
    raised = [
        RaisedAlert(**check.model_dump(), audit=item.name, run=item.last.run, text=alert_text(item, check))
        for item in summary.audits
        for check in item.alerts
        if check.raised and item.last is not None
    ]
    if not raised or summary.rule is None:
        return None
    return AlertNotice(
        fleet=summary.name,
        text="\n".join(item.text for item in raised),
        made=summary.made,
        summary=open_store(summary.folder).uri_of(PAGE),
        alerts=raised,
        false_alarms=summary.rule.false_alarms,
        guarantee=summary.rule.guarantee,
    )


def _failure(summary: FleetSummary, done: Sequence[Ended]) -> OpaccError | None:
    """What the command ends with: the first audit that failed, else an alert."""
    failed = [(item.name, item.failure) for item in summary.audits if item.failure is not None]
    if failed:
        names = ", ".join(name for name, _ in failed)
        error = FleetError(f"{counted(len(failed), 'audit')} of {len(summary.audits)} failed: {names}; see above")
        error.exit_code = failed[0][1].exit_code
        error.details = "\n".join(item.error.details for item in done if item.error is not None)
        return error
    raised = [item.name for item in summary.audits if any(check.raised for check in item.alerts)]
    if raised:
        return AlertError(f"{counted(len(raised), 'audit')} raised an alert: {', '.join(raised)}; see above")
    return None
