"""What a report says: the numbers of the estimate, round by round, by confidence and class; honest where they lack."""

from pathlib import Path

import numpy as np
import pytest
from reported_run import CLASSES, CONFIDENCE, KEYS, PREDICTION, TRUTH, N, label, labelled_run, write_run

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.status import status
from opacc_ray.errors import LabelError
from opacc_ray.estimation import failures
from opacc_ray.estimation.estimate import estimate_outcomes
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report.facts import percent
from opacc_ray.report.page import page, summary
from opacc_ray.report.report_documents import RunReport
from opacc_ray.report.run_report import gather, make_report, worth
from opacc_ray.runs.run import Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return labelled_run(tmp_path_factory.mktemp("report"), 40, 60)


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
    low, high = percent(stated.low), percent(stated.high)
    assert report.answer == (
        f"The model is right on about {percent(stated.value)} of the {N} examples: between {low} and {high} with "
        "95 % confidence, from 100 labels."
    )
    assert [entry.key for entry in run.store.list()] == before
    assert run.read_estimate() is None


def test_a_report_that_is_written_logs_its_estimate_once(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 40)
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


def test_metrics_that_were_asked_for_are_reported_and_slices_as_long_as_the_labels_are_the_same(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 40)
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


def test_every_prefix_of_rounds_has_its_own_estimate(run: Run, report: RunReport) -> None:
    first, second = run.read_selection(1), run.read_selection(2)
    correct = {key: float(TRUTH[i] == PREDICTION[i]) for i, key in enumerate(KEYS)}
    outcomes = [np.array([correct[id] for id in part.ids]) for part in (first, second)]
    alone, both = estimate_outcomes(first, outcomes[0]), estimate_outcomes([first, second], outcomes)
    assert [(p.labels, p.value, p.low, p.high) for p in report.course] == [
        (40, alone.value, alone.low, alone.high),
        (100, both.value, both.low, both.high),
    ]
    last = report.course[-1]
    assert report.estimate is not None
    assert (last.anytime_low, last.anytime_high) == (report.estimate.sequence.low, report.estimate.sequence.high)


def test_the_failures_are_fitted_once_for_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, fits, predict = labelled_run(tmp_path, 30, 30, method="neyman"), [], failures.predict_failure
    monkeypatch.setattr(failures, "predict_failure", lambda *given: fits.append(1) or predict(*given))
    gather(run)
    assert len(fits) == 2


def test_bins_of_confidence_count_the_whole_pool_and_every_label(report: RunReport) -> None:
    belief, table = report.reliability, report.tables[-1]
    assert belief is not None
    assert belief.mean_confidence == pytest.approx(CONFIDENCE.mean())
    assert (table.by, list(table.slices)) == ("confidence", list(belief.bins))
    assert sum(part.size for part in table.slices.values()) == N
    assert sum(part.n for part in table.slices.values()) == 100
    for name, mean in belief.bins.items():
        low, high = (float(end) for end in name.removesuffix(" %").split(" to "))
        assert low - 0.1 <= 100 * mean <= high + 0.1


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


def test_a_share_of_close_predictions_is_a_percentage(tmp_path: Path) -> None:
    run = labelled_run(tmp_path, 50, task="regression", form="npy", score={"within": 0.5})
    report, _ = gather(run)
    assert report.estimate is not None
    share = percent(report.estimate.value)
    said = f"On the {N} examples, about {share} of the model's predictions are within ±0.5: between"
    assert report.answer.startswith(said)


def test_a_pool_that_is_labelled_in_full_has_no_interval(tmp_path: Path) -> None:
    report, _ = gather(labelled_run(tmp_path, N))
    truth = (TRUTH == PREDICTION).mean()
    said = f"The model is right on {percent(truth)} of the {N} examples: every one of them is labelled."
    assert report.answer == said


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
