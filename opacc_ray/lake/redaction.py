"""Credentials that somebody wrote into an address: refused, and never repeated in a message or a log."""

import re

from opacc_ray.errors import StorageError

_AUTHORITY = re.compile(r"(?<![\w.+-])(\w[\w.+-]*://)?[^\s/@'\"]+:(?!//)[^\s@'\"]*@")  # a secret may hold a slash


def redacted(text: str) -> str:
    """Return a text with what stands before the @ of an address replaced by ***."""
    return _AUTHORITY.sub(r"\1***@", text)


def refuse_credentials(uri: str) -> None:
    """Raise StorageError if an address holds credentials, which would be kept where others read them."""
    scheme, mark, rest = uri.partition("://")
    if not mark or scheme == "file":
        return
    first = rest.partition("/")[0]
    if "@" in first or (":" in first and not first.startswith("arn:")):
        name = f"{scheme}://***" + ("@" + rest.rpartition("@")[2] if "@" in rest else "")
        raise StorageError(
            f"{name} holds credentials, and a spec is kept where others read it; write s3://bucket/prefix, and give "
            "them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name an AWS_PROFILE"
        )
