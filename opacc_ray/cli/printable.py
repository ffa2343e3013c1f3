"""One filter for all text that leaves for a terminal or a log: control characters become visible escapes.

Ids, labels and names come from others. A terminal obeys control characters in them: it moves the cursor, rewrites lines
above, sets its title, types answers. Marks of direction reorder what is read. None of them reaches it.
"""

import re

CONTROL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f"  # C0 but for tab and line feed, DEL, C1
    "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069"  # direction, line and paragraph
    "\\ud800-\\udfff]"  # halves of characters, which no terminal can be sent
)


def printable(text: str) -> str:
    """Return text of several lines as a terminal may show it; printable text is its own result."""
    return CONTROL.sub(lambda found: _escape(found[0]), text)


def printable_line(text: str) -> str:
    """Make a text printable that must stay in its line, as :func:`printable` does."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def printable_json(text: str) -> str:
    """Return a JSON text of one line with those characters as JSON escapes, so that it means the same."""
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
