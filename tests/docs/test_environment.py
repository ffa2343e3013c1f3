"""Every environment variable of ours that the code reads is explained to users."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ = {
    name
    for path in (ROOT / "opacc_ray").rglob("*.py")
    for name in re.findall(r"""environ(?:\.get)?[\[(]\s*["'](OPACC_\w+)""", path.read_text())
}


@pytest.mark.parametrize("page", ["docs/guide.md", "SECURITY.md"])
def test_every_variable_is_explained(page: str) -> None:
    assert {name for name in READ if f"`{name}" not in (ROOT / page).read_text()} == set()
