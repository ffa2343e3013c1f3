"""Write to the terminal: log lines, errors and results, next to a progress bar or into a pipe that may be closed.

Results are aligned columns, with styles where the terminal supports them.
"""

import contextlib
import ctypes
import io
import json
import logging
import os
import re
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from opacc_ray.audit.progress import CLEARED, LOG, Progress

if TYPE_CHECKING:
    from opacc_ray.report.facts import Fact, Line, Table

log = logging.getLogger(__name__)

CLOSED_PIPE = 141
"""Exit code if the reader of the output is gone, as in `opacc … | head -1`: that of a shell for SIGPIPE."""

MAX_MESSAGE = 2000
"""Most characters of an error; the middle of a longer one is left out."""

LEAST_LABEL = 10
"""Least characters of the column of labels, and of the first column of a table with its gap."""

MOST_LABEL = 20
"""Most characters of a label that the others are aligned with: a file name may be longer."""

_STYLES = {"result": "1", "warning": "33", "error": "31", "head": "2", "next": "1;36"}


class _AboveBar(logging.Handler):
    """Writes log lines to stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


class _AsJson(logging.Formatter):
    """Formats a log line as a JSON object: time, level, message and its ``fields``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def log_is_json() -> bool:
    """Return whether log lines are JSON, for programs."""
    return os.environ.get(LOG) == "json"


def log_to_stderr() -> None:
    """Send log lines to stderr, as plain text or as JSON; of storage libraries, only warnings and errors."""
    handler = _AboveBar()
    handler.setFormatter(_AsJson() if log_is_json() else logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in ("botocore", "boto3", "urllib3", "s3transfer"):
        logging.getLogger(name).setLevel(logging.WARNING)


def say(text: str) -> None:
    """Print a line on stderr, above a progress bar."""
    text = printable(text)
    if Progress.drawn:
        print(f"{CLEARED}{text}\n{Progress.drawn}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr)


def kept_in_log(details: str) -> str:
    """Write a traceback to a file that only this user can read; returns text that names it, empty without details."""
    if not details:
        return ""
    try:
        number, path = tempfile.mkstemp(prefix="opacc-", suffix=".log")
        with open(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable(details))
    except OSError:
        return ""
    return f"; the traceback is in {path}"


def fail(message: str, code: int, *, as_json: bool) -> int:
    """Print an error in one sentence, and as JSON if asked for; return ``code``."""
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    if log_is_json():
        log.error("%s", message, extra={"fields": {"exit_code": code}})
    else:
        say(f"opacc: {message}")
    if as_json:
        print(printable_json(json.dumps({"error": message, "exit_code": code}, ensure_ascii=False)), flush=True)
    return code


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Keep stdout for the result: any other output in the block, even from native code, goes to stderr."""
    _flush()
    with contextlib.ExitStack() as until:
        with contextlib.suppress(OSError):  # one of them is closed
            kept = os.dup(1)
            until.callback(os.close, kept)
            os.dup2(2, 1)
            until.callback(os.dup2, kept, 1)
            until.callback(_flush)
        until.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


def _flush() -> None:
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def escape_unprintable() -> None:
    """Print characters that the terminal's encoding lacks as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_closed_pipe() -> None:
    """Discard what is still buffered for stdout, so that the end of the process does not fail on it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# -- control characters ----------------------------------------------------------------------------------
# Ids, labels and names come from others. A terminal obeys control characters in them: it moves the cursor, rewrites
# lines, sets its title or types answers. Marks of direction reorder text. All of them become visible escapes.

_CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 but for tab and line feed, DEL, C1
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"  # direction, line and paragraph
    "\\ud800-\\udfff]"  # halves of characters, which no terminal can be sent
)


def printable(text: str) -> str:
    """Return text of several lines with control characters as escapes; other text is unchanged."""

    def escape(found: re.Match[str]) -> str:
        code = ord(found[0])
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _CONTROL.sub(escape, text)


def printable_line(text: str) -> str:
    """Return text with control characters, line breaks and tabs as escapes."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_json(text: str) -> str:
    """Return JSON with control characters as JSON escapes, which have the same meaning."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# -- layout of an answer ----------------------------------------------------------------------------------


def is_styled() -> bool:
    """Return whether stdout is a terminal with colours; NO_COLOR switches them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_text(lines: "Sequence[Line]", *, verbose: bool = False, styled: bool = False) -> str:
    """Return the text of an answer; details are shown if ``verbose``."""
    from opacc_ray.report.facts import Fact, Table

    shown = [line for line in lines if verbose or not (isinstance(line, Fact) and line.detail)]
    labels = [width_of(printable_line(line.label)) for line in shown if isinstance(line, Fact)]
    width = max([LEAST_LABEL, *(label + 2 for label in labels if label <= MOST_LABEL)])
    texts: list[str] = []
    for line in shown:
        if isinstance(line, Table):
            texts += _table(line, styled)
        else:
            texts.append(printable(line) if isinstance(line, str) else _fact(line, width, styled))
    return "\n".join(texts)


def _fact(fact: "Fact", width: int, styled: bool) -> str:
    text = printable_line(fact.text)
    label = printable_line(fact.label)
    if fact.tone == "next":
        return _style(f"{label} {text}", fact.tone, styled)
    label = label if width_of(label) <= MOST_LABEL else f"{label}  "
    return f"{_padded(label, width)}{_style(text, fact.tone, styled)}".rstrip()


def _table(table: "Table", styled: bool) -> list[str]:
    rows = [
        [printable_line(cell if isinstance(cell, str) else "  ".join(filter(None, cell))) for cell in row]
        for row in table.rows
    ]
    head = [column.name for column in table.columns]
    widths = [max(map(width_of, column)) for column in zip(head, *rows, strict=True)]
    if len(widths) > 1:
        widths[0] = max(widths[0], LEAST_LABEL - 2)
    right = [column.kind == "n" for column in table.columns]

    def text(cells: Sequence[str]) -> str:
        padded = (_padded(cell, width, right=own) for cell, width, own in zip(cells, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return [_style(text(head), "head", styled), *map(text, rows)]


def width_of(text: str) -> int:
    """Return the columns that a text takes: two for a wide character, none for a combining mark."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def _style(text: str, tone: str, styled: bool) -> str:
    code = _STYLES.get(tone) if styled else None
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text
