"""Rows that all label formats share: tasks for annotators, and the labels that come back.

An empty label means that the row is not answered yet: status ``blank``. One of `UNSURE`, as the label or as the status,
means "can't tell": status ``unsure``, never a guess. (A class with such a name is answered by its index.)

A label has one canonical form, whatever tool wrote it: a class has the name or index that the run uses, a value the
shortest text of its number. If classes have names, a number is no label: some people count from 0, others from 1, and
files do not record which. :func:`name_by_number` reads numbers as indexes, for files that are known to count from 0.
"""

import difflib
import hashlib
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from opacc_ray.errors import DataError, LabelError, shown
from opacc_ray.lake.examples import LONGEST_ID
from opacc_ray.pool import SYNONYMS
from opacc_ray.spec import ModelSpec
from opacc_ray.spec.model_spec import NONE, SEPARATOR, plain_name
from opacc_ray.spec.table_spec import USUAL_NAMES

FormatName = str
"""Name of a format of label files: a key of `labels.formats.FORMATS`."""

Way = Literal["links", "copies", "thumbnails", "addresses"]
"""How images reach annotators: links that expire, copies next to the tasks, pictures inside them, or the plain URIs."""

RESERVED = frozenset({"id", "uri", "run", "round", "order", "label", "prediction", "note", "annotator", "status"})
"""Columns of manifests that a shown column must not be taken for."""

Status = Literal["labelled", "unsure", "blank"]

LONGEST = {"id": LONGEST_ID, "label": 1000, "annotator": 200, "status": 100, "run": 200, "round": 20, "labelled_at": 64}
"""Columns that are read from a file of labels, others are ignored; and the most characters of each."""

COLUMNS = tuple(LONGEST)

OURS = RESERVED.union(COLUMNS, USUAL_NAMES["prediction"], USUAL_NAMES["confidence"])
"""Columns that are not the label, whatever their number."""

LONGEST_NAME, RENDERED = 240, "~.png"
"""Characters of a file name that every file system accepts, and the suffix of a rendered picture."""

LONGEST_LINE = 1 << 20  # most characters of a line: a longer one is no row of a table
HEAD = 1 << 16  # bytes from which the format of a file is recognised

WHOLE = re.compile(r"(\d{1,18})(\.0*)?", re.ASCII)
UNSURE = frozenset({"?", "unsure", "can't tell", "cannot tell", "skipped"})
EMPTY_LIKE = frozenset({"n/a", "na", "nan", "none", "null", "nil", "-", "unknown"})
ANSWERED = frozenset({"", "labelled", "labeled", "done", "completed"})

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # unambiguous: linear time

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
"""Numbers whose comma may be a decimal point or a thousands separator."""

COUNTED = (
    "or declare that numbers count the classes from 0: opacc labels import --numbers-are-classes, "
    "numbers_are_classes=True in Python, or labels.numbers_are_classes: true in the spec"
)
"""Remedy for numbers where classes have names."""

LONGEST_GUESS = 100  # most characters of a label that is compared with the class names


@dataclass(frozen=True)
class Task:
    """One example to label."""

    id: str  # of the example in the pool; labels come back with it
    uri: str | None  # what shows it: a link, the place of a copy, or a picture as a data URI; None: nothing
    run: str  # name of the run that chose it
    round: int  # of that run, from 1
    order: int  # position in the order of choice, from 1
    note: str | None = None  # what the annotator must know about this example, such as that its file changed
    shown: Mapping[str, str] = field(default_factory=dict)  # column -> text, of the row of the example


@dataclass(frozen=True)
class Context:
    """What a format needs to know about the run."""

    classes: tuple[str, ...] | None = None  # class names by index, or grades; None if they are unknown, or numbers
    task: Literal["classification", "multilabel", "regression", "grade", "counts"] = "classification"
    counts: tuple[str, ...] = ()  # names of counts, of which labels then consist
    has_pictures: bool = True  # whether examples are pictures
    columns: tuple[str, ...] = ()  # of rows, in the order in which they are shown
    long: frozenset[str] = frozenset()  # of these, the ones that are shown as paragraphs
    question: str = ""  # what annotators are asked

    @property
    def reads_numbers(self) -> bool:
        """Whether labels are numbers: values, or scores from 0 to 1."""
        return self.task == "regression" or (self.task == "grade" and self.classes is None)


