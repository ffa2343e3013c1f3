"""CSV, which people open in a spreadsheet: manifests, and the labels that come back.

A text cell that a spreadsheet would run as a formula, `=cmd|...`, gets an apostrophe in front. So does one that has
only apostrophes before such a start, because otherwise its own first apostrophe would be taken for ours.
`from_spreadsheet` removes one apostrophe from exactly those cells: every id comes back as it was. All text is quoted,
so that an id such as `a;=cmd|...` stays in one cell where the local list separator is a semicolon. Files come back with
the separator of the country: a comma, a semicolon or a tab.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from opacc_ray.errors import LabelError
from opacc_ray.labelling.rows import COLUMNS, Context, Label, ManifestRow, label_of

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide ones are read as formulas in East Asian locales


def encode(rows: Sequence[ManifestRow], context: Context) -> bytes:
    """Write a manifest: a column per field of the design, in alphabetical order."""
    design = sorted({name for row in rows for name in row.fields_of_design})
    with_prediction = any(row.prediction is not None for row in rows)
    header = ["id", "uri", "run", "round", "order", "label"]
    header += ["prediction"] * with_prediction + [f"design_{name}" for name in design]
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        cells = [_text_cell(row.id), _text_cell(row.uri), _text_cell(row.run), row.round, row.order, ""]
        cells += [_text_cell(row.prediction)] * with_prediction + [row.fields_of_design.get(name) for name in design]
        writer.writerow(cells)
    # Excel reads a file without the mark in a local code page, and would save broken ids.
    return text.getvalue().encode("utf-8" if text.getvalue().isascii() else "utf-8-sig")


def _text_cell(text: str | None) -> str:
    return "" if text is None else spreadsheet_safe(text)


def spreadsheet_safe(text: str) -> str:
    """Return the text as a cell that no spreadsheet runs as a formula; `from_spreadsheet` undoes it."""
    return "'" + text if text.lstrip("'").startswith(FORMULA_STARTS) else text


def from_spreadsheet(cell: str) -> str:
    """Return the text that `spreadsheet_safe` made this cell from; any other cell is its own text."""
    guarded = cell.startswith("'") and cell.lstrip("'").startswith(FORMULA_STARTS)
    return cell[1:] if guarded else cell


def parse(text: str, name: str) -> list[Label]:
    """Read labels below a header with the columns id and label; ``name`` is the file's, for messages."""
    headers = {mark: _header(text, mark) for mark in ",;\t"}
    delimiter = next((mark for mark, names in headers.items() if {"id", "label"} <= set(names)), None)
    if delimiter is None:
        first = text.strip().partition("\n")[0][:80]
        raise LabelError(f"{name} starts with {first!r}: start it with a header with the columns id and label")
    header = headers[delimiter]
    twice = [column for column in COLUMNS if header.count(column) > 1]
    if twice:
        raise LabelError(f"{name} has two columns {twice[0]!r} in its header: keep one of them")
    rows = _csv_rows(text, name, delimiter)
    next(rows)  # the header
    return [_label_of_cells(header, cells, place) for place, cells in rows]


def _header(text: str, delimiter: str) -> list[str]:
    try:
        _, cells = next(_csv_rows(text, "", delimiter), ("", []))
    except LabelError:  # quotes that make no sense with this delimiter
        return []
    return [cell.strip().lower() for cell in cells]


def _csv_rows(text: str, name: str, delimiter: str) -> Iterator[tuple[str, list[str]]]:
    """Yield place and cells of each row that is not blank; a place names the row's first line."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    cells: list[str] | None = []
    while cells is not None:
        place = f"{name} line {reader.line_num + 1}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise LabelError(f"{place} is not valid CSV ({error}): check the quotes from there on") from None
        if cells and any(map(str.strip, cells)):
            yield place, cells


def _label_of_cells(header: list[str], cells: list[str], place: str) -> Label:
    if any(map(str.strip, cells[len(header) :])):
        counts = f"{len(cells)} cells, but the header has {len(header)}"
        raise LabelError(f"{place} has {counts}: put quotes around a text that holds the separator")
    return label_of(dict(zip(header, map(from_spreadsheet, cells), strict=False)), place)
