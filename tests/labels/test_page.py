"""The page in a real browser, used by keys alone: every answer matches its picture, and is saved in the run."""

import io
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_pages import CLASSES, Person, run_to_label, served_here
from logged import label_files
from PIL import Image
from real_browser import assert_accessible, needs_browser

from opacc_ray.audit.accuracy import estimate
from opacc_ray.labels.desk import LabelQueue
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

TOKEN = "the-same-after-a-restart"

pytestmark = [pytest.mark.slow, needs_browser]


def seen_by(person: Person) -> int:
    """The grey of the picture on the page, by its pixels on the screen; which is the number of its file."""
    box = person.page.locator("#picture").bounding_box()
    middle = {"x": box["x"] + box["width"] / 2 - 2, "y": box["y"] + box["height"] / 2 - 2, "width": 4, "height": 4}
    shot = Image.open(io.BytesIO(person.page.screenshot(clip=middle)))
    return int(np.asarray(shot.convert("RGB"))[0, 0, 0])


def truth_of(value: int) -> str:
    return CLASSES[value % 3]


def labels_of(run: Run) -> dict[str, str]:
    [only] = read_rounds(run)
    return dict(zip(only.known.ids, only.truth, strict=True))


def label_by_eye(person: Person, most: int) -> int:
    """Label what is seen by its key until that many are done, or nothing is left; returns how many."""
    for done in range(most):
        if person.wait() is None:
            return done
        person.answer(str(1 + seen_by(person) % 3))
    return most


def test_many_images_by_keys_with_a_restart_and_two_people(browser: Any, tmp_path: Path) -> None:
    size, alone, turns = "phone", 4, 4
    num = alone + 2 * turns
    run = run_to_label(str(tmp_path), num, CLASSES)
    with served_here(run, token=TOKEN) as address:
        ann = Person(browser, address, "ann", size)
        assert label_by_eye(ann, alone) == alone
        ann.page.context.close()
    assert sum(item.labelled.sum() for item in read_rounds(run)) == alone
    with served_here(run, token=TOKEN) as address:
        people = [Person(browser, address, name, size) for name in ("ann", "bob")]
        for _ in range(turns):  # so that both have an example at any time
            numbers = [person.wait() for person in people]
            assert numbers[0] != numbers[1]
            for person in people:
                label_by_eye(person, 1)
        for person in people:
            assert person.wait() is None
            person.page.wait_for_selector("#endtitle:has-text('All labelled')")
        assert [person.faults for person in people] == [[], []]
    assert labels_of(run) == {f"{i:03d}.png": truth_of(i) for i in range(num)}
    assert len(label_files(run, 1)) == num  # nothing twice
    assert estimate(run).n == num