class Label(NamedTuple):
    """One answer of one annotator to one example."""

    id: str
    label: str | None  # None unless the status is labelled
    status: Status = "labelled"
    annotator: str | None = None
    run: str | None = None
    round: int | None = None
    labelled_at: str | None = None
    place: str = ""  # file and line, such as batch.csv line 7
    returned: int = 0  # number of the file, in the order in which files came back
    correction: int = 0  # 0, or the number of the correction: each outranks every earlier answer
    lines: int = 1  # number of lines with the same answer
    from_run: bool = False  # whether it was taken from another run, whose design chose the example


class LabelFile(NamedTuple):
    """A file of labels: its content, and its name for messages."""

    name: str
    data: bytes
    counts: tuple[str, ...] = ()  # columns that are its labels; without them these are in the column label
    id_column: str | None = None  # name that the run's table has for its ids, next to id

    def own_names(self, names: Sequence[str]) -> list[str]:
        """Return the names of columns with ours for those of the run's table: of ids, and of the only other column.

        A column that usually has the model's answers is not taken for the label.
        """
        name_of_ids = None if "id" in names else (self.id_column or "").lower()
        columns = ["id" if name.lower() == name_of_ids else name for name in names]
        others = [name for name in columns if name not in OURS]
        if columns == list(names) or self.counts or "label" in columns or len(others) != 1:
            return columns
        return ["label" if name == others[0] else name for name in columns]

    def lines(self, newline: str = "") -> Iterator[str]:
        """Yield the lines with their ends, one in memory at a time; they end at any line end, or at ``newline`` alone.

        Raises LabelError if a line is too long or not UTF-8, with its number.
        """
        text = io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline=newline)
        try:
            for number, line in enumerate(iter(partial(text.readline, LONGEST_LINE + 1), ""), start=1):
                if len(line) > LONGEST_LINE:
                    raise LabelError(
                        f"{self.name} line {number} is longer than {LONGEST_LINE} characters: write one label per line"
                    )
                yield line
        except UnicodeDecodeError:
            place = f"{self.name} line {self._first_undecodable()}"
            raise LabelError(f"{place} is not UTF-8: save it as text in UTF-8 (in Excel: CSV UTF-8)") from None

    def json_lines(self, remedy: str) -> Iterator[tuple[str, Any]]:
        """Yield the place and the value of each line of JSON; raises LabelError with a ``remedy`` if one is none."""
        for number, line in enumerate(self.lines("\n"), start=1):  # other ends of lines may be inside a string
            if not line.isspace():
                place = f"{self.name} line {number}"
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    raise LabelError(f"{place} is not valid JSON: {remedy}") from None
                yield place, value

    def head(self) -> str:
        """Return the first characters, without leading white space; bytes that are not UTF-8 are replaced."""
        return self.data[:HEAD].decode("utf-8-sig", errors="replace").lstrip()

    def json(self) -> Any:
        """Return the whole file as one JSON value; raises LabelError if it is none."""
        try:
            return json.loads(self.data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            raise LabelError(f"{self.name} is not UTF-8: export it again") from None
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise LabelError(f"{self.name} is not valid JSON ({reason}): export it again") from None

    def _first_undecodable(self) -> int:
        try:
            self.data.decode()
        except UnicodeDecodeError as error:
            return self.data.count(b"\n", 0, error.start) + 1
        return 1


def text_of_counts(cells: Mapping[str, str], place: str) -> str:
    """Return counts as the text of a label, empty if all are; raises LabelError if only some of them are there."""
    texts = {name: text.strip() for name, text in cells.items()}
    empty = [name for name, text in texts.items() if not text]
    if not empty or len(empty) == len(texts):
        return "" if empty else " ".join(f"{name}={text}" for name, text in texts.items())
    raise LabelError(f"{place} has no {empty[0]}: fill in {', '.join(texts)}, or leave all of them empty")


def few(texts: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    """Join the first texts for a message, and add how many more there are."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def quoted(text: str, most: int = 60) -> str:
    """Return a text in quotes, with escapes for unprintable characters; a long one is cut."""
    if len(text) <= most:
        return repr(text)
    return f"{text[: most - 10]!r}… ({len(text)} characters)"


def checked_annotator(name: object) -> str:
    """Return an annotator's name without spaces around it; raises LabelError if it is empty, long or unprintable."""
    text = name.strip() if isinstance(name, str) else ""
    if not text or len(text) > LONGEST["annotator"] or not text.isprintable():
        raise LabelError(f"annotator {shown(name)}: give a name of 1 to {LONGEST['annotator']} letters")
    return text


def label_of(fields: Mapping[str, str], place: str) -> Label:
    """Build a label from the texts of its columns; the id is kept as it is, the others are trimmed."""
    text = {}
    for column, found in fields.items():
        if len(found) > LONGEST[column]:
            what = f"{len(found)} characters in the column {column}, where at most {LONGEST[column]} are allowed"
            raise LabelError(f"{place} has {what}: {quoted(found, 40)}")
        text[column] = found.strip()
    id = fields.get("id")
    if not id:
        raise LabelError(f"{place} has no id: labels are joined by id, so give each row the id of its example")
    label, round = text.get("label", ""), text.get("round", "")
    status = _status(label, text.get("status", ""), place)
    if round and whole_number(round) is None:
        raise LabelError(f"{place} has the round {quoted(round)}: use a whole number, or leave it empty")
    return Label(
        id,
        label if status == "labelled" else None,
        status,
        text.get("annotator") or None,
        text.get("run") or None,
        whole_number(round),
        text.get("labelled_at") or None,
        place,
    )


def _status(label: str, status: str, place: str) -> Status:
    if is_cant_tell(label) or is_cant_tell(status):
        return "unsure"
    if status and plain_words(status) not in ANSWERED:
        raise LabelError(f"{place} has the status {quoted(status)}: use labelled or unsure, or leave it empty")
    if status and not label:
        raise LabelError(f"{place} has the status {quoted(status)} but no label: fill it in, or clear the status")
    return "labelled" if label else "blank"


def is_cant_tell(text: str) -> bool:
    """Return whether a text, as a label or a status, means "can't tell"."""
    return bool(text) and len(text) <= 40 and _is_unsure(text)


@lru_cache(1000)  # the same few answers stand in millions of rows
def _is_unsure(text: str) -> bool:
    return plain_words(text) in UNSURE


def plain_words(text: str) -> str:
    """Return a text in lower case, with single spaces."""
    return " ".join(text.replace("’", "'").lower().split())


def whole_number(text: str) -> int | None:
    """Parse "7", and "7.0", which some tools write for a column of numbers with gaps; None for other texts."""
    match = WHOLE.fullmatch(text) if text else None
    return int(match[1]) if match else None


def name_of_copy(id: str, *, is_made: bool = False) -> str:
    """Return the file name of a copied image, from which tools that keep no ids give the id back.

    ASCII letters, digits, '-', '_' and '.' are kept; every other byte of the id in UTF-8, and a dot in front, becomes
    '~' and two hexadecimal digits. A picture that was rendered, not copied, then ends in '~.png'. So no id leads out of
    a folder, and no name needs quotes in a URL. Raises DataError if the id is too long for a file name.
    """
    text = quote(id, safe="").replace("~", "%7E").replace("%", "~")
    name = (f"~2E{text[1:]}" if text.startswith(".") else text) + RENDERED * is_made
    if len(name) > LONGEST_NAME:
        raise DataError(f"the id {quoted(id)} is too long for a file name; send links or thumbnails instead")
    return name


def id_of_copy(name: str) -> str:
    """Return the id that :func:`name_of_copy` encoded; any other name is its own id. Folders are left out."""
    text = PurePosixPath(name.replace("\\", "/")).name.removesuffix(RENDERED)
    plain = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return text


def class_of(label_text: str, classes: Sequence[str] | None, num_classes: int | None = None, *, id: str) -> int:
    """Return the index of the class that a label names.

    Only two kinds of class are named by their index: classes without names (`classes` None), below `num_classes` if
    that is known; and a class whose name means "can't tell". Raises LabelError if the label is no class.
    """
    index = find_class(label_text, classes)
    if index is None:
        advice = f"; {COUNTED}" if name_by_number(label_text, classes) != label_text else ""
        why = why_no_class(label_text, classes)
        raise LabelError(f"example {quoted(id)} has the label {quoted(label_text)}, {why}{advice}")
    if num_classes is not None and index >= num_classes:
        raise LabelError(
            f"example {quoted(id)} has the label {quoted(label_text)}, which is none of the {num_classes} classes: "
            f"use a whole number from 0 to {num_classes - 1}"
        )
    return index


def value_of(label_text: str, *, id: str) -> float:
    """Return the number in a label of a regression; raises LabelError if it is none."""
    value = number_in(label_text)
    if value is None:
        raise LabelError(f"example {quoted(id)} has the label {quoted(label_text)}: write a number such as 12.5")
    return value


def number_in(text: str) -> float | None:
    """Return the number that a text is, also with a decimal comma such as 2,75; None for 1,250, which may be 1250."""
    plain = text if THOUSANDS.fullmatch(text) else text.replace(",", ".", 1)
    return float(plain) if NUMBER.fullmatch(plain) else None


def canonical_number(value: float) -> str:
    """Return the shortest text of a number, which :func:`value_of` parses: the same for 7, 7.0 and 70e-1."""
    if math.isinf(value):  # such as 1e400
        return "1e999" if value > 0 else "-1e999"
    return repr(value + 0.0).removesuffix(".0")  # + 0.0: no -0


def find_class(text: str, classes: Sequence[str] | None) -> int | None:
    """Return the index of the class that a text names, as :func:`class_of` does, or None."""
    number = whole_number(text)
    if classes is None:
        return number
    for name in [text] if number is None else [text, str(number)]:
        if name in classes:
            return classes.index(name)
    plain = [plain_name(name) for name in classes]
    if plain_name(text) in plain:
        return plain.index(plain_name(text))
    alike = [i for i, name in enumerate(plain) if name.casefold() == plain_name(text).casefold()]
    if len(alike) == 1 and plain_name(text).casefold() in ("true", "false"):  # Excel writes TRUE for True
        return alike[0]
    name = name_by_number(text, classes)
    return classes.index(name) if is_cant_tell(name) and name != text else None


def name_by_number(text: str, classes: Sequence[str] | None) -> str:
    """Return the name of the class whose index a text is, counted from 0; other texts are returned unchanged.

    If the name of a class is a whole number, whole numbers are names, so that "1" never means two classes.
    """
    number = whole_number(text)
    if classes is None or number is None or number >= len(classes) or have_numbers_for_names(tuple(classes)):
        return text
    return classes[number]


@lru_cache(maxsize=8)
def have_numbers_for_names(classes: tuple[str, ...]) -> bool:
    """Return whether the name of a class is a whole number."""
    return any(whole_number(plain_name(name)) is not None for name in classes)


def why_no_class(text: str, classes: Sequence[str] | None) -> str:
    """Explain why a text is no class, with the most similar name."""
    if classes is None:
        return "but the run has no class names: give the index of the class, a whole number from 0"
    if name_by_number(text, classes) != text:
        return f"which is a number, and the classes have names: use one of {_few_names(classes)}"
    by_lower = {name.lower(): name for name in classes}
    near = difflib.get_close_matches(text.lower(), by_lower, n=1) if len(text) <= LONGEST_GUESS else []
    guess = f" (did you mean {by_lower[near[0]]!r}?)" if near else ""
    unsure = ", or ? for can't tell" if plain_words(text[:LONGEST_GUESS]) in EMPTY_LIKE else ""
    return f"which is none of the {len(classes)} classes{guess}: use one of {_few_names(classes)}{unsure}"


def _few_names(classes: Sequence[str]) -> str:
    return few([quoted(name) if len(name) > 60 else name for name in classes], most=20)


def grade_of(label_text: str, model: ModelSpec, *, id: str) -> str:
    """Return the grade that a label names, or its score in canonical form.

    Besides its name, a grade is named by `SYNONYMS`, and by its outcome: 1, 0.5. Of a preference, A and B are the
    answers in the order in which they were shown (:func:`is_swapped`). Raises LabelError if the label is no grade.
    """
    outcomes, place = model.outcomes, f"example {quoted(id)} has the label {quoted(label_text)}"
    if outcomes is None:
        value = number_in(label_text)
        if value is None or not 0 <= value <= 1:
            raise LabelError(f"{place}: write a score from 0 to 1, such as 0.8")
        return canonical_number(value)
    text = plain_words(label_text)
    if model.prefers and text in ("a", "b"):
        return "first" if (text == "a") != is_swapped(id) else "second"
    names = {plain_words(name): name for name in outcomes}
    are_numbers = any(whole_number(name) is not None for name in names)
    number = float(text) if NUMBER.fullmatch(text) and not are_numbers and not model.prefers else None
    by_outcome = [name for name, outcome in outcomes.items() if outcome == number]
    grade = names.get(text) or names.get(SYNONYMS.get(text, "")) or names.get(str(whole_number(text)))
    if grade is None and len(by_outcome) == 1:
        grade = by_outcome[0]
    if grade is None:
        shown = ["A", "B", "tie"] if model.prefers else list(outcomes)
        raise LabelError(f"{place}, which is none of the grades: use {', '.join(map(quoted, shown))}")
    return grade


def set_of(label_text: str, model: ModelSpec, *, id: str) -> str:
    """Return the canonical form of a label of several classes; raises LabelError if one is none of the classes."""
    try:
        return model.set_name(model.classes_in(label_text))
    except ValueError as error:
        why = why_no_class(str(error), model.classes)
        raise LabelError(
            f"example {quoted(id)} has the label {quoted(label_text)} with {quoted(str(error))}, {why}, "
            f"with {SEPARATOR!r} between them, or {NONE!r}"
        ) from None


def counts_of(label_text: str, names: Sequence[str], *, id: str) -> str:
    """Return the canonical form of counts, ``tp=5 fp=0 fn=2``, or the numbers alone in their order, ``5 0 2``.

    Raises LabelError if one is missing or no count.
    """
    pairs = [part.partition("=") for part in re.split(r"[\s,;]+", label_text.strip())]
    if len(pairs) == len(names) and not any(is_named for _, is_named, _ in pairs):
        pairs = [(name, "=", text) for name, (text, _, _) in zip(names, pairs, strict=True)]
    counts, place = {name: text for name, _, text in pairs}, f"example {quoted(id)} has the label {quoted(label_text)}"
    form = " ".join(f"{name}=0" for name in names)
    if len(counts) < len(pairs) or counts.keys() != set(names):
        raise LabelError(f"{place}: write each count once, as in {form}, or {len(names)} numbers in that order")
    unfit = next((name for name, text in counts.items() if not NUMBER.fullmatch(text) or float(text) < 0), None)
    if unfit is not None:
        raise LabelError(f"{place}, where {unfit} is no count: write numbers of at least 0, as in {form}")
    return " ".join(f"{name}={canonical_number(float(counts[name]))}" for name in names)


def numbers_in(canonical: str) -> dict[str, float]:
    """Return the counts by name that a label in canonical form has."""
    pairs = (part.partition("=") for part in canonical.split())
    return {name: float(text) for name, _, text in pairs}


def is_swapped(id: str) -> bool:
    """Return whether the two answers to an example are shown in reverse order: for half of all ids, by their digest.

    So neither annotators nor a preference for what stands first favour one model.
    """
    return hashlib.sha256(f"preference\0{id}".encode()).digest()[0] % 2 == 1


def as_shown(label: str | None, model: ModelSpec, id: str) -> str | None:
    """Return a canonical label as annotators know it: of a preference, A or B."""
    if not model.prefers or label not in ("first", "second"):
        return label
    return "A" if (label == "first") != is_swapped(id) else "B"
