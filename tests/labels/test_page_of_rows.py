"""The page in a real browser with texts, tables and answers: audits whose truth is known, and every screen."""

import queue
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shown_pool
from labelled_pages import SIZES, Person, run_to_label, served_here, wait
from real_browser import assert_accessible, needs_browser
from shown_pool import EVIL, TAGS, answers, graded_run, tagged_run, tags_of, text_run
from waiting import LONG

from opacc_ray.audit.accuracy import estimate
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.report.answers import round_done
from opacc_ray.runs.run_documents import Goal
from opacc_ray.stored_audit import Audit

GUIDE = "# How\n\nRead **all** of it.\n\n- `spam` sells\n- ham <script>alert(1)</script>"

pytestmark = [pytest.mark.slow, needs_browser]


@contextmanager
def page_of(
    browser: Any, address: str, size: str = "desktop", scheme: str = "light", name: str = "ann"
) -> Iterator[Any]:
    """The page, opened by somebody who gave a name."""
    person = Person(browser, address, name, size, scheme, bypass_csp=True)
    yield person.page
    assert person.faults == []
    person.page.context.close()


def label_all(page: Any, key_of: Any) -> int:
    """Answer by the keys that ``key_of`` returns for what stands on the page; returns how many."""
    number, done = wait(page), 0
    while number is not None:
        for key in key_of(page):
            page.keyboard.press(key)
        number, done = wait(page, other_than=number), done + 1
    return done


def cells(page: Any) -> dict[str, str]:
    """Short columns on the page."""
    names, texts = (page.locator(f"#row {kind}").all_text_contents() for kind in ("dt", "dd"))
    return dict(zip(names, texts, strict=True))


MARKED = """**Bold** and `code`

3. third
4. fourth

| a | b |
|---|---|
| 1 | 2 |

<img src=x onerror=alert(1)> [link](javascript:alert(1)) ![dot](https://example.org/dot.png)
next line"""


