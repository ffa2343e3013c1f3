"""Run a fleet: its missing work, the summary, and the delivery of alerts."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from opacc_ray.errors import AlertError, DeliveryError, OpaccError, counted, shortened
from opacc_ray.fleet.alert_states import NOTICE, deliver, with_states
from opacc_ray.fleet.fleet_documents import AlertNotice, Delivery, FailedAudit, FleetSummary, RaisedAlert
from opacc_ray.fleet.fleet_spec import Fleet
from opacc_ray.fleet.outcomes import Outcomes
from opacc_ray.fleet.queue import Ended, work_through
from opacc_ray.fleet.receivers import receiver_of
from opacc_ray.fleet.summary import folder_of, summarise
from opacc_ray.fleet.summary_page import alert_text, page, summary_text
from opacc_ray.lake.store import write_files
from opacc_ray.lake.store_uris import open_store
from opacc_ray.samplers.base import Report, unreported

log = logging.getLogger(__name__)

PAGE, DOCUMENT, TEXT = "summary.html", "summary.json", "summary.md"


class FleetError(OpaccError):
    """Audits of a fleet failed; the exit code is that of the first one."""


class Written(NamedTuple):
    """The summary of a fleet, its files, and what is wrong."""

    summary: FleetSummary
    files: list[str]  # URIs
    failure: OpaccError | None


def run_fleet(
    fleet: Fleet, progress: Report = unreported, *, work: bool = True, trial: bool = True, alert_to: str | None = None
) -> Written:
    """Run what is missing of a fleet, write its summary, and deliver alerts even after errors.

    Parameters
    ----------
    progress : counts audits
    work : False: run nothing, report only how the audits stand, by their last outcomes
    trial : try each model on some examples here before Ray starts
    alert_to : one more receiver of alerts and failures, as those of the fleet's `alerts.to`
    """
    asked = [*(fleet.spec.alerts.receivers if fleet.spec.alerts else ()), *([alert_to] if alert_to else ())]
    receivers = [receiver_of(item) for item in asked]
    store = folder_of(fleet)
    try:
        with Outcomes(store) as outcomes:
            done = (
                work_through(fleet.audits, fleet.spec.concurrency, progress, trial=trial, note=outcomes.noted)
                if work
                else [outcomes.last(audit) for audit in fleet.audits]
            )
        summary = summarise(fleet, done)
        contents = {PAGE: page(summary).encode(), DOCUMENT: summary.to_bytes(), TEXT: summary_text(summary).encode()}
        files = write_files(store, contents)
    except Exception as error:
        names = [item.name for item in fleet.audits]
        for item in deliver(store, _without_summary(fleet, error), receivers, names):
            if item.error is not None:
                log.error("%s", item.error)
        raise
    found = with_text(with_states(store, notice(summary)))
    if found.alerts or found.failures:
        files += write_files(store, {NOTICE: found.to_bytes()})
    else:
        store.delete(NOTICE)  # of an earlier summary
    unknown = [item.name for item in summary.audits if item.failure and item.last is None]
    deliveries = deliver(store, found, receivers, unknown)
    failures = _failures(summary, found, done, deliveries)
    codes = [item.exit_code for item in failures]
    summary = summary.model_copy(update={"deliveries": deliveries, "exit_codes": codes})
    store.write(DOCUMENT, summary.to_bytes())
    return Written(summary, files, _first(failures))


def notice(summary: FleetSummary) -> AlertNotice:
    """Return the alerts and failures of a summary."""
    raised = [
        RaisedAlert(**check.model_dump(), audit=item.name, run=item.last.run, text=alert_text(item, check))
        for item in summary.audits
        for check in item.alerts
        if check.raised and item.last is not None
    ]
    failures = [
        FailedAudit(**item.failure.model_dump(), audit=item.name) for item in summary.audits if item.failure is not None
    ]
    return AlertNotice(
        fleet=summary.name,
        text="",
        made=summary.made,
        summary=open_store(summary.folder).uri_of(PAGE),
        alerts=raised,
        failures=failures,
        false_alarms=None if summary.rule is None else summary.rule.false_alarms,
        guarantee=None if summary.rule is None else summary.rule.guarantee,
    )


def with_text(found: AlertNotice) -> AlertNotice:
    """Return a notice with its text: one line for each alert and failure, and who knows of it."""
    lines = [f"{item.text} ({item.acknowledged})" if item.acknowledged else item.text for item in found.items]
    return found.model_copy(update={"text": "\n".join(lines)})


def _without_summary(fleet: Fleet, error: Exception) -> AlertNotice:
    """Return the notice to send if no summary can be written, for instance because storage is down."""
    code = error.exit_code if isinstance(error, OpaccError) else 1
    reason = f"no summary could be written: {shortened(str(error))}"
    failure = FailedAudit(audit=fleet.spec.name, error=reason, exit_code=code)
    return AlertNotice(
        fleet=fleet.spec.name,
        text=failure.text,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        summary=folder_of(fleet).uri_of(PAGE),
        alerts=[],
        failures=[failure],
        false_alarms=None,
        guarantee=None,
    )


def _failures(
    summary: FleetSummary, found: AlertNotice, done: Sequence[Ended], deliveries: Sequence[Delivery]
) -> list[OpaccError]:
    """Return all errors; the first decides the exit code: failed audits, delivery, alerts that nobody knows of."""
    errors: list[OpaccError] = []
    failed = [(item.name, item.failure) for item in summary.audits if item.failure is not None]
    if failed:
        names = ", ".join(name for name, _ in failed)
        error = FleetError(f"{counted(len(failed), 'audit')} of {len(summary.audits)} failed: {names}; see above")
        error.exit_code = failed[0][1].exit_code
        error.details = "\n".join(item.error.details for item in done if item.error is not None)
        errors.append(error)
    undelivered = [item.error for item in deliveries if item.error is not None]
    if undelivered:
        errors.append(DeliveryError(f"the notice was not delivered: {'; '.join(undelivered)}"))
    raised = list(dict.fromkeys(item.audit for item in found.alerts if item.acknowledged is None))
    if raised:
        errors.append(AlertError(f"{counted(len(raised), 'audit')} raised an alert: {', '.join(raised)}; see above"))
    return errors


def _first(failures: Sequence[OpaccError]) -> OpaccError | None:
    """Return the first error with the sentences of all."""
    if not failures:
        return None
    first = failures[0]
    error = type(first)("; ".join(str(item).removesuffix("; see above") for item in failures) + "; see above")
    error.exit_code, error.details = first.exit_code, first.details
    return error
