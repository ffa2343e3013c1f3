"""A person at a terminal reads one line while loops are compiled for the first time."""

import sys

import pytest

from opacc_ray.parts import loops


def test_long_compiling_is_reported_once_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loops, "_seconds", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for seconds in (0.6, 0.3, 0.5, 3.0):
        loops._report(seconds)
    assert capsys.readouterr().err.count("opacc: compiling for this machine") == 1
