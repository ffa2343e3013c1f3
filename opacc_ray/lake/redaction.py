"""Redaction: credentials in addresses and environment variables never appear in messages or logs."""

import re
from collections.abc import Mapping

from opacc_ray.errors import StorageError

_AUTHORITY = re.compile(r"(?<![^\s@'\"/])(\w[\w.+-]*://)?[^\s/@'\":]{0,2000}:(?!//)[^\s@'\"]{0,2000}@")
"""A secret may contain a slash, and the user may be missing; bounded lengths keep the search fast."""

SHORTEST_SECRET = 8
"""Characters of the shortest value that is hidden: `1` or `yes` is not a secret, and common in texts."""


def without_values(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with $NAME in place of the value of each variable."""
    long = (name for name, value in variables.items() if len(value) >= SHORTEST_SECRET)
    for name in sorted(long, key=lambda name: len(variables[name]), reverse=True):
        text = text.replace(variables[name], f"${name}")
    return text


def redacted(text: str) -> str:
    """Return a text with the credentials of addresses replaced by ***."""
    return _AUTHORITY.sub(r"\1***@", text)


def refuse_credentials(uri: str) -> None:
    """Raise StorageError if an address contains credentials."""
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme == "file":
        return
    first = rest.partition("/")[0]
    if "@" in first or (":" in first and not first.startswith("arn:")):
        name = f"{scheme}://***" + ("@" + rest.rpartition("@")[2] if "@" in rest else "")
        raise StorageError(
            f"{name} contains credentials, which others can read in a spec; write s3://bucket/prefix, and "
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
