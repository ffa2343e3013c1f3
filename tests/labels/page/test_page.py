"""The page in a real browser, used by keys alone: every answer matches its picture, and is saved in the run."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labelled_pages import CLASSES, grey, run_to_label, served_here
from logged import label_files
from real_browser import assert_accessible, needs_browser

from opacc_ray.audit.accuracy import estimate
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.page.label_queue import LabelQueue
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
TOKEN = "the-same-after-a-restart"

pytestmark = [pytest.mark.slow, needs_browser]


class Person:
    """Somebody at a page who uses only the keyboard."""

    def __init__(self, browser: Any, address: str, name: str | None, size: dict[str, int] = DESKTOP) -> None:
        self.page = browser.new_context(viewport=size, reduced_motion="reduce").new_page()
        self.page.set_default_timeout(20_000)
        self.faults: list[str] = []
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url, address))
        self.page.goto(address)
        if name is not None:
            self.page.wait_for_selector("#namefield:focus")
            self.keys(*name, "Enter")

    def _check(self, url: str, address: str) -> None:
        if not url.startswith((address, "data:")):
            self.faults.append(f"asked for {url}")

    def keys(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def is_done(self) -> bool:
        return bool(self.page.locator("#end").is_visible())

    def wait(self, other_than: int | None = None) -> int | None:
        """Wait for an example, another one than that; returns its number, or None at the end."""
        shown = "#stage[aria-busy=false]"
        if other_than is not None:
            shown += f":not([data-number='{other_than}'])"
        self.page.wait_for_selector(f"#work:not([hidden]) {shown}, #end:not([hidden])")
        return None if self.is_done else int(self.page.get_attribute("#stage", "data-number"))

    def sees(self) -> int:
        """The grey of the picture on the page, by its pixels on the screen; which is the number of its file."""
        box = self.page.locator("#picture").bounding_box()
        assert box is not None
        middle = {"x": box["x"] + box["width"] / 2 - 2, "y": box["y"] + box["height"] / 2 - 2, "width": 4, "height": 4}
        shot = self.page.screenshot(clip=middle)
        return int(_pixels(shot)[0, 0, 0])

    def answer(self, *keys: str) -> int | None:
        """Answer what is shown; returns the number that follows."""
        before = self.wait()
        self.keys(*keys)
        return self.wait(other_than=before)

    def says(self) -> str:
        return str(self.page.text_content("#message"))


def _pixels(data: bytes) -> np.ndarray:
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


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
        person.answer(str(1 + person.sees() % 3))
    return most


@pytest.mark.parametrize(("size", "alone", "turns"), [(PHONE, 6, 6), (DESKTOP, 10, 10)], ids=["phone", "desktop"])
def test_many_images_by_keys_with_a_restart_and_two_people(
    browser: Any, tmp_path: Path, size: dict[str, int], alone: int, turns: int
) -> None:
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


def test_the_overlap_is_shown_to_both(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 10, CLASSES)
    with served_here(run, overlap=0.5) as address:
        ann, bob = (Person(browser, address, name) for name in ("ann", "bob"))
        num = label_by_eye(ann, 20) + label_by_eye(bob, 20)
    assert num == 15
    noise = estimate(run).label_noise
    assert noise is not None
    assert (noise.examples, noise.differ) == (5, 0)


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


def test_ten_thousand_classes_are_searched(browser: Any, tmp_path: Path) -> None:
    names = [f"{colour} {thing} {i}" for colour in ("red", "blue") for thing in ("fox", "car") for i in range(2500)]
    run = run_to_label(str(tmp_path), 6, names)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.wait()
        start = time.perf_counter()
        ann.answer(*"blue fox 77", "Enter")
        assert time.perf_counter() - start < 5
        ann.answer(*"CAR 2499", "ArrowDown", "Enter")
        ann.answer("1")  # the last one answered is offered first
        ann.answer(*"fox 12", "Escape", *"/red car 0", "Enter")
        ann.wait()
        ann.keys(*"no such thing", "Enter")
        ann.page.wait_for_selector("#message.wrong")
        assert ann.says() == "No class is called no such thing."
        assert ann.faults == []
    [only] = read_rounds(run)
    assert only.truth == ("blue fox 77", "blue car 2499", "blue car 2499", "red car 0")


def test_digits_are_their_own_keys(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, [str(i) for i in range(10)])
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        for key in "709":
            ann.answer(key)
    assert read_rounds(run)[0].truth == ("7", "0", "9")


def test_a_regression_takes_numbers(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 4, None, task="regression", error_scale=2.0)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.answer(*"12.5", "Enter")
        ann.answer(*"-3,25", "Enter")
        ann.wait()
        ann.keys(*"much", "Enter")
        ann.page.wait_for_selector("#message.wrong")
        assert "write a number" in ann.says()
        ann.keys(*["Backspace"] * 4)
        ann.answer("?")
        ann.wait()
        ann.keys("Enter")
        assert ann.says() == "Type a number, or ? if you can’t tell."
    [only] = read_rounds(run)
    assert (only.truth, len(only.unsure)) == (("12.5", "-3.25"), 1)


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


def test_a_question_can_be_answered_with_another_label(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, CLASSES)
    with served_here(run) as address:
        first, second = Person(browser, address, "ann"), Person(browser, address, "ann")
        assert first.wait() == second.wait() == 0
        first.answer("1")
        second.keys("2")
        second.page.wait_for_selector("#ask:not([hidden])")
        second.answer("1")  # what the other tab said
        assert second.says() == "Saved: cat"
        assert len(label_files(run, 1)) == 1


def test_an_unlikely_number_is_saved_only_if_confirmed(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 4, None, task="regression", error_scale=20.0)
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.answer(*"2,75", "Enter")
        assert ann.says() == "Saved: 2.75 (you wrote 2,75)"
        ann.wait()
        ann.keys(*"1e9", "Enter")
        ann.page.wait_for_selector("#ask:not([hidden])")
        assert ann.says() == "1e9 is over 100 times larger than expected here."
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


def test_nothing_is_answered_before_it_is_seen(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    with served_here(run) as address:
        ann = Person(browser, address, None)
        held: list[Any] = []
        hold = True
        ann.page.route("**/image/*", lambda route: held.append(route) if hold else route.continue_())
        ann.page.wait_for_selector("#namefield:focus")
        ann.keys(*"ann", "Enter")
        ann.page.wait_for_selector("#wait:not([hidden])")
        ann.keys("1", "2", "0")
        assert not any(item.labelled.any() for item in read_rounds(run))
        hold = False
        for route in held:
            route.continue_()
        ann.answer("1")
    assert read_rounds(run)[0].labelled.sum() == 1


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
        ann.keys("?")  # nothing is answered for a picture that may come
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


def test_zooming_loads_all_pixels(browser: Any, tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 1, CLASSES)
    open_store(run.spec.pool.uri).write(run.read_selection(1).ids[0], grey(120, (5000, 4000)))
    with served_here(run) as address:
        ann = Person(browser, address, "ann")
        ann.wait()
        width = ann.page.locator("#picture").bounding_box()["width"]
        assert width < 1280
        with ann.page.expect_response("**/image/0/whole") as whole:
            ann.keys("z")
        assert whole.value.status == 200
        assert ann.page.locator("#picture").bounding_box()["width"] > 2 * width
        ann.keys("ArrowRight", "ArrowDown", "z")
        assert ann.page.locator("#picture").bounding_box()["width"] == pytest.approx(width)
        assert ann.sees() == 120
        assert ann.answer("1") is None


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen(browser: Any, tmp_path: Path, size: dict[str, int], scheme: str) -> None:
    run = run_to_label(str(tmp_path), 1, ["a class with a name that is far too long for a button on a phone", *CLASSES])
    with served_here(run) as address:
        ann = Person(browser, address, "somebody with a long name", size)
        ann.page.emulate_media(color_scheme=scheme)
        ann.wait()
        boxes = [item.bounding_box() for item in ann.page.locator("button:visible, #picture, #count").all()]
        assert len(boxes) > len(CLASSES)
        for box in boxes:
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= size["width"]
            assert box["y"] + box["height"] <= size["height"]


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(browser: Any, tmp_path: Path, size: dict[str, int], scheme: str) -> None:
    """Its rules include the contrast of all text, by WCAG 2.2, AA."""
    run = run_to_label(str(tmp_path), 2, [f"class {i}" for i in range(60)])
    with served_here(run) as address:
        page = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True).new_page()
        page.goto(address)
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
