"""Lines on the terminal: on stderr, beside a progress bar, and not those that nobody asked for."""

import io
import json
import logging
import sys
from datetime import datetime
from pathlib import Path

import pytest

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.command import log_to_stderr, say
from opacc_ray.cli.main import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_log_lines_are_plain_text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    logging.getLogger("opacc_ray.anything").info("3 of %d", 12)
    logging.getLogger("botocore.credentials").info("found credentials")
    logging.getLogger("botocore.endpoint").warning("retrying")
    assert capsys.readouterr() == ("", "3 of 12\nretrying\n")


def test_log_lines_are_json_if_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPACC_LOG", "json")
    assert main(["status", str(tmp_path)]) == 5
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("extract", "shards") as report:
        report(3, 12)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["message"].split(";")[0]) for line in lines] == [
        ("error", f"there is no run at {tmp_path} (no spec.json)"),
        ("info", "extract: 3 of 12 shards"),
    ]
    assert lines[0]["exit_code"] == 5
    assert {key: lines[1][key] for key in ("work", "unit", "done", "total")} == {
        "work": "extract",
        "unit": "shards",
        "done": 3,
        "total": 12,
    }
    assert datetime.fromisoformat(lines[1]["time"]).tzinfo is not None


def test_line_goes_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("extract", "shards") as report:
        report(3, 12)
        say("a log line")
    before, after = terminal.getvalue().split("a log line\n")
    assert before.endswith("\r\x1b[K")  # the bar is cleared,
    assert "3 of 12 shards" in before
    assert "3 of 12 shards" in after  # and drawn again below the line
