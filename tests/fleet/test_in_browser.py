"""The page of a fleet in a real browser: it fits, asks for nothing, follows the reader's colours, axe finds nothing."""

from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from real_browser import needs_browser
from small_fleet import Weeks, label, model, write_fleet

from opacc_ray.audit.run import Run
from opacc_ray.fleet.spec import load_fleet
from opacc_ray.fleet.write import run_fleet

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
            spec = {"transform": "small_model:to_input", "seed": week, "sample": {"method": "srs", "budget": 40}}
            file = write_fleet(home, models=models, spec=spec, alerts={"min_accuracy": 0.9, "max_drop": 0.01})
            if week == 2:
                (home / "random.safetensors").write_bytes(b"cut off")
            written = run_fleet(load_fleet(file), trial=False)
            for item in written.summary.audits if week < 2 else ():
                label(Run.open(item.run or ""), wrong=0.1 * week)
            weeks.next()
    return Path(written.files[0]).as_uri()


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_asks_for_nothing_and_has_no_violation(
    browser: Any, address: str, width: int, height: int, scheme: str
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    asked: list[str] = []
    faults: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: faults.append(message.text))
    page.goto(address)
    assert asked == [address]
    assert faults == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    text = page.inner_text("main")
    assert all(word in text for word in ("Alert.", "Failed.", "40", "Over time", "When the alarm is raised"))
    shown = page.locator("svg:visible").evaluate_all("all => all.map(one => one.getAttribute('aria-labelledby'))")
    assert {name.split()[0].rsplit("-", 2)[1] for name in shown} == {"w" if width == 1280 else "n"}
    found = Axe().run(page)
    assert [(item["id"], item["impact"], item["nodes"][0]["html"]) for item in found.response["violations"]] == []
    context.close()
