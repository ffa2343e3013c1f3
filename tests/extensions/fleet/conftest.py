"""Fixtures of the tests of fleets."""

import pytest


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no report of an audit, which takes longer than all else, and at which nobody looks here."""
    monkeypatch.setattr("opacc_ray.report.run_report.make_report", lambda run, level: None)
