"""The page in a real browser: it fits, asks for nothing, follows the reader's colours, and axe finds nothing wrong."""

from pathlib import Path
from typing import Any

import pytest
from real_browser import SIZES, assert_accessible, assert_fits, needs_browser, opened
from reported_run import label, labelled_run, write_run
from stated_numbers import with_numbers

from opacc_ray.audit import verbs
from opacc_ray.extensions.characterize.characterization import characterize_sets
from opacc_ray.extensions.characterize.coverage_page import write_characterization
from opacc_ray.report.page import page as page_of
from opacc_ray.report.run_report import gather, make_report

pytestmark = [pytest.mark.slow, needs_browser]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page with long names, many mispredictions and two rounds."""
    classes = ["a very long name of a class, as some people give them, with-no-place-to-break-it" * 2, "b", "c"]
    run = labelled_run(tmp_path_factory.mktemp("browser"), 60, 60, method="neyman", classes=classes)
    return Path(make_report(run)[0].files[0]).as_uri()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_asks_for_nothing_and_follows_the_scheme(browser: Any, address: str, size: str, scheme: str) -> None:
    with opened(browser, address, size, scheme) as (page, asked, faults):
        assert [url for url in asked if not url.startswith("data:")] == [address]
        assert faults == []
        assert_fits(page, size)
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 22, 28)")
        images = page.locator("img").evaluate_all("all => all.map(one => one.naturalWidth)")
        assert images
        assert min(images) > 0


@pytest.mark.parametrize("size", SIZES)
def test_five_questions_are_answered_above_the_fold(browser: Any, tmp_path: Path, size: str) -> None:
    """Good enough? How sure? What is wrong with the labels? What now? Where does it fail?"""
    run = labelled_run(tmp_path, 100, method="neyman")
    place = Path(make_report(run, goal=0.75)[0].files[0])
    with opened(browser, place.as_uri(), size, "light") as (page, _, _):
        for part in ("#answer", ".range", ".checks li:nth-child(2) p", ".next pre", "#findings"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= SIZES[size][1], part


def test_a_pair_filters_the_wall_of_mistakes(browser: Any, address: str) -> None:
    with opened(browser, address, "desktop", "light") as (page, _, _):
        shown = page.locator(".gallery li:visible")
        every = shown.count()
        page.locator("#pair-0").check(force=True)
        count = int(page.locator("#pair-0 + span").inner_text().rpartition("(")[2].rstrip(")"))
        assert shown.count() == count < every
        page.locator("#pair-all").check(force=True)
        assert shown.count() == every


@pytest.fixture(scope="module")
def addresses(address: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages of all states: whole, partial, without labels (but characterised), a regression; and a characterisation."""
    partial = write_run(tmp_path_factory.mktemp("partial"))
    label(partial, verbs.select(partial, "ces", 60, {}).ids[:50])
    none = write_run(tmp_path_factory.mktemp("none"))
    verbs.select(none, "srs", 40, {})
    coverage = write_characterization(characterize_sets([none]), none)
    regression = labelled_run(tmp_path_factory.mktemp("regression"), 60, task="regression", form="npy")
    runs = {"partial": partial, "none": none, "regression": regression}
    made = {name: Path(make_report(run)[0].files[0]).as_uri() for name, run in runs.items()}
    report, pictures = gather(partial)
    assert report.estimate is not None
    numbers = tmp_path_factory.mktemp("numbers") / "report.html"
    numbers.write_text(page_of(report.model_copy(update={"estimate": with_numbers(report.estimate)}), pictures))
    others = {"coverage": Path(coverage[1]).as_uri(), "numbers": numbers.as_uri()}
    return {"whole": address} | others | made


@pytest.mark.parametrize("state", ["whole", "partial", "none", "regression", "coverage", "numbers"])
@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_axe_finds_no_violation(browser: Any, addresses: dict[str, str], state: str, size: str, scheme: str) -> None:
    with opened(browser, addresses[state], size, scheme) as (page, _, _):
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        assert_accessible(page, 20)
