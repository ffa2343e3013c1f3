"""One command measures, writes docs/results/NAME.md and copies it into the pages that quote it."""

import re
import subprocess
import sys
from pathlib import Path

import documents
import numpy as np
import pytest
import write_results
import yaml

ROOT = documents.ROOT


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


def run_writer(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, write_results.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.processes
def test_one_command_measures_writes_and_copies(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    correct = rng.random(250) < 0.8
    case = tmp_path / "cases" / "small_case.npz"
    case.parent.mkdir()
    np.savez(case, hidden=rng.normal(size=(250, 4)), logits=rng.normal(size=(250, 3)), correct=correct)
    (tmp_path / "README.md").write_text("before\n<!-- results:ces -->\nold\n<!-- /results -->\nafter\n")
    done = run_writer("--root", str(tmp_path), "--note", "A first try.", "ces", str(case.parent), "--repetitions", "2")
    assert done.returncode == 0, done.stderr
    written = (tmp_path / documents.RESULTS / "ces.md").read_text()
    assert f"python benchmarks/write_results.py ces {case.parent} --repetitions 2" in written
    assert "A first try." in written
    content = documents.blocks(written)["ces"]
    columns, _, *rows = content.splitlines()
    assert columns == "| E (bias) | small case n=50 | small case n=100 | small case n=180 |"
    labels = [method["label"] for method in yaml.safe_load((ROOT / "jobs" / "study-ces.yaml").read_text())["methods"]]
    assert [row.split(" | ")[0] for row in rows] == [f"| {label}" for label in labels]
    page = (tmp_path / "README.md").read_text()
    assert page == f"before\n<!-- results:ces -->\n{content}<!-- /results -->\nafter\n"


@pytest.mark.processes
def test_a_script_that_fails_writes_nothing(tmp_path: Path) -> None:
    done = run_writer("--root", str(tmp_path), "ces", str(tmp_path))
    assert done.returncode != 0
    assert "give a .npz, .csv or .parquet file" in done.stderr
    assert not (tmp_path / documents.RESULTS).exists()


def test_a_block_of_no_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("<!-- results:fishing -->\n<!-- /results -->\n")
    with pytest.raises(SystemExit, match="results:fishing"):
        documents.copy_blocks(tmp_path)
