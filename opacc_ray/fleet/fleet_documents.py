"""The documents of a fleet.

| document | where |
|---|---|
| :class:`FleetSummary` | ``fleets/NAME/summary.json``, answer of `opacc fleet` |
| :class:`AlertNotice` | ``fleets/NAME/alerts.json``, and what is sent to `alerts.to` and `opacc fleet --alert-to` |
| :class:`AuditOutcome` | ``fleets/NAME/outcomes/AUDIT.json`` |
| :class:`DeliveredAlerts` | ``fleets/NAME/delivered.json`` |
| :class:`AccuracyHistory` | answer of `opacc history` |
"""

from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part
from opacc_ray.runs.estimate_documents import StatedEstimate


class HistoryPoint(Part):
    """The estimate of a run."""

    run: str = Field(description="URI of the run")
    made: str | None = Field(description="when the pool was listed, or the estimate exported: ISO 8601, UTC")
    value: float = Field(description="the estimate")
    low: float = Field(description="lower end of its interval")
    high: float = Field(description="upper end of its interval")
    level: float = Field(gt=0, lt=1, description="confidence level")
    n: int = Field(ge=0, description="draws that it rests on")
    pool_size: int = Field(ge=0, description="examples that it is stated for")
    measure: str = Field(description="what is stated: the accuracy, or the score of a regression")
    methods: list[str] = Field(description="sampling methods of the rounds, in their order")
    model: str | None = Field(description="digest of the model's weights; null if the spec names none")
    pool: str = Field(description="digest of the pool's listing")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    population: str | None = Field(
        default=None, description="digest of the population that it is of; null: not known of old exports"
    )


class HistoryPopulation(Part):
    """A population of some runs of a history: their points are one series."""

    digest: str | None = Field(description="as in the points; null: not known of old exports")
    text: str = Field(description="which it is, in words")
    differs: str | None = Field(description="what differs from the population before it; null of the first")


class WaitingRun(Part):
    """A run that waits for labels."""

    run: str = Field(description="URI of the run")
    round: int = Field(ge=1, description="number of its newest round that waits")
    missing: int = Field(ge=1, description="examples that wait for a label")
    since: str = Field(description="when that round was drawn: ISO 8601, UTC")
    days: float = Field(ge=0, description="days from then to the summary")


class Change(StatedEstimate):
    """The change of the accuracy since the audit before."""

    before: str = Field(description="URI of the run of the audit before")
    how: Literal["paired", "independent"] = Field(
        description="paired: both models on the labelled examples of one pool; independent: two samples"
    )
    significant: bool = Field(description="whether its interval leaves out 0")


class AlertCheck(Part):
    """The check of an alert, and the interval that decided it."""

    kind: Literal["min_accuracy", "max_drop"] = Field(description="what was asked")
    limit: float = Field(description="the least accuracy, or the largest drop")
    value: float | None = Field(description="the accuracy, or the drop; null: it cannot be decided yet")
    low: float | None = Field(description="lower end of its interval")
    high: float | None = Field(description="upper end of its interval")
    level: float = Field(gt=0, lt=1, description="level of that interval: that of the rule")
    raised: bool = Field(description="whether the whole interval is on the wrong side of the limit")
    reason: str | None = Field(description="why it cannot be decided, or what it rests on besides the sampling design")


class AuditFailure(Part):
    """An audit that failed."""

    error: str = Field(description="what went wrong, in one sentence")
    exit_code: int = Field(ge=1, description="exit code of `opacc run` for it")
    at: str | None = Field(
        default=None, description="when the audit failed: ISO 8601, UTC; null: in the summary itself"
    )


class Attempt(Part):
    """The last time that a fleet ran an audit."""

    state: Literal["running", "succeeded", "failed", "interrupted"] = Field(description="how it ended, if it has")
    began: str = Field(description="when it began: ISO 8601, UTC")
    seen: str = Field(description="when it ended; of one that runs, when it last reported")
    seconds: float = Field(ge=0, description="from then to then")


