"""The summary of a report in Markdown, for pull requests, with the ``model-index`` of a model card."""

import re
from collections.abc import Callable, Sequence

import yaml

from opacc_ray.estimators.intervals import clipped
from opacc_ray.report import sentences
from opacc_ray.report.documents import RunReport
from opacc_ray.report.left_out import left_out
from opacc_ray.runs.estimate_documents import AccuracyEstimate

MOST_CLASSES = 20
"""Classes of the table."""


def summary(report: RunReport) -> str:
    """Return the Markdown of a report; every text of others is escaped."""
    stated = report.estimate
    noun = sentences.noun(report.measure)
    lines = [f"## {escaped(report.name)}: operational {noun}", "", _state(report), f"**{escaped(report.answer)}**", ""]
    for text in report.warnings:
        lines += [f"> **Warning:** {escaped(sentences.sentence(text))}", ""]
    if stated:
        lines += _result(report, stated)
        lines += _classes(stated)
    lines += [f"- {escaped(item)}" for item in left_out(report)]
    known = sentences.started_from(report.history)
    lines += ["", escaped(known)] if known else []
    lines += ["", f"Run `{_code(report.run)}`, made with opacc_ray {escaped(report.made_with)}."]
    if stated:
        card = yaml.safe_dump(model_index(report, stated), sort_keys=False, allow_unicode=False, width=10_000)
        lines += [
            "",
            "<details><summary>For a model card</summary>",
            "",
            "```yaml",
            card.rstrip(),
            "```",
            "",
            "</details>",
        ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _state(report: RunReport) -> str:
    if report.state == "complete":
        return ""
    what = "Not complete" if report.state == "partial" else "No result yet"
    said = f"this run waits for {escaped(report.waits_for)}" if report.waits_for else "draw others with `opacc next`"
    return f"> **{what}:** {said}.\n"


def _result(report: RunReport, stated: AccuracyEstimate) -> list[str]:
    digits = sentences.digits_for(stated.low, stated.high)

    def shown(low: float, high: float) -> str:
        return " – ".join(sentences.number(item, report.measure, digits) for item in (low, high))

    value = sentences.number(clipped(stated), report.measure, digits)
    rows = [
        ("", sentences.noun(report.measure), f"{100 * stated.level:g}% interval"),
        ("---",) * 3,
        (f"this audit, {stated.n} labels", value, shown(stated.low, stated.high)),
        *_by_design(stated, shown),
        (f"{stated.srs.n} labels at random", "", shown(stated.srs.low, stated.srs.high)),
        ("however often one looks", "", shown(stated.sequence.low, stated.sequence.high)),
    ]
    lines = [*table(rows), ""]
    lines += [f"> {escaped(note)}\n" for note in stated.notes]
    if report.worth:
        lines += [report.worth, ""]
    if stated.reason:
        lines += [f"> {escaped(sentences.sentence(stated.reason))}", ""]
    return lines


def _by_design(stated: AccuracyEstimate, shown: Callable[[float, float], str]) -> list[tuple[str, str, str]]:
    """The row of the interval that is not stated, where another one is."""
    own = stated.by_design
    return [("by the sampling design alone", "", shown(own.low, own.high))] if own and stated.allows_for else []


def _classes(stated: AccuracyEstimate) -> list[str]:
    if not stated.by_predicted_class:
        return []
    pool = stated.pool_by_predicted_class or {}
    rows: list[Sequence[str]] = [("predicted class", "in the pool", "labels", "accuracy", "interval"), ("---",) * 5]
    parts = list(stated.by_predicted_class.items())
    for name, part in parts[:MOST_CLASSES]:
        between = f"{sentences.percent(part.low)} – {sentences.percent(part.high)}"
        count = sentences.thousands(pool[name]) if name in pool else ""
        rows.append((escaped(name), count, str(part.n), sentences.percent(part.value), between))
    more = [f"{len(parts) - MOST_CLASSES} more classes are in report.json."] if len(parts) > MOST_CLASSES else []
    return ["<details><summary>By predicted class</summary>", "", *table(rows), "", *more, "</details>", ""]


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the second row is that of dashes."""
    return ["| " + " | ".join(row) + " |" for row in rows]


def model_index(report: RunReport, stated: AccuracyEstimate) -> dict[str, object]:
    """Return the ``model-index`` of a model card, as Hugging Face's hub reads it."""
    spec = report.header.spec
    is_pictures = spec.pool.format == "images" and spec.model.task == "classification"
    kind = "image-classification" if is_pictures else "other"
    said = f"{100 * stated.level:g}% interval {stated.low:.4f} to {stated.high:.4f}, {stated.n} labels"
    said += f"; allows for {' and '.join(stated.allows_for)}" if stated.allows_for else ""
    metric = {
        "type": "accuracy" if report.measure == "accuracy" else "score",
        "name": f"Operational {sentences.noun(report.measure)} ({said})",
        "value": round(clipped(stated), 4),
        "verified": False,
    }
    dataset = {"type": report.name, "name": f"operational pool of {report.pool_size} examples"}
    result = {"task": {"type": kind}, "dataset": dataset, "metrics": [metric]}
    return {"model-index": [{"name": report.name, "results": [result]}]}


def escaped(text: str) -> str:
    """A text on one line that Markdown and HTML take for nothing but text."""
    line = " ".join(text.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_{}\[\]()#+|~!@])", r"\\\1", line)


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")
