"""What a report decides: verdict, checks, next step, findings, and the audit before."""

import re
from pathlib import Path
from typing import Any

import pytest
from reported_run import KEYS, N, label, labelled_run, write_run
from stated_numbers import CAMERAS, slice_of, table, with_numbers

from opacc_ray.audit import accuracy, verbs
from opacc_ray.audit.goals import look_for_goal
from opacc_ray.cli.main import main
from opacc_ray.errors import SpecError
from opacc_ray.lake.store_uris import open_store
from opacc_ray.report.answers import slice_lines
from opacc_ray.report.facts import Fact, stated
from opacc_ray.report.page import page, previous, summary
from opacc_ray.report.report_documents import ConfusionCell, RunReport
from opacc_ray.report.run_report import decided, findings, gather, rounded
from opacc_ray.runs.run import Run, header_of
from opacc_ray.runs.run_documents import ChangedObjects, LabelNoise
from opacc_ray.spec import parse_spec
from opacc_ray.spec.spec_sections import Least


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return labelled_run(tmp_path_factory.mktemp("decision"), 100)


def states(report: RunReport) -> dict[str, str]:
    return {item.name: item.state for item in report.checks}


def text_of(report: RunReport, name: str) -> str:
    return next(item.text for item in report.checks if item.name == name)


def with_estimate(run: Run, **update: Any) -> RunReport:
    """The report with a changed estimate, decided anew."""
    report, _ = gather(run)
    assert report.estimate is not None
    estimate = report.estimate.model_copy(update=update)
    return decided(run, report.model_copy(update={"estimate": estimate}), None)


# -- verdict ---------------------------------------------------------------------------------------------


def test_a_goal_below_above_and_inside_of_the_interval(run: Run) -> None:
    report, _ = gather(run)
    estimate = report.estimate
    assert estimate is not None
    assert report.verdict is None
    below, above = (gather(run, goal=goal)[0] for goal in (estimate.low - 0.01, estimate.high + 0.01))
    assert below.verdict is not None
    assert above.verdict is not None
    assert (below.verdict.met, above.verdict.met) == (True, False)
    assert below.verdict.heading.startswith("Meets ")
    assert above.verdict.heading.startswith("Does not meet ")
    inside = gather(run, goal=estimate.value - 0.04)[0]
    assert inside.verdict is not None
    assert (inside.verdict.met, inside.verdict.half_width) == (None, pytest.approx(0.04, abs=0.001))
    ahead = look_for_goal(run, inside.verdict.half_width or 0)
    assert inside.verdict.labels_to_go == ahead.labels_to_go > 0
    heading, detail = inside.verdict.heading, inside.verdict.detail
    assert heading.startswith("Cannot tell yet whether it meets ")
    assert f"about {rounded(ahead.labels_to_go)} more labels decide." in detail
    assert inside.next is not None
    assert "nearly the whole pool" not in inside.next.why
    close = gather(run, goal=estimate.value - 0.004)[0]
    assert close.next is not None
    assert close.next.why.endswith(f"nearly the whole pool, of which {N - 100} have no label.")


def test_a_goal_may_be_about_another_number(run: Run) -> None:
    name = (run.spec.model.classes or [])[0]
    asked = gather(run, goal={f"recall@{name}": 0.5})[0]
    assert asked.estimate is not None
    own = asked.estimate.metrics[f"recall@{name}"]
    ends = {True: own.low - 0.01, False: own.high + 0.005, None: (own.low + own.high) / 2}
    for met, share in ends.items():
        if not 0 < share < 1:
            continue
        report, pictures = gather(run, goal={f"recall@{name}": share})
        assert report.verdict is not None
        assert (report.verdict.metric, report.verdict.met) == (f"recall@{name}", met)
        assert report.verdict.heading.endswith(f" % recall of {name}")
    assert report.next is not None
    assert f"'recall@{name} ±" in report.next.command
    assert report.estimate is not None
    assert report.estimate.lead == f"recall@{name}"
    assert report.answer.startswith(f"The recall of {name} over the ")
    big = re.findall('<span class="big">(.*?)</span>', page(report, pictures))
    assert [text.replace("\N{NO-BREAK SPACE}", " ") for text in big] == [stated(own).value]
    assert summary(report).startswith(f"## {report.name}: operational recall of {name}\n")
    spec = parse_spec(run.spec.model_dump(mode="json") | {"goal": {f"recall@{name}": "50 %"}}, "spec")
    assert spec.least == (0.5, f"recall@{name}")
    assert spec.numbers == spec.served == [f"recall@{name}"]  # stated, and steers the draw
    assert spec.identity() == run.spec.identity()


