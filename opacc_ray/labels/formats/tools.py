"""Labelling tools: what each is given to label. A new tool is a file of its own and one line in `TOOLS`.

What comes back is recognised by its content: see :mod:`.parsing`.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from opacc_ray.labels.formats import csv_file, cvat, ground_truth, jsonl_file, label_studio
from opacc_ray.labels.rows import Context, ManifestRow, Task

Way = Literal["links", "copies", "thumbnails", "addresses"]
"""How images reach annotators: links that expire, copies beside the tasks, pictures inside them, or the plain URIs."""


class Tool(NamedTuple):
    """A labelling tool.

    `write` returns the files of its tasks by name, `images` are the ways in which it can be given images, and `copies`
    is what stands before the name of a copied image, where ``{folder}`` is the folder of the tasks.
    """

    write: Callable[[Sequence[Task], Context], dict[str, bytes]]
    images: tuple[Way, ...]
    copies: str = "images/"


def _write_csv(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    return {"manifest.csv": csv_file.encode(_rows(tasks), context)}


def _write_jsonl(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    return {"manifest.jsonl": jsonl_file.encode(_rows(tasks), context)}


def _rows(tasks: Sequence[Task]) -> list[ManifestRow]:
    return [ManifestRow(task.id, task.image or None, task.run, task.round, task.order) for task in tasks]


TOOLS: dict[str, Tool] = {
    "label-studio": Tool(
        label_studio.write, ("links", "thumbnails", "copies"), copies="/data/local-files/?d={folder}/images/"
    ),
    "cvat": Tool(cvat.write, ("copies",)),
    "ground-truth": Tool(ground_truth.write, ("addresses",)),
    "csv": Tool(_write_csv, ("addresses", "links", "copies")),
    "jsonl": Tool(_write_jsonl, ("addresses", "links", "copies", "thumbnails")),
}
