"""The page of a report: one HTML file that needs no network and runs no script. Every text of others is escaped."""

from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import yaml
from markupsafe import Markup

from opacc_ray.audit.documents import ChangedObjects, ConfusionShares
from opacc_ray.report import sentences
from opacc_ray.report.documents import RunReport
from opacc_ray.report.figures import MOST_CLASSES, figures_of
from opacc_ray.report.left_out import changed_objects, left_out
from opacc_ray.report.origin import origin_of
from opacc_ray.report.pictures import Picture, Pictures
from opacc_ray.report.svg import shortened_to

TEMPLATES = files("opacc_ray.report") / "templates"

MOST_ROWS, MATRIX_CLASSES, MOST_CONFUSIONS = 30, 12, 12
"""Classes of the table, classes up to which confusions are a matrix, and confusions that are listed."""


def page(report: RunReport, pictures: Pictures) -> str:
    """Return the HTML of a report."""
    stated = report.estimate
    digits = sentences.digits_for(stated.low, stated.high) if stated else 1
    number = partial(sentences.number, measure=report.measure, digits=digits)
    shown = {}
    if stated is not None:
        inside = min(max(stated.value, stated.low), stated.high)
        shown = {"value": number(inside), "low": number(stated.low), "high": number(stated.high)}
    classes = _classes(report)
    confusion = stated.confusion if stated else None
    return _template().render(
        report=report,
        pictures=pictures,
        stated=stated,
        **shown,
        level=f"{100 * stated.level:g}%" if stated else "",
        noun=sentences.noun(report.measure),
        share_of_examples=sentences.is_share(report.measure),
        number=number,
        percent=sentences.percent,
        thousands=sentences.thousands,
        labelled=sum(item.labelled for item in report.rounds),
        asked=sum(item.budget for item in report.rounds),
        distinct=stated.srs.n if stated else 0,
        methods=list(dict.fromkeys(item.method for item in report.rounds)),
        titles=list({item.method: item for item in report.drawn}.values()),
        anytime=any(item.anytime_low is not None for item in report.course),
        tighter=stated is not None and (stated.sequence.low > stated.low or stated.sequence.high < stated.high),
        at_random=all(item.method == "srs" for item in report.rounds),
        has_pictures=any(isinstance(found, Picture) for found in pictures.values()),
        claim=sentences.claim(report.reliability, stated) if report.reliability and stated else "",
        figures=figures_of(report),
        most_classes=MOST_CLASSES,
        classes=classes[:MOST_ROWS],
        more_classes=max(len(classes) - MOST_ROWS, 0),
        confusion=_matrix(report, confusion) if confusion and len(confusion.classes) <= MATRIX_CLASSES else None,
        confusions=_confusions(confusion) if confusion else [],
        left_out=left_out(report),
        changed=_changed(stated.objects) if stated else None,
        origin=origin_of(report),
        spec=yaml.safe_dump(report.header.spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True),
        style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
    )


def _template() -> Any:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": shortened_to, "sentence": sentences.sentence}
    return environment.from_string((TEMPLATES / "page.html").read_text(encoding="utf-8"))


def _changed(objects: ChangedObjects | None) -> str | None:
    return changed_objects(objects) if objects else None


def _classes(report: RunReport) -> list[dict[str, Any]]:
    """Rows of the table: classes of the pool, and of labels, most frequent first."""
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
        return sorted(rows, key=lambda row: -(row["pool"] or 0))
    return sorted(rows, key=lambda row: order.get(row["name"], 0)) if order else rows


def _matrix(report: RunReport, confusion: ConfusionShares) -> dict[str, Any]:
    """Cells with their texts, and how strong their colour is: in [0, 1], right and wrong ones each by their largest."""
    given = report.header.spec.model.classes or confusion.classes
    order = sorted(range(len(confusion.classes)), key=lambda i: given.index(confusion.classes[i]))
    num = len(order)
    largest = {
        right: max([confusion.share[i][j] for i in range(num) for j in range(num) if (i == j) == right] + [1e-9])
        for right in (True, False)
    }
    rows = []
    for i in order:
        cells = [
            {
                "right": i == j,
                "num": confusion.num[i][j],
                "weight": max(confusion.share[i][j], 0) / largest[i == j],
                "text": sentences.percent(confusion.share[i][j]) if confusion.num[i][j] else "·",
            }
            for j in order
        ]
        rows.append({"name": confusion.classes[i], "cells": cells})
    return {"classes": [confusion.classes[i] for i in order], "rows": rows}


def _confusions(confusion: ConfusionShares) -> Sequence[dict[str, Any]]:
    """Errors by their share of the pool, largest first."""
    names = confusion.classes
    found: list[dict[str, Any]] = [
        {
            "true": true,
            "predicted": said,
            "share": confusion.share[i][j],
            "standard_error": confusion.standard_error[i][j],
            "num": confusion.num[i][j],
        }
        for i, true in enumerate(names)
        for j, said in enumerate(names)
        if i != j and confusion.num[i][j]
    ]
    return sorted(found, key=lambda item: -item["share"])[:MOST_CONFUSIONS]
