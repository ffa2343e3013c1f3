"""How the audits of a fleet stand: the last accuracy, the change since the audit before, what waits, what failed."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from restored import Restored
from small_fleet import SPEC, Weeks, label, model, write_fleet
from small_pictures import picture

from opacc_ray.audit import comparison, verbs
from opacc_ray.cli.command import terminal_text
from opacc_ray.cli.main import main
from opacc_ray.errors import AlertError, DataError
from opacc_ray.extensions.fleet.alerts import Evidence
from opacc_ray.extensions.fleet.commands import fleet_text
from opacc_ray.extensions.fleet.fleet_spec import load_fleet
from opacc_ray.extensions.fleet.fleet_summary import AuditSummary, FleetSummary
from opacc_ray.extensions.fleet.run_fleet import Written, run_fleet
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow


class Home:
    """A fleet that changes from week to week."""

    def __init__(self, home: Path) -> None:
        self.home, self.file = home, home / "fleet.yaml"

    def run(self, *, work: bool = True, **changes: Any) -> Written:
        with extracting_here():
            self.file = write_fleet(self.home, **changes) if changes or work else self.file
            return run_fleet(load_fleet(self.file), work=work, trial=False)

    def label(self, written: Written, wrong: float = 0.0) -> None:
        for item in written.summary.audits:
            if item.run:
                label(Run.open(item.run), wrong=wrong)

    def two_weeks(self, first: dict[str, Any], second: dict[str, Any], wrong: float = 0.0) -> Written:
        """The summary after two weeks, of which the second has other keys, and labels of which some are wrong."""
        with pytest.MonkeyPatch.context() as patch:
            weeks = Weeks(patch)
            self.label(self.run(**first))
            weeks.next()
            self.label(self.run(**second), wrong=wrong)
            return self.run(work=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def drawn(prepared: Restored) -> Home:
    return Home(prepared.restore("drawn"))


@pytest.fixture
def labelled(prepared: Restored) -> Home:
    return Home(prepared.restore("labelled"))


def by_name(written: Written) -> dict[str, AuditSummary]:
    return {item.name.removeprefix("weekly-"): item for item in written.summary.audits}


def test_labels_that_are_in_are_stated_and_others_are_waited_for(drawn: Home) -> None:
    first = drawn.run()
    audits = by_name(first)
    assert [item.last for item in audits.values()] == [None] * 4
    shop = Run.open(audits["trained-shop"].run or "")
    label(shop)
    half = Run.open(audits["random-shop"].run or "")
    label(half, half.read_selection(1).ids[:10])
    audits = by_name(drawn.run(work=False))
    last = audits["trained-shop"].last
    assert (last.value, last.n, last.run) == (1.0, 30, shop.uri)
    assert shop.read_estimate() is not None
    assert audits["trained-shop"].waiting == []
    [waiting] = audits["random-shop"].waiting
    assert (waiting.missing, waiting.round, audits["random-shop"].last) == (20, 1, None)


def test_annotators_who_agree_by_chance_are_told_of_wherever_the_fleet_is_shown(
    drawn: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.open(by_name(drawn.run())["trained-shop"].run or "")
    for name, shift in (("ann", 0), ("bob", 1)):
        ids = run.read_selection(1).ids
        rows = "".join(f"{id},{(int(id[:3]) + shift * (1 + place % 3)) % 4},{name}\n" for place, id in enumerate(ids))
        import_labels(run, f"{name}.csv", f"id,label,annotator\n{rows}".encode(), conflict="latest")
    assert main(["fleet", str(drawn.file), "--summary"]) == 0
    said, folder = capsys.readouterr().out, drawn.home / "audits" / "fleets" / "weekly"
    assert "Annotators agree no better than chance (alpha -0.3" in said
    assert "Annotators agree no better than chance (alpha -0.3" in (folder / "summary.html").read_text()
    assert "Annotators agree no better than chance" in (folder / "summary.md").read_text()
    [audit] = [item for item in json.loads((folder / "summary.json").read_text())["audits"] if item["history"]]
    assert (audit["history"][-1]["low"], audit["history"][-1]["high"]) == (0, 1)


def test_a_round_waits_since_it_was_drawn(drawn: Home) -> None:
    run = Run.open(by_name(drawn.run())["random-shop"].run or "")
    label(run)
    before = datetime.now(UTC) - timedelta(seconds=2)
    verbs.next_round(run, 5)
    [waiting] = by_name(drawn.run(work=False))["random-shop"].waiting
    assert (waiting.round, waiting.missing) == (2, 5)
    assert before <= datetime.fromisoformat(waiting.since) <= datetime.now(UTC)
    assert 0 <= waiting.days < 1


def served(home: Home, name: str, **more: Any) -> dict[str, Any]:
    """Keys of a fleet with one model, whose weights change."""
    return {"models": {"served": model(home.home, name)}} | more


def test_another_model_on_the_same_pool_is_compared_by_the_same_labels(
    drawn: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opacc_ray.report.run_report.make_report", make_report)
    written = drawn.two_weeks(*(served(drawn, name) for name in ("trained", "random")))
    after = by_name(written)["served-shop"]
    report = (Path(written.files[0]).parent / (after.report or "")).resolve()
    assert report == Path(after.last.run, "report.html").resolve()
    assert report.exists()
    assert after.change.how == "paired"
    assert after.change.significant
    now, before = (Run.open(point.run) for point in reversed(after.history))
    assert after.change.before == before.uri
    expected = comparison.compare(now, before).differences[0].difference
    assert (after.change.value, after.change.low, after.change.high) == (expected.value, expected.low, expected.high)
    assert after.change.value < -0.3


@pytest.mark.parametrize("method", ["neyman", "ces"])
def test_weeks_of_any_method_have_a_change_and_are_held_to_both_limits(drawn: Home, method: str) -> None:
    spec = {"transform": "small_pictures:to_input", "sample": {"method": method, "budget": 30}}
    asked = {"spec": spec, "alerts": {"min": {"accuracy": 0.9}, "max_drop": {"accuracy": 0.01}}}
    written = drawn.two_weeks(served(drawn, "trained", **asked), served(drawn, "random", **asked))
    assert written.failure.exit_code == AlertError.exit_code
    for audit in by_name(written).values():
        assert audit.change.significant
        assert [check.raised for check in audit.alerts] == [True, True]


def test_a_sequence_decides_a_drop_by_two_sequences_that_share_its_error(drawn: Home) -> None:
    alerts = {"max_drop": {"accuracy": 0.05}, "decided_by": "sequence"}
    written = drawn.two_weeks(served(drawn, "trained"), served(drawn, "random", alerts=alerts))
    audit = by_name(written)["served-shop"]
    [check] = audit.alerts
    before, now = (Evidence.of(Run.open(point.run)) for point in audit.history)
    each = 1 - 0.05 / 2 / 2  # two audits, and half of the error of each for either sequence
    own, other = now.sequence(each), before.sequence(each)
    assert (check.low, check.high) == (other.low - own.high, other.high - own.low)
    assert check.raised
    assert written.failure.exit_code == AlertError.exit_code


def test_a_pool_that_changed_is_another_sample(labelled: Home) -> None:
    fresh = {"spec": SPEC | {"sample": SPEC["sample"] | {"fresh": True}}}  # no label of the first week
    (labelled.home / "shop" / "060.png").write_bytes(picture(60))
    second = by_name(labelled.run(**fresh))["trained-shop"]
    run = Run.open(second.run or "")
    label(run, wrong=0.2)
    change = by_name(labelled.run(work=False, **fresh))["trained-shop"].change
    assert (change.how, change.before) == ("independent", second.history[0].run)
    now, before = (Evidence.of(item) for item in (run, Run.open(change.before)))
    a, b = now.number("accuracy", 0.95), before.number("accuracy", 0.95)
    assert change.value == pytest.approx(a.value - b.value, abs=1e-12)
    assert change.high == pytest.approx(
        a.value - b.value + ((a.high - a.value) ** 2 + (b.value - b.low) ** 2) ** 0.5, abs=1e-12
    )


def at_place(home: Home, place: str, **more: Any) -> dict[str, Any]:
    """Keys of a fleet with one pool, which is in some folder."""
    pools = {"shop": {"uri": str(home.home / place), "format": "images"}}
    return {"pools": pools, "alerts": {"max_drop": {"accuracy": 0.01}}} | more


def test_an_audit_of_another_population_is_left_out_and_named(home: Home) -> None:
    first, second = (at_place(home, place) for place in ("shop", "field"))  # the same name, another place
    written = home.two_weeks(first, second, wrong=0.4)
    audit = by_name(written)["trained-shop"]
    assert (audit.change, len(audit.history), [check.raised for check in audit.alerts]) == (None, 1, [False])
    said = "1 earlier run is of another population, so not compared: pool "
    assert audit.apart == f"{said}{home.home / 'shop'}, not {home.home / 'field'}"
    assert audit.apart in terminal_text(fleet_text(written))
    for name in ("summary.html", "summary.md"):
        assert said in Path(written.summary.folder, name).read_text()
    again = by_name(home.run(**first))["trained-shop"]
    assert again.last.value == 1.0  # not that of the other place, which is newer


def test_places_of_one_population_are_compared(home: Home) -> None:
    spec = SPEC | {"population": "photos"}
    written = home.two_weeks(*(at_place(home, place, spec=spec) for place in ("shop", "field")), wrong=0.4)
    audit = by_name(written)["trained-shop"]
    assert audit.apart is None
    assert audit.change.how == "independent"
    assert [check.raised for check in audit.alerts] == [True]


def test_an_alert_is_a_problem_until_it_is_over(labelled: Home) -> None:
    written = labelled.run(work=False, alerts={"min": {"accuracy": 0.9}})
    assert written.failure.exit_code == AlertError.exit_code
    problems = written.summary.problems
    assert [item.audit for item in problems] == ["weekly-random-shop", "weekly-random-field"]
    assert problems[0].check.level == 1 - 0.05 / 4
    later = labelled.run(work=False, alerts={"min": {"accuracy": 0.8}})
    assert [item.since for item in later.summary.problems] == [item.since for item in problems]
    assert labelled.run(work=False, alerts={"min": {"accuracy": 0.05}}).summary.problems == []


def test_what_is_remembered_is_never_replaced_because_it_cannot_be_read(labelled: Home) -> None:
    asked = {"alerts": {"min": {"accuracy": 0.9}}}
    folder = Path(labelled.run(work=False, **asked).summary.folder)
    summary, outcome = folder / "summary.json", folder / "outcomes" / "weekly-trained-shop.json"
    kept = summary.read_text()
    summary.write_text("{")
    for work in (False, True):
        with pytest.raises(DataError, match=rf"{summary} is not JSON .*; restore it; or delete it and run"):
            labelled.run(work=work, **asked)
    assert summary.read_text() == "{"
    summary.write_text(kept)
    outcome.write_text("{")
    written = labelled.run(**asked)
    assert f"{outcome} is not JSON" in by_name(written)["trained-shop"].failure.error
    assert (written.failure.exit_code, outcome.read_text()) == (5, "{")


def test_an_audit_is_held_to_its_own_limit(labelled: Home) -> None:
    alerts, overrides = {"min": {"accuracy": 0.9}}, [{"models": ["random"], "alerts": {"min": {"accuracy": 0.05}}}]
    written = labelled.run(work=False, alerts=alerts, overrides=overrides)
    assert written.failure is None
    limits = {name: [check.limit for check in item.alerts] for name, item in by_name(written).items()}
    assert limits == {"random-shop": [0.05], "random-field": [0.05], "trained-shop": [0.9], "trained-field": [0.9]}
    [page, _, text] = [Path(uri).read_text() for uri in written.files]
    for said in (page, text):
        assert "random × field has its own limits: an interval of the accuracy below" in said
        assert "trained × field has its own" not in said
    assert "decided by 98.75\N{NO-BREAK SPACE}% intervals, which are wider than those above." in page
    as_above = labelled.run(work=False, alerts=alerts | {"false_alarms": 0.2}, overrides=overrides)
    assert "decided by 95\N{NO-BREAK SPACE}% intervals.</p>" in Path(as_above.files[0]).read_text()


def test_a_failure_comes_before_an_alert_and_what_cannot_be_read_is_named(labelled: Home) -> None:
    written = labelled.run(work=False, alerts={"min": {"accuracy": 0.9}})
    run = Run.open(by_name(written)["random-field"].last.run)
    [kept] = (Path(run.store.uri) / "estimates").iterdir()
    for place in (kept, kept.parent.parent / "estimate.json"):
        place.write_text(re.sub(r'"value": [\d.]+', '"value": 0.5', place.read_text(), count=1))
    written = labelled.run(work=False)
    assert written.failure.exit_code == 5
    failure = by_name(written)["random-field"].failure
    assert f"{kept.name} was changed since it was written" in failure.error
    assert by_name(written)["trained-shop"].last is not None
    kept = [item.text for item in written.summary.problems if item.alert == "weekly-random-field min accuracy"]
    assert "stays raised, because it cannot be decided" in kept[0]


def test_the_files_say_the_same_and_escape_what_others_wrote(drawn: Home) -> None:
    written = drawn.run(work=False)
    [page, document, text] = [Path(uri).read_text() for uri in written.files]
    assert FleetSummary.from_bytes(document.encode(), "summary.json") == written.summary
    assert written.summary.answer == "0 of 4 audits have an accuracy, 120 labels are missing."
    assert written.summary.answer in page
    assert written.summary.answer in text
    assert "| 30 | 1 | less than an hour |" in text
    (drawn.home / "random.safetensors").write_bytes(b"x")
    evil = {"a": {"factory": "small_model:network", "weights": str(drawn.home / "<script>alert(1)</script>")}}
    written = drawn.run(models=evil)
    [page, _, text] = [Path(uri).read_text() for uri in written.files]
    assert "&lt;script&gt;" in page
    assert "<script>" not in page + text
