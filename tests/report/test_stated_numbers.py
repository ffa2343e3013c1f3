"""Metrics, classes and slices of a report: the same rows on the page and in the summary, with what they rest on."""

import re

import pytest
from reported_run import labelled_run
from stated_numbers import CAMERAS, slice_of, table, with_numbers

from opacc_ray.metrics.metric import AVERAGES, CLASS_METRICS
from opacc_ray.report.facts import (
    labels_to_tell,
    lowest_first,
    meaning_of,
    metric_name,
    number,
    parts_name,
    slice_table,
)
from opacc_ray.report.page import Pictures, page, summary
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.run_report import gather
from opacc_ray.runs.run_documents import AccuracyEstimate, SliceEstimate


@pytest.fixture(scope="module")
def gathered(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunReport, Pictures]:
    run = labelled_run(tmp_path_factory.mktemp("numbers"), 80)
    return gather(run)


def estimate_of(gathered: tuple[RunReport, Pictures]) -> AccuracyEstimate:
    assert gathered[0].estimate is not None
    return gathered[0].estimate


def page_of(gathered: tuple[RunReport, Pictures], estimate: AccuracyEstimate) -> str:
    report, pictures = gathered
    return page(report.model_copy(update={"estimate": estimate}), pictures)


def section(html: str, name: str) -> str:
    return html[html.index(f'<section aria-labelledby="{name}"') :].partition("</section>")[0]


def fold(html: str, name: str) -> str:
    return html[html.index(f'id="{name}">') :].partition("</details>")[0]


def rows_of(html: str, label: str) -> list[list[str]]:
    """The texts of the cells of a table, row by row."""
    body = html[html.index(f'aria-label="{label}"') :].partition("<tbody>")[2].partition("</tbody>")[0]
    texts = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in body.split("</tr>") if row.strip()]
    return [[re.sub(r"<[^>]+>", "", cell).replace("\N{NO-BREAK SPACE}", " ") for cell in row] for row in texts]


def test_numbers_asked_for_have_a_name_a_meaning_and_both_statements(gathered: tuple[RunReport, Pictures]) -> None:
    html = section(page_of(gathered, with_numbers(estimate_of(gathered))), "metrics").replace("\N{NO-BREAK SPACE}", " ")
    assert rows_of(html, "Metrics of the whole pool") == [
        ["F1 of dog", "harmonic mean of precision and recall", "100", "70.0 % 60.0 to 80.0"],
        [
            "recall of dog",
            "share of the examples of the class that the model finds",
            "100",
            "too few labels to tell 20.0 to 93.0",
        ],
    ]
    assert html.count("<p>Recall of dog: 20.0 to 93.0 % allows for a confidence that is wrong.") == 1
    assert "about the examples without a label, it is 84.0 to 93.0 %. It is below 84.0 % only if more than 3" in html
    assert "400 labels drawn there at random would settle that." in html


def test_slices_come_by_rising_value_with_both_intervals_and_those_that_say_nothing_last(
    gathered: tuple[RunReport, Pictures],
) -> None:
    html = fold(page_of(gathered, with_numbers(estimate_of(gathered))), "slices-0").replace("\N{NO-BREAK SPACE}", " ")
    assert rows_of(html, "Accuracy by camera") == [
        ["south", "50", "40", "60.0 % 45.0 to 70.0", "35.0 to 80.0"],
        ["north", "50", "40", "90.0 % 80.0 to 95.0", "70.0 to 100"],
        ["roof", "3", "1 of about 3", "too few labels to tell 0 to 90.0", "0 to 100"],
    ]
    drawn = html[html.index('aria-labelledby="slices-0-w-title') :].partition("</svg>")[0]
    assert re.findall(r'<tr class="greyed"><th scope="row">(.*?)</th>', html) == ["roof"]
    assert "2 of 3 have enough labels to tell" in html
    assert drawn.count('class="mark own"') == 2
    assert drawn.count('class="edge claim"') == 3  # the whole pool, in each row
    assert "south: 60.0 % (45.0 to 70.0, 40 labels); north" in drawn
    assert "roof: too few labels to tell" in drawn


def test_slices_that_say_nothing_share_a_row_if_they_are_many() -> None:
    vague = {f"s{k}": slice_of(0.5, 0.0, 1.0, k % 2, size=10, tells=False) for k in range(51)}
    rows, more = slice_table(table("state", CAMERAS | vague), "accuracy", 15)
    assert ([row[0] for row in rows.rows], more) == (["south", "north", "52 others"], 0)
    assert rows.rows[-1][1:4] == ("513", "26", ("too few labels to tell", ""))
    rows, more = slice_table(table("state", vague), "accuracy", 15)
    assert ([row[0] for row in rows.rows], rows.greyed) == (["51 in all"], [True])


