"""What a report says: the numbers of the estimate, round by round, by confidence and class; honest where they lack."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from reported_run import CLASSES, CONFIDENCE, KEYS, PREDICTION, TRUTH, N, label, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.run_log import run_as_of
from opacc_ray.audit.status import status
from opacc_ray.errors import LabelError, SpecError
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report.facts import digits_for, percent
from opacc_ray.report.page import page, summary
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.run_report import gather, make_report
from opacc_ray.report.sentences import answer, worth
from opacc_ray.runs.commit_log import Happening
from opacc_ray.runs.estimate_documents import Stated
from opacc_ray.runs.run import Run
from opacc_ray.samplers.estimate import estimate


def labelled_run(home: Path, rounds: tuple[int, ...] = (40, 60), method: str = "srs") -> Run:
    run = write_run(home)
    label(run, verbs.select(run, method, rounds[0], {}).ids)
    for budget in rounds[1:]:
        label(run, verbs.next_round(run, budget).ids)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return labelled_run(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def report(run: Run) -> RunReport:
    return gather(run)[0]


def test_it_states_the_estimate_and_writes_nothing(run: Run, report: RunReport) -> None:
    before = [entry.key for entry in run.store.list()]
    stated = accuracy.estimate(run, keep=False)
    assert stated.confusion is not None
    assert report.estimate == stated.model_copy(update={"confusion": None})
    names, num = stated.confusion.classes, stated.confusion.num
    assert {(cell.true, cell.predicted): cell.labels for cell in report.confusion or []} == {
        (names[i], names[j]): num[i][j] for i in range(3) for j in range(3) if num[i][j]
    }
    assert sum(cell.share for cell in report.confusion or []) == pytest.approx(1)
    assert report.state == "complete"
    assert [entry.key for entry in run.store.list()] == before
    assert run.read_estimate() is None


def test_a_report_that_is_written_logs_its_estimate_once(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, (40,))
    make_report(run, str(tmp_path / "elsewhere"))  # as someone does who may only read the run
    assert run.read_estimate() is None
    _, report = make_report(run)
    kept = run.read_estimate()
    assert kept is not None
    assert report.estimate == kept.model_copy(update={"confusion": None})
    assert status(run).estimate_is_current
    make_report(run)
    accuracy.estimate(run)
    make_report(run)
    assert len(run.estimates()) == 1
    make_report(run, level=0.9)
    assert [estimate.level for _, estimate in run.estimates()] == [0.95, 0.9]


def test_what_was_known_at_a_time_is_stated_whatever_came_later(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, (40,))
    first = accuracy.estimate(run)
    then = datetime.now(UTC)
    label(run, verbs.next_round(run, 20).ids)
    accuracy.estimate(run)
    assert accuracy.estimate(run_as_of(run, then), keep=False) == first
    with pytest.raises(
        SpecError, match=r"nothing had been drawn in .* at 2020-01-01 00:00:00 UTC; its log begins at 20"
    ):
        run_as_of(run, datetime(2020, 1, 1, tzinfo=UTC))


def test_a_log_whose_times_are_later_than_now_is_not_asked_for_a_time_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = labelled_run(tmp_path, (40,))
    assert run_as_of(run, datetime.now(UTC)).commits == run.commits
    assert not caplog.records
    ahead = datetime.now(UTC) + timedelta(hours=2)
    run.log.append(lambda _: Happening([Stated(value=0.5)], at=ahead.isoformat()))
    assert len(run_as_of(run, datetime.now(UTC)).commits) == len(run.commits) - 1
    assert f"has entries as late as {ahead:%Y-%m-%dT%H:%M:%S} UTC, and it is" in caplog.text


def test_metrics_that_were_asked_for_are_reported_and_slices_as_long_as_the_labels_are_the_same(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, (40,))
    asked = accuracy.estimate(run, metrics=["f1@dog"], by=["prediction"])
    accuracy.estimate(run)  # asks for nothing in addition
    found = gather(run)[0].estimate
    assert found is not None
    assert (found.metrics, found.by_slice) == (asked.metrics, asked.by_slice)
    assert list(found.metrics) == ["f1@dog"]
    assert [(table.metric, table.by) for table in found.by_slice] == [("accuracy", "prediction")]
    other = gather(run, level=0.9)[0].estimate
    assert other is not None
    assert (other.metrics["f1@dog"].level, other.by_slice) == (0.9, [])
    label(run, verbs.next_round(run, 20).ids)
    later = gather(run)[0].estimate
    assert later is not None
    assert (later.metrics["f1@dog"].n, later.by_slice) == (60, [])


def test_the_answer_holds_the_number_the_interval_and_what_it_rests_on(report: RunReport) -> None:
    stated = report.estimate
    assert stated is not None
    assert f"right on about {percent(stated.value)} of the {N} examples" in report.answer
    assert f"between {percent(stated.low)} and {percent(stated.high)} with 95 % confidence" in report.answer
    assert "from 100 labels" in report.answer


def test_every_prefix_of_rounds_has_its_own_estimate(run: Run, report: RunReport) -> None:
    first, second = run.read_selection(1), run.read_selection(2)
    correct = {key: float(TRUTH[i] == PREDICTION[i]) for i, key in enumerate(KEYS)}
    outcomes = [np.array([correct[id] for id in part.ids]) for part in (first, second)]
    alone, both = estimate(first, outcomes[0]), estimate([first, second], outcomes)
    assert [(p.labels, p.value, p.low, p.high) for p in report.course] == [
        (40, alone.value, alone.low, alone.high),
        (100, both.value, both.low, both.high),
    ]
    last = report.course[-1]
    assert report.estimate is not None
    assert (last.anytime_low, last.anytime_high) == (report.estimate.sequence.low, report.estimate.sequence.high)


def test_bins_of_confidence_count_the_whole_pool_and_every_label(report: RunReport) -> None:
    belief = report.reliability
    assert belief is not None
    assert belief.mean_confidence == pytest.approx(CONFIDENCE.mean())
    assert sum(item.pool for item in belief.bins) == N
    assert sum(item.labels for item in belief.bins) == 100
    assert [item.low for item in belief.bins[1:]] == [item.high for item in belief.bins[:-1]]
    for item in belief.bins:
        assert item.low <= item.confidence <= item.high
        assert item.accuracy is not None
        assert item.accuracy_low is not None
        assert item.accuracy_high is not None
        assert item.accuracy_low <= item.accuracy <= item.accuracy_high


def test_bins_of_a_pool_that_is_labelled_in_full_are_its_true_accuracies(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, (N,))
    belief = gather(run)[0].reliability
    assert belief is not None
    for item in belief.bins:
        is_last = item.high == CONFIDENCE.max()
        inside = np.array([item.low <= c < item.high or (is_last and c == item.high) for c in CONFIDENCE])
        truth = (TRUTH == PREDICTION)[inside].mean()
        assert (item.pool, item.labels) == (inside.sum(), inside.sum())
        assert (item.accuracy, item.accuracy_low, item.accuracy_high) == pytest.approx((truth,) * 3)
    for part in belief.classes:
        own = CLASSES.index(part.name) == PREDICTION
        assert part.found == pytest.approx((TRUTH != PREDICTION)[own].mean())


def test_failures_are_expected_by_the_confidence_of_the_whole_class(report: RunReport) -> None:
    assert report.reliability is not None
    found = {item.name: (item.pool, item.expected) for item in report.reliability.classes}
    for c, name in enumerate(CLASSES):
        own = c == PREDICTION
        assert found[name] == (int(own.sum()), pytest.approx((1 - CONFIDENCE[own]).mean()))
    numbers = [item.pool * item.expected for item in report.reliability.classes]
    assert numbers == sorted(numbers, reverse=True)


def test_the_gallery_has_the_surest_mistakes_first(run: Run, report: RunReport) -> None:
    wrong = [i for i, key in enumerate(KEYS) if TRUTH[i] != PREDICTION[i] and key in _chosen(run)]
    assert report.gallery is not None
    assert report.gallery.total == len(wrong)
    shown = report.gallery.examples
    assert len(shown) == min(len(wrong), 40)
    ordered = sorted(wrong, key=lambda i: -CONFIDENCE[i])[:40]
    assert [item.id for item in shown] == [KEYS[i] for i in ordered]
    assert [item.confidence for item in shown] == pytest.approx([CONFIDENCE[i] for i in ordered])
    assert [(item.prediction, item.label) for item in shown] == [
        (CLASSES[PREDICTION[i]], CLASSES[TRUTH[i]]) for i in ordered
    ]


def _chosen(run: Run) -> set[str]:
    return {id for number in run.rounds() for id in run.read_selection(number).ids}


def test_a_round_that_waits_for_labels_is_said_to(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, (40,))
    label(run, verbs.next_round(run, 30).ids[:12])
    report, _ = gather(run)
    assert (report.state, report.waits_for) == ("partial", "18 labels")
    assert [point.labels for point in report.course] == [40, 52]
    assert report.course[0].anytime_low is not None
    assert report.course[1].anytime_low is None
    assert report.estimate is not None
    assert report.estimate.missing == 18


def test_answers_of_cant_tell_alone_are_stated(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    ids = verbs.select(run, "srs", 25, {}).ids
    import_labels(run, "back.csv", ("id,label\n" + "".join(f"{id},?\n" for id in ids)).encode())
    with pytest.raises(
        LabelError,
        match=r"^All 25 answers are \"can't tell\", so there is nothing to estimate\. Draw more with `opacc next`",
    ):
        accuracy.estimate(run)
    assert status(run).waits_for.startswith("another round: all answers so far are")
    report, _ = gather(run)
    assert report.answer == 'There is no label: all 25 answers are "can\'t tell".'
    assert f"<code>opacc next {run.uri}</code>" in page(report, {})
    assert f"Draw more examples. `opacc next {run.uri}`\n" in summary(report)


def test_without_a_label_it_says_what_waits(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    verbs.select(run, "srs", 25, {})
    report, pictures = gather(run)
    assert (report.state, report.waits_for, report.estimate, report.gallery) == (
        "without labels",
        "25 labels",
        None,
        None,
    )
    assert report.answer == "There is no label yet: 25 of 240 examples wait for one."
    assert (report.course, pictures) == ([], {})
    assert report.reliability is not None
    assert (report.reliability.bins, report.reliability.classes[0].found) == ([], None)


def test_without_a_round_there_is_no_report(tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="has no selection yet"):
        gather(write_run(tmp_path))


def test_features_without_confidence_have_no_reliability(tmp_path: Path) -> None:
    run = write_run(tmp_path, features=("hidden", "output", "prediction"))
    label(run, verbs.select(run, "srs", 40, {}).ids)
    report, _ = gather(run)
    assert report.reliability is None
    assert report.gallery is not None
    assert report.gallery.order == "by id"
    assert {item.confidence for item in report.gallery.examples} == {None}


def test_a_regression_states_its_score_and_shows_values(tmp_path: Path) -> None:
    run = write_run(tmp_path, task="regression", form="npy")
    label(run, verbs.select(run, "srs", 50, {}).ids)
    report, pictures = gather(run)
    assert report.measure.startswith("mean score")
    assert "scores about" in report.answer
    assert f"({report.measure})" in report.answer
    assert "right" not in report.answer
    assert report.values is not None
    assert len(report.values) == 50
    assert report.reliability is None
    assert report.gallery is not None
    assert all(item.outcome < 0.5 for item in report.gallery.examples)
    assert all("no picture" in str(found) for found in pictures.values())


def test_a_share_of_close_predictions_is_a_percentage(tmp_path: Path) -> None:
    run = write_run(tmp_path, task="regression", form="npy", score={"within": 0.5})
    label(run, verbs.select(run, "srs", 50, {}).ids)
    report, _ = gather(run)
    assert report.estimate is not None
    share = percent(report.estimate.value)
    said = f"On the {N} examples, about {share} of the model's predictions are within ±0.5: between"
    assert report.answer.startswith(said)


def test_a_pool_that_is_labelled_in_full_has_no_interval(tmp_path: Path) -> None:
    report, _ = gather(labelled_run(tmp_path, (N,)))
    truth = (TRUTH == PREDICTION).mean()
    said = f"The model is right on {percent(truth)} of the {N} examples: every one of them is labelled."
    assert report.answer == said


def test_the_document_reads_back_and_fits_its_schema(report: RunReport) -> None:
    data = report.to_bytes()
    assert RunReport.from_bytes(data, "report.json") == report
    jsonschema.validate(report.to_dict(), RunReport.model_json_schema(mode="serialization"))


def test_the_same_labels_give_the_same_bytes(run: Run, report: RunReport) -> None:
    assert gather(run)[0].to_bytes() == report.to_bytes()


@pytest.mark.parametrize(
    ("effective", "said"),
    [
        (410.2, "These 200 labels are worth 410: they are as precise as 410 labels chosen at random."),
        (201.0, "These 200 labels are about as precise as 200 labels chosen at random."),
        (
            90.0,
            "These 200 labels are worth only 90: they are as precise as 90 labels chosen at random. The method",
        ),
        (None, None),
    ],
)
def test_what_labels_are_worth_is_said_honestly(report: RunReport, effective: float | None, said: str | None) -> None:
    assert report.estimate is not None
    srs = report.estimate.srs.model_copy(update={"n": 200, "effective_size": effective})
    found = worth(report.estimate.model_copy(update={"srs": srs}))
    assert (found or "").startswith(said or "")
    assert (found is None) == (said is None)


def test_what_labels_are_worth_is_not_said_where_their_errors_widen_the_interval(report: RunReport) -> None:
    assert report.estimate is not None
    srs = report.estimate.srs.model_copy(update={"n": 200, "effective_size": 410.2})
    plain = report.estimate.model_copy(update={"srs": srs})
    assert worth(plain) is not None
    assert worth(plain.model_copy(update={"allows_for": ["label noise"]})) is None


def test_decimals_tell_a_narrow_interval_apart() -> None:
    assert [digits_for(0.8, 0.9), digits_for(0.8512, 0.8518), digits_for(0.9, 0.9)] == [1, 3, 1]
    assert (percent(1.0), percent(0.0), percent(0.99996)) == ("100 %", "0 %", "100.0 %")


def test_an_estimate_outside_of_its_interval_is_stated_inside(report: RunReport) -> None:
    assert report.estimate is not None
    said = answer(report.estimate.model_copy(update={"value": 1.02, "low": 0.97, "high": 1.0}), N, [])
    assert "right on about 100 % of" in said
