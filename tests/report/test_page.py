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
from reported_run import KEYS, PREDICTION, TRUTH, N, label, write_run

from opacc_ray.audit import verbs
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.report import rendering
from opacc_ray.report.figures import Row, interval_chart
from opacc_ray.report.gallery import draw
from opacc_ray.report.page import page, pairs_of, summary
from opacc_ray.report.run_report import gather, make_report, weights_of
from opacc_ray.runs.run import Run
from opacc_ray.svg import WIDE

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
    run = write_run(tmp_path_factory.mktemp("page"))
    label(run, verbs.select(run, "neyman", 40, {}).ids)
    label(run, verbs.next_round(run, 60).ids)
    return run


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


def test_every_figure_is_there_for_wide_and_for_narrow_pages(html: str) -> None:
    found = {item["aria-labelledby"].split()[0] for item in Page(html).all("svg")}
    names = ("intervals", "course", "widths", "reliability", "slices-0", "slices-1")
    assert found == {f"{name}-{size}-title" for name in names for size in "wn"}


@pytest.mark.parametrize("note", ["92.3% – 97.1%", "92.27% – 97.14%", "92.2721% – 99.9999%"])
def test_ranges_beside_a_chart_of_intervals_leave_its_marks_free(note: str) -> None:
    """The fonts of common systems take 7.4 pixels a character of such a range at most."""
    row = Row("This audit", 0.92, 0.95, 1.0, "own", note=note)
    drawn = interval_chart("chart", "title", "said", [row], WIDE, "accuracy")
    marks = [float(found) for found in re.findall(r'(?:x2|cx)="([\d.]+)"', drawn)]
    assert max(marks) + 6 <= WIDE - 7.4 * len(note)


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
    earlier = write_run(tmp_path / "earlier")
    label(earlier, verbs.select(earlier, "srs", 40, {}).ids)
    sample = {"method": "neyman", "budget": 30}
    run = write_run(tmp_path / "now", sample=sample, history=[earlier.uri])
    label(run, verbs.select(run, "neyman", 30, {}).ids)
    report, pictures = gather(run)
    said = f"Used before the first label: 40 labels from the audit {earlier.uri}."
    assert said in Page(page(report, pictures)).words
    assert "40 labels from the audit" in summary(report)
    nothing = report.model_copy(update={"history": []})
    assert "found none with labels." in Page(page(nothing, pictures)).words


