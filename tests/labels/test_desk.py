"""The page as a service: guide, last answers, an inbox of several runs, an address per person, and Markdown."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from labelled_pages import CLASSES, run_to_label
from PIL import Image
from shown_pool import graded_run, png, text_run
from starlette.testclient import TestClient

from opacc_ray.audit import verbs
from opacc_ray.errors import DataError, SpecError
from opacc_ray.labels.desk import TAGS, Desk, Element, UnsureError, tree
from opacc_ray.labels.label_log import adopt_rules, read_log
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.labels.web_app import Access, WaitingRuns, WebApp, _token_of, holds_runs
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run
from opacc_ray.runs.series import names_of_runs
from opacc_ray.spec import parse_spec

TOKEN = "t" * 20


def client(desks: Any, *, token: str = TOKEN, several: bool = False, **access: Any) -> TestClient:
    app = WebApp(desks, Access(TOKEN, **access), several=several)
    return TestClient(app, base_url=f"http://test/{token}")


def label_all(desk: Desk, name: str, label: str) -> None:
    while (number := desk.state(name)["number"]) is not None:
        desk.save(name, {"number": number, "label": label})


# -- what annotators are asked and told ----------------------------------------------------------------------


def test_the_guide_of_a_spec_is_told_and_follows_its_edits(tmp_path: Path) -> None:
    example = str(tmp_path / "guide" / "ham.png")
    open_store(str(tmp_path / "guide")).write("ham.png", png(7))
    labels = {
        "question": "Is this spam?",
        "guide": "# Read",
        "describe": {
            "spam": "Sells",
            "ham": {"text": "All else", "pictures": [example]},
        },
    }
    run = text_run(tmp_path, ["text"], labels=labels)
    page = client(lambda: [Desk(run)], annotator="ann")
    told = page.get("setup").json()
    assert (told["question"], told["guide"]) == ("Is this spam?", [["h2", {}, "Read"]])
    assert told["about"] == {"spam": {"text": "Sells", "pictures": 0}, "ham": {"text": "All else", "pictures": 1}}
    shown = page.get("example/1/0")
    assert Image.open(io.BytesIO(shown.content)).getpixel((0, 0)) == 7
    assert page.get("example/0/0").status_code == page.get("example/9/0").status_code == 422
    again = text_run(tmp_path, ["text"], labels=labels | {"question": "Spam or ham?"})
    assert again.uri == run.uri
    assert Desk(again).setup()["question"] == "Spam or ham?"
    assert read_log(again).rules.guidance.guide == "# Read"


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"describe": {"dog": "x"}}, "labels.describe names 'dog', which is none of ham, spam"),
        ({"unit": "years"}, "labels.unit is only supported for labels that are numbers"),
        ({"range": [5, 5]}, "is empty; give the lowest number and the highest"),
    ],
)
def test_guidance_that_does_not_fit_is_refused(tmp_path: Path, labels: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        text_run(tmp_path, ["text"], labels=labels)
    assert said in str(caught.value)


def test_a_number_outside_the_usual_range_is_asked_about(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 2, None, task="regression", error_scale=20.0)
    content = run.spec.model_dump(mode="json", exclude_unset=True)
    content["labels"] = {"unit": "years", "range": [0, 120]}
    adopt_rules(run, parse_spec(content, "spec"))
    desk = Desk(run)
    assert desk.setup()["unit"] == "years"
    with pytest.raises(UnsureError, match="130 is outside 0 to 120 years, the usual range here"):
        desk.save("ann", {"number": 0, "label": "130"})
    assert desk.save("ann", {"number": 0, "label": "130", "sure": "130"})["saved"] == {"label": "130"}


# -- last answers --------------------------------------------------------------------------------------------


def test_the_last_ten_answers_come_back_and_can_be_corrected(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 14, CLASSES)
    desk = Desk(run)
    for number in range(13):
        desk.save("ann", {"number": number, "label": "cat"})
    state = desk.state("ann")
    assert [item["number"] for item in state["last"]] == list(range(12, 2, -1))
    again = desk.again("ann", {"number": 5})
    assert (again["number"], again["mine"]["label"]) == (5, "cat")
    with pytest.raises(UnsureError):  # the page sends the version that it shows
        desk.save("ann", {"number": 5, "label": "owl"})
    after = desk.save("ann", {"number": 5, "label": "owl", "over": again["mine"]["version"]})
    assert after["number"] == 13  # on with what waits
    assert after["last"][0] == {"number": 5, "label": "owl", "title": ""}
    [found] = read_rounds(run)
    assert dict(zip(found.known.ids, found.truth, strict=True))[desk.queue.ids[5]] == "owl"
    assert desk.again("bob", {"number": 5})["number"] is None  # an answer of somebody else is not shown


def test_undo_of_a_correction_counts_the_answer_before_it_again(tmp_path: Path) -> None:
    run = run_to_label(str(tmp_path), 3, CLASSES)
    desk = Desk(run)
    desk.save("ann", {"number": 0, "label": "cat"})
    version = desk.again("ann", {"number": 0})["mine"]["version"]
    desk.save("ann", {"number": 0, "label": "owl", "over": version})
    state = desk.undo("ann")
    assert (state["undone"], state["number"], state["mine"]["label"]) == ({"label": "owl"}, 0, "cat")
    assert read_rounds(run)[0].truth == ("cat",)
    assert Desk(run).state("ann")["last"] == state["last"]  # as a new server reads it


def test_last_answers_of_rows_have_a_title(tmp_path: Path) -> None:
    desk = Desk(graded_run(tmp_path, None, 10))
    desk.save("ann", {"number": 0, "label": "right"})
    assert desk.state("ann")["last"][0]["title"].startswith("What is")


# -- several runs, several people ----------------------------------------------------------------------------


@pytest.fixture
def output(tmp_path: Path) -> str:
    """An output with two runs that wait for labels, and one that waits for none."""
    for name in ("first", "second", "done"):
        (tmp_path / name).mkdir()
        run = text_run(tmp_path / name, ["text"], output=str(tmp_path / "out"), name=name)
    label_all(Desk(run), "ann", "ham")
    return str(tmp_path / "out")


def test_an_output_has_an_inbox_of_its_waiting_runs(output: str) -> None:
    assert holds_runs(output)
    waiting = WaitingRuns(output, None)
    page = client(waiting, several=True)
    found = page.get("inbox.json").json()
    assert [(run["run"].partition("-")[0], run["place"], run["done"], run["total"]) for run in found["runs"]] == [
        ("first", 0, 0, 12),
        ("second", 1, 0, 12),
    ]
    state = page.post("1/next", json={"annotator": "ann"}).json()
    page.post("1/answer", json={"annotator": "ann", "number": state["number"], "label": "ham"})
    assert [run["done"] for run in page.get("inbox.json").json()["runs"]] == [0, 1]
    assert page.get("1/setup").json()["inbox"] is True
    assert b"inbox.js" in page.get("").content
    assert page.get("2/setup").status_code == page.get("next").status_code == page.get("setup").status_code == 404


def test_a_round_that_is_drawn_later_joins_the_inbox(output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opacc_ray.labels.web_app.RESCAN", 0.0)
    waiting = WaitingRuns(output, None)
    before = waiting()
    [done] = [run for run in names_of_runs(open_store(output)) if run.startswith("done-")]
    verbs.next_round(Run.open(f"{output}/{done}"), 5)
    after = waiting()
    assert after[:2] == before  # places do not change
    assert after[2].entry(None)["total"] == 17


def test_an_output_without_waiting_runs_is_refused(output: str, tmp_path: Path) -> None:
    for desk in WaitingRuns(output, None)():
        label_all(desk, "ann", "ham")
    with pytest.raises(DataError, match=r"no run under .* waits for labels"):
        WaitingRuns(output, None)
    assert not holds_runs(str(tmp_path / "first" / "pool"))


def test_an_output_whose_runs_cannot_be_shown_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = text_run(tmp_path, [])
    with pytest.raises(
        DataError, match=r"no run under .* waits for labels, and 1 run cannot be labelled here, as said above"
    ):
        WaitingRuns(run.uri.rpartition("/")[0], None)
    assert f"{run.name} cannot be labelled here: annotators would see nothing" in caplog.text


def test_a_persons_address_fixes_the_name_and_hides_the_team(tmp_path: Path) -> None:
    desk = Desk(text_run(tmp_path, ["text"]))
    token = _token_of("ann", TOKEN)
    assert token != _token_of("bob", TOKEN) != TOKEN
    people = {token: "ann"}
    own = client(lambda: [desk], token=token, people=people)
    own.post("answer", json={"annotator": "eve", "number": 0, "label": "ham"})
    assert {row.annotator for row in read_log(desk.run).labels()} == {"ann"}
    assert own.get("inbox.json").json()["team"] is None
    team = client(lambda: [desk], people=people).get("inbox.json").json()["team"]
    assert [(person["name"], person["answers"]) for person in team[0]["people"]] == [("ann", 1)]
    assert client(lambda: [desk], token="x" * 20, people=people).get("setup").status_code == 404


def test_behind_a_proxy_the_name_is_that_of_who_signed_in(tmp_path: Path) -> None:
    desk = Desk(text_run(tmp_path, ["text"]))
    page = client(lambda: [desk], header="X-Forwarded-Email")
    refused = page.post("next", json={"annotator": "eve"})
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        "you are not signed in: open the address through the proxy",
    )
    assert page.get("setup").status_code == page.get("inbox.json").status_code == 400
    signed = {"X-Forwarded-Email": "ann@example.org"}
    assert page.get("setup", headers=signed).json()["annotator"] == "ann@example.org"
    page.post("answer", json={"annotator": "eve", "number": 0, "label": "ham"}, headers=signed)
    assert {row.annotator for row in read_log(desk.run).labels()} == {"ann@example.org"}


def elements(parts: list[Element]) -> list[str]:
    return [tag for part in parts if isinstance(part, list) for tag in (part[0], *elements(part[2:]))]


def text_of(parts: list[Element]) -> str:
    return "".join(part if isinstance(part, str) else text_of(part[2:]) for part in parts)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**bold** and *thin*", [["p", {}, ["strong", {}, "bold"], " and ", ["em", {}, "thin"]]]),
        ("one\ntwo", [["p", {}, "one", ["br", {}], "two"]]),
        ("# Title", [["h3", {}, "Title"]]),
        ("3. c\n4. d", [["ol", {"start": 3}, ["li", {}, "c"], ["li", {}, "d"]]]),
        ("- a\n  - b", [["ul", {}, ["li", {}, "a", ["ul", {}, ["li", {}, "b"]]]]]),
        ("```python\nx = '<b>'\n```", [["pre", {}, "x = '<b>'\n"]]),
        ("2 * 3 * 4 and snake_case_name", [["p", {}, "2 * 3 * 4 and snake_case_name"]]),
        ("", []),
    ],
)
def test_a_text_becomes_what_a_chat_shows(text: str, shown: list[Element]) -> None:
    assert tree(text, below=2, breaks=True) == shown


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick=alert(1)>b</b>",
        "[a](javascript:alert(1))",
        "[a](https://example.org)",
        "![a](https://example.org/track.png)",
        "<https://example.org>",
        "[a]\n\n[a]: https://example.org",
    ],
)
def test_html_links_and_images_stay_the_text_that_they_are(text: str) -> None:
    found = tree(text, below=2)
    assert set(elements(found)) <= {"p"}
    assert text_of(found) == text.replace("\n\n", "")


@pytest.mark.parametrize("text", ["> " * 50 + "x", "- " * 50 + "x\n\nafter", "1. " * 9 + "x", "> - " * 5 + "**x**"])
def test_no_text_is_lost_however_deep_it_is(text: str) -> None:
    found = tree(text, below=2)
    assert "x" in text_of(found)
    assert "after" not in text or "after" in text_of(found)


def test_nothing_but_known_tags_and_numbers_of_lists_reaches_the_browser() -> None:
    text = "*" * 1000 + "[" * 1000 + "\n\n1. a\n\n   b\n\n---\n`c` ~~d~~ &lt;e&gt; \\*f\\*"
    found = tree(text, below=2)
    assert set(elements(found)) <= TAGS
    assert json.loads(json.dumps(found)) == found
    assert text_of(found).endswith("c d <e> *f*")
