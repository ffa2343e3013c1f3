"""CVAT: images and label definitions for a task, and its export "CVAT for images 1.1" as it comes back.

CVAT does not keep our ids. Labels come back with the name of the image: see `ids_of_names`. A class is a tag of an
image, a number the attribute `value` of the tag `value`, and "can't tell" a tag of that name. An image without a tag
is not answered yet. The export does not name the annotators.

The XML is read as it streams, without a document type: no entity is ever expanded.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.label_rows import Context, Label, LabelFile, Task, is_cant_tell, label_of, quoted

IMAGES = ("copies",)

PICTURES_ALONE = True

UNSURE, VALUE = "can't tell", "value"

CHUNK = 1 << 16


def write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``labels.json``, for the raw view of CVAT's label constructor; the images are copied next to it.

    Raises SpecError for what CVAT cannot show or ask: it has no task for texts and rows, and one tag for each picture.
    """
    refusal = None
    if not context.has_pictures:
        refusal = "CVAT has no task for texts and rows of a table, and this pool has no pictures"
    elif context.task in ("multilabel", "counts"):
        what = "several classes" if context.task == "multilabel" else "several numbers"
        refusal = f"a label of {what} is not read from CVAT"
    if refusal:
        raise SpecError(f"{refusal}: use --to label-studio or --to csv, or `opacc label`")
    if context.reads_numbers:
        number: dict[str, Any] = {"name": VALUE, "mutable": False, "input_type": "text", "values": [""]}
        labels = [{"name": VALUE, "type": "tag", "attributes": [number]}]
    else:
        # a class called "unsure" is answered by its index, which is unambiguous
        names = [str(i) if is_cant_tell(name) else name for i, name in enumerate(context.classes or ())]
        labels = [{"name": name, "type": "tag", "attributes": []} for name in names]
    labels.append({"name": UNSURE, "type": "tag", "attributes": []})
    return {"labels.json": json.dumps(labels, ensure_ascii=False, indent=1).encode() + b"\n"}


def looks_like(head: str) -> bool:
    """Return whether a file is XML, by its first character."""
    return head.startswith("<")


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield one label for each image of an export."""
    images = _Images(file.name)
    parser = ElementTree.XMLParser(target=images)
    try:
        for start in range(0, len(file.data), CHUNK):
            parser.feed(file.data[start : start + CHUNK])
            yield from images.take()
        parser.close()
    except ElementTree.ParseError as error:
        raise LabelError(f"{file.name} is not valid XML ({error}): export it again") from None
    yield from images.take()
    if not images.num:
        raise LabelError(f"{file.name} has no image: export the task from CVAT as CVAT for images 1.1")


class _Images(ElementTree.TreeBuilder):
    """Reads the label of each image once it ends, and drops what is in it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.num = 0  # images so far
        self._file = file
        self._labels: list[Label] = []

    def take(self) -> list[Label]:
        """Return the labels that were read since the last call."""
        taken, self._labels = self._labels, []
        return taken

    def doctype(self, *declared: Any) -> None:
        """Refuse a document type, which may define entities."""
        raise LabelError(f"{self._file} declares a document type, which CVAT never does: export it again")

    def end(self, tag: str) -> ElementTree.Element:
        """Close an element."""
        element = super().end(tag)
        if tag == "image":
            self.num += 1
            self._labels.append(_label_of_image(element, f"{self._file} image {self.num}"))
            element.clear()
        return element


def _label_of_image(image: ElementTree.Element, place: str) -> Label:
    id, tags = image.get("name", ""), image.findall("tag")
    if any(tag.get("source") == "auto" for tag in tags):
        raise LabelError(f"{place} has a tag of {quoted(id)} that a model gave: import answers of people")
    labels = [tag.get("label", "") for tag in tags]
    answers = [
        tag.findtext(f"attribute[@name='{VALUE}']", label) if label == VALUE else label
        for tag, label in zip(tags, labels, strict=True)
    ]
    if len(answers) > 1:
        several = " and ".join(quoted(text) for text in answers[:2])
        raise LabelError(f"{place}: {quoted(id)} has {len(answers)} tags, {several}: leave one")
    return label_of({"id": id, "label": "".join(answers)}, place)
