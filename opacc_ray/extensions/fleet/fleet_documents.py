"""Documents of a fleet.

| document | where |
|---|---|
| :class:`FleetSummary` | ``fleets/NAME/summary.json``, answer of `opacc fleet` |
| :class:`AlertNotice` | the files of `alerts.to` |
| :class:`AuditOutcome` | ``fleets/NAME/outcomes/AUDIT.json`` |
| :class:`Acknowledgement` | ``fleets/NAME/acknowledged/DIGEST.json``, answer of `opacc fleet alerts ack` |
| :class:`DeliveredAlerts` | ``fleets/NAME/delivered.json`` |
| :class:`OpenAlerts` | answer of `opacc fleet alerts` |
| :class:`AccuracyHistory` | answer of `opacc history` |
| :class:`WatchedAudit` | answer of `opacc watch`, and part of the summary |
"""

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from opacc_ray.documents import Document, Part, format_field
from opacc_ray.metrics.metric import ACCURACY
from opacc_ray.report.facts import minute
from opacc_ray.runs.estimate_documents import NumberRow, StatedEstimate
from opacc_ray.runs.identity import Population


class HistoryPoint(Part):
    """Estimate of a run."""

    run: str = Field(description="URI of the run")
    made: str = Field(description="time at which the pool was listed: ISO 8601, UTC")
    value: float = Field(description="estimate")
    low: float = Field(description="lower end of the interval")
    high: float = Field(description="upper end of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level")
    n: int = Field(ge=0, description="number of draws that the estimate uses")
    pool_size: int = Field(ge=0, description="number of examples in its population")
    measure: str = Field(description="measure that is estimated: accuracy, or the score of a regression")
    methods: list[str] = Field(description="sampling methods of the rounds, in order")
    model: str | None = Field(description="digest of the model's weights; null if the spec names none")
    pool: str = Field(description="digest of the pool's listing")
    design_based: bool = Field(description="whether the interval holds by the sampling design alone")
    population: Population = Field(description="population that it is for; points of one are a series over time")

    @property
    def time(self) -> float:
        """Seconds since 1970 of ``made``."""
        return datetime.fromisoformat(self.made).timestamp()


class WaitingRun(Part):
    """A run that waits for labels."""

    run: str = Field(description="URI of the run")
    round: int = Field(ge=1, description="number of the newest round that waits")
    missing: int = Field(ge=1, description="number of examples that wait for a label")
    since: str = Field(description="time at which that round was drawn: ISO 8601, UTC")
    days: float = Field(ge=0, description="days between that time and the summary")


class Change(StatedEstimate):
    """Change of the accuracy since the previous audit."""

    before: str = Field(description="URI of the run of the previous audit")
    how: Literal["paired", "independent", "carried"] = Field(
        description="paired: both models on the labelled examples of one pool; independent: two samples; carried: "
        "labels of the earlier run count in this one as well, and the interval of two samples is wider than it need be"
    )
    significant: bool = Field(description="whether the interval excludes 0")


LimitKey = Literal["min", "max_drop", "min_slices"]


class Limit(Part):
    """A limit of an audit."""

    kind: LimitKey | Literal["watch"] = Field(description="key of the limit in the spec")
    limit: float = Field(description="minimum accuracy or metric, or maximum drop, or tolerance of a watch")
    of: str = Field(
        default=ACCURACY, description="accuracy, another metric, or the slices whose accuracies are checked"
    )

    @property
    def name(self) -> str:
        """What no other limit of an audit has."""
        return f"{self.kind} {self.of}"


class AlertCheck(Limit):
    """Check of an alert limit, and the interval that decided it."""

    slice: str | None = Field(
        default=None, description="the slice whose interval has the lowest upper end; null: no slices, or undecided"
    )
    value: float | None = Field(default=None, description="the number, or the drop; null: undecided")
    low: float | None = Field(default=None, description="lower end of the interval")
    high: float | None = Field(default=None, description="upper end of the interval")
    level: float = Field(gt=0, lt=1, description="confidence level of the interval, as in the rule")
    raised: bool = Field(description="whether the whole interval is on the wrong side of the limit")
    reason: str | None = Field(
        description="why the check is undecided, or assumptions in addition to the sampling design"
    )