@pytest.mark.parametrize("text", ["recall", "f1@a 1.5", "brier 0.2", "nonsense 0.5", "0"])
def test_a_text_that_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Least.parse(text)


def test_page_summary_and_model_card_say_the_same(run: Run) -> None:
    report, pictures = gather(run, goal=0.5)
    assert report.verdict is not None
    heading, detail = report.verdict.heading, report.verdict.detail
    text, html = summary(report), page(report, pictures).replace("\N{NO-BREAK SPACE}", " ")
    assert heading == "Meets 50 %"
    assert f'<h2 id="answer">{heading}</h2>' in html
    assert text.count(f"**{heading}.** {detail}") == 2  # at the top, and in the card
    for item in report.checks:
        code = re.sub(r"`([^`]+)`", r"<code>\1</code>", item.text)  # commands are code
        assert f"<h3>{item.name.capitalize()}</h3> <p>{code}</p>" in html
        assert f"**{item.name}**: " in text


# -- checks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "differ", "allows", "state"), [(0.02, 9, ["label noise"], "failed"), (0.6, 9, ["label noise"], "warning"),
     (0.9, 1, [], "ok"), (None, 0, [], "ok")],
)  # fmt: skip
def test_annotators_who_agree_by_chance_fail_the_labels_and_are_the_next_step(
    run: Run, alpha: float | None, differ: int, allows: list[Any], state: str
) -> None:
    noise = LabelNoise(
        **{"low": 0.5, "high": 0.9, "level": 0.95, "method": "widened", "reason": None},
        **{"examples": 20, "differ": differ, "disagreement": 0.1, "disagreement_high": 0.2, "alpha": alpha},
    )
    report = with_estimate(run, label_noise=noise, allows_for=allows)
    assert states(report)["labels"] == state
    assert f"Two people differ on {differ} of 20 examples" in text_of(report, "labels")
    assert report.next is not None
    is_failed = state == "failed"
    assert (report.next.command == f"opacc labels list {run.uri}") is is_failed
    assert ("no better than chance" in text_of(report, "labels")) is is_failed


@pytest.mark.parametrize(
    ("objects", "state", "text"),
    [
        ({"changed": 2, "lost": 0, "first": [KEYS[0]]}, "failed", "2 objects of chosen examples changed"),
        (
            {"changed": 0, "lost": 0, "first": [], "reason": "the bucket is locked"},
            "warning",
            "not known: the bucket",
        ),
        ({"changed": 0, "lost": 0, "first": []}, "ok", "none of the chosen ones changed"),
    ],
)
def test_a_pool_that_could_not_be_looked_at_is_not_said_to_have_changed(
    run: Run, objects: dict[str, Any], state: str, text: str
) -> None:
    report = with_estimate(run, objects=ChangedObjects(**{"unknown": 0} | objects))
    assert states(report)["pool"] == state
    assert text in text_of(report, "pool")


def test_assumptions_of_the_interval_and_warnings_of_the_model_are_named(run: Run) -> None:
    report = with_estimate(run, design_based=False, reason="labels are missing at random")
    assert states(report)["sampling"] == "warning"
    assert "rests on more than that: Labels are missing at random." in text_of(report, "sampling")
    warned = gather(run)[0].model_copy(update={"warnings": ["one class takes all", "second"]})
    found = decided(run, warned, None)
    assert text_of(found, "model").startswith("One class takes all.")
    assert "1 more warning below" in text_of(found, "model")


# -- next step -------------------------------------------------------------------------------------------