def test_a_table_in_which_no_slice_says_anything_has_no_figure(gathered: tuple[RunReport, Pictures]) -> None:
    estimate = with_numbers(estimate_of(gathered), {}, [table("camera", {"roof": CAMERAS["roof"]}, "f1@dog")])
    found = fold(page_of(gathered, estimate), "slices-0")
    assert "F1 of dog by camera" in found
    assert "<svg" not in found


def test_the_summary_has_the_rows_of_the_page(gathered: tuple[RunReport, Pictures]) -> None:
    text = summary(gathered[0].model_copy(update={"estimate": with_numbers(estimate_of(gathered))}))
    assert "| F1 of dog | harmonic mean of precision and recall | 100 | 70.0 % (60.0 to 80.0) |" in text
    assert "| south | 50 | 40 | 60.0 % (45.0 to 70.0) | 35.0 to 80.0 |" in text
    assert "<details><summary>Accuracy by camera</summary>" in text


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        ("mean of 2 * tp / (2 * tp + fp + fn) per example", "62.1 %"),
        ("mean score, max(0, 1 - (error / 5)²)", "62.1 %"),
        ("mean Jaccard index of the classes", "62.1 %"),
        ("f1@dent", "62.1 %"),
        *(
            (plain, "0.621")
            for plain in ("mcc@dent", "kappa", "auc@dent", "average_precision@dent", "brier", "mean cost")
        ),
    ],
)
def test_shares_and_scores_are_percentages_and_other_numbers_plain(measure: str, text: str) -> None:
    assert number(0.621, measure) == text


def test_slices_with_hostile_names_are_nothing_but_text(gathered: tuple[RunReport, Pictures]) -> None:
    evil = "<script>alert(1)</script>|`](x"
    estimate = with_numbers(estimate_of(gathered), {}, [table(evil, {evil: CAMERAS["north"]})])
    html = page_of(gathered, estimate)
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    outside = summary(gathered[0].model_copy(update={"estimate": estimate})).partition("```yaml")[0]
    assert "<script" not in outside
    assert "<details><summary>Accuracy by &lt;script&gt;" in outside


def test_classes_are_tables_like_slices_with_what_the_confidence_predicts(
    gathered: tuple[RunReport, Pictures],
) -> None:
    report, pictures = gathered
    html = page(report, pictures)
    by_prediction, by_truth, _ = report.tables
    assert [row[0] for row in rows_of(html, "Accuracy by predicted class")] == [
        name for name, _ in lowest_first(by_prediction)
    ]
    assert [row[1:3] for row in rows_of(html, "Recall by true class")] == [
        [f"about {part.size}", str(part.n)] for _, part in lowest_first(by_truth)
    ]
    drawn = fold(html, "slices-0").partition("</svg>")[0]
    assert drawn.count('class="mark own"') == drawn.count('class="mark claim"') == 3


@pytest.mark.parametrize(
    ("part", "needed"),
    [
        (slice_of(0.5, 0.1, 0.9, 8, size=900, tells=False), 21),  # 8 · (0.8 / 0.5)² = 20.5
        (slice_of(0.0, 0.0, 1.0, 0, size=900, tells=False), 16),  # as 4 labels of width 1
        (slice_of(0.5, 0.3, 0.7, 3, size=900, tells=False), 5),
        (slice_of(0.5, 0.0, 1.0, 30, size=60, tells=False), 60),
    ],
)
def test_the_labels_that_a_slice_needs_grow_as_the_square_of_its_width(part: SliceEstimate, needed: int) -> None:
    assert labels_to_tell(part) == needed


def test_every_metric_has_a_name_and_a_meaning_for_people() -> None:
    for name in (*AVERAGES, *CLASS_METRICS, "accuracy", "f0.5"):
        assert "_" not in metric_name(name)
        assert meaning_of(name)
    assert metric_name("macro_f1") == "mean F1 of all classes"
    assert metric_name("f0.5@stop sign") == "F0.5 of stop sign"
    assert meaning_of("f2") == "harmonic mean of precision and recall; recall counts 2 times"
    assert (parts_name("camera*region"), parts_name("truth")) == ("camera and region", "true class")
