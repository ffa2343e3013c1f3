"""Redaction: credentials in addresses, and secret values of variables, never appear in messages or logs."""

import re
from collections.abc import Mapping

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
