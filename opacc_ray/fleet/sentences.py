"""What a summary says in words."""

from collections.abc import Mapping

from opacc_ray.estimators.intervals import clipped
from opacc_ray.fleet.documents import (
    AlertCheck,
    Attempt,
    AuditFailure,
    AuditSummary,
    Change,
    FleetSummary,
    HistoryPoint,
    WaitingRun,
)
from opacc_ray.report.sentences import digits_for, is_share, number


def label_of(audit: AuditSummary) -> str:
    """What a page calls an audit, whose fleet it names once."""
    return audit.name if audit.model is None else f"{audit.model} × {audit.pool}"


def stated_text(point: HistoryPoint) -> tuple[str, str]:
    """The last accuracy, and its interval."""
    digits = digits_for(point.low, point.high)
    low, high = (number(value, point.measure, digits) for value in (point.low, point.high))
    return number(clipped(point), point.measure, digits), f"{low} – {high}"


def notes_of(summary: FleetSummary) -> list[tuple[str, str]]:
    """What a reader must know of the accuracies, each with its audit."""
    return [(label_of(item), note) for item in summary.audits for note in item.notes]


def difference(value: float, measure: str, digits: int = 1) -> str:
    """A difference with its sign, of shares in percentage points; none where it is too small to be seen."""
    text = f"{100 * value:+.{digits}f}" if is_share(measure) else f"{value:+.{digits + 2}f}"
    return text if float(text) else text[1:]


def change_text(change: Change, measure: str) -> tuple[str, str, str]:
    """The change, its interval, and whether it could be chance."""
    digits = digits_for(change.low, change.high)
    value, low, high = (difference(part, measure, digits) for part in (clipped(change), change.low, change.high))
    value += " points" if is_share(measure) else ""
    direction = "higher" if change.value > 0 else "lower"
    said = f"significantly {direction}" if change.significant else "no significant change"
    return value, f"{low} to {high}", f"{said}, {change.how}"


def significance(change: Change) -> str:
    """In which direction a change is significant, if it is, and how it was found; for a narrow column."""
    return f"{('higher' if change.value > 0 else 'lower') if change.significant else 'none'}, {change.how}"


def waiting_text(waiting: WaitingRun) -> str:
    """How many labels a run waits for, and how long."""
    labels = "1 label" if waiting.missing == 1 else f"{waiting.missing:,} labels"
    return f"{labels} of round {waiting.round}, for {duration(waiting.days)}"


def duration(days: float) -> str:
    """Days in words."""
    if days < 1:
        hours = int(24 * days)
        return "less than an hour" if hours < 1 else "1 hour" if hours == 1 else f"{hours} hours"
    return "1 day" if int(days) == 1 else f"{int(days)} days"


def alert_text(audit: AuditSummary, check: AlertCheck) -> str:
    """An alert that was raised, in one sentence."""
    measure = audit.last.measure if audit.last else "accuracy"
    low, high, limit = check.low or 0.0, check.high or 0.0, check.limit
    digits = digits_for(low, high)
    sure = f"at {100 * check.level:.4g}% confidence"
    if check.kind == "min_accuracy":
        between = f"{number(low, measure, digits)} – {number(high, measure, digits)}"
        return f"{audit.name}: the accuracy is {between} {sure}, below {number(limit, measure, digits)}."
    unit = " points" if is_share(measure) else ""
    low_text, high_text, limit_text = (
        difference(part, measure, digits).removeprefix("+") for part in (low, high, limit)
    )
    by = f"{low_text} to {high_text}{unit}"
    return f"{audit.name}: the accuracy dropped by {by} {sure}, more than the {limit_text} allowed."


def own_limits(summary: FleetSummary) -> list[str]:
    """Which audits have other limits than the fleet, and which."""
    rule = summary.rule
    if rule is None:
        return []
    usual = {"min_accuracy": rule.min_accuracy, "max_drop": rule.max_drop}
    said = []
    for item in summary.audits:
        own: dict[str, float] = {check.kind: check.limit for check in item.alerts}
        if own != {kind: limit for kind, limit in usual.items() if limit is not None}:
            said.append(f"{label_of(item)}: {_limits_text(own)}")
    return said


def _limits_text(limits: Mapping[str, float]) -> str:
    words = {"min_accuracy": "accuracy below {:g}%", "max_drop": "drop above {:g}%"}
    return ", ".join(words[kind].format(100 * limit) for kind, limit in limits.items()) or "no alert"


def raised_texts(summary: FleetSummary) -> list[str]:
    """All alerts that were raised."""
    return [alert_text(item, check) for item in summary.audits for check in item.alerts if check.raised]


def failed_text(failure: AuditFailure) -> str:
    """When an audit failed, for a summary that may be of a later day."""
    return f"Failed at {failure.at[:16].replace('T', ' ')} UTC" if failure.at else "Failed"


def attempt_text(attempt: Attempt) -> str | None:
    """How the last attempt stands, where it has neither succeeded nor failed."""
    if attempt.state not in ("running", "interrupted"):
        return None
    return f"{attempt.state}, since {attempt.began[:16].replace('T', ' ')} UTC"


def check_text(check: AlertCheck) -> str:
    """What became of an alert."""
    if check.raised:
        return "alert"
    return "not decided" if check.value is None else "no alert"


def apart_texts(summary: FleetSummary) -> list[str]:
    """Which audits have runs of another population, and what differs."""
    return [f"{label_of(item)}: {item.apart}" for item in summary.audits if item.apart]
