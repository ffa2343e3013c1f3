"""File names of copied images, which encode the example's id for tools that keep file names but no ids.

ASCII letters, digits, '-', '_' and '.' are kept; every other byte of the id in UTF-8, and a dot in front, becomes '~'
and two hexadecimal digits. A picture that was rendered, not copied, then ends in '~.png'. So no id leads out of a
folder, and no name needs quotes in a URL.
"""

import re
from pathlib import PurePosixPath
from urllib.parse import quote

from opacc_ray.errors import DataError
from opacc_ray.labels.label_rows import quoted

LONGEST = 240
"""Characters of a file name that every file system accepts."""

MADE = "~.png"


def name_of(id: str, *, is_made: bool = False) -> str:
    """Return the file name of an example; raises DataError if its id is too long for one."""
    text = quote(id, safe="").replace("~", "%7E").replace("%", "~")
    name = (f"~2E{text[1:]}" if text.startswith(".") else text) + MADE * is_made
    if len(name) > LONGEST:
        raise DataError(f"the id {quoted(id)} is too long for a file name; send links or thumbnails instead")
    return name


def id_of(name: str) -> str:
    """Return the id that :func:`name_of` encoded; any other name is its own id. Folders are left out."""
    text = PurePosixPath(name.replace("\\", "/")).name.removesuffix(MADE)
    plain = re.sub(rb"~([0-9A-F]{2})", lambda found: bytes.fromhex(found[1].decode()), text.encode())
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return text
