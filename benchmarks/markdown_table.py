"""Markdown tables, printed row by row while they are measured."""

from collections.abc import Iterable, Sequence


def header(columns: Sequence[str], texts: int = 1) -> str:
    """The two lines above the rows; the first ``texts`` columns are aligned to the left, the others to the right."""
    return f"{row(columns)}\n|{'---|' * texts}{'---:|' * (len(columns) - texts)}"


def row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _plain(cell: str) -> str:
    """A cell that cannot break the table."""
    return " ".join(cell.split()).replace("|", "\\|")
