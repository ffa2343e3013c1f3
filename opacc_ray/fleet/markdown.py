"""The summary of a fleet in Markdown, for a pull request or a chat. Every text of others is escaped."""

from opacc_ray.fleet import sentences
from opacc_ray.fleet.documents import AuditSummary, FleetSummary
from opacc_ray.report.markdown import escaped, table


def summary_text(summary: FleetSummary) -> str:
    """Return the Markdown of a summary."""
    lines = [f"## {escaped(summary.name)}: {len(summary.audits)} audits", "", f"**{escaped(summary.answer)}**", ""]
    raised = sentences.raised_texts(summary)
    failed = [
        f"> **{sentences.failed_text(item.failure)}:** {escaped(f'{item.name}: {item.failure.error}')}\n"
        for item in summary.audits
        if item.failure is not None
    ]
    lines += [f"> **Alert:** {escaped(text)}\n" for text in raised]
    lines += failed
    lines += [f"> **{escaped(name)}:** {escaped(note)}\n" for name, note in sentences.notes_of(summary)]
    head = ("audit", "accuracy", "95% interval", "change", "waits for")
    lines += [*table([head, ("---",) * len(head), *map(_row, summary.audits)]), ""]
    lines += [f"{escaped(text)}.\n" for text in sentences.apart_texts(summary)]
    if summary.rule is not None:
        lines += [f"Alerts: {escaped(summary.rule.guarantee)}.", ""]
        lines += [f"Limits of its own, {escaped(text)}.\n" for text in sentences.own_limits(summary)]
    return "\n".join([*lines, f"Made at {escaped(summary.made)} with opacc_ray {escaped(summary.made_with)}."]) + "\n"


def _row(item: AuditSummary) -> tuple[str, ...]:
    value, between = sentences.stated_text(item.last) if item.last else ("", "")
    change = ""
    if item.last and item.change:
        by, interval, how = sentences.change_text(item.change, item.last.measure)
        change = f"{by} ({interval}; {how})"
    waits = "; ".join(sentences.waiting_text(part) for part in item.waiting)
    return tuple(escaped(text) for text in (item.name, value, between, change, waits))