@pytest.mark.parametrize("leave", ["close", "reload"])
def test_a_tab_that_is_closed_gives_its_example_back(browser: Any, tmp_path: Path, leave: str) -> None:
    run = run_to_label(str(tmp_path), 1, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        assert ann.wait() == 0
        bob = Person(browser, address, "bob")
        assert bob.wait() is None  # the only example is at ann's page
        if leave == "reload":
            ann.page.reload()
            assert ann.wait() == 0
            assert bob.is_done
        else:
            ann.page.close(run_before_unload=True)
            bob.page.wait_for_selector("#work:not([hidden]) #stage[aria-busy=false]")
            bob.answer("1")
        assert bob.faults == []


def test_undo_and_cannot_tell(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        first = ann.wait()
        ann.answer("1")
        assert ann.says() == "Saved: cat"
        ann.answer("Backspace")
        assert ann.wait() == first
        assert ann.says() == "Undone: cat"
        ann.answer("3")
        ann.answer("0")
        ann.answer("2")
        assert ann.is_done
        ann.keys("Backspace")
        ann.page.wait_for_selector("#work:not([hidden]) #stage[aria-busy=false]")
        ann.answer("?")
        assert ann.is_done
        assert ann.faults == []
    [only] = read_rounds(run)
    assert only.truth == ("owl",)
    assert len(only.unsure) == 2


@pytest.mark.parametrize("changes", [True, False])
def test_a_second_tab_of_one_person_asks_before_it_overrules_the_first(
    browser: Any, tmp_path: Path, changes: bool
) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    with served_here(run) as address:
        first, second = Person(browser, address, "ann"), Person(browser, address, "ann")
        assert first.wait() == second.wait() == 0
        first.answer("1")
        second.keys("2")
        second.page.wait_for_selector("#ask:not([hidden])")
        assert second.says() == "You already answered this example on another page: cat."
        shown = {name: second.page.text_content(f"#{name}") for name in ("no", "yes")}
        assert shown == {"no": "Keep it", "yes": "Change it to dog"}
        assert second.page.evaluate("document.activeElement.id") == "no"
        assert second.page.get_attribute("#stage", "data-number") == "0"
        assert_accessible(second.page, 10)
        assert labels_of(run) == {LabelQueue(run).ids[0]: "cat"}
        if changes:
            second.keys("Tab")
        second.keys("Enter")
        assert second.wait(other_than=0) == 1
        assert not second.page.locator("#ask").is_visible()
        assert second.says() == ("Saved: dog" if changes else "")
        assert (first.faults, second.faults) == ([], [])
    assert labels_of(run) == {LabelQueue(run).ids[0]: "dog" if changes else "cat"}


def test_an_unlikely_number_is_saved_only_if_confirmed(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 4, None, task="regression", error_scale=20.0)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.answer(*"2,75", "Enter")
        assert ann.says() == "Saved: 2.75 (you wrote 2,75)"
        ann.wait()
        ann.keys(*"1,250", "Enter")
        ann.page.wait_for_selector("#ask:not([hidden])")
        assert ann.says() == "1,250 means 1.25: the comma is a decimal point here."
        ann.keys("Enter")  # the focus is on "Correct it"
        ann.page.wait_for_selector("#field:focus")
        assert not ann.page.locator("#ask").is_visible()
        assert len(label_files(run, 1)) == 1
        ann.answer(*"19", "Enter")  # the text was selected, and is replaced
        assert ann.says() == "Saved: 19"
        ann.wait()
        ann.keys(*"1,250", "Enter")
        ann.page.wait_for_selector("#ask:not([hidden])")
        assert ann.page.text_content("#yes") == "Save anyway"
        ann.answer("Tab", "Enter")
        assert ann.says() == "Saved: 1.25 (you wrote 1,250)"
        assert ann.faults == []
    assert read_rounds(run)[0].truth == ("2.75", "19", "1.25")


def test_a_key_that_is_held_down_answers_once(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 5, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        before = ann.wait()
        for _ in range(20):
            ann.page.keyboard.down("1")
        ann.page.keyboard.up("1")
        ann.wait(other_than=before)
        time.sleep(0.5)
    assert read_rounds(run)[0].labelled.sum() == 1


def test_a_stopped_server_loses_nothing_and_is_reported(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        number = ann.answer("1")
    ann.keys("2")
    ann.page.wait_for_selector("#message.wrong")
    assert ann.says() == "Not saved: the server does not respond. Try again when it is running."
    assert ann.wait() == number  # still the same example
    assert read_rounds(run)[0].labelled.sum() == 1


def test_a_picture_is_asked_for_until_the_server_is_back(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, None)
        away = [True] * 4
        ann.page.route("**/image/*", lambda route: route.abort() if away and away.pop() else route.continue_())
        ann.page.wait_for_selector("#namefield:focus")
        ann.keys(*"ann", "Enter")
        ann.page.wait_for_selector("#wait:not([hidden])")
        ann.keys("1", "2", "?")  # nothing is answered for a picture that may come
        ann.answer("1")
    [only] = read_rounds(run)
    assert not away
    assert (only.unsure, only.labelled.sum()) == ((), 1)


def test_a_picture_that_cannot_be_shown_is_left_out_or_passed_by(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, CLASSES)
    first = run.read_selection(1).ids[0]
    open_store(run.spec.pool.uri).write(first, b"no picture")
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.page.wait_for_selector("#broken:has-text('cannot be shown. Answer')")
        ann.keys("1")
        ann.keys("?")
        assert ann.wait(other_than=0) == 1
        ann.answer("1")
    [only] = read_rounds(run)
    assert (only.unsure, only.truth) == ((first,), ("cat",))


def test_axe_finds_no_violation_in_the_dark(browser: Any, tmp_path: Path) -> None:
    """Its rules include the contrast of all text, by WCAG 2.2, AA. Other tests ask it of the light page."""
    run = run_to_label(str(tmp_path), 2, [f"class {i}" for i in range(60)])
    with served_here(run) as address:
        page = Person(browser, address, None, "desktop", "dark", bypass_csp=True).page
        page.wait_for_selector("#namefield:focus")
        assert "color-contrast" in assert_accessible(page, 10)
        for key in [*"ann", "Enter"]:
            page.keyboard.press(key)
        page.wait_for_selector("#stage[aria-busy=false]")
        page.keyboard.type("class 1")
        assert "color-contrast" in assert_accessible(page, 10)
        page.keyboard.press("Enter")
        page.wait_for_selector("#stage[aria-busy=false]:not([data-number='0'])")
        assert page.text_content("#message") == "Saved: class 1"
        page.wait_for_timeout(300)  # until colours have changed
        assert "color-contrast" in assert_accessible(page, 10)
        page.keyboard.press("?")
        page.wait_for_selector("#end:not([hidden])")
        assert "color-contrast" in assert_accessible(page, 10)