def test_the_next_step_follows_the_verdict_and_can_be_pasted(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    estimate = gather(run)[0].estimate
    assert estimate is not None

    def command(goal: float | None) -> str:
        step = gather(run, goal=goal)[0].next
        assert step is not None
        return step.command

    near = float(command(None).removeprefix(f"opacc report {run.uri} --goal "))
    assert near <= estimate.value < near + 0.05
    assert command(estimate.low / 2) == f"opacc history weekly --output {run.spec.output}"
    assert command(estimate.high + 0.01) == f"opacc compare {run.uri} NEW_RUN"
    open_one = command(estimate.value - 0.04)
    assert open_one.startswith(f"opacc next {run.uri} --until 0.0")
    assert main(command(None).split()[1:]) == 0
    capsys.readouterr()


# -- findings --------------------------------------------------------------------------------------------


def test_only_parts_that_the_labels_set_apart_are_findings_and_the_costliest_come_first(run: Run) -> None:
    report, _ = gather(run)
    assert report.estimate is not None
    estimate = report.estimate.model_copy(update={"value": 0.85, "low": 0.79, "high": 0.9, "pool_size": 1000})
    parts = CAMERAS | {
        "costly": slice_of(0.5, 0.45, 0.55, size=200),  # together 0.35 to 0.65
        "small": slice_of(0.3, 0.25, 0.35, size=10),
        "near": slice_of(0.7, 0.65, 0.75, size=500),  # together up to 0.85: not below 0.8
    }
    cells = [
        ConfusionCell(true="cat", predicted="dog", share=0.05, standard_error=0.005, labels=9),
        ConfusionCell(true="owl", predicted="dog", share=0.5, standard_error=0.005, labels=4),
        ConfusionCell(true="owl", predicted="cat", share=0.05, standard_error=0.03, labels=9),
        ConfusionCell(true="cat", predicted="cat", share=0.85, standard_error=0.005, labels=90),
    ]
    update = {"tables": [], "reliability": None, "confusion": cells}
    changed = report.model_copy(update=update | {"estimate": with_numbers(estimate, {}, [table("camera", parts)])})
    texts = [item.text for item in findings(changed)]
    assert [text.partition(":")[0] for text in texts] == ["camera costly", "'cat' predicted as 'dog'", "camera small"]
    assert texts[0] == (
        "camera costly: accuracy 50.0 % (35.0 to 65.0); whole pool 85.0 %. Covers 20 % of the pool, by 40 labels."
    )
    many = {f"c{place}": slice_of(0.3, 0.2, 0.4, size=20) for place in range(9)}
    more = changed.model_copy(update={"estimate": with_numbers(estimate, {}, [table("camera", many)])})
    assert len(findings(more)) == 5
    reason = "labels contradict the predictions: 2 of 2 labels here are failures"
    whole = f"the unbiased estimate, -0.5, is outside the interval; {reason}"
    few = {"broken": slice_of(0.1, 0, 0.9, size=100).model_copy(update={"reason": whole}), **parts}
    said = changed.model_copy(update={"estimate": with_numbers(estimate, {}, [table("camera", few)])})
    assert f"camera broken: {reason}." in [item.text for item in findings(said)]
    assert slice_lines(table("camera", few), "accuracy")[-1] == Fact("note", f"broken: {reason}")


# -- the audit before ------------------------------------------------------------------------------------


def test_the_last_audit_of_the_population_stands_beside_this_one(tmp_path: Path) -> None:
    def run_of(name: str, created: str) -> Run:
        run = write_run(tmp_path / name)
        header = header_of(run.spec, run_plan(run), None).model_copy(update={"created": created})
        moved = header.model_copy(update={"spec": run.spec.model_copy(update={"output": str(tmp_path)})})
        run.store.write("spec.json", moved.to_bytes())
        return Run.open(run.uri)

    def run_plan(run: Run) -> Any:
        from opacc_ray.lake.pools import plan_shards

        return plan_shards(open_store(run.spec.pool.uri), "images", N)

    before = run_of("a", "2026-11-01T00:00:00+00:00")
    now = run_of("b", "2026-11-08T00:00:00+00:00")
    for place, run in enumerate((before, now)):
        population = run.spec.model_copy(update={"population": "weekly scans"})
        run.store.write("spec.json", run.header.model_copy(update={"spec": population}).to_bytes())
        target = tmp_path / f"weekly-{place:08x}"
        Path(run.uri).rename(target)
    before, now = (Run.open(str(tmp_path / f"weekly-{place:08x}")) for place in (0, 1))
    for run in (before, now):
        label(run, verbs.select(run, "srs", 60, {}).ids)
    assert gather(now)[0].previous is None  # the one before has no estimate yet
    stated = accuracy.estimate(before)
    report, pictures = gather(now)
    assert report.previous is not None
    assert (report.previous.run, report.previous.low) == (before.uri, stated.low)
    said = previous(report)
    assert said.startswith("The last audit of 2026-11-01, of the same model: ")
    assert said in page(report, pictures).replace("\N{NO-BREAK SPACE}", " ")
    assert gather(before)[0].previous is None
