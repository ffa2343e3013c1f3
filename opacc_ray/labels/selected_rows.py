"""Part of a file of labels that answers selected examples, as of a file of all labels."""

from collections.abc import Set
from typing import Any

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats.jsonl_file import PLACE, as_jsonl
from opacc_ray.labels.formats.label_formats import parse
from opacc_ray.labels.joining import rewritten
from opacc_ray.labels.label_rows import few, quoted
from opacc_ray.labels.labelled_rounds import ids_in_pool
from opacc_ray.runs.run import Run

KEPT = ("id", "label", "status", "annotator", "labelled_at", "run", "round")
"""Fields of a label that stay."""


def of_selected(run: Run, name: str, data: bytes, chosen: Set[str]) -> tuple[str, bytes, dict[str, int]]:
    """Return the answers of a file to the ``chosen`` examples as another file, and counts of the rows left out.

    Raises LabelError if there are none, or if ids that the pool lacks are chosen ones without a row, written otherwise.
    """
    kept, others, there = list[dict[str, Any]](), list[str](), set[str]()
    for row in parse(data, name, run.spec.model.counts or ()):
        if row.id not in chosen:
            others.append(row.id)
            continue
        there.add(row.id)
        if row.status != "blank":
            fields = {key: getattr(row, key) for key in KEPT}
            kept.append({key: value for key, value in fields.items() if value is not None} | {PLACE: row.place})
    strange = sorted(set(others).difference(ids_in_pool(run, list(dict.fromkeys(others)))))
    remedy = rewritten(strange, sorted(chosen - there))
    if remedy is not None:
        what = f"{len(strange)} id(s) not in the pool: {few([quoted(id) for id in strange])}"
        raise LabelError(f"{name}: {what}: {remedy}; nothing of the file was taken")
    if not kept:
        raise LabelError(
            f"{name} has no label of a selected example, but {len(others):,} rows of others: take ids from the manifest"
        )
    lacking = set(strange)
    unknown = sum(id in lacking for id in others)
    return f"{name}.selected.jsonl", as_jsonl(kept), {"left_out": len(others) - unknown, "unknown": unknown}
