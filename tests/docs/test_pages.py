"""Pages that a command writes are as it would write them now."""

from pathlib import Path

import pytest
import write_pages


@pytest.mark.parametrize("name", write_pages.pages())
def test_page_is_up_to_date(name: str) -> None:
    written = (Path(__file__).parents[2] / "docs" / name).read_text()
    assert written == write_pages.pages()[name], "run `make docs-pages`"
