"""What reaches the terminal: log lines, errors, results; beside a progress bar, and into a pipe that may be closed."""

import contextlib
import ctypes
import io
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime

from opacc_ray.audit.progress import log_is_json
from opacc_ray.cli.printable import printable, printable_json

log = logging.getLogger(__name__)

CLOSED_PIPE = 141
"""Exit code if nobody reads the output any more, as in `opacc … | head -1`: what a shell says of SIGPIPE."""

MAX_MESSAGE = 2000
"""Characters of an error; of a longer one its beginning and its end are said."""


class _Beside(logging.Handler):
    """Writes log lines to stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


class _AsJson(logging.Formatter):
    """One JSON object a line: time, level, message, and what else a line says of itself under ``fields``."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line | getattr(record, "fields", {}), ensure_ascii=False)


def log_to_stderr() -> None:
    """Send log lines to stderr, as plain text or as JSON; those of storage libraries only from warnings on."""
    handler = _Beside()
    handler.setFormatter(_AsJson() if log_is_json() else logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in ("botocore", "boto3", "urllib3", "s3transfer"):
        logging.getLogger(name).setLevel(logging.WARNING)


def say(text: str) -> None:
    """Print a line on stderr, and not into a progress bar."""
    text = printable(text)
    bar = getattr(sys.modules.get("tqdm"), "tqdm", None)
    if bar is not None and sys.stderr.isatty():
        bar.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def kept_in_log(details: str) -> str:
    """Keep a traceback in a file that only this user can read, and any terminal show.

    Returns
    -------
    str
        The words that name the file; none for no details.
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
    """Print an error, one sentence, for people and, if they asked for JSON, for machines; returns ``code``."""
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
    """Keep stdout for the result: what else writes there in the block, a model's native code too, goes to stderr."""
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
    """Write what is buffered for stdout, by Python and by C's library."""
    for stream in (sys.stdout, sys.__stdout__):
        if stream is not None:
            stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


def say_any_text() -> None:
    """Let text that the terminal's encoding lacks, such as names of files that are no Unicode, be said as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_closed_pipe() -> None:
    """Let what is still buffered for stdout go nowhere, so that ending the process does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
