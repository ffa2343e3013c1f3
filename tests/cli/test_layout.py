"""Facts and tables on a terminal: aligned, styled only where the terminal has styles, free of control characters."""

import io
import sys

import pytest

from opacc_ray.cli.command import is_styled, terminal_text
from opacc_ray.report.facts import Column, Fact, Table, next_fact

TABLE = Table([Column("id"), Column("labels", "n")], [("カメラ4", "7"), ("a", "120")])


def test_numbers_are_aligned_below_their_head_also_for_wide_characters() -> None:
    assert terminal_text([TABLE]).splitlines() == [
        "id        labels",
        "カメラ4        7",
        "a            120",
    ]


def test_labels_are_padded_to_the_longest_and_a_long_file_name_moves_no_other() -> None:
    name = "labels-of-the-second-week.csv"
    lines = terminal_text([Fact("run", "a"), Fact("difference", "b"), Fact(name, "c")]).splitlines()
    assert lines == ["run         a", "difference  b", f"{name}  c"]


def test_details_are_shown_if_asked_for() -> None:
    facts = [Fact("accuracy", "68.2 %"), Fact("interval", "Wilson", detail=True)]
    assert terminal_text(facts) == "accuracy  68.2 %"
    assert terminal_text(facts, verbose=True) == "accuracy  68.2 %\ninterval  Wilson"


def test_control_characters_of_others_are_escaped() -> None:
    text = terminal_text([Fact("id", "a\x1b[2J\nb"), Table([Column("id")], [("\x07",)])])
    assert text == "id        a\\x1b[2J\\nb\nid\n\\x07"
    assert terminal_text([Fact("\x1b]0;title\x07.csv", "1 label")]).isprintable()


def test_styles_keep_the_text() -> None:
    facts = [Fact("accuracy", "68.2 %", "result"), Fact("warning", "no", "warning"), next_fact("opacc report x")]
    styled = terminal_text(facts, styled=True)
    assert "\x1b[1m68.2 %\x1b[0m" in styled
    assert styled.endswith("next: opacc report x\x1b[0m")
    assert "\x1b" not in terminal_text(facts)


@pytest.mark.parametrize(("variables", "expected"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_a_terminal_is_styled_unless_switched_off(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert not is_styled()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_styled() is expected
