"""The name of a copied image, from which its example's id comes back: tools that keep no ids keep file names.

ASCII letters, digits, '-', '_' and '.' stand for themselves; every other byte of the id in UTF-8, and a dot in front,
is '~' and two hexadecimal digits. A picture that was made of an example, not copied, ends in '~.png' after that. So no
id leads out of a folder, and no name needs quotes in a URL.
"""

import re
from pathlib import PurePosixPath

from opacc_ray.errors import DataError
from opacc_ray.labels.messages import quoted

LONGEST = 240
"""Characters of a file's name that every file system takes."""

MADE = "~.png"


def name_of(id: str, *, is_made: bool = False) -> str:
    """Return the file name of an example; raises DataError if its id is too long for one."""
    text = "".join(_escaped(byte) for byte in id.encode())
    name = (f"~2E{text[1:]}" if text.startswith(".") else text) + MADE * is_made
    if len(name) > LONGEST:
        raise DataError(f"the id {quoted(id)} is too long for the name of a file; send links or thumbnails instead")
    return name


def _escaped(byte: int) -> str:
    character = chr(byte)
    return character if re.fullmatch(r"[A-Za-z0-9._-]", character) else f"~{byte:02X}"


def id_of(name: str) -> str:
    """Return the id that :func:`name_of` made a name of; any other name is its own id. Folders are left out."""
    text = PurePosixPath(name.replace("\\", "/")).name.removesuffix(MADE)
    plain = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return text
