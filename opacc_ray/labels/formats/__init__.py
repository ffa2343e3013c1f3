"""Registry of label formats: how tasks are written for each labelling tool, and how its labels are read.

**Manifests** are the tasks of a round as CSV or JSON Lines: one row per example, with an empty label to fill in. The
model's prediction is left out: annotators who see it tend to agree with it (anchoring), which makes the model look
better than it is. The design's strata and probabilities are left out for the same reason: they reveal how sure the
model is. The bytes depend on the rows alone: there is no time stamp.

**Labels** come back days later: in part, twice, by several people, edited in a spreadsheet. A file is recognised by its
content when it is imported, and the label log keeps its format.

**A new format** is a module and one line in `FORMATS`, or an entry point of an extension. Its module defines

``looks_like(head)`` : recognise a file by its first characters
``parse(file)`` : yield the labels of a ``LabelFile``
``write(tasks, context)`` : return the files of some tasks, by name
``IMAGES`` : the ways in which images can be given to it, the preferred one first
``PICTURES_ALONE`` : True if it shows no columns next to a picture
``COPIES`` : if not ``images/``, the prefix of a copied image in a task; {folder} is the name of the tasks' folder
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from opacc_ray.errors import DataError, LabelError
from opacc_ray.labels.label_rows import Context, FormatName, Label, LabelFile, Task
from opacc_ray.registry import Registry

FORMATS: Mapping[FormatName, Any] = Registry(
    "label_formats",
    {
        "csv": "opacc_ray.labels.formats.csv_file",  # the first: it accepts every text, and is tried last
        "jsonl": "opacc_ray.labels.formats.jsonl_file",
        "label-studio": "opacc_ray.labels.formats.label_studio",
    },
)

MANIFESTS: tuple[FormatName, ...] = ("jsonl", "csv")
"""Formats of the files that every round has."""

NOTES = {
    "changed": "the file changed after the model saw it: answer ? unless you know that it shows the same",
    "lost": "the file is gone since the model saw it: answer ? unless you know what it showed",
}
"""Notes for annotators about the file of an example."""


def parse(file: LabelFile, format: FormatName | None = None) -> Iterator[Label]:
    """Yield the labels of a file, one per row; unanswered rows are included so that they can be counted.

    ``format`` is recognised by the content if None. Raises LabelError if the file is not UTF-8, if a line cannot be
    understood, with the number of the line, or if no such format is installed.
    """
    form = format or format_of(file)
    if form not in FORMATS:
        raise LabelError(f"{file.name} has the format {form}, which belongs to a later version; update opacc_ray")
    return FORMATS[form].parse(file)


def format_of(file: LabelFile) -> FormatName:
    """Recognise the format of a file by its content."""
    head = file.head()
    return next(name for name in reversed(list(FORMATS)) if FORMATS[name].looks_like(head))


def link_to(uri: str, template: str | None, *, id: str, run: str, round: int) -> str | None:
    """Return the link to an example at ``uri`` for annotators, or None if there is none.

    {id}, quoted as a part of a URL, {uri}, {run} and {round} are filled into the template. Without one, the link is the
    URI, unless it is a path of this machine.
    """
    if template is None:
        return uri if "://" in uri and not uri.startswith("file:") else None
    fields = {"id": quote(id, safe="/", errors="replace"), "uri": uri, "run": quote(run), "round": str(round)}
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), template)


def write_manifest(format: FormatName, tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return the manifest of some tasks, by its file name: the same bytes for the same tasks in any order.

    An example that was drawn twice has one task. Raises DataError if two tasks have one id, or an id is not Unicode.
    """
    seen: set[str] = set()
    for task in tasks:
        if task.id in seen:
            raise DataError(f"id {task.id!r} is in two rows of the manifest: give one row per example")
        if any("\ud800" <= character <= "\udfff" for character in task.id):
            raise DataError(f"id {task.id!r} is not valid Unicode, so no file can hold it: rename the example")
        seen.add(task.id)
    ordered = sorted(tasks, key=lambda task: (task.round, task.order, task.id))
    return FORMATS[format].write(ordered, context)
