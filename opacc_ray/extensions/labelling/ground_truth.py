"""SageMaker Ground Truth: an input manifest, and the output manifest of a job that classifies images or texts.

The service is closed to new customers, so only these jobs are supported. Each line is an object with our id, which
comes back unchanged, and `source-ref`, the image's S3 URI, which the job reads with its own role, or `source`, the
shown columns of a row as one text. Without our id, `source-ref` names the example. The label is the class name in the
metadata, never the integer: that numbers the categories of the job, not the classes of the model.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels.formats.jsonl_file import as_jsonl
from opacc_ray.labels.label_rows import Context, Label, LabelFile, Task, label_of, quoted

IMAGES = ("addresses",)

PICTURES_ALONE = True

ID, RUN, ROUND = "opacc-id", "opacc-run", "opacc-round"


def write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``input.manifest``; raises DataError for an image that is not in S3."""
    for task in tasks if context.has_pictures else ():
        if not (task.uri or "").startswith("s3://"):
            raise DataError(f"Ground Truth reads images from S3; {quoted(task.id)} is elsewhere: copy the pool to S3")
    rows = (_source(task, context) | {ID: task.id, RUN: task.run, ROUND: task.round} for task in tasks)
    return {"input.manifest": as_jsonl(rows)}


def _source(task: Task, context: Context) -> dict[str, str | None]:
    if context.has_pictures:
        return {"source-ref": task.uri}
    return {"source": "\n".join(f"{name}: {text}" for name, text in task.shown.items())}


def looks_like(head: str) -> bool:
    """Return whether a file is a manifest of Ground Truth, by its first line."""
    first = head.partition("\n")[0]
    return head.startswith("{") and ('"source-ref"' in first or f'"{ID}"' in first)


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield the labels of an output manifest; a line without a label is not answered yet."""
    lines = file.json_lines("import the output manifest as the job wrote it")
    return (_label_of_line(found, place) for place, found in lines)


def _label_of_line(found: Any, place: str) -> Label:
    found = {ID: found.get("source-ref")} | found if isinstance(found, dict) else {ID: None}
    if not isinstance(found[ID], str):
        raise LabelError(f"{place} has no {ID}: start the job with the manifest that `opacc manifest` wrote")
    fields = {key: str(found[name]) for key, name in (("id", ID), ("run", RUN), ("round", ROUND)) if name in found}
    metadata = [value for key, value in found.items() if key.endswith("-metadata")]
    if len(metadata) > 1:
        raise LabelError(f"{place} has labels of {len(metadata)} jobs: import the output manifest of one job")
    return label_of(fields | (_fields_of_job(metadata[0], place) if metadata else {}), place)


def _fields_of_job(metadata: Any, place: str) -> dict[str, str]:
    content = metadata if isinstance(metadata, dict) else {}
    if content.get("human-annotated", "yes") != "yes":
        raise LabelError(f"{place} was labelled by a model, not by a person: labels must come from people")
    label = content.get("class-name", "" if "failure-reason" in content else None)
    if not isinstance(label, str):
        raise LabelError(f"{place} has no class-name in its metadata: import one of a classification job")
    return {"label": label, "labelled_at": str(content.get("creation-date", ""))}
