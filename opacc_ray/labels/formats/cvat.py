"""CVAT: images and label definitions for a task, and its export "CVAT for images 1.1" as it comes back.

CVAT does not keep our ids. Labels come back with the name of the image, which has the id: `label_rows.id_of_copy`. A
class is a tag of an image, a number the attribute `value` of the tag `value`, and "can't tell" a tag of that name. An
image without a tag is not answered yet. The export does not name the annotators.

The XML is read as it streams, by expat, without a document type: no entity is ever expanded.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any
from xml.parsers import expat

from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.label_rows import Context, Label, LabelFile, Task, id_of_copy, is_cant_tell, label_of, quoted

IMAGES = ("copies",)

PICTURES_ALONE = True

UNSURE, VALUE = "can't tell", "value"

CHUNK = 1 << 16


def write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``labels.json``, for the raw view of CVAT's label constructor; the images are copied next to it.

    Raises SpecError for what CVAT cannot show or ask: it has no task for texts and rows, and one tag for each picture.
    """
    if refusal := _refusal(context):
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


def _refusal(context: Context) -> str | None:
    """Return why people cannot give the labels in CVAT; None if they can."""
    if not context.has_pictures:
        return "CVAT has no task for texts and rows of a table, and this pool has no pictures"
    if context.task in ("multilabel", "counts"):
        what = "several classes" if context.task == "multilabel" else "several numbers"
        return f"a label of {what} is not read from CVAT"
    return None


def looks_like(head: str) -> bool:
    """Return whether a file is XML, by its first character."""
    return head.startswith("<")


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield one label for each image of an export."""
    reader = _Reader(file.name)
    for start in range(0, len(file.data), CHUNK):
        reader.feed(file.data[start : start + CHUNK])
        yield from reader.take()
    reader.feed(b"", is_last=True)
    yield from reader.take()
    if not reader.num_images:
        raise LabelError(f"{file.name} has no image: export the task from CVAT as CVAT for images 1.1")


class _Reader:
    """Handlers for expat that collect the tags of the current image."""

    def __init__(self, name: str) -> None:
        self.num_images = 0
        self._file = name
        self._labels: list[Label] = []
        self._image: str | None = None
        self._answers: list[str] = []
        self._is_value = False  # whether a tag with a number is open
        self._text: list[str] | None = None
        self._parser = expat.ParserCreate()
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters

    def feed(self, data: bytes, *, is_last: bool = False) -> None:
        try:
            self._parser.Parse(data, is_last)
        except expat.ExpatError as error:
            raise LabelError(f"{self._file} is not valid XML ({error}): export it again") from None

    def take(self) -> list[Label]:
        taken, self._labels = self._labels, []
        return taken

    def _place(self) -> str:
        return f"{self._file} line {self._parser.CurrentLineNumber}"

    def _refuse_doctype(self, *declared: Any) -> None:
        raise LabelError(f"{self._place()} declares a document type, which CVAT never does: export it again")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if element == "image":
            self.num_images += 1
            self._image, self._answers = attributes.get("name", ""), []
        elif element == "tag" and self._image is not None:
            if attributes.get("source") == "auto":
                what = f"has a tag of {quoted(self._image)} that a model gave: import answers of people"
                raise LabelError(f"{self._place()} {what}")
            self._answers.append(attributes.get("label", ""))
            self._is_value = attributes.get("label") == VALUE
        elif element == "attribute" and attributes.get("name") == VALUE and self._is_value:
            self._text = []

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, element: str) -> None:
        if element == "attribute" and self._text is not None:
            self._answers[-1], self._text = "".join(self._text), None
        elif element == "tag":
            self._is_value = False  # a box next to it may have an attribute of the same name
        elif element == "image" and self._image is not None:
            if len(self._answers) > 1:
                answers = " and ".join(quoted(text) for text in self._answers[:2])
                what = f"{quoted(self._image)} has {len(self._answers)} tags, {answers}"
                raise LabelError(f"{self._place()}: {what}: leave one")
            self._labels.append(
                label_of({"id": id_of_copy(self._image), "label": "".join(self._answers)}, self._place())
            )
            self._image = None