class AuditFailure(Part):
    """An audit that failed."""

    error: str = Field(description="error in one sentence")
    exit_code: int = Field(ge=1, description="exit code of `opacc run` for this error")
    at: str = Field(description="time of the failure: ISO 8601, UTC")


AttemptState = Literal["running", "succeeded", "failed", "interrupted"]


class Attempt(Part):
    """Last attempt of a fleet to run an audit."""

    state: AttemptState = Field(description="state of the attempt")
    began: str = Field(description="start time: ISO 8601, UTC")
    seen: str = Field(description="end time; for a running attempt, time of its last sign of life")


class AuditOutcome(Document):
    """Last outcome of an audit of a fleet."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-outcome/1"] = format_field("opacc-outcome/1")
    audit: str = Field(description="name of the audit")
    attempt: Attempt = Field(description="last attempt")
    run: str | None = Field(description="URI of the run; null: the last attempt has not succeeded")
    heads: dict[str, str] = Field(
        default={}, description="URI of a run -> head of its log at the last success, so that a rollback is noticed"
    )
    failure: AuditFailure | None = Field(description="last failure; null once an attempt has succeeded")


class WatchedWindow(Part):
    """One window of a watched audit."""

    run: str = Field(description="name of the run that brought it, or of the slice that it is")
    created: str = Field(description="when the run was created")
    examples: int = Field(ge=0, description="examples of the window")
    estimate: StatedEstimate | None = Field(default=None, description="estimated accuracy; null without labels")
    change: StatedEstimate | None = Field(default=None, description="difference from the accuracy of the reference")
    evidence: float | None = Field(default=None, description="evidence of a drop so far; null without labels")
    without_labels: dict[str, float] = Field(
        description="accuracy if confidence means here what it meant in the reference, by method; empty if unknown"
    )


class WatchedAudit(Document):
    """A watched audit: its windows, and whether they raise the alarm."""

    format: Literal["opacc-watch/1"] = format_field("opacc-watch/1")
    audit: str = Field(description="name of the audit")
    output: str = Field(description="URI of the folder of its runs")
    reference: str = Field(description="name of the run or slice that is the reference")
    estimate: StatedEstimate = Field(description="estimated accuracy of the reference")
    tolerance: float = Field(description="accuracy drop to tolerate")
    false_alarms: float = Field(description="maximum false-alarm probability over the audit's lifetime")
    windows: list[WatchedWindow] = Field(description="windows, the oldest first")
    order: str = Field(description="the first and the last window, and what orders them")
    alarm: str | None = Field(description="run or slice of the window in which the alarm was raised; null: none")
    delay: int | None = Field(
        description="windows like the last after which a further drop by 5 points is noticed; null: more than 520"
    )
    exact: bool = Field(description="whether every window was drawn label by label, so that the rate holds exactly")
    answer: str = Field(description="the state in one sentence")
    notes: list[str] = Field(
        default=[], description="what else limits the result, such as a removed reference or a low window"
    )

    @property
    def labelled(self) -> list[WatchedWindow]:
        """The windows that have labels."""
        return [window for window in self.windows if window.estimate]

    @property
    def guarantee(self) -> str:
        """How exactly the false-alarm probability holds."""
        return "exactly" if self.exact else "as far as the intervals of its windows hold"


class AuditGoal(Part):
    """The goal of an audit by its spec."""

    metric: str = Field(description="accuracy, or a metric such as recall@defect")
    least: float = Field(description="least value by the spec")
    number: StatedEstimate | None = Field(description="the number in the last estimate; null: it is not stated")


class AuditSummary(Part):
    """State of an audit of a fleet."""

    name: str = Field(description="name of the audit")
    model: str | None = Field(description="name of the model in the fleet; null: the fleet lists audits")
    pool: str | None = Field(description="name of the pool in the fleet; null: the fleet lists audits")
    run: str | None = Field(
        default=None, description="URI of the run on the current pool; null: it failed, or was not run"
    )
    failure: AuditFailure | None = Field(default=None, description="failure since the last success; null: none")
    attempt: Attempt | None = Field(default=None, description="last attempt of the fleet to run it; null: unknown")
    report: str | None = Field(
        default=None, description="report of the run of the last estimate, from the folder of the summary; null: none"
    )
    goal: AuditGoal | None = Field(default=None, description="least number by the spec; null: none")
    change: Change | None = Field(
        default=None, description="change since the previous audit; null: there is no previous audit"
    )
    waiting: list[WaitingRun] = Field(
        default=[], description="runs that wait for labels, from the run of the last estimate on"
    )
    alerts: list[AlertCheck] = Field(default=[], description="checks of the alert limits")
    notes: list[str] = Field(default=[], description="caveats about the last estimate, in sentences")
    worst: list[NumberRow] = Field(
        default=[], description="slice with the lowest value of each table of the last estimate, if labels tell"
    )
    history: list[HistoryPoint] = Field(default=[], description="estimates of its runs, oldest first")
    watch: WatchedAudit | None = Field(default=None, description="state of its watch; null: it has none, or no labels")
    apart: str | None = Field(
        default=None, description="earlier runs that are left out because their population differs, and how; null: none"
    )

    @property
    def last(self) -> HistoryPoint | None:
        """The last estimate of any run of the audit; None without one."""
        return self.history[-1] if self.history else None


class AlertRule(Part):
    """When alerts are raised, and the bound on false ones."""

    limits: list[Limit] = Field(description="limits of audits without their own")
    false_alarms: float = Field(description="maximum share of summaries with a false alert")
    decided_by: Literal["interval", "sequence"] = Field(description="kind of interval that decides")
    questions: int = Field(ge=1, description="number of checks of all audits; each gets an equal share of false_alarms")
    level: float = Field(gt=0, lt=1, description="confidence level of each check: 1 - false_alarms / questions")
    guarantee: str = Field(description="error bound in words")


class Delivery(Part):
    """Delivery of a notice to one receiver."""

    to: str = Field(description="receiver: $NAME of a variable, a URI, or a URL without its secret parts")
    state: Literal["delivered", "known", "failed"] = Field(
        description="known: nothing has changed since the last delivery, so nothing was sent"
    )
    error: str | None = Field(description="why it was not delivered, in one sentence; null: it was delivered")


class Acknowledgement(Document):
    """Somebody knows of an alert or a failure: it is not sent again until it is over."""

    remedy: ClassVar[str] = "delete it, and acknowledge the alert again"

    format: Literal["opacc-acknowledged/1"] = format_field("opacc-acknowledged/1")
    alert: str = Field(description="the alert: audit, kind, and metric or slices; or audit and `failure`")
    by: str = Field(description="who knows of it")
    at: str = Field(description="time: ISO 8601, UTC")
    note: str | None = Field(default=None, description="what is done about it")

    def __str__(self) -> str:
        return f"acknowledged by {self.by} at {minute(self.at)}{f': {self.note}' * bool(self.note)}"


class Problem(Part):
    """An alert or a failure that is not over."""

    fleet: str = Field(description="name of the fleet")
    audit: str = Field(description="name of the audit, or of a fleet that has no summary")
    alert: str = Field(description="what it is, whatever the run: audit, kind, and metric or slices")
    text: str = Field(description="the alert or failure in one sentence")
    since: str = Field(description="time at which it began: ISO 8601, UTC")
    check: AlertCheck | None = Field(default=None, description="the check that raised the alert; null: a failure")
    failure: AuditFailure | None = Field(default=None, description="the failure; null: an alert")
    acknowledged: Acknowledgement | None = Field(default=None, description="who knows of it; null: nobody yet")

    @property
    def news(self) -> str:
        """What it is sent again for: another error, or an acknowledgement."""
        if self.acknowledged:
            return f"acknowledged by {self.acknowledged.by}"
        return self.failure.error if self.failure else ""


class FleetSummary(Document):
    """State of a fleet: estimates, changes, missing labels and failures."""

    remedy: ClassVar[str] = "make it again with `opacc fleet`"

    format: Literal["opacc-fleet/1"] = format_field("opacc-fleet/1")
    name: str = Field(description="name of the fleet")
    folder: str = Field(description="URI of the folder that holds summary.html, summary.json and summary.md")
    made: str = Field(description="time of the summary: ISO 8601, UTC")
    answer: str = Field(description="state of the fleet in one sentence")
    audits: list[AuditSummary] = Field(description="audits in the order of the fleet")
    rule: AlertRule | None = Field(description="rule that raises alerts; null: none")
    problems: list[Problem] = Field(default=[], description="alerts, then failures, that are not over")
    made_with: str = Field(description="version of opacc_ray that made the summary")
    deliveries: list[Delivery] = Field(default=[], description="delivery of the notice to each receiver")
    exit_codes: list[int] = Field(
        default=[],
        description="exit codes of everything that is wrong, that of the command first: failures, delivery, alerts",
    )


class AlertNotice(Document):
    """What is wrong with a fleet, as a receiver gets it; a service shows the ``text``."""

    format: Literal["opacc-alert/1"] = format_field("opacc-alert/1")
    fleet: str = Field(description="name of the fleet")
    text: str = Field(default="", description="the notice as text, one line each, as a chat shows it")
    state: Literal["firing", "resolved"] = Field(
        default="firing", description="firing: something is wrong; resolved: nothing is wrong any more"
    )
    made: str = Field(description="time of the notice: ISO 8601, UTC")
    summary: str = Field(description="URI of the page of the summary")
    problems: list[Problem] = Field(description="alerts and failures")
    resolved: list[str] = Field(
        default=[], description="alerts and failures sent before that are over, one sentence each"
    )
    guarantee: str | None = Field(default=None, description="error bound in words; null: no limits are set")


class DeliveredAlerts(Document):
    """Alerts sent to each receiver, so that nothing is sent twice."""

    remedy: ClassVar[str] = "delete it, and run `opacc fleet` again"

    format: Literal["opacc-delivered/1"] = format_field("opacc-delivered/1")
    receivers: dict[str, list[Problem]] = Field(
        description="alerts and failures by SHA-256 of the address of the receiver that knows of them"
    )


class OpenAlerts(Document):
    """What is wrong in the fleets of an output, by their last summaries."""

    format: Literal["opacc-alerts/1"] = format_field("opacc-alerts/1")
    output: str = Field(description="URI of the output")
    fleets: list[str] = Field(description="names of its fleets")
    alerts: list[Problem] = Field(description="alerts and failures that are not over")
    unknown: list[str] = Field(default=[], description="audits without an accuracy, of which no alert can be raised")


class AccuracyHistory(Document):
    """Estimates of the runs of an audit over time."""

    format: Literal["opacc-history/1"] = format_field("opacc-history/1")
    name: str = Field(description="name of the audit")
    source: str = Field(description="URI of the output that holds its runs, or of the tables of estimates")
    number: str | None = Field(
        default=None, description="the number of the points, such as f1@defect in camera=north; null: the result"
    )
    points: list[HistoryPoint] = Field(description="estimates of the runs, oldest first")
    waiting: list[str] = Field(default=[], description="URIs of runs without an estimate yet")
    failed: list[str] = Field(default=[], description="URIs of runs that failed before their first round")
    without: list[str] = Field(default=[], description="URIs of runs whose estimate does not state the number")
    unread: list[str] = Field(default=[], description="files that cannot be read")
    picture: str | None = Field(default=None, description="URI of the picture; null: not requested")
