"""Texts of others in messages: short, whatever somebody wrote into a file."""

from collections.abc import Sequence


def few(texts: Sequence[str], separator: str = ", ", most: int = 5) -> str:
    """Join the first texts, and say how many more there are."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return separator.join([*texts[:most], *more])


def quoted(text: str, most: int = 60) -> str:
    """Return a text in quotes, with escapes for what does not print; the middle of a long one is left out."""
    if len(text) <= most:
        return repr(text)
    return f"{text[: most - 10]!r}… ({len(text)} characters)"
