"""What annotators get: the selected examples of one round, as a file they can fill in.

A manifest has one row per example: its id, where its content lies, the run and the round that chose it,
its place in the order of choice, the design fields (stratum, draw probability, ...) and an empty label.
The model's prediction is left out unless asked for: an annotator who sees it tends to agree with it
(anchoring), which makes the model look better than it is. So is the failure that a method predicts. The other
design fields are harmless for most designs and make a manifest readable by itself; whoever thinks that they
hint at the answer (a stratum of low confidence) drops those columns: on the way back only `id` and `label`
are needed.

The bytes depend on the rows alone: rows are sorted by round and order, fields have a fixed order, lines
end in a line feed, the text is UTF-8, and there is no time stamp.

**Spreadsheets.** A text cell that a spreadsheet would run as a formula, `=cmd|...`, gets an apostrophe in
front. So does one that has only apostrophes before such a start, because otherwise its own first
apostrophe would be taken for ours. `from_spreadsheet` removes one apostrophe from exactly those cells: every
id comes back as it was. All text is quoted, so that an id such as `a;=cmd|...` stays in one cell where
the local list separator is a semicolon.

**A new format** is one function, `(rows, context) -> bytes`, and one line in `FORMATS`.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from opacc_ray.errors import DataError, SpecError

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")  # the wide ones are read as formulas in East Asian locales


@dataclass(frozen=True)
class ManifestRow:
    """One example to label.

    Attributes
    ----------
    id : the example's id in the pool; labels come back under it.
    uri : where its content lies, if the pool knows.
    run : the run that chose it.
    round : the round of that run, from 1.
    order : its place in the order of choice, from 1.
    design : what the design says of it, such as ``{"stratum": 2}`` or ``{"draw_probability": 0.01}``.
    prediction : the model's answer; encoded only on request.
    predicted : what the design expects of that answer, such as ``{"predicted_failure": 0.3}``; encoded among the design
        fields, and only on request.
    """

    id: str
    uri: str | None
    run: str
    round: int
    order: int
    design: dict[str, float | int] = field(default_factory=dict)
    prediction: str | None = None
    predicted: dict[str, float | int] = field(default_factory=dict)

    @property
    def fields_of_design(self) -> dict[str, float | int]:
        """Sorted by name."""
        return dict(sorted((self.design | self.predicted).items()))


@dataclass(frozen=True)
class Context:
    """What a format may need to know of the run beside the rows: the names of the classes, by index."""

    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Format:
    """How a manifest is written: the end of its file's name, and the function from rows to bytes."""

    suffix: str
    encode: Callable[[Sequence[ManifestRow], Context], bytes]


def encode(
    format: str, rows: Sequence[ManifestRow], *, show_prediction: bool = False, context: Context | None = None
) -> bytes:
    """Write the rows in one of `FORMATS`.

    Parameters
    ----------
    format : a key of `FORMATS`.
    rows : one per example, in any order; an example that was drawn twice is labelled once.
    show_prediction : let annotators see the model's answer.
    context : what the format may need to know of the run.

    Returns
    -------
    The file's bytes: the same for the same set of rows.

    Raises
    ------
    SpecError : the format is unknown.
    DataError : an id is in two rows, or is not valid Unicode.
    """
    if format not in FORMATS:
        raise SpecError(f"manifest format {format!r} is unknown: use one of {', '.join(sorted(FORMATS))}")
    _check_ids(rows)
    shown = sorted(rows, key=lambda row: (row.round, row.order, row.id))
    if not show_prediction:  # taken away here, so that no format can give it away
        shown = [replace(row, prediction=None, predicted={}) for row in shown]
    return FORMATS[format].encode(shown, context or Context())


def spreadsheet_safe(text: str) -> str:
    """Return the text as a cell that no spreadsheet runs as a formula; `from_spreadsheet` undoes it."""
    return "'" + text if text.lstrip("'").startswith(FORMULA_STARTS) else text


def from_spreadsheet(cell: str) -> str:
    """Return the text that `spreadsheet_safe` made this cell from; any other cell is its own text."""
    guarded = cell.startswith("'") and cell.lstrip("'").startswith(FORMULA_STARTS)
    return cell[1:] if guarded else cell


def _check_ids(rows: Sequence[ManifestRow]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise DataError(f"id {row.id!r} is in two rows of the manifest: give one row per example")
        if any("\ud800" <= character <= "\udfff" for character in row.id):
            raise DataError(f"id {row.id!r} is not valid Unicode, so no file can hold it: rename the example")
        seen.add(row.id)


def _encode_jsonl(rows: Sequence[ManifestRow], context: Context) -> bytes:
    lines = [json.dumps(_json_fields(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows]
    return "".join(lines).encode()


def _json_fields(row: ManifestRow) -> dict[str, object]:
    fields: dict[str, object] = {
        "id": row.id,
        "uri": row.uri,
        "run": row.run,
        "round": row.round,
        "order": row.order,
        "label": None,
    }
    if row.prediction is not None:
        fields["prediction"] = row.prediction
    return fields | {"design": row.fields_of_design}


def _encode_csv(rows: Sequence[ManifestRow], context: Context) -> bytes:
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


FORMATS: dict[str, Format] = {
    "jsonl": Format(".jsonl", _encode_jsonl),
    "csv": Format(".csv", _encode_csv),
}
