"""CSV, which people open in a spreadsheet: manifests, and the labels that come back.

A text cell that a spreadsheet would run as a formula, `=cmd|...`, gets an apostrophe in front. So does one that has
only apostrophes before such a start, because otherwise its own first apostrophe would be taken for ours.
`from_spreadsheet` removes one apostrophe from exactly those cells: every id comes back as it was. All text is quoted,
so that an id such as `a;=cmd|...` stays in one cell where the local list separator is a semicolon. Files come back with
the separator of the country: a comma, a semicolon or a tab. A file with the column `opacc_id` is an export of Label
Studio, whose column `id` counts its own tasks.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from opacc_ray.errors import LabelError
from opacc_ray.labels.formats import label_studio
from opacc_ray.labels.formats.label_file import LabelFile
from opacc_ray.labels.messages import quoted
from opacc_ray.labels.rows import COLUMNS, Context, Label, ManifestRow, label_of

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide ones are read as formulas in East Asian locales


def encode(rows: Sequence[ManifestRow], context: Context) -> bytes:
    """Write a manifest.

    It always starts with a byte-order mark: Excel reads a file without one in a local code page and would save broken
    ids.
    """
    extra = [name for name in ("prediction", "note") if any(getattr(row, name) is not None for row in rows)]
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(["id", "uri", "run", "round", "order", "label", *extra])
    for row in rows:
        cells = [_text_cell(row.id), _text_cell(row.uri), _text_cell(row.run), row.round, row.order, ""]
        writer.writerow(cells + [_text_cell(getattr(row, name)) for name in extra])
    return text.getvalue().encode("utf-8-sig")


def _text_cell(text: str | None) -> str:
    return "" if text is None else spreadsheet_safe(text)


def spreadsheet_safe(text: str) -> str:
    """Return the text as a cell that no spreadsheet runs as a formula; `from_spreadsheet` undoes it."""
    return "'" + text if text.lstrip("'").startswith(FORMULA_STARTS) else text


def from_spreadsheet(cell: str) -> str:
    """Return the text that `spreadsheet_safe` made this cell from; any other cell is its own text."""
    guarded = cell[:1] == "'" and cell.lstrip("'").startswith(FORMULA_STARTS)
    return cell[1:] if guarded else cell


def parse(file: LabelFile) -> Iterator[Label]:
    """Yield the labels below a header with the columns id and label."""
    headers = {mark: _header(file, mark) for mark in ",;\t"}
    exported = next((mark for mark, names in headers.items() if label_studio.ID in names), None)
    if exported is not None:
        yield from _exported(file, exported, headers[exported])
        return
    delimiter = next((mark for mark, names in headers.items() if {"id", "label"} <= set(names)), None)
    if delimiter is None:
        first = quoted(file.start(), 80)
        raise LabelError(f"{file.name} starts with {first}: start it with a header with the columns id and label")
    header = headers[delimiter]
    twice = [column for column in COLUMNS if header.count(column) > 1]
    if twice:
        raise LabelError(f"{file.name} has two columns {twice[0]!r} in its header: keep one of them")
    rows = _csv_rows(file, delimiter)
    next(rows)  # the header
    columns = [(column, header.index(column)) for column in COLUMNS if column in header]
    for number, cells in rows:
        yield _label_of_cells(len(header), columns, cells, f"{file.name} line {number}")


def is_label_studio(file: LabelFile) -> bool:
    """Tell whether a table is an export of Label Studio."""
    return any(label_studio.ID in _header(file, mark) for mark in ",\t")


def _exported(file: LabelFile, delimiter: str, header: Sequence[str]) -> Iterator[Label]:
    """The rows of an export of Label Studio, whose cells are as they are: it guards none for spreadsheets."""
    rows = _csv_rows(file, delimiter)
    next(rows)  # the header
    for number, cells in rows:
        place = f"{file.name} line {number}"
        yield label_of(label_studio.fields_of_csv(dict(zip(header, cells, strict=False)), place), place)


def _header(file: LabelFile, delimiter: str) -> list[str]:
    try:
        _, cells = next(_csv_rows(file, delimiter), (1, []))
    except CsvError:  # quotes that make no sense with this delimiter
        return []
    return [cell.strip().lower() for cell in cells]


class CsvError(LabelError):
    """A file is not CSV with this delimiter."""


def _csv_rows(file: LabelFile, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of the first line and the cells of each row that is not blank."""
    reader = csv.reader(file.lines(), delimiter=delimiter, strict=True)
    cells: list[str] | None = []
    while cells is not None:
        number = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            place = f"{file.name} line {number}"
            raise CsvError(f"{place} is not valid CSV ({error}): check the quotes from there on") from None
        if cells and (cells[0].strip() or any(map(str.strip, cells))):
            yield number, cells


def _label_of_cells(width: int, columns: Sequence[tuple[str, int]], cells: list[str], place: str) -> Label:
    if len(cells) > width and any(map(str.strip, cells[width:])):
        counts = f"{len(cells)} cells, but the header has {width}"
        raise LabelError(f"{place} has {counts}: put quotes around a text that holds the separator")
    return label_of({name: from_spreadsheet(cells[i]) for name, i in columns if i < len(cells)}, place)
