"""The page: self-contained, accessible in its structure, and safe whatever ids, classes and reasons say."""

import base64
import io
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from reported_run import CLASSES, KEYS, PREDICTION, TRUTH, N, labelled_run, write_run

from opacc_ray.audit import verbs
from opacc_ray.report.page import markdown_prose, origin_of, page, summary
from opacc_ray.report.run_report import gather
from opacc_ray.runs.run import Run

VOID = {"meta", "img", "line", "circle", "path", "br", "link", "input"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "{{ 7 * 7 }}|`]('&amp;--><!--\n# owl",
]


class Page(HTMLParser):
    """Elements in their order, with attributes and texts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self) -> str:
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return labelled_run(tmp_path_factory.mktemp("page"), 40, 60, method="neyman")


@pytest.fixture(scope="module")
def html(run: Run) -> str:
    return page(*gather(run))


def test_it_fetches_nothing_and_runs_nothing(html: str) -> None:
    found = Page(html)
    assert found.all("script") == found.all("link") == found.all("iframe") == []
    [policy] = [item["content"] for item in found.all("meta") if item.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert {item["src"].partition(";")[0] for item in found.all("img")} <= {"data:image/png", "data:image/jpeg"}
    assert not re.search(r"url\(|@import|https?://|javascript:", html)
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)


def test_its_structure_is_one_that_a_screen_reader_follows(html: str) -> None:
    found = Page(html)
    assert found.all("html")[0]["lang"] == "en"
    assert found.open == []
    levels = [int(tag[1]) for tag, _ in found.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later - before <= 1 for before, later in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in found.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = " ".join(a["aria-labelledby"] for _, a in found.elements if "aria-labelledby" in a).split()
    assert set(named) <= set(ids)
    assert all(item["role"] == "img" and "aria-labelledby" in item for item in found.all("svg"))
    assert len(found.all("title")) == len(found.all("desc")) + 1 == len(found.all("svg")) + 1
    assert all("scope" in item for item in found.all("th"))
    assert all(item["alt"] for item in found.all("img"))
    regions = [item for item in found.all("div") if item.get("class") == "scroll"]
    assert regions
    assert all(item["tabindex"] == "0" and item["aria-label"] for item in regions)


def test_it_says_the_answer_the_worth_and_how_to_repeat_it(run: Run, html: str) -> None:
    report, _ = gather(run)
    words = Page(html).words
    assert report.answer in words
    assert report.worth is not None
    assert report.worth in words
    assert report.header.digest in words
    assert report.header.pool.digest in words
    order = ("What now", "Where it fails", "Evidence", "Accuracy by predicted class", "Confusions", "Rounds and labels")
    places = [words.index(heading) for heading in (*order, "Mistakes", "How it was made", "Digests and versions")]
    assert places == sorted(places)
    assert "rests on the random draw alone" in words


def test_it_says_which_audits_it_started_from(tmp_path: Path) -> None:
    earlier = labelled_run(tmp_path / "earlier", 40)
    sample = {"method": "neyman", "budget": 30}
    run = labelled_run(tmp_path / "now", 30, method="neyman", sample=sample, history=[earlier.uri])
    report, pictures = gather(run)
    said = f"Used before the first label: 40 labels from the audit {earlier.uri}."
    assert said in Page(page(report, pictures)).words
    assert "40 labels from the audit" in summary(report)
    nothing = report.model_copy(update={"history": []})
    assert "found none with labels." in Page(page(nothing, pictures)).words


def test_without_labels_it_shows_what_waits_and_what_the_model_claims(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    verbs.select(run, "srs", 40, {})
    report, pictures = gather(run)
    assert (report.state, report.estimate, report.gallery) == ("without labels", None, None)
    assert (report.course, pictures) == ([], {})
    assert report.reliability is not None
    assert (report.reliability.bins, set(report.reliability.expected)) == ({}, set(CLASSES))
    words = Page(page(report, pictures)).words
    assert "There is no label yet: 40 of 240 examples wait for one." in words
    assert "What now Label the 40 examples that wait." in words
    assert "Expected accuracy by predicted class from the confidence alone" in words
    assert not re.search("Where it fails|Mistakes|Confusions|interval of the", words)


def test_a_regression_has_values_and_no_classes(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 50, task="regression", form="npy")
    report, pictures = gather(run)
    assert "scores about" in report.answer
    assert (len(report.values or []), report.reliability) == (50, None)
    assert report.gallery is not None
    assert all(item.outcome < 0.5 for item in report.gallery.examples)
    assert all("no picture" in str(found) for found in pictures.values())
    html = page(report, pictures)
    words = Page(html).words
    assert "Operational score" in words
    assert "Predictions and labels" in words
    assert "The score is the mean score, max(0, 1 - (error / 1)²)" in words
    assert not re.search(r"right on|class|accuracy", words.partition("Digests and versions")[0])
    assert {item["aria-labelledby"].partition("-")[0] for item in Page(html).all("svg")} == {"intervals", "values"}


def test_a_purposive_sample_says_what_its_interval_rests_on(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 40, method="ces")
    words = Page(page(*gather(run))).words
    assert "with 95 % confidence under assumptions, from 40 labels." in words
    assert "does not rest on the random draw alone" in words
    assert "✗ Sampling 40 examples chosen by ces: no random sample, so no interval is certain." in words
    assert "worth" not in words


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Ids and classes that try to leave their places, in page and summary."""
    keys = [f"{HOSTILE[i % 3].replace('/', '∕')}{i}.png" for i in range(N)]
    return labelled_run(tmp_path_factory.mktemp("hostile"), 90, keys=keys, classes=HOSTILE, name="weekly")


def test_hostile_ids_and_classes_are_nothing_but_text(hostile: Run) -> None:
    html = page(*gather(hostile))
    found = Page(html)
    harmless = {tag for tag, _ in Page(page(*gather(hostile))).elements} - {"script"}
    assert {tag for tag, _ in found.elements} == harmless
    assert found.all("script") == []
    assert all(item["src"].startswith("data:image/") for item in found.all("img"))
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    for name in HOSTILE:
        assert " ".join(name.split()) in found.words
    assert "49" not in [item["alt"] for item in found.all("img")]
    assert found.open == []


def test_pictures_are_those_of_the_examples_they_stand_by(run: Run, html: str) -> None:
    wrong = {key for i, key in enumerate(KEYS) if TRUTH[i] != PREDICTION[i]}
    images = Page(html).all("img")
    assert images
    for item in images:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(item["src"].partition(",")[2]))))
        assert item["alt"] in wrong
        assert (pixels == int(item["alt"][:3])).all()


def test_markdown_keeps_commands_as_code_and_everything_else_as_text() -> None:
    said = markdown_prose("label some twice (`opacc label --overlap 0.2`), *not* <b>")
    assert said == r"label some twice (`opacc label --overlap 0.2`), \*not\* &lt;b&gt;"
    assert markdown_prose("one ` <b>") == r"one \` &lt;b&gt;"


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ({"factory": "user:network"}, {"Model": "user:network", "Weights": "made by the factory"}),
        ({"function": "user:predict"}, {"Model": "user:predict"}),
        ({"program": "s3://models/net.pt2", "trust": True}, {"Model": "s3://models/net.pt2"}),
    ],
)
def test_the_model_is_named_however_it_was_brought(
    model: dict[str, str], found: dict[str, str], tmp_path: Path
) -> None:
    run = write_run(tmp_path, model=model)
    verbs.select(run, "srs", 10, {})
    rows = dict(origin_of(gather(run)[0]))
    assert {key: rows[key] for key in ("Model", "Weights") if key in rows} == found
