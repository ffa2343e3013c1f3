"""Label Studio: tasks with a labelling config, and its exports as they come back.

Our id is inside `data`, because Label Studio drops everything else when it reads tasks from storage. Predictions are
never sent. Exports are read as JSON: tasks with their annotations, or the objects of a target storage (one task, or one
annotation with its task). JSON-MIN and CSV are refused, since they leave out skipped tasks.

A skipped task is a "can't tell". A task without an annotation, or with an empty one, is not answered yet. An annotation
that was changed and exported again replaces its annotator's earlier answer, by its time. Without our id, as in tasks
from pictures that people uploaded, the picture names the example.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote
from xml.sax.saxutils import quoteattr

from opacc_ray.errors import LabelError
from opacc_ray.labels import formats
from opacc_ray.labels.formats import Context, Label, LabelFile, LabelFormat, Task
from opacc_ray.labels.joining import EXTENSION
from opacc_ray.spec.spec_sections import NONE, SEPARATOR

ID, RUN = "opacc_id", "opacc_run"
UNSURE = "can't tell"
REMEDY = "export the project as JSON"

OWN = {"annotation_id", "lead_time"}
"""Columns that every CSV export has."""

MANY_CLASSES = 30  # with more classes, the config has a list with a search field instead of buttons
VALUES = ("choices", "number", "text")  # keys of an answer in the controls of our config

Json = Mapping[str, Any]


def _write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``tasks.json``, to import, and ``config.xml``, the labelling config of the project."""
    own = [{ID: task.id, RUN: task.run, "opacc_round": task.round, "opacc_order": task.order} for task in tasks]
    items = [{"data": _shown(task, context) | fields} for task, fields in zip(tasks, own, strict=True)]
    content = json.dumps(items, ensure_ascii=False, indent=1, allow_nan=False)
    return {"tasks.json": content.encode() + b"\n", "config.xml": config(context).encode()}


def _shown(task: Task, context: Context) -> dict[str, Any]:
    """Return what the config shows: the image, short columns as one table, long ones as texts."""
    data: dict[str, Any] = {"image": task.uri or ""} if context.has_pictures else {}
    if row := {name: task.shown.get(name, "") for name in context.columns if name not in context.long}:
        data["row"] = row
    return data | {f"text_{number}": task.shown.get(name, "") for number, name in _texts_of(context)}


def _texts_of(context: Context) -> list[tuple[int, str]]:
    """Return the columns that are shown as texts, with their numbers."""
    return [(number, name) for number, name in enumerate(context.columns, start=1) if name in context.long]


def _objects(context: Context) -> dict[str, list[str]]:
    """Return what an annotator sees: lines of the config by the name of their object; the first one is labelled."""
    lines: dict[str, list[str]] = {}
    if context.has_pictures:
        lines["image"] = ['  <Image name="image" value="$image" zoom="true" zoomControl="true"/>']
    for number, name in _texts_of(context):
        lines[f"text_{number}"] = [
            f'  <Header value={_literal(name)} size="5"/>',
            f'  <Text name="text_{number}" value="$text_{number}"/>',
        ]
    if any(name not in context.long for name in context.columns):
        lines["row"] = ['  <Table name="row" value="$row"/>']
    return lines


def _literal(text: str) -> str:
    """Return a text as an attribute; $ would start the name of a variable."""
    return quoteattr(text.replace("$", "＄"))


def config(context: Context) -> str:
    """Return the labelling config: one choice among the classes, or a number; and "can't tell"."""
    objects = _objects(context)
    to = next(iter(objects))
    asked = [f'  <Header value={_literal(context.question)} size="4"/>'] if context.question else []
    lines = ["<View>", *asked, *(line for own in objects.values() for line in own)]
    unsure = f'    <Choice value="{UNSURE}" hotkey="0"/>'
    if context.reads_numbers:
        lines.append(f'  <Number name="label" toName="{to}"/>')
        lines += [f'  <Choices name="unsure" toName="{to}" choice="single">', unsure, "  </Choices>"]
    elif context.classes is None:
        example = " ".join("3" if place == 0 else "0" for place in range(len(context.counts)))
        wanted = f"{', '.join(context.counts)}, such as {example}; ? if you can't tell"
        hint = f" placeholder={_literal(wanted)}" if context.counts else ""
        lines.append(f'  <TextArea name="label" toName="{to}" maxSubmissions="1" required="true"{hint}/>')
    else:
        layout = ' layout="select"' if len(context.classes) > MANY_CLASSES else ""
        name, choice = ("labels", "multiple") if context.task == "multilabel" else ("label", "single")
        lines.append(f'  <Choices name="{name}" toName="{to}" choice="{choice}" required="true"{layout}>')
        lines += [f'    <Choice value="{NONE}"/>'] * (choice == "multiple")
        lines += [f"    <Choice value={_choice(name, index)}/>" for index, name in enumerate(context.classes)]
        lines += [unsure, "  </Choices>"]
    return "\n".join([*lines, "</View>", ""])


