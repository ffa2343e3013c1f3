"""Runs of an output in words."""

from shlex import quote

from opacc_ray.audit.status import ListedRun, RemovedRun, RunList
from opacc_ray.errors import counted
from opacc_ray.estimators.intervals import clipped
from opacc_ray.fleet.sentences import duration
from opacc_ray.report.sentences import digits_for, number

HEAD = ("run", "state", "accuracy", "interval", "labels", "age")


def listed(found: RunList) -> str:
    """A table with a row for each run, then why runs failed or cannot be read."""
    rows = [HEAD, *map(_row, found.runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    wrong = [item for item in found.runs if item.state in ("failed", "unreadable")]
    return "\n".join([*lines, *(f"{item.state:10} {item.name}: {item.waits_for}" for item in wrong)])


def _row(item: ListedRun) -> tuple[str, ...]:
    stated, value, between = item.estimate, "", ""
    if stated and item.measure:
        digits = digits_for(stated.low, stated.high)
        value, low, high = (number(each, item.measure, digits) for each in (clipped(stated), stated.low, stated.high))
        between = f"{low} – {high}"
    age = "" if item.days is None else duration(item.days)
    return item.name, item.state, value, between, str(item.labels), age


def removed(done: RemovedRun) -> str:
    """What was removed, and what was kept."""
    labels = f", {counted(done.label_files, 'file')} of labels among them" if done.label_files else ""
    lines = [f"removed    {done.run}: {counted(done.files, 'file')}, {done.bytes / 1e6:.1f} MB{labels}"]
    lines += [f"kept       {uri}, which is no file of a run" for uri in done.kept]
    if done.features and done.used_by:
        lines.append(f"kept       features {done.features}, which {', '.join(done.used_by)} use")
    elif done.features:
        output = done.run.rpartition("/")[0]
        lines.append(
            f"kept       features {done.features}, which no other run uses; "
            f"to delete them: opacc features remove {quote(output)} {done.features}"
        )
    return "\n".join(lines)
