"""Labels in ARFF files, with the attributes id and label; ``?`` is not answered yet."""

import csv
import io
from collections.abc import Iterator, Sequence

from opacc_example.arff import parse as parse_arff
from opacc_ray.errors import LabelError
from opacc_ray.labels.formats import Context, Label, LabelFile, LabelFormat, Task, label_of


def _looks_like(head: str) -> bool:
    """Return whether a file starts as an ARFF file."""
    return head.lower().startswith("@relation")


def _parse(file: LabelFile) -> Iterator[Label]:
    """Yield the label of each row."""
    table = parse_arff(file.data, file.name, as_text=True)
    if not {"id", "label"} <= set(table.column_names):
        names = ", ".join(table.column_names)
        raise LabelError(f"{file.name} has the attributes {names}: give it id and label")
    for number, row in enumerate(table.select(["id", "label"]).to_pylist(), start=1):
        fields = {name: text or "" for name, text in row.items()}
        yield label_of(fields, f"{file.name} row {number}")


def _write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``tasks.arff``, whose labels are to be filled in."""
    text = io.StringIO("@relation tasks\n@attribute id string\n@attribute uri string\n@attribute label string\n@data\n")
    text.seek(0, io.SEEK_END)
    csv.writer(text, lineterminator="\n").writerows([task.id, task.uri or "?", "?"] for task in tasks)
    return {"tasks.arff": text.getvalue().encode()}


ARFF = LabelFormat(_looks_like, _parse, _write, images=("addresses",))
