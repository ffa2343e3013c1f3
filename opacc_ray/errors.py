"""Errors for users: one clear sentence each, with the exit code of the command line.

Every message names the value, its source and the fix. Scripts may rely on the exit codes. Values come from files that
others wrote, so :func:`shown` shortens each to one line. :func:`redacted` and :func:`without_values` hide secrets.
"""

import json
import re
import traceback
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class OpaccError(Exception):
    """Base of all errors that opacc raises on purpose. Users see the text unchanged."""

    exit_code = 1
    details = ""  # traceback of the user's own code, for a log file


class SpecError(OpaccError, ValueError):
    """A spec, an option or a parameter of a method is not valid."""

    exit_code = 2


class StorageError(OpaccError):
    """Storage failed to list, read or write: bucket, credentials, network or path."""

    exit_code = 3


class ClusterError(OpaccError):
    """The Ray cluster lacks what the job needs, or lost the same work repeatedly."""

    exit_code = 4


class LostRayError(ClusterError):
    """A process of the local Ray that this command started has ended; another Ray can go on."""


class DataError(OpaccError, ValueError):
    """The pool, the model or the features are not usable; the message names the example or layer."""

    exit_code = 5


class LabelError(OpaccError, ValueError):
    """A file of labels does not fit the selection that it belongs to."""

    exit_code = 6


class LabelsAwaited(OpaccError):
    """Nothing more can be done before people give labels."""

    exit_code = 7


class AlertError(OpaccError):
    """All audits of a fleet are done, and the accuracy of some is below the limits of their alerts."""

    exit_code = 8


class DeliveryError(OpaccError):
    """An alert of a fleet did not reach one of its receivers."""

    exit_code = 9


class RegressionError(OpaccError):
    """A model is wrong on examples of a regression suite on which the model before was right."""

    exit_code = 10


def as_ours(error: BaseException) -> OpaccError:
    """Return an error of ours as it is; a fault of the program, or of the user's code, with its traceback."""
    if isinstance(error, OpaccError):
        return error
    unexpected = OpaccError(f"unexpected {type(error).__name__}: {shortened(str(error))}")
    unexpected.details = "".join(traceback.format_exception(error))
    return unexpected


def shown(value: Any, limit: int = 60) -> str:
    """Return a value as JSON for a message, shortened to ``limit`` characters without encoding the rest."""
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


def counted(number: int, noun: str, several: str | None = None) -> str:
    """Return a number with its noun: 1 shard, 2,000 shards; ``several`` is an irregular plural."""
    return f"1 {noun}" if number == 1 else f"{number:,} {several or noun + 's'}"


def meant(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return the nearest of the known names as a question, "did you mean 'x'?"; ``otherwise`` if none is near."""
    near = get_close_matches(str(name), list(known), 1)
    return f"did you mean {near[0]!r}?" if near else otherwise


def shortened(text: str, limit: int = 300) -> str:
    """Return another library's message on one line of at most ``limit`` characters, without colours and addresses."""
    line = " ".join(without_colours(text[: 10 * limit]).split())
    line = re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>", r"a \1", line)
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def without_colours(text: str) -> str:
    """Return a text without the codes that colour it in a terminal."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _named(value: Any) -> str:
    """Return text for a value without JSON: a date or a path as it is, anything else by its type."""
    if type(value).__module__ in ("datetime", "pathlib"):
        return str(value)
    return f"a {type(value).__name__}"


_AUTHORITY = re.compile(r"(?<![^\s@'\"/])(\w[\w.+-]*://)?[^\s/@'\":]{0,2000}:(?!//)[^\s@'\"]{0,2000}@")
"""A secret may contain a slash, and the user may be missing; bounded lengths keep the search fast."""

SHORTEST_SECRET = 8
"""Characters of the shortest value that is hidden: `1` or `yes` is not a secret, and common in texts."""


def redacted(text: str) -> str:
    """Return a text with the credentials of addresses replaced by ***."""
    return _AUTHORITY.sub(r"\1***@", text)


def without_values(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with $NAME in place of the value of each variable."""
    long = (name for name, value in variables.items() if len(value) >= SHORTEST_SECRET)
    for name in sorted(long, key=lambda name: len(variables[name]), reverse=True):
        text = text.replace(variables[name], f"${name}")
    return text
