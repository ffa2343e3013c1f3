"""A newcomer with nothing but docs/guide.md: its files are written, its commands run, its outputs are as it shows."""

from pathlib import Path

import pytest
from documented_commands import ROOT, check_page, commands, files
from recomputed_pack import recomputed

from opacc_ray.runs.run import Run

GUIDE = ROOT / "docs" / "guide.md"


def test_its_files_and_commands_are_found() -> None:
    text = GUIDE.read_text()
    assert set(files(text)) == {"pictures.py", "models.py", "train.py", "spec.yaml", "annotate.py"}
    assert [item.line.split()[1] for item in commands(text) if item.line.startswith("opacc")] == [
        *("check", "run", "status", "labels", "estimate", "estimate", "next", "labels", "estimate", "next"),
        *("select", "labels", "estimate", "export", "run", "features", "runs"),
    ]


@pytest.mark.slow
def test_every_command_does_what_it_shows(tmp_path: Path) -> None:
    check_page(GUIDE.read_text(), tmp_path)
    [run] = (tmp_path / "audits").glob("shapes-*")
    text = recomputed(Run.open(str(run)), tmp_path)
    assert all(f"numbers/{track}.json: accuracy" in text for track in ("main", "srs-150"))
