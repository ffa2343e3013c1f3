"""What annotators get: the selected examples of one round, as a file they can fill in.

A manifest has one row per example that needs a label: its id, a link to its content, the run and the round that chose
it, its place in the order of choice and an empty label. Where an example's file changed or went after the model saw it,
a note says so, and to answer "?" unless it is known what the file was: that counts as "can't tell", and is stated.
The model's prediction is left out unless asked for: an annotator who sees it tends to agree with it
(anchoring), which makes the model look better than it is. What the design says of an example (stratum, draw
probability, ...) is left out for the same reason: it tells how sure the model is. It is in the selection.

The link is the example's URI where that is the same for everybody (S3). A path of the machine that wrote the manifest
is left out. A run may say what to write instead (`manifest.link`).

The bytes depend on the rows alone: rows are sorted by round and order, fields have a fixed order, lines
end in a line feed, the text is UTF-8 (CSV: always with a byte-order mark), and there is no time stamp.

**A new format** is one function, `(rows, context) -> bytes`, in a file of its own, and one line in `FORMATS`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from opacc_ray.errors import DataError, SpecError
from opacc_ray.labels.formats import csv_file, jsonl_file
from opacc_ray.labels.rows import Context, ManifestRow


@dataclass(frozen=True)
class Format:
    """How a manifest is written: the end of its file's name, and the function from rows to bytes."""

    suffix: str
    encode: Callable[[Sequence[ManifestRow], Context], bytes]


NOTES = {
    "changed": "the file changed after the model saw it: answer ? unless you know that it shows the same",
    "lost": "the file is gone since the model saw it: answer ? unless you know what it showed",
}
"""What annotators must know of an example's file."""

FORMATS: dict[str, Format] = {
    "jsonl": Format(".jsonl", jsonl_file.encode),
    "csv": Format(".csv", csv_file.encode),
}


def link_to(uri: str, template: str | None, *, id: str, run: str, round: int) -> str | None:
    """Return what a manifest says of where an example lies.

    Parameters
    ----------
    uri : where the pool has it.
    template : a link in which {id}, quoted as a part of a URL, {uri}, {run} and {round} are filled in; None: the URI,
        or nothing if it is a path of this machine.
    """
    if template is None:
        return uri if "://" in uri and not uri.startswith("file:") else None
    fields = {"id": quote(id, safe="/", errors="replace"), "uri": uri, "run": quote(run), "round": str(round)}
    return re.sub(r"\{(\w+)\}", lambda found: fields.get(found[1], found[0]), template)


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
        shown = [replace(row, prediction=None) for row in shown]
    return FORMATS[format].encode(shown, context or Context())


def _check_ids(rows: Sequence[ManifestRow]) -> None:
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise DataError(f"id {row.id!r} is in two rows of the manifest: give one row per example")
        if any("\ud800" <= character <= "\udfff" for character in row.id):
            raise DataError(f"id {row.id!r} is not valid Unicode, so no file can hold it: rename the example")
        seen.add(row.id)
