"""Files of labels: tasks for annotators, and the labels that come back days later, in the format of some tool.

An empty label means that the row is not answered yet: status ``blank``. One of `UNSURE`, as the label or as the status,
means "can't tell": status ``unsure``, never a guess. (A class with such a name is answered by its index.)

**Manifests** are the tasks of a round as CSV or JSON Lines: one row per example, with an empty label to fill in. The
model's prediction is left out: annotators who see it tend to agree with it (anchoring), which makes the model look
better than it is. The design's strata and probabilities are left out for the same reason: they reveal how sure the
model is. The bytes depend on the rows alone: there is no time stamp.

**A format** is a :class:`LabelFormat`, and one line in `FORMATS`, or an entry point of an extension. A file is
recognised by its content when it is imported, and the label log keeps its format.

**CSV** is for spreadsheets. A text cell that one would run as a formula, `=cmd|...`, gets an apostrophe in front. So
does a cell with only apostrophes before such a start: otherwise its own first one would be taken for ours.
`from_spreadsheet` removes one apostrophe from exactly those cells, so every id comes back unchanged. All text is
quoted: an id such as `a;=cmd|...` stays in one cell where the local list separator is a semicolon. Files come back
with the separator of the country: a comma, a semicolon or a tab.

**JSON Lines** have one object per line; the same objects may come in one JSON array.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple
from unicodedata import normalize
from urllib.parse import quote

from opacc_ray.errors import DataError, LabelError, shown
from opacc_ray.lake.examples import LONGEST_ID
from opacc_ray.registry import Registry
from opacc_ray.spec.table_spec import USUAL_NAMES

Way = Literal["links", "copies", "thumbnails", "addresses"]
"""How images reach annotators: links that expire, copies next to the tasks, pictures inside them, or the plain URIs."""

RESERVED = frozenset({"id", "uri", "run", "round", "order", "label", "prediction", "note", "annotator", "status"})
"""Columns of manifests that a shown column must not be taken for."""

Status = Literal["labelled", "unsure", "blank"]

LONGEST = {"id": LONGEST_ID, "label": 1000, "annotator": 200, "status": 100, "run": 200, "labelled_at": 64}
"""Columns that are read from a file of labels, others are ignored; and the most characters of each."""

COLUMNS = tuple(LONGEST)

OURS = RESERVED.union(COLUMNS, USUAL_NAMES["prediction"], USUAL_NAMES["confidence"])
"""Columns that are not the label, whatever their number."""

LONGEST_NAME, RENDERED = 240, "~.png"
"""Characters of a file name that every file system accepts, and the suffix of a rendered picture."""

HEAD = 1 << 16  # bytes from which the format of a file is recognised

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)  # unambiguous: linear time
WHOLE = re.compile(r"(\d{1,18})(\.0*)?", re.ASCII)
SEPARATOR_LINE = re.compile(r"sep=[,;\t]?", re.IGNORECASE)  # for Excel; the separator is gone if it is the file's
UNSURE = frozenset({"?", "unsure", "can't tell", "cannot tell", "skipped"})
ANSWERED = frozenset({"", "labelled", "labeled", "done", "completed"})


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

        Raises LabelError if a line is not UTF-8, with its number.
        """
        text = io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline=newline)
        try:
            yield from text
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
    label = text.get("label", "")
    status = _status(label, text.get("status", ""), place)
    return Label(
        id,
        label if status == "labelled" else None,
        status,
        text.get("annotator") or None,
        text.get("run") or None,
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


# -- what tools change -------------------------------------------------------------------------------------------------

_MONTH = (
    "(?i:jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?|"
    "dec(ember)?)"
)

MISSING = re.compile(r"NA|N/A|n/a|<NA>|#NA|#N/A|#N/A N/A|NULL|null|None|-?(NaN|nan|1\.#IND|1\.#QNAN)")
"""Names that pandas reads as a missing value. R reads no further ones so."""

DATE = re.compile(
    r"\d{1,2}[-/]\d{1,2}([-/]\d{2,4})?|\d{4}[-/]\d{1,2}([-/]\d{1,2})?|\d+:\d\d?(:\d\d?)?|"
    rf"{_MONTH}[ ./-]?\d{{1,4}}|\d{{1,4}}[ ./-]?{_MONTH}([ ./-]?\d{{2,4}})?",
    re.ASCII,
)
"""Names that Excel makes dates of."""

AS_NUMBER = re.compile(rf"(?!-?(0|[1-9]\d*)(\.\d*[1-9])?$){NUMBER.pattern}|-?(\d\.?){{16,}}", re.ASCII)
"""Names that Excel writes as another number: it keeps 15 digits."""


def emptied(classes: Iterable[str]) -> str | None:
    """Return the classes whose labels a file loses in pandas, with the reason; None if there are none."""
    names = [quoted(name) for name in classes if MISSING.fullmatch(name.strip())]
    several = "each of which" if len(names) > 1 else "which"
    return f"{few(names)}, {several} pandas.read_csv reads as a missing value" if names else None


def warnings_about(classes: Iterable[str]) -> list[str]:
    """Return warnings about classes whose labels come back otherwise from a table in another tool."""
    names = list(classes)
    lost, texts = emptied(names), list[str]()
    if lost:
        texts.append(
            f"a file of labels that passes through pandas loses those of the class {lost}; read it with "
            "keep_default_na=False, or rename the class"
        )
    for kind, pattern in (("a date", DATE), ("a number", AS_NUMBER)):
        if made := [quoted(name) for name in names if pattern.fullmatch(name.strip())]:
            texts.append(
                f"Excel makes {kind} of the class {few(made)}; format the column label as text before you fill it in, "
                "or rename the class"
            )
    return texts


def rewritten(unknown: Sequence[str], selected: Sequence[str]) -> str | None:
    """Return what to do about ids that a program wrote in another form than the manifest; None if none did."""
    numbers = {form for id in selected for form in (id, id.lstrip("0"), *_rounded(id))}
    if any(re.sub(r"\.0+$", "", id) in numbers or re.fullmatch(r"\d(\.\d+)?[eE]\+\d+", id) for id in unknown):
        return "a spreadsheet or a script rewrote ids as numbers, so read the manifest with its id column as text"
    forms = {re.sub(r"\d+", "0", id) for id in selected if DATE.fullmatch(id)}
    if forms and any(DATE.fullmatch(id) and re.sub(r"\d+", "0", id) not in forms for id in unknown):
        return "a spreadsheet rewrote ids as dates, so format its id column as text before you open the manifest"
    if {normalize("NFC", id) for id in unknown} & {normalize("NFC", id) for id in selected}:
        return "their accents are encoded differently (Unicode NFD, as on macOS), so take ids from the manifest"
    if {id.casefold() for id in unknown} & {id.casefold() for id in selected}:
        return "they differ from ids of the manifest in upper and lower case alone, so take ids from the manifest"
    return None


def _rounded(id: str) -> set[str]:
    """Return how programs write an id that was a double of 15 digits: exactly, in the fewest digits, and in 15."""
    if len(id) <= 15 or not id.isdecimal():
        return set()
    value = float(id)
    exact = (int(value), int(Decimal(repr(value))), int(Decimal(f"{value:.14e}")))
    return {*map(str, exact), id[:15].ljust(len(id), "0")} - {id}


# -- the formats -----------------------------------------------------------------------------------------------------


class LabelFormat(NamedTuple):
    """How tasks are written for a labelling tool, and how its labels are read."""

    looks_like: Callable[[str], bool]  # recognises a file by its first characters
    parse: Callable[[LabelFile], Iterator[Label]]
    write: Callable[[Sequence[Task], Context], dict[str, bytes]]  # the files of some tasks, by name
    images: tuple[Way, ...]  # the ways in which images can be given to it, the preferred one first
    pictures_alone: bool = False  # whether it shows no columns next to a picture
    copies: str = "images/"  # prefix of a copied image in a task; {folder} is the name of the tasks' folder


FORMATS: Mapping[str, LabelFormat] = Registry(
    "label_formats",
    {
        "csv": "opacc_ray.labels.formats:CSV",  # the first: it accepts every text, and is tried last
        "jsonl": "opacc_ray.labels.formats:JSON_LINES",
        "label-studio": "opacc_ray.labels.label_studio:LABEL_STUDIO",
    },
)


NOTES = {
    "changed": "the file changed after the model saw it: answer ? unless you know that it shows the same",
    "lost": "the file is gone since the model saw it: answer ? unless you know what it showed",
}
"""Notes for annotators about the file of an example."""


def parse(file: LabelFile, format: str | None = None) -> Iterator[Label]:
    """Yield the labels of a file, one per row; unanswered rows are included so that they can be counted.

    ``format`` is recognised by the content if None. Raises LabelError if the file is not UTF-8, if a line cannot be
    understood, with the number of the line, or if no such format is installed.
    """
    form = format or format_of(file)
    if form not in FORMATS:
        raise LabelError(f"{file.name} has the format {form}, which belongs to a later version; update opacc_ray")
    return FORMATS[form].parse(file)


def format_of(file: LabelFile) -> str:
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


# -- CSV -------------------------------------------------------------------------------------------------------------

LONGEST_CELL = 32_000  # characters of a shown text; Excel holds 32,767

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # East Asian locales read the wide ones as formulas


def _write_csv(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``manifest.csv``, without a byte-order mark, which `csv.DictReader` takes into the name `id`."""
    note = ["note"] if any(task.note is not None for task in tasks) else []
    shown = list(dict.fromkeys(name for task in tasks for name in task.shown))
    ours, answer = RESERVED.union(COLUMNS, context.counts), context.counts or ("label",)
    titles = [spreadsheet_safe(f"shown: {name}" if name.strip().lower() in ours else name) for name in shown]
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["id", "uri", "run", "round", "order", *answer, *note, *titles])
    for task in tasks:
        texts = [task.id, task.uri, task.run, *[task.note] * len(note), *(_cut(task.shown.get(it, "")) for it in shown)]
        id, uri, run, *others = ("" if cell is None else spreadsheet_safe(cell) for cell in texts)
        writer.writerow([id, uri, run, task.round, task.order, *[""] * len(answer), *others])
    return {"manifest.csv": text.getvalue().encode()}


def _cut(text: str) -> str:
    """Return a text that fits a cell of Excel, with a note if it was longer."""
    return text if len(text) <= LONGEST_CELL else f"{text[:LONGEST_CELL]}… ({len(text)} characters, cut here)"


def spreadsheet_safe(text: str) -> str:
    """Return the text as a cell that no spreadsheet runs as a formula; `from_spreadsheet` undoes it."""
    return "'" + text if text.lstrip("'").startswith(FORMULA_STARTS) else text


def from_spreadsheet(cell: str) -> str:
    """Return the text from which `spreadsheet_safe` made this cell; other cells are returned unchanged."""
    guarded = cell[:1] == "'" and cell.lstrip("'").startswith(FORMULA_STARTS)
    return cell[1:] if guarded else cell


def _parse_csv(file: LabelFile) -> Iterator[Label]:
    """Yield the labels below a header with the columns id and label, or id and all counts."""
    header, rows = _read_table(file)
    counts = [name for name in file.counts if name in header]
    twice = [column for column in (*COLUMNS, *counts) if header.count(column) > 1]
    if twice:
        raise LabelError(f"{file.name} has two columns {twice[0]!r} in its header: keep one of them")
    columns = [(column, header.index(column)) for column in (*COLUMNS, *counts) if column in header]
    for number, cells in rows:
        place = f"{file.name} line {number}"
        if len(cells) > len(header) and any(map(str.strip, cells[len(header) :])):
            num = f"{len(cells)} cells, but the header has {len(header)}"
            raise LabelError(f"{place} has {num}: put quotes around a text that contains the separator")
        fields = {name: from_spreadsheet(cells[i]) for name, i in columns if i < len(cells)}
        yield label_of(_with_counts(fields, counts, place), place)


class CsvError(LabelError):
    """A file is not CSV with this delimiter."""


def _read_table(file: LabelFile) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header in lower case, and the rows below that are not blank, each with the number of its first line.

    The delimiter is the first one with which the header has the columns of labels.
    """
    answers = [{"label"}, {*file.counts} or {"label"}]
    for delimiter in ",;\t":
        rows = _rows(file, delimiter)
        with suppress(CsvError):  # quotes that make no sense with this delimiter
            header = file.own_names([cell.strip().lower() for cell in next(rows, (1, []))[1]])
            if "id" in header and any(own <= {*header} for own in answers):
                return header, rows
    start = next((line.strip("\ufeff \t\r\n") for line in file.lines() if line.strip("\ufeff \t\r\n")), None)
    names = ", ".join(["id", *file.counts]) if file.counts else "id and label"
    found = "is empty" if start is None else f"starts with {quoted(start, 80)}"
    raise LabelError(f"{file.name} {found}: start it with a header with the columns {names}")


def _rows(file: LabelFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(file.lines(), delimiter=delimiter, strict=True)
    cells: list[str] | None = []
    while cells is not None:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise CsvError(
                f"{file.name} line {number} is not valid CSV ({error}): check the quotes from there on"
            ) from None
        is_hint = number == 1 and SEPARATOR_LINE.fullmatch("".join(cells or ())) is not None
        if cells and not is_hint and (cells[0].strip() or any(map(str.strip, cells))):
            yield number, cells


def _with_counts(fields: dict[str, str], counts: Sequence[str], place: str) -> dict[str, str]:
    """Return fields with the counts among them as the text of a label, empty if all are.

    Raises LabelError if only some of them are there.
    """
    texts = {name: fields.pop(name, "").strip() for name in counts}
    missing = [name for name, text in texts.items() if not text]
    if fields.get("label", "").strip() or len(missing) == len(texts):
        return fields
    if missing:
        raise LabelError(f"{place} has no {missing[0]}: fill in {', '.join(texts)}, or leave all of them empty")
    return fields | {"label": " ".join(f"{name}={text}" for name, text in texts.items())}


CSV = LabelFormat(lambda head: True, _parse_csv, _write_csv, images=("addresses", "links", "copies"))


# -- JSON Lines ------------------------------------------------------------------------------------------------------

TASK_KEYS = frozenset({"opacc_id", "data", "annotations", "annotation_id", "result"})
"""Keys that a task of Label Studio has, and a row of labels has not."""

PLACE = "opacc_place"
"""Key of a row that was taken from another file: its place there, for messages."""


def as_jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON Lines; half a character of a text is kept, so that whoever reads it names its place."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode(errors="surrogatepass")


def _write_jsonl(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``manifest.jsonl``."""
    rows = []
    for task in tasks:
        fields: dict[str, Any] = {name: getattr(task, name) for name in ("id", "uri", "run", "round", "order")}
        fields |= dict.fromkeys(context.counts or ("label",))
        fields |= {} if task.note is None else {"note": task.note}
        fields |= {"shown": dict(task.shown)} if task.shown else {}
        rows.append(fields)
    return {"manifest.jsonl": as_jsonl(rows)}


def is_array_of_rows(head: str) -> bool:
    """Return whether a file starts with an array of objects with the keys id and label, and no key of a tool."""
    if not head.startswith("["):
        return False
    try:
        first, _ = json.JSONDecoder().raw_decode(head[1:].lstrip())
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "id" in first and not TASK_KEYS & set(first)


def _parse_jsonl(file: LabelFile) -> Iterator[Label]:
    """Yield the labels of objects with the keys id and label, or id and all counts."""
    if is_array_of_rows(file.head()):
        rows = enumerate(file.json(), start=1)
        return (_label_of_row(row, file, f"{file.name} item {number}") for number, row in rows)
    lines = file.json_lines("write one JSON object per line")
    return (_label_of_row(found, file, place, ": write one per line") for place, found in lines)


def _label_of_row(found: Any, file: LabelFile, place: str, remedy: str = "") -> Label:
    if isinstance(found, dict):
        found = dict(zip(file.own_names([*found]), found.values(), strict=True))
    if not isinstance(found, dict) or "id" not in found or not {"label", "status", *file.counts} & found.keys():
        keys = ", ".join(["id", *file.counts]) if file.counts else "id and label"
        raise LabelError(f"{place} is not a JSON object with the keys {keys}{remedy}")
    place = _text(found.get(PLACE), PLACE, place) or place
    counts = [name for name in file.counts if name in found] and file.counts
    fields = {column: _text(found[column], column, place) for column in (*COLUMNS, *counts) if column in found}
    return label_of(_with_counts(fields, counts, place), place)


def _text(value: object, column: str, place: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise LabelError(f"{place} has half a character in {column}, which is not valid Unicode: write it anew")
        return value
    if isinstance(value, int | float):
        return json.dumps(value)  # 7 → "7", true → "true", a float as its shortest exact repr
    raise LabelError(f"{place} has a {type(value).__name__} in {column}: use a text or a number")


JSON_LINES = LabelFormat(
    lambda head: head.startswith("{") or is_array_of_rows(head),
    _parse_jsonl,
    _write_jsonl,
    images=("addresses", "links", "copies", "thumbnails"),
)