def test_answers_are_shown_as_markdown_or_raw_and_nothing_of_them_runs(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the page's content security policy, which forbids the rest of it."""
    given, right = answers()
    place = given.schema.get_field_index("reply")
    marked = given.set_column(place, "reply", pa.array([MARKED] * len(given)))
    monkeypatch.setattr(shown_pool, "answers", lambda: (marked, right))
    run = graded_run(tmp_path, None, 10)
    with served_here(run) as address, page_of(browser, address, "phone") as page:
        first = wait(page)
        shown = page.locator("#row .given .markdown")
        assert shown.locator("strong").text_content() == "Bold"
        assert shown.locator("ol").get_attribute("start") == "3"
        assert shown.locator("td").all_text_contents() == ["1", "2"]
        assert shown.locator("a, img, script, b").count() == 0
        assert "<img src=x onerror=alert(1)> [link](javascript:alert(1))" in shown.text_content()
        assert_accessible(page, 10)
        page.click("#row .raw")
        assert page.text_content("#row .given p") == MARKED
        assert page.locator("#row .markdown").count() == 0
        page.keyboard.press("1")
        wait(page, other_than=first)
        assert page.text_content("#row .given p") == MARKED  # as chosen, until it is chosen otherwise
        page.click("#row .raw")
        assert page.locator("#row .markdown").count() == 1


def test_a_preference_is_given_side_by_side(browser: Any, tmp_path: Path) -> None:
    run = graded_run(tmp_path, "preference", 12)

    def key(page: Any) -> str:
        asked = cells(page)["question"].split()[2]
        first, second = (text == f"It is {asked}." for text in page.locator("#row .given p").all_text_contents())
        return "2" if first == second else "1" if first else "3"

    with served_here(run) as address, page_of(browser, address) as page:
        wait(page)
        one, other = (page.locator("#row .given").nth(place).bounding_box() for place in (0, 1))
        assert one["y"] == other["y"]
        assert label_all(page, key) == 12
    stated = estimate(run)
    assert stated.low <= answers()[1].mean() / 2 <= stated.high


def test_several_classes_are_picked_and_saved_together(browser: Any, tmp_path: Path) -> None:
    run = tagged_run(tmp_path, 8)

    def keys(page: Any) -> list[str]:
        wanted = tags_of(cells(page)["text"].removeprefix("number "))
        return [*(str(1 + TAGS.index(name)) for name in sorted(wanted)), "Enter"]

    with served_here(run) as address, page_of(browser, address) as page:
        wait(page)
        page.keyboard.press("1")
        assert page.get_attribute("#choices button >> nth=0", "aria-pressed") == "true"
        assert "Save 1" in page.text_content("#save")
        page.keyboard.press("1")  # the same key again takes it back
        assert "none of them" in page.text_content("#save")
        assert_accessible(page, 10)
        assert label_all(page, keys) == 8
    [known] = read_rounds(run)
    assert [set(text.split("|")) - {"none"} for text in known.truth] == [tags_of(id) for id in known.known.ids]


def assert_stays(page: Any, size: str, before: dict[str, float]) -> None:
    """The stage has not moved or changed its size, and nothing is wider or higher than the window."""
    assert page.locator("#stage").bounding_box() == before
    extent = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
    assert extent == list(SIZES[size])


@pytest.mark.parametrize("size", list(SIZES))
def test_the_stage_never_resizes_and_120_classes_are_listed(browser: Any, tmp_path: Path, size: str) -> None:
    names = [f"{colour} {thing}" for colour in ("red", "blue", "pale", "dark") for thing in map(str, range(30))]
    run = run_to_label(str(tmp_path), 4, names)
    with served_here(run) as address, page_of(browser, address, size) as page:
        wait(page)
        stage = page.locator("#stage").bounding_box()
        least = 0.5 if size != "phone" else 0.4
        assert stage["width"] * stage["height"] >= least * SIZES[size][0] * SIZES[size][1] * 0.8
        assert page.locator("#choices button").count() == 120
        page.locator("#choices button").last.scroll_into_view_if_needed()
        assert_stays(page, size, stage)
        page.keyboard.type("blu 7")
        assert_stays(page, size, stage)
        page.keyboard.type("zzz")
        assert "No class is called blu 7zzz" in page.text_content("#more")
        assert_stays(page, size, stage)
        page.keyboard.press("Escape")
        page.keyboard.type("dark 11")
        page.keyboard.press("Enter")
        assert wait(page, other_than="0") == "1"
        assert_stays(page, size, stage)
        assert page.text_content("#message") == "Saved: dark 11"
        assert_accessible(page, 10)


def test_an_answer_of_a_while_ago_is_clicked_and_corrected(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 5, ["cat", "dog", "owl"])
    with served_here(run) as address, page_of(browser, address) as page:
        for number in range(3):
            wait(page, other_than=str(number - 1))
            page.keyboard.press("1")
        wait(page, other_than="2")
        page.locator("#last button").last.click()
        page.wait_for_selector("#stage[data-number='0'][aria-busy=false]")
        assert page.text_content("#message").startswith("You answered cat. Answer again to correct it")
        page.keyboard.press("Escape")
        page.wait_for_selector("#stage[data-number='3'][aria-busy=false]")
        page.locator("#last button").last.click()
        page.wait_for_selector("#stage[data-number='0'][aria-busy=false]")
        page.keyboard.press("3")
        page.wait_for_selector("#stage[data-number='3'][aria-busy=false]")
        assert page.locator("#last b").all_text_contents() == ["owl", "cat", "cat"]
    assert sorted(read_rounds(run)[0].truth) == ["cat", "cat", "owl"]


def test_the_guide_is_shown_first_as_text(browser: Any, tmp_path: Path) -> None:
    labels = {"question": "Is it spam?", "guide": GUIDE, "describe": {"spam": "Sells something."}}
    run = text_run(tmp_path, ["text"], labels=labels)
    with served_here(run) as address, page_of(browser, address) as page:
        page.wait_for_selector("#guide[open]")
        assert page.locator("#guidetext strong").text_content() == "all"
        assert page.locator("#guidetext li").all_text_contents() == ["spam sells", "ham <script>alert(1)</script>"]
        assert page.locator("#guidetext script").count() == 0
        assert_accessible(page, 10)
        page.keyboard.press("1")  # answers nothing behind it
        page.keyboard.press("Enter")
        wait(page)
        assert not page.locator("#guide").is_visible()
        assert page.text_content("#question") == "Is it spam?"
        assert "Sells something." in page.text_content("#choices")
        assert_accessible(page, 10)
        page.reload()
        wait(page)
        assert not page.locator("#guide").is_visible()
    assert not read_rounds(run)[0].labelled.any()


def test_the_inbox_leads_to_each_run_and_shows_the_team(browser: Any, tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        labels = {"question": f"Is the {name} mail spam?"}
        text_run(tmp_path / name, ["text"], output=str(tmp_path / "out"), name=name, labels=labels)
    with served_here(str(tmp_path / "out")) as address:
        context = browser.new_context(viewport={"width": 390, "height": 844}, bypass_csp=True)
        context.set_default_timeout(1000 * LONG)
        page = context.new_page()
        page.goto(address)
        page.get_by_text("Is the second mail spam?").click()
        page.wait_for_selector("#namefield:focus")
        page.keyboard.type("ann")
        page.keyboard.press("Enter")
        wait(page)
        page.keyboard.press("1")
        wait(page, other_than="0")
        page.click("#inbox")
        page.wait_for_selector("#team:not([hidden])")
        assert page.locator("#people td").all_text_contents()[1:3] == ["ann", "1"]
        assert "1 of 12 answered" in page.locator("#runs li").nth(1).text_content()
        page.get_by_text("Is the second mail spam?").click()
        assert label_all(page, lambda page: "1") == 11
        assert page.text_content("#endtext").endswith("has been told. The inbox has the other rounds.")
        page.click("#inbox")
        page.wait_for_selector("#team:not([hidden])")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert_accessible(page, 10)
        context.close()


def test_one_page_leads_through_all_rounds_of_an_audit(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither address nor page change; between rounds it waits, and it thanks once the goal is reached."""
    run, addresses, goals = (
        text_run(tmp_path, ["subject", "text"], sample={"method": "srs", "budget": 20}),
        queue.Queue[str](),
        list[Goal](),
    )

    monkeypatch.setattr("webbrowser.open", addresses.put)
    with ThreadPoolExecutor(1) as thread:
        audit = thread.submit(Audit(run).label, until=0.09, on_round=goals.append)
        with page_of(browser, addresses.get(timeout=LONG)) as page:
            ends, seen, number = list[str](), set[str](), wait(page)
            while True:
                while number is not None:
                    seen.add(cells(page)["subject"])
                    page.keyboard.press("1" if page.locator("#row p").first.text_content().startswith("ham:") else "2")
                    number = wait(page, other_than=number)
                ends.append(page.text_content("#end"))
                if "The next round is being chosen; leave this page open." not in ends[-1]:
                    break
                assert not page.locator("#endundo").is_visible()
                page.keyboard.press("Backspace")  # changes nothing
                page.wait_for_selector(
                    "#endtitle:has-text('All labelled'), #work:not([hidden]) #stage[aria-busy=false]"
                )
                number = wait(page)
                assert number is None or page.text_content("#message").endswith(" more to answer.")
        goal = audit.result(timeout=LONG)
    assert addresses.empty()
    assert EVIL in seen  # its HTML is text, and ran nothing
    assert goal is not None
    assert goal.reached
    assert len(ends) == len(goals) + 1 == len(run.rounds()) + 1 > 2
    assert ends[-1].split()[:6] == ["All", "labelled", "Thank", "you,", "ann:", str(goal.looks[-1].labels)]
    first, last = round_done(goals[0]), round_done(goals[-1])
    assert re.fullmatch(r"round 1 done: \d+\.\d %, ±[\d.]+; round 2: \d+ more for ±9", first)
    assert re.fullmatch(rf"round {len(goals)} done: \d+\.\d %, ±\d\.\d+; that is enough for ±9", last)
