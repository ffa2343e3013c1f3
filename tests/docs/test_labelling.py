"""docs/labelling.md on a run of 40 images: its files are written, its commands run, its outputs are as it shows."""

from pathlib import Path

import pytest
from documented_commands import ROOT, check_page, commands, files
from labelled_pages import CLASSES, run_to_label

PAGE = ROOT / "docs" / "labelling.md"


def test_its_files_and_commands_are_found() -> None:
    text = PAGE.read_text()
    assert set(files(text)) == {"annotate.py", "opinions.py"}
    verbs = [item.line.split()[1:3] for item in commands(text) if item.line.startswith("opacc")]
    assert [" ".join(verb).removesuffix(" $RUN") for verb in verbs] == [
        *("manifest", "labels import", "manifest", "manifest", "labels import", "labels import"),
        *("labels agreement", "estimate", "labels export"),
    ]


@pytest.mark.slow
def test_every_command_does_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_to_label(str(tmp_path / "audits"), 40, CLASSES, budget=20)
    monkeypatch.setenv("RUN", run.uri)
    check_page(PAGE.read_text(), tmp_path)
