"""The page of a fleet in a real browser: it fits, requests nothing, and has no axe violation."""

from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from real_browser import SIZES, assert_accessible, assert_fits, needs_browser, opened
from small_fleet import Weeks, label, model, write_fleet

from opacc_ray.extensions.fleet.fleet_spec import load_fleet
from opacc_ray.extensions.fleet.run_fleet import run_fleet
from opacc_ray.runs.run import Run

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three weeks of a fleet with an alert, a change, labels that are waited for, and a failure with a long name."""
    home = tmp_path_factory.mktemp("browser")
    long = "a-model-with-a-very-long-name-and-no-place-to-break-it"
    models = {"trained": model(home, "trained"), long: model(home, "random")}
    with extracting_here(), pytest.MonkeyPatch.context() as patch:
        weeks = Weeks(patch)
        for week in range(3):
            spec = {"transform": "small_pictures:to_input", "seed": week, "sample": {"method": "srs", "budget": 40}}
            file = write_fleet(
                home, models=models, spec=spec, alerts={"min": {"accuracy": 0.9}, "max_drop": {"accuracy": 0.01}}
            )
            if week == 2:
                (home / "random.safetensors").write_bytes(b"cut off")
            written = run_fleet(load_fleet(file), trial=False)
            for item in written.summary.audits if week < 2 else ():
                label(Run.open(item.run or ""), wrong=0.1 * week)
            weeks.next()
    return Path(written.files[0]).as_uri()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_asks_for_nothing_and_has_no_violation(browser: Any, address: str, size: str, scheme: str) -> None:
    with opened(browser, address, size, scheme) as (page, asked, faults):
        assert asked == [address]
        assert faults == []
        assert_fits(page, size)
        text = page.inner_text("main")
        assert all(word in text for word in ("Alert.", "Failed at ", "40 to label", "failed", "An alert is raised"))
        assert_accessible(page, 20)
