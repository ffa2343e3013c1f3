"""What reaches the terminal: log lines, errors, results; beside a progress bar, and into a pipe that may be closed."""

import json
import logging
import os
import sys

from opacc_ray.cli.printable import printable, printable_json

CLOSED_PIPE = 141
"""Exit code if nobody reads the output any more, as in `opacc … | head -1`: what a shell says of SIGPIPE."""


class _Beside(logging.Handler):
    """Writes log lines to stderr, above a progress bar if there is one."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


def log_to_stderr() -> None:
    """Send log lines to stderr as plain text; those of storage libraries only from warnings on."""
    logging.basicConfig(handlers=[_Beside()], level=logging.INFO, format="%(message)s", force=True)
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


def fail(message: str, code: int, *, as_json: bool) -> int:
    """Print an error, one sentence, for people and, if they asked for JSON, for machines; returns ``code``."""
    say(f"opacc: {message}")
    if as_json:
        print(printable_json(json.dumps({"error": message, "exit_code": code}, ensure_ascii=False)), flush=True)
    return code


def leave_closed_pipe() -> None:
    """Let what is still buffered for stdout go nowhere, so that ending the process does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
