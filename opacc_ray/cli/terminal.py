"""Write to the terminal: log lines, errors and results, next to a progress bar or into a pipe that may be closed."""

import contextlib
import ctypes
import io
import json
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime

from opacc_ray.audit.progress import LOG

log = logging.getLogger(__name__)

CLOSED_PIPE = 141
"""Exit code if the reader of the output is gone, as in `opacc … | head -1`: that of a shell for SIGPIPE."""

MAX_MESSAGE = 2000
"""Most characters of an error; the middle of a longer one is left out."""


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
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bar is not None and sys.stderr.isatty():
        bar.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def kept_in_log(details: str) -> str:
    """Write a traceback to a file that only this user can read.

    Returns
    -------
    str
        The text that names the file; empty without details.
    """
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
    """Flush stdout of Python and of the C library."""
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

CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 but for tab and line feed, DEL, C1
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"  # direction, line and paragraph
    "\\ud800-\\udfff]"  # halves of characters, which no terminal can be sent
)


def printable(text: str) -> str:
    """Return text of several lines with control characters as escapes; other text is unchanged."""
    return CONTROL.sub(lambda found: _escape(found[0]), text)


def printable_line(text: str) -> str:
    """Return text with control characters, line breaks and tabs as escapes."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_json(text: str) -> str:
    """Return JSON with control characters as JSON escapes, which have the same meaning."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
