"""The page of a report: one HTML file that needs no network and runs no script. Every text of others is escaped."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import yaml

from opacc_ray.estimators.intervals import clipped
from opacc_ray.report import sentences
from opacc_ray.report.coverage import section
from opacc_ray.report.documents import ConfusionCell, RunReport
from opacc_ray.report.figures import MOST_CLASSES, figures_of
from opacc_ray.report.left_out import changed_objects, head_of_changed, left_out
from opacc_ray.report.origin import origin_of
from opacc_ray.report.pictures import Picture, Pictures
from opacc_ray.report.rendering import style, template

MOST_ROWS, MATRIX_CLASSES, MOST_CONFUSIONS = 30, 12, 12
"""Classes of the table, classes up to which confusions are a matrix, and confusions that are listed."""


def page(report: RunReport, pictures: Pictures) -> str:
    """Return the HTML of a report."""
    return template("page.html").render(
        report=report,
        stated=report.estimate,
        pictures=pictures,
        has_pictures=any(isinstance(found, Picture) for found in pictures.values()),
        figures=figures_of(report),
        most_classes=MOST_CLASSES,
        left_out=left_out(report),
        origin=origin_of(report),
        spec=yaml.safe_dump(report.header.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        style=style(),
        coverage=section(report.characterization) if report.characterization else None,
        noun=sentences.noun(report.measure),
        share_of_examples=sentences.is_share(report.measure),
        percent=sentences.percent,
        thousands=sentences.thousands,
        history=sentences.started_from(report.history),
        **_rounds(report),
        **_result(report),
        **_classes(report),
    )


def _rounds(report: RunReport) -> dict[str, Any]:
    """What was asked for, and how."""
    return {
        "labelled": sum(item.labelled for item in report.rounds),
        "asked": sum(item.budget for item in report.rounds),
        "methods": list(dict.fromkeys(item.method for item in report.rounds)),
        "titles": list({item.method: item for item in report.drawn}.values()),
        "at_random": all(item.method == "srs" for item in report.rounds),
        "level_of_widths": f"{100 * report.widths.level:g}%" if report.widths else "",
        "anytime": any(item.anytime_low is not None for item in report.course),
    }


def _result(report: RunReport) -> dict[str, Any]:
    """The numbers of the answer, as texts."""
    stated = report.estimate
    if stated is None:
        return {"claim": "", "guessed": None}
    number = partial(sentences.number, measure=report.measure, digits=sentences.digits_for(stated.low, stated.high))
    return {
        "number": number,
        "value": number(clipped(stated)),
        "low": number(stated.low),
        "high": number(stated.high),
        "level": f"{100 * stated.level:g}%",
        "distinct": stated.srs.n,
        "tighter": stated.sequence.low > stated.low or stated.sequence.high < stated.high,
        "changed": changed_objects(stated.objects) if stated.objects else None,
        "head_of_changed": head_of_changed(stated.objects) if stated.objects else None,
        "claim": sentences.claim(report.reliability, stated) if report.reliability else "",
        "guessed": sentences.guessed(report.reliability, stated) if report.reliability else None,
    }


def _classes(report: RunReport) -> dict[str, Any]:
    """Tables of classes and of what is taken for what."""
    rows = _class_rows(report)
    wrong = [cell for cell in report.confusion or [] if cell.true != cell.predicted]
    return {
        "classes": rows[:MOST_ROWS],
        "more_classes": max(len(rows) - MOST_ROWS, 0),
        "confusion": _matrix(report),
        "confusions": wrong[:MOST_CONFUSIONS],
    }


def _class_rows(report: RunReport) -> list[dict[str, Any]]:
    """Rows of the table in the order of the spec; of too many classes those with most labels first."""
    stated = report.estimate
    if stated is None or stated.by_predicted_class is None or stated.by_true_class is None:
        return []
    pool = stated.pool_by_predicted_class
    names = list(dict.fromkeys([*(pool or {}), *stated.by_predicted_class, *stated.by_true_class]))
    rows = [
        {
            "name": name,
            "pool": None if pool is None else pool.get(name, 0),
            "predicted": stated.by_predicted_class.get(name),
            "true": stated.by_true_class.get(name),
        }
        for name in names
    ]
    order = {name: place for place, name in enumerate(report.header.spec.model.classes or [])}
    if len(rows) > MOST_ROWS:
        return sorted(rows, key=lambda row: (-_labels_of(row), -(row["pool"] or 0)))
    return sorted(rows, key=lambda row: order.get(row["name"], 0)) if order else rows


def _labels_of(row: dict[str, Any]) -> int:
    return sum(part.n for part in (row["predicted"], row["true"]) if part)


def _matrix(report: RunReport) -> dict[str, Any] | None:
    """Cells with their texts, and how strong their colour is: in [0, 1], right and wrong ones each by their largest.

    None if there are no classes, or too many.
    """
    cells = report.confusion or []
    found = {name for cell in cells for name in (cell.true, cell.predicted)}
    if not 0 < len(found) <= MATRIX_CLASSES:
        return None
    names = [name for name in report.header.spec.model.classes or sorted(found) if name in found]
    known = {(cell.true, cell.predicted): cell for cell in cells}
    largest = {
        right: max([cell.share for cell in cells if (cell.true == cell.predicted) == right] + [1e-9])
        for right in (True, False)
    }
    rows = [{"name": true, "cells": [_cell(known.get((true, said)), largest) for said in names]} for true in names]
    return {"classes": names, "rows": rows}


def _cell(cell: ConfusionCell | None, largest: Mapping[bool, float]) -> dict[str, Any]:
    if cell is None:
        return {"kind": "", "weight": 0.0, "text": "·"}
    right = cell.true == cell.predicted
    weight = max(cell.share, 0) / largest[right]
    return {"kind": "right" if right else "wrong", "weight": weight, "text": sentences.percent(cell.share)}