def _choice(name: str, index: int) -> str:
    """Return the value of a choice; a class called "unsure" is answered by its index, which is unambiguous."""
    return quoteattr(name) + (f' alias="{index}"' if formats.is_cant_tell(name) else "")


def _looks_like(head: str) -> bool:
    """Return whether a file comes from Label Studio, by its first characters or the header of its table."""
    if head.startswith("["):
        return not formats.is_array_of_rows(head)
    if head.startswith("{"):
        return f'"{ID}"' in head and '"source-ref"' not in head
    header = re.split(r"[,;\t]", "".join(head.splitlines()[:1]))
    cells = {cell.strip(' "').lower() for cell in header}
    return ID in cells or cells >= OWN


def _parse(file: LabelFile) -> Iterator[Label]:
    """Yield the labels of an export in JSON, or of an object of a target storage."""
    if not file.head().startswith(("[", "{")):
        raise LabelError(f"{file.name} is a table, which leaves out skipped tasks: {REMEDY}")
    content = file.json()
    for number, item in enumerate(content if isinstance(content, list) else [content], start=1):
        yield from _labels_of(item, f"{file.name} task {number}")


def _labels_of(item: Any, place: str) -> Iterator[Label]:
    """Yield the labels of a task, or of an annotation with its task."""
    if not isinstance(item, dict):
        raise LabelError(f"{place} is no JSON object: {REMEDY}")
    if isinstance(item.get("data"), dict) or "annotations" in item:
        data, annotations = item.get("data"), item.get("annotations", [])
    elif "result" in item:
        task = item.get("task")
        data, annotations = task.get("data") if isinstance(task, dict) else None, [item]
    else:
        raise LabelError(
            f"{place} has no annotations: {REMEDY}, not as JSON-MIN, which leaves out skipped tasks; or import JSON "
            "objects with the keys id and label"
        )
    fields = _fields_of_task(data, place)
    if not isinstance(annotations, list) or not all(isinstance(one, dict) for one in annotations):
        raise LabelError(f"{place} has no list of annotations: {REMEDY}")
    if not annotations:
        yield formats.label_of(fields, place)
    for one in annotations:
        yield formats.label_of(fields | _fields_of_annotation(one, place), place)


def _fields_of_task(data: Any, place: str) -> dict[str, str]:
    fields = data if isinstance(data, dict) else {}
    id = _uploaded(fields) if fields.get(ID) in (None, "") else fields[ID]
    if not isinstance(id, str | int):
        raise LabelError(
            f"{place} has no {ID} in its data: label tasks written by `opacc manifest --to label-studio`, or "
            "import JSON objects with the keys id and label"
        )
    return {"id": str(id), "run": str(fields.get(RUN, ""))}


def _uploaded(data: Json) -> str | None:
    """Return the path of a task's picture, without what Label Studio adds to it; None without a picture."""
    texts = [unquote(text.partition("?d=")[2] or text) for text in data.values() if isinstance(text, str)]
    path = next((text for text in texts if EXTENSION.search(text)), None)
    return path and re.sub(r"^/?data/upload/\d+/[0-9a-f]{8}-", "", path)


def _fields_of_annotation(annotation: Json, place: str) -> dict[str, str]:
    who = annotation.get("completed_by")
    name = (who.get("email") or who.get("id")) if isinstance(who, dict) else who
    time = annotation.get("updated_at") or annotation.get("created_at")
    fields = {"annotator": "" if name is None else str(name), "labelled_at": "" if time is None else str(time)}
    if annotation.get("was_cancelled"):
        return fields | {"status": "skipped"}
    answers = [_text_of_result(part, place) for part in annotation.get("result") or []]
    return fields | {"label": _only([text for text in answers if text is not None], place)}


def _text_of_result(part: Any, place: str) -> str | None:
    """Return the value of one control of our config; None for other controls."""
    value = part.get("value") if isinstance(part, dict) else None
    if not isinstance(value, dict):
        raise LabelError(f"{place} has a result without a value: export it again")
    if part.get("from_name") == "labels" and isinstance(value.get("choices"), list):
        texts = [_text(choice, place) for choice in value["choices"]]
        return UNSURE if UNSURE in texts else SEPARATOR.join(texts)
    return next((_text(value[key], place) for key in VALUES if key in value), None)


def _text(value: Any, place: str) -> str:
    """Return a choice, a number or a text, alone or in a list, as a text."""
    if isinstance(value, list):
        return _only([_text(one, place) for one in value], place)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise LabelError(f"{place} has a {type(value).__name__} as its answer: give one choice or one number")
    return value if isinstance(value, str) else json.dumps(value)


def _only(texts: Sequence[str], place: str) -> str:
    if len(texts) > 1:
        first = " and ".join(formats.quoted(text) for text in texts[:2])
        raise LabelError(f"{place} has {len(texts)} answers, {first}: give one, as the config of the project requires")
    return texts[0] if texts else ""


LABEL_STUDIO = LabelFormat(
    _looks_like,
    _parse,
    _write,
    images=("links", "thumbnails", "copies"),
    copies="/data/local-files/?d={folder}/images/",
)
