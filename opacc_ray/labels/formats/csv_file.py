"""CSV for spreadsheets: manifests, and the labels that come back.

A text cell that a spreadsheet would run as a formula, `=cmd|...`, gets an apostrophe in front. So does a cell with only
apostrophes before such a start, because otherwise its own first apostrophe would be taken for ours.
`from_spreadsheet` removes one apostrophe from exactly those cells, so every id comes back unchanged. All text is
quoted: an id such as `a;=cmd|...` stays in one cell where the local list separator is a semicolon. Files come back
with the separator of the country: a comma, a semicolon or a tab.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress

from opacc_ray.errors import LabelError
from opacc_ray.labels import label_rows
from opacc_ray.labels.label_rows import COLUMNS, Context, Label, LabelFile, Task, quoted

IMAGES = ("addresses", "links", "copies")

LONGEST_CELL = 32_000  # characters of a shown text; Excel holds 32,767

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # East Asian locales read the wide ones as formulas


def write(tasks: Sequence[Task], context: Context) -> dict[str, bytes]:
    """Return ``manifest.csv``, without a byte-order mark, which `csv.DictReader` takes into the name `id`."""
    has_notes = any(task.note is not None for task in tasks)
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    shown = list(dict.fromkeys(name for task in tasks for name in task.shown))
    titles = [spreadsheet_safe(_title(name, context.counts)) for name in shown]
    answer = context.counts or ("label",)
    writer.writerow(["id", "uri", "run", "round", "order", *answer, *(["note"] if has_notes else []), *titles])
    for task in tasks:
        texts = [task.id, task.uri, task.run, *([task.note] if has_notes else [])]
        texts += [_cut(task.shown.get(name, "")) for name in shown]
        id, uri, run, *others = ("" if cell is None else spreadsheet_safe(cell) for cell in texts)
        writer.writerow([id, uri, run, task.round, task.order, *[""] * len(answer), *others])
    return {"manifest.csv": text.getvalue().encode()}


def _title(name: str, counts: Sequence[str]) -> str:
    """Return the header of a shown column, which is not one of ours."""
    return f"shown: {name}" if name.strip().lower() in label_rows.RESERVED.union(COLUMNS, counts) else name


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


def looks_like(head: str) -> bool:
    """Return True: every text that is no other format is read as CSV."""
    return True


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield the labels below a header with the columns id and label, or id and all counts."""
    header, rows = read_table(file, {"id", "label"}, *([{"id", *file.counts}] if file.counts else []))
    counts = [name for name in file.counts if name in header]
    twice = [column for column in (*COLUMNS, *counts) if header.count(column) > 1]
    if twice:
        raise LabelError(f"{file.name} has two columns {twice[0]!r} in its header: keep one of them")
    columns = [(column, header.index(column)) for column in COLUMNS if column in header]
    for number, cells in rows:
        place = f"{file.name} line {number}"
        if len(cells) > len(header) and any(map(str.strip, cells[len(header) :])):
            num = f"{len(cells)} cells, but the header has {len(header)}"
            raise LabelError(f"{place} has {num}: put quotes around a text that contains the separator")
        fields = {name: from_spreadsheet(cells[i]) for name, i in columns if i < len(cells)}
        if counts and not fields.get("label", "").strip():
            own = {name: cells[i] if (i := header.index(name)) < len(cells) else "" for name in counts}
            fields["label"] = label_rows.text_of_counts(own, place)
        yield label_rows.label_of(fields, place)


class CsvError(LabelError):
    """A file is not CSV with this delimiter."""


def read_table(file: LabelFile, *columns: set[str]) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Return the header in lower case, and the rows below that are not blank, each with the number of its first line.

    The delimiter is the first one with which the header has one of the sets of columns.
    """
    for delimiter in ",;\t":
        rows = _rows(file, delimiter)
        with suppress(CsvError):  # quotes that make no sense with this delimiter
            header = file.own_names([cell.strip().lower() for cell in next(rows, (1, []))[1]])
            if any(own <= set(header) for own in columns):
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
        if cells and (cells[0].strip() or any(map(str.strip, cells))):
            yield number, cells