class AuditOutcome(Document):
    """The last outcome of an audit of a fleet."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-outcome/1"] = Field(default="opacc-outcome/1", description="name and version of this form")
    audit: str = Field(description="name of the audit")
    attempt: Attempt = Field(description="the last time it was run")
    run: str | None = Field(description="URI of its run; null: that attempt has not succeeded")
    failure: AuditFailure | None = Field(description="the last failure; null once an attempt has succeeded")


class AuditSummary(Part):
    """The state of an audit of a fleet."""

    name: str = Field(description="name of the audit")
    model: str | None = Field(description="the model, as the fleet names it; null in a list of audits")
    pool: str | None = Field(description="the pool, as above")
    run: str | None = Field(description="URI of its run on the pool as it is now; null: it failed, or was not run")
    failure: AuditFailure | None = Field(description="what went wrong, until the audit succeeds; null: nothing")
    attempt: Attempt | None = Field(default=None, description="the last time the fleet ran it; null: unknown")
    last: HistoryPoint | None = Field(description="the last accuracy that was stated, of whichever run; null: none")
    change: Change | None = Field(description="since the audit before; null: there is none")
    waiting: list[WaitingRun] = Field(description="runs that wait for labels, from that of the last accuracy on")
    alerts: list[AlertCheck] = Field(description="what the alerts asked of it")
    notes: list[str] = Field(default=[], description="what a reader must know of the last accuracy, in sentences")
    history: list[HistoryPoint] = Field(description="what each of its runs stated, the oldest first")
    apart: str | None = Field(
        default=None, description="earlier runs of another population, which are left out, and what differs; null: none"
    )


class AlertRule(Part):
    """When alerts are raised, and the bound on false ones."""

    min_accuracy: float | None = Field(
        description="the least accuracy of audits that have no limit of their own; null: not asked of them"
    )
    max_drop: float | None = Field(description="the largest drop since the audit before, likewise")
    false_alarms: float = Field(description="share of summaries with a false alert, at most")
    decided_by: Literal["interval", "sequence"] = Field(description="which interval decides")
    questions: int = Field(ge=1, description="what is asked of all audits, which shares the false alarms equally")
    level: float = Field(gt=0, lt=1, description="level of the interval of each: 1 - false_alarms / questions")
    guarantee: str = Field(description="what that promises, in words")


class Delivery(Part):
    """The delivery of a notice to one receiver."""

    to: str = Field(description="the receiver: $NAME of a variable, a URI, or a URL without what may be secret in it")
    state: Literal["delivered", "known", "failed"] = Field(
        description="known: nothing has changed since the last delivery, so nothing was sent"
    )
    error: str | None = Field(description="why it was not delivered, in one sentence; null: it was")


class FleetSummary(Document):
    """The state of a fleet: estimates, changes, missing labels and failures."""

    remedy: ClassVar[str] = "make it again with `opacc fleet`"

    format: Literal["opacc-fleet/1"] = Field(default="opacc-fleet/1", description="name and version of this form")
    name: str = Field(description="name of the fleet")
    folder: str = Field(description="URI of the folder that holds summary.html, summary.json and summary.md")
    made: str = Field(description="when the summary was made: ISO 8601, UTC")
    answer: str = Field(description="how the fleet stands, in one sentence")
    audits: list[AuditSummary] = Field(description="the audits, in the order of the fleet")
    rule: AlertRule | None = Field(description="when the alarm is raised; null: never")
    made_with: str = Field(description="version of opacc_ray that made the summary")
    deliveries: list[Delivery] = Field(default=[], description="what became of the notice for each receiver")
    exit_codes: list[int] = Field(
        default=[], description="one for all that is wrong, that of the command first: failures, delivery, alerts"
    )


class RaisedAlert(AlertCheck):
    """An alert that was raised."""

    audit: str = Field(description="name of the audit")
    run: str = Field(description="URI of the run")
    text: str = Field(description="the alert in one sentence")


class FailedAudit(AuditFailure):
    """An audit that failed, or a fleet that has no summary."""

    audit: str = Field(description="name of the audit, or of the fleet")


class AlertNotice(Document):
    """Alerts and failures of a fleet, as sent to a webhook; a chat shows the ``text``."""

    format: Literal["opacc-alert/1"] = Field(default="opacc-alert/1", description="name and version of this form")
    fleet: str = Field(description="name of the fleet")
    text: str = Field(description="all of it in words, a line each: a chat's webhook shows it")
    state: Literal["firing", "resolved"] = Field(default="firing", description="resolved: nothing is wrong any more")
    made: str = Field(description="when: ISO 8601, UTC")
    summary: str = Field(description="URI of the summary's page")
    alerts: list[RaisedAlert] = Field(description="the alerts that are raised")
    failures: list[FailedAudit] = Field(default=[], description="the audits that failed")
    resolved: list[str] = Field(default=[], description="what was sent before and is over, a sentence each")
    false_alarms: float | None = Field(
        description="share of summaries with a false alert, at most; null: no limits are set"
    )
    guarantee: str | None = Field(description="what that promises, in words; null: no limits are set")


class DeliveredItem(Part):
    """An alert or a failure that a receiver knows of."""

    about: str = Field(description="what it is about: URI of the run, or the error")
    text: str = Field(description="what was sent")


class DeliveredAlerts(Document):
    """What each receiver of alerts knows, so that nothing is sent twice."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-delivered/1"] = Field(
        default="opacc-delivered/1", description="name and version of this form"
    )
    receivers: dict[str, dict[str, DeliveredItem]] = Field(
        description="by SHA-256 of the receiver's address, then by audit and kind"
    )


class AccuracyHistory(Document):
    """The estimates of the runs of an audit, over time."""

    format: Literal["opacc-history/1"] = Field(default="opacc-history/1", description="name and version of this form")
    name: str = Field(description="name of the audit")
    source: str = Field(description="URI of the output that holds its runs, or of the tables of estimates")
    points: list[HistoryPoint] = Field(description="what each run stated, the oldest first")
    populations: list[HistoryPopulation] = Field(
        default=[], description="the populations that the points are of: each is a series of its own"
    )
    waiting: list[str] = Field(description="URIs of runs that have stated nothing yet")
    failed: list[str] = Field(default=[], description="URIs of runs that failed before their first round")
    unread: list[str] = Field(description="files that cannot be read")
    picture: str | None = Field(description="URI of the picture; null: none was asked for")
