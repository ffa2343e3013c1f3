"""Progress: log lines now and then, a bar on a terminal, and no guess of the time before there is one to make."""

import io
import logging
import sys

import pytest

from opacc_ray.audit import progress
from opacc_ray.audit.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(
    clock: Clock, caplog: pytest.LogCaptureFixture, report: Progress, steps: list[tuple[float, int]], total: int | None
) -> list[str]:
    caplog.set_level(logging.INFO)
    for seconds, done in steps:
        clock.now += seconds
        report(done, total)
    return [record.getMessage() for record in caplog.records]


def test_time_left_counts_neither_what_was_kept_nor_the_slow_start(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [(0, 4), (30, 5), (2, 6), (2, 7), (2, 8), (2, 9), (0.1, 10), (22, 20)]
    assert lines(clock, caplog, Progress("extract", "shards"), steps, 20) == [
        "extract: 4 of 20 shards",
        "extract: 5 of 20 shards",
        "extract: 6 of 20 shards",
        "extract: 7 of 20 shards",
        "extract: 8 of 20 shards, about 24 s left",
        "extract: 9 of 20 shards, about 22 s left",
        "extract: 20 of 20 shards",
    ]


def test_many_quick_steps_are_one_line_now_and_then(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    steps = [(0.5, done) for done in range(1, 13)]
    said = lines(clock, caplog, Progress("study", "blocks"), steps, 12)
    assert [line.split(",")[0] for line in said] == [f"study: {done} of 12 blocks" for done in (1, 5, 9, 12)]


def test_short_work_is_not_worth_a_line(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    assert lines(clock, caplog, Progress("select", "examples", delay=2), [(0, 0), (1, 9)], 9) == []


def test_long_work_of_unknown_size_is_counted(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    steps = [(0, 0), (1, 9), (2, 20), (1, 25), (1, 40)]
    said = lines(clock, caplog, Progress("select", "examples", delay=2), steps, None)
    assert said == ["select: 20 examples", "select: 40 examples"]


@pytest.mark.parametrize("total", [20, None])
def test_terminal_gets_a_bar(
    total: int | None, clock: Clock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Progress("extract", "shards") as report:
        assert lines(clock, caplog, report, [(0, 4), (9, 5), (2, 9), (2, 20)], total) == []
    drawn = terminal.getvalue().replace("\r", "\n").splitlines()
    of = " of 20" if total else ""
    assert any("extract: " in line and f"4{of} shards" in line for line in drawn)
    assert f"20{of} shards" in drawn[-1]
    assert terminal.getvalue().endswith("\n")