def test_a_partial_result_says_so_on_top(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    label(run, verbs.select(run, "srs", 40, {}).ids[:30])
    words = Page(page(*gather(run))).words
    assert "of the labels so far" in words.partition("The model is right")[0]
    assert "! Labels 30 of 40 labelled, 10 missing." in words
    assert f"What now Label the 10 examples that wait. opacc label {run.uri}" in words


def test_without_labels_it_shows_what_waits_and_what_the_model_claims(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    verbs.select(run, "srs", 40, {})
    words = Page(page(*gather(run))).words
    assert "There is no label yet: 40 of 240 examples wait for one." in words
    assert "What now Label the 40 examples that wait." in words
    assert "Expected accuracy by predicted class from the confidence alone" in words
    assert not re.search("Where it fails|Mistakes|Confusions|interval of the", words)


def test_a_regression_has_values_and_no_classes(tmp_path: Path) -> None:
    run = write_run(tmp_path, task="regression", form="npy")
    label(run, verbs.select(run, "srs", 50, {}).ids)
    html = page(*gather(run))
    words = Page(html).words
    assert "Operational score" in words
    assert "Predictions and labels" in words
    assert "The score is the mean score, max(0, 1 - (error / 1)²)" in words
    assert not re.search(r"right on|class|accuracy", words.partition("Digests and versions")[0])
    assert {item["aria-labelledby"].partition("-")[0] for item in Page(html).all("svg")} == {
        "intervals",
        "widths",
        "values",
    }


def test_a_purposive_sample_says_what_its_interval_rests_on(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    label(run, verbs.select(run, "ces", 40, {}).ids)
    words = Page(page(*gather(run))).words
    assert "with 95 % confidence under assumptions, from 40 labels." in words
    assert "does not rest on the random draw alone" in words
    assert "✗ Sampling 40 examples chosen by ces: no random sample, so no interval is certain." in words
    assert "worth" not in words


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Ids and classes that try to leave their places, in page and summary."""
    keys = [f"{HOSTILE[i % 3].replace('/', '∕')}{i}.png" for i in range(N)]
    run = write_run(tmp_path_factory.mktemp("hostile"), keys=keys, classes=HOSTILE, name="weekly")
    label(run, verbs.select(run, "srs", 90, {}).ids, keys)
    return run


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


def test_hostile_classes_make_no_markup_in_the_summary(hostile: Run) -> None:
    report, _ = gather(hostile)
    text = summary(report)
    outside = text.partition("```yaml")[0]
    assert not re.search(r"<(?!/?details>|/?summary>)", outside)
    assert not re.search(r"^# ", outside, re.MULTILINE)
    rows = [line for line in outside.splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {4, 6}


def test_forty_noisy_pictures_stay_below_three_megabytes(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    label(run, verbs.select(run, "srs", 200, {}).ids)
    report, pictures = gather(run)
    assert report.gallery is not None
    assert len(report.gallery.examples) == 40
    noise = np.random.default_rng(0).integers(0, 256, (400, 400, 3), dtype=np.uint8)
    worst = page(report, dict.fromkeys(pictures, draw(noise)))
    assert len(worst.encode()) < 3_000_000


def test_it_is_written_beside_the_estimate_or_elsewhere(run: Run, tmp_path: Path) -> None:
    written, _ = make_report(run)
    assert written.files == [run.store.uri_of(f"report.{suffix}") for suffix in ("html", "json", "md")]
    elsewhere, _ = make_report(run, str(tmp_path / "out"))
    assert elsewhere.files == [str(tmp_path / "out" / f"report.{suffix}") for suffix in ("html", "json", "md")]
    for here, there in zip(written.files, elsewhere.files, strict=True):
        assert Path(here).read_bytes() == Path(there).read_bytes()


def test_pictures_are_those_of_the_examples_they_stand_by(run: Run, html: str) -> None:
    wrong = {key for i, key in enumerate(KEYS) if TRUTH[i] != PREDICTION[i]}
    images = Page(html).all("img")
    assert images
    for item in images:
        pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(item["src"].partition(",")[2]))))
        assert item["alt"] in wrong
        assert (pixels == int(item["alt"][:3])).all()


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb, as WCAG 2.2 defines it."""
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_colour_of_text_and_marks_stands_out(scheme: int) -> None:
    style = str(rendering.style())
    block = re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))

    def contrast(above: str, below: str) -> float:
        bright, dark = sorted((luminance(colours[above]), luminance(colours[below])), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    for name in ("ink", "quiet", "own", "claim"):
        assert contrast(name, "paper") >= 4.5
    assert contrast("ink", "notice") >= 4.5
    assert contrast("quiet", "wash") >= 4.5


def test_all_notes_on_a_number_share_one_box(run: Run) -> None:
    report, pictures = gather(run)
    assert report.estimate is not None
    noted = report.estimate.model_copy(update={"notes": ["One.", "Two."], "reason": "three"})
    html = page(report.model_copy(update={"estimate": noted, "warnings": ["another model"]}), pictures)
    assert html.count('<p class="caution">') == 2
    assert '<p class="caution">One. Two.</p>' in html
    assert "<strong>Is this the right model?</strong> Another model." in html


def test_mistakes_are_filtered_by_pair_without_a_script(run: Run, html: str) -> None:
    report, _ = gather(run)
    pairs = pairs_of(report.gallery)
    found = Page(html)
    radios = [item["id"] for item in found.all("input")]
    assert radios == ["pair-all", *(f"pair-{place}" for place in range(len(pairs)))]
    assert report.gallery is not None
    for place, (*pair, count) in enumerate(pairs):
        assert f".wall:has(#pair-{place}:checked) li:not(.pair-{place}) {{ display: none; }}" in html
        own = [item for item in report.gallery.examples if [item.label, item.prediction] == pair]
        assert [item.get("class") for item in found.all("li")].count(f"pair-{place}") == count == len(own)


def test_each_mistake_has_the_weight_of_its_label(run: Run, html: str) -> None:
    weights = weights_of(read_rounds(run))
    assert len(weights) == 100
    assert sum(weights.values()) == pytest.approx(1, abs=0.05)  # inclusion probabilities differ
    report, _ = gather(run)
    assert report.gallery is not None
    assert report.gallery.examples[0].weight is not None
    assert all(item.weight == weights[item.id] for item in report.gallery.examples)
    assert f"<dt>weight</dt><dd>{report.gallery.examples[0].weight * N:,.0f}</dd>" in html


def test_markdown_keeps_commands_as_code_and_everything_else_as_text() -> None:
    said = rendering.markdown_prose("label some twice (`opacc label --overlap 0.2`), *not* <b>")
    assert said == r"label some twice (`opacc label --overlap 0.2`), \*not\* &lt;b&gt;"
    assert rendering.markdown_prose("one ` <b>") == r"one \` &lt;b&gt;"
