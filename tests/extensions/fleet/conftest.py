"""Fixtures of the tests of fleets."""

import pytest
from extracting_here import extracting_here
from restored import Restored
from small_fleet import label, write_fleet

from opacc_ray.extensions.fleet.fleet_spec import load_fleet
from opacc_ray.extensions.fleet.run_fleet import run_fleet
from opacc_ray.runs.run import Run


@pytest.fixture(autouse=True)
def without_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write no report of an audit, which takes longer than all else, and at which nobody looks here."""
    monkeypatch.setattr("opacc_ray.report.run_report.make_report", lambda run, level: None)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """A fleet whose first rounds are drawn, and then labelled."""
    folder = Restored(tmp_path_factory.mktemp("prepared") / "fleet")
    file = write_fleet(folder.home)
    with extracting_here():
        audits = run_fleet(load_fleet(file), trial=False).summary.audits
    folder.keep("drawn")
    for audit in audits:
        label(Run.open(audit.run))
    folder.keep("labelled")
    return folder
