"""Pages quote docs/results word for word."""

import re
from pathlib import Path

import documents
import pytest


def read(name: str) -> str:
    return documents.path_of(name).read_text()


def test_pages_quote_documents_word_for_word() -> None:
    for text in (page.read_text() for page in documents.pages()):
        quoted = documents.blocks(text)
        marks = re.findall(r"^<!-- (/?)results\b.*-->$", text, re.MULTILINE)
        assert marks == ["", "/"] * len(quoted), text[:60]
        for name, content in quoted.items():
            found = documents.blocks(read(name))[name]
            assert content == found, f"run: python benchmarks/write_results.py --copy ({name})"


def test_a_block_of_no_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- results:fishing -->\n<!-- /results -->\n")
    with pytest.raises(SystemExit, match="results:fishing"):
        documents.copy_blocks(tmp_path)
