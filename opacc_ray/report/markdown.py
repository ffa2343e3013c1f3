"""The summary of a report in Markdown, for pull requests, with the ``model-index`` of a model card."""

import re

import yaml

from opacc_ray.estimators.intervals import clipped
from opacc_ray.report import sentences
from opacc_ray.report.facts import class_table, doubts, interval_table
from opacc_ray.report.numbers import level_text, noun, sentence
from opacc_ray.report.rendering import escaped, markdown_table
from opacc_ray.report.report_documents import RunReport
from opacc_ray.runs.estimate_documents import AccuracyEstimate

MOST_CLASSES = 20
"""Classes of the table."""


def summary(report: RunReport) -> str:
    """Return the Markdown of a report."""
    stated = report.estimate
    lines = [f"## {escaped(report.name)}: operational {noun(report.measure)}", "", *_state(report)]
    lines += [f"**{escaped(report.answer)}**", ""]
    lines += [f"> **Warning:** {escaped(sentence(text))}\n" for text in report.warnings]
    if stated:
        lines += _result(report, stated)
    lines += [f"- {escaped(item)}" for item in sentences.left_out(report)]
    known = sentences.started_from(report.history)
    lines += ["", escaped(known)] if known else []
    lines += ["", f"Run `{_code(report.run)}`, made with opacc_ray {escaped(report.made_with)}."]
    if stated:
        card = yaml.safe_dump(model_index(report, stated), sort_keys=False, allow_unicode=False, width=10_000)
        lines += ["", *_folded("For a model card", ["```yaml", card.rstrip(), "```"])]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _state(report: RunReport) -> list[str]:
    if report.state == "complete":
        return []
    state = "Not complete" if report.state == "partial" else "No result yet"
    waits = f"this run waits for {escaped(report.waits_for)}" if report.waits_for else "draw more with `opacc next`"
    return [f"> **{state}:** {waits}.\n"]


def _result(report: RunReport, stated: AccuracyEstimate) -> list[str]:
    lines = [*markdown_table(interval_table(stated)), ""]
    lines += [f"> {escaped(sentence(text))}\n" for text in doubts(stated)]
    lines += [report.worth, ""] if report.worth else []
    classes, more = class_table(stated, report.header.spec.model.classes or [], MOST_CLASSES)
    if classes:
        others = [f"{more} more classes are in report.json.", ""] if more else []
        lines += [*_folded("By class", [*markdown_table(classes), "", *others]), ""]
    return lines


def _folded(title: str, lines: list[str]) -> list[str]:
    return [f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]


def model_index(report: RunReport, stated: AccuracyEstimate) -> dict[str, object]:
    """Return the ``model-index`` of a model card, as Hugging Face's hub reads it."""
    spec = report.header.spec
    is_pictures = spec.pool.format == "images" and spec.model.task == "classification"
    kind = "image-classification" if is_pictures else "other"
    basis = f"{level_text(stated.level)} interval {stated.low:.4f} to {stated.high:.4f}, {stated.n} labels"
    basis += f"; allows for {' and '.join(stated.allows_for)}" if stated.allows_for else ""
    metric = {
        "type": "accuracy" if report.measure == "accuracy" else "score",
        "name": f"Operational {noun(report.measure)} ({basis})",
        "value": round(clipped(stated), 4),
        "verified": False,
    }
    dataset = {"type": report.name, "name": f"operational pool of {report.pool_size} examples"}
    result = {"task": {"type": kind}, "dataset": dataset, "metrics": [metric]}
    return {"model-index": [{"name": report.name, "results": [result]}]}


def _code(text: str) -> str:
    return " ".join(text.split()).replace("`", "'")
