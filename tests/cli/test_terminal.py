"""Lines on the terminal: on stderr, beside a progress bar, and not those that nobody asked for."""

import io
import logging
import sys

import pytest

from opacc_ray.audit.progress import Progress
from opacc_ray.cli.terminal import log_to_stderr, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_log_lines_are_plain_text_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    logging.getLogger("opacc_ray.anything").info("3 of %d", 12)
    logging.getLogger("botocore.credentials").info("found credentials")
    logging.getLogger("botocore.endpoint").warning("retrying")
    assert capsys.readouterr() == ("", "3 of 12\nretrying\n")


def test_line_goes_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("extract", "shards") as report:
        report(3, 12)
        say("a log line")
    before, after = terminal.getvalue().split("a log line\n")
    assert before.endswith("\r")  # the bar is cleared,
    assert "3 of 12 shards" in before
    assert "3 of 12 shards" in after  # and drawn again below the line
