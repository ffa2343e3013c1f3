"""Errors a user meets: one clear sentence each, and the exit code the command line ends with.

Every message names the value, the place it came from and the fix. The exit codes are part of the
command line's contract (README, "Exit codes"): a script may branch on them. Values come from files that others wrote,
so :func:`shown` never says more of one than fits a line.
"""

import json
import re
from typing import Any


class OpaccError(Exception):
    """Base of all errors that are raised on purpose. Its text is shown to the user as it is."""

    exit_code = 1
    details = ""  # a traceback of the user's own code, for a log file; the text names what is needed to fix it


class SpecError(OpaccError, ValueError):
    """A job's specification, or a parameter of a method, cannot be used as it stands."""

    exit_code = 2


class StorageError(OpaccError):
    """Bytes could not be listed, read or written: bucket, credentials, network or path."""

    exit_code = 3


class ClusterError(OpaccError):
    """The Ray cluster cannot give what the job asks for, or lost the same work again and again."""

    exit_code = 4


class DataError(OpaccError, ValueError):
    """The pool, the model or the features are not usable: the message names the example or layer."""

    exit_code = 5


class LabelError(OpaccError, ValueError):
    """A file of labels cannot be joined to the selection it answers."""

    exit_code = 6


class LabelsAwaited(OpaccError):
    """The work is done as far as it goes without labels; people are to give them."""

    exit_code = 7


class AlertError(OpaccError):
    """All audits of a fleet are done, and the accuracy of some has fallen below what their alerts allow."""

    exit_code = 8


class DeliveryError(OpaccError):
    """The alerts of a fleet did not reach somebody who is to get them."""

    exit_code = 9


def shown(value: Any, limit: int = 60) -> str:
    """A value as JSON for a message: at most ``limit`` characters, made from no more of the value than that."""
    if isinstance(value, str | bytes):
        value = value[: limit + 1]
    text = ""
    try:
        for piece in json.JSONEncoder(ensure_ascii=False, default=_named).iterencode(value):
            text += piece[: limit + 1]
            if len(text) > limit:
                return f"{text[: limit - 3]}..."
    except (RecursionError, TypeError, ValueError):  # it contains itself, or a key or a number has no JSON
        return f"a {type(value).__name__}"
    return text


def counted(number: int, noun: str) -> str:
    """A number of things, such as 1 shard, 2 shards."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(text: str, limit: int = 300) -> str:
    """What another library says, on one line of at most ``limit`` characters, without addresses of objects."""
    line = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"a \1", " ".join(text[: 10 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def _named(value: Any) -> str:
    """What has no JSON: a date or a path by its text, anything else by its kind."""
    if type(value).__module__ in ("datetime", "pathlib"):
        return str(value)
    return f"a {type(value).__name__}"
