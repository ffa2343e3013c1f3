"""Fixtures of the tests of fleets."""

import pytest

from opacc_ray.fleet import summary


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no report of an audit, which takes longer than all else, and at which nobody looks here."""
    monkeypatch.setattr(summary, "make_report", lambda run, level: None)
