"""How the audits of a fleet stand: the last accuracy, the change since the audit before, what waits, what failed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from small_fleet import SPEC, Weeks, label, model, write_fleet
from small_pictures import picture

from opacc_ray.audit import comparison, verbs
from opacc_ray.cli.fleet_commands import fleet_text
from opacc_ray.cli.main import main
from opacc_ray.cli.terminal import terminal_text
from opacc_ray.errors import AlertError
from opacc_ray.fleet import summary
from opacc_ray.fleet.alerts import Evidence
from opacc_ray.fleet.fleet_documents import AlertNotice, AuditFailure, AuditSummary, FleetSummary
from opacc_ray.fleet.fleet_spec import load_fleet
from opacc_ray.fleet.run_fleet import FleetError, Written, run_fleet
from opacc_ray.fleet.summary_page import page as page_of
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.report.facts import difference
from opacc_ray.report.run_report import make_report
from opacc_ray.runs.run import Run


@pytest.fixture
def weeks(monkeypatch: pytest.MonkeyPatch) -> Weeks:
    return Weeks(monkeypatch)


class Home:
    """A fleet that changes from week to week."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def run(self, *, work: bool = True, **changes: Any) -> Written:
        with extracting_here():
            self.file = write_fleet(self.home, **changes) if changes or work else self.file
            return run_fleet(load_fleet(self.file), work=work, trial=False)

    def label(self, written: Written, wrong: float = 0.0) -> None:
        for item in written.summary.audits:
            if item.run:
                label(Run.open(item.run), wrong=wrong)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def by_name(written: Written) -> dict[str, AuditSummary]:
    return {item.name.removeprefix("weekly-"): item for item in written.summary.audits}


def test_labels_that_are_in_are_stated_and_others_are_waited_for(home: Home) -> None:
    first = home.run()
    audits = by_name(first)
    assert [item.last for item in audits.values()] == [None] * 4
    shop = Run.open(audits["trained-shop"].run or "")
    label(shop)
    half = Run.open(audits["random-shop"].run or "")
    label(half, half.read_selection(1).ids[:10])
    audits = by_name(home.run(work=False))
    last = audits["trained-shop"].last
    assert last is not None
    assert (last.value, last.n, last.run) == (1.0, 30, shop.uri)
    assert shop.read_estimate() is not None
    assert audits["trained-shop"].waiting == []
    [waiting] = audits["random-shop"].waiting
    assert (waiting.missing, waiting.round, audits["random-shop"].last) == (20, 1, None)


def test_annotators_who_agree_by_chance_are_told_of_wherever_the_fleet_is_shown(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run.open(by_name(home.run())["trained-shop"].run or "")
    for name, shift in (("ann", 0), ("bob", 1)):
        ids = run.read_selection(1).ids
        rows = "".join(f"{id},{(int(id[:3]) + shift * (1 + place % 3)) % 4},{name}\n" for place, id in enumerate(ids))
        import_labels(run, f"{name}.csv", f"id,label,annotator\n{rows}".encode(), conflict="latest")
    assert main(["fleet", str(home.file), "--summary"]) == 0
    said, folder = capsys.readouterr().out, home.home / "audits" / "fleets" / "weekly"
    assert "Annotators agree no better than chance (alpha -0.3" in said
    assert "Annotators agree no better than chance (alpha -0.3" in (folder / "summary.html").read_text()
    assert "Annotators agree no better than chance" in (folder / "summary.md").read_text()
    [audit] = [item for item in json.loads((folder / "summary.json").read_text())["audits"] if item["last"]]
    assert (audit["last"]["low"], audit["last"]["high"]) == (0, 1)


def test_a_round_waits_since_it_was_drawn(home: Home) -> None:
    home.run()
    run = Run.open(by_name(home.run())["random-shop"].run or "")
    label(run)
    before = datetime.now(UTC) - timedelta(seconds=2)
    verbs.next_round(run, 5)
    [waiting] = by_name(home.run(work=False))["random-shop"].waiting
    assert (waiting.round, waiting.missing) == (2, 5)
    assert before <= datetime.fromisoformat(waiting.since) <= datetime.now(UTC)
    assert 0 <= waiting.days < 1


def test_another_model_on_the_same_pool_is_compared_by_the_same_labels(
    home: Home, weeks: Weeks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "make_report", make_report)
    home.label(home.run(models={"served": model(home.home, "trained")}))
    weeks.next()
    home.label(home.run(models={"served": model(home.home, "random")}))
    written = home.run(work=False)
    after = by_name(written)["served-shop"]
    assert after.last is not None
    report = (Path(written.files[0]).parent / (after.report or "")).resolve()
    assert report == Path(after.last.run, "report.html").resolve()
    assert report.exists()
    assert after.change is not None
    assert after.change.how == "paired"
    assert after.change.significant
    now, before = (Run.open(point.run) for point in reversed(after.history))
    assert after.change.before == before.uri
    expected = comparison.compare(now, before).difference
    assert (after.change.value, after.change.low, after.change.high) == (expected.value, expected.low, expected.high)
    assert after.change.value < -0.3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["neyman", "deepest", "ces"])
def test_weeks_of_any_method_have_a_change_and_are_held_to_both_limits(home: Home, weeks: Weeks, method: str) -> None:
    spec = {"transform": "small_pictures:to_input", "sample": {"method": method, "budget": 30}}
    asked = {"spec": spec, "alerts": {"min_accuracy": 0.9, "max_drop": 0.01}}
    home.label(home.run(models={"served": model(home.home, "trained")}, **asked))
    weeks.next()
    home.label(home.run(models={"served": model(home.home, "random")}, **asked))
    written = home.run(work=False)
    assert isinstance(written.failure, AlertError)
    for audit in by_name(written).values():
        assert audit.change is not None
        assert audit.change.significant
        assert [check.raised for check in audit.alerts] == [True, True]


def test_a_sequence_decides_a_drop_by_two_sequences_that_share_its_error(home: Home, weeks: Weeks) -> None:
    home.label(home.run(models={"served": model(home.home, "trained")}))
    weeks.next()
    alerts = {"max_drop": 0.05, "decided_by": "sequence"}
    home.label(home.run(models={"served": model(home.home, "random")}, alerts=alerts))
    written = home.run(work=False)
    audit = by_name(written)["served-shop"]
    [check] = audit.alerts
    before, now = (Evidence.of(Run.open(point.run)) for point in audit.history)
    assert now is not None
    assert before is not None
    each = 1 - 0.05 / 2 / 2  # two audits, and half of the error of each for either sequence
    own, other = now.sequence(each), before.sequence(each)
    assert (check.low, check.high) == (other.low - own.high, other.high - own.low)
    assert check.raised
    assert isinstance(written.failure, AlertError)


@pytest.mark.slow
def test_a_pool_that_changed_is_another_sample(home: Home, weeks: Weeks) -> None:
    home.label(home.run())
    weeks.next()
    (home.home / "shop" / "060.png").write_bytes(picture(60))
    second = home.run(spec=SPEC | {"sample": SPEC["sample"] | {"fresh": True}})  # no label of the first week
    run = Run.open(by_name(second)["trained-shop"].run or "")
    label(run, wrong=0.2)
    change = by_name(home.run(work=False, spec=SPEC | {"sample": SPEC["sample"] | {"fresh": True}}))[
        "trained-shop"
    ].change
    assert change is not None
    assert (change.how, change.before) == ("independent", by_name(second)["trained-shop"].history[0].run)
    now, before = (Evidence.of(item) for item in (run, Run.open(change.before)))
    assert now is not None
    assert before is not None
    a, b = now.number("accuracy", 0.95), before.number("accuracy", 0.95)
    assert change.value == pytest.approx(a.value - b.value, abs=1e-12)
    assert change.high == pytest.approx(
        a.value - b.value + ((a.high - a.value) ** 2 + (b.value - b.low) ** 2) ** 0.5, abs=1e-12
    )


def test_an_audit_of_another_population_is_left_out_and_named(home: Home, weeks: Weeks) -> None:
    def pools(place: str) -> dict[str, Any]:
        return {"shop": {"uri": str(home.home / place), "format": "images"}}

    alerts = {"max_drop": 0.01}
    home.label(home.run(pools=pools("shop"), alerts=alerts))
    weeks.next()
    home.label(home.run(pools=pools("field"), alerts=alerts), wrong=0.4)  # the same name, another place
    written = home.run(work=False)
    audit = by_name(written)["trained-shop"]
    assert (audit.change, len(audit.history), [check.raised for check in audit.alerts]) == (None, 1, [False])
    said = "1 earlier run is of another population, so not compared: pool "
    assert audit.apart == f"{said}{home.home / 'shop'}, not {home.home / 'field'}"
    assert audit.apart in terminal_text(fleet_text(written))
    for name in ("summary.html", "summary.md"):
        assert said in Path(written.summary.folder, name).read_text()
    again = by_name(home.run(pools=pools("shop"), alerts=alerts))["trained-shop"]
    assert again.last is not None
    assert again.last.value == 1.0  # not that of the other place, which is newer


def test_places_of_one_population_are_compared(home: Home, weeks: Weeks) -> None:
    spec = {"transform": "small_pictures:to_input", "sample": {"method": "srs", "budget": 30}, "population": "photos"}
    for place, wrong in (("shop", 0.0), ("field", 0.4)):
        pools = {"shop": {"uri": str(home.home / place), "format": "images"}}
        home.label(home.run(pools=pools, spec=spec, alerts={"max_drop": 0.01}), wrong=wrong)
        weeks.next()
    audit = by_name(home.run(work=False))["trained-shop"]
    assert audit.apart is None
    assert audit.change is not None
    assert audit.change.how == "independent"
    assert [check.raised for check in audit.alerts] == [True]


def test_an_alert_is_written_for_a_webhook_and_removed_when_it_is_over(
    home: Home, weeks: Weeks, tmp_path: Path
) -> None:
    alerts = {"min_accuracy": 0.9}
    home.label(home.run(alerts=alerts))
    written = home.run(work=False)
    assert isinstance(written.failure, AlertError)
    notice = AlertNotice.from_bytes((tmp_path / "audits/fleets/weekly/alerts.json").read_bytes(), "alerts.json")
    assert [item.audit for item in notice.alerts] == ["weekly-random-shop", "weekly-random-field"]
    assert notice.text.count("\n") == 1
    assert notice.alerts[0].level == 1 - 0.05 / 4
    place = tmp_path / "elsewhere" / "alert.json"
    assert main(["fleet", str(home.file), "--summary", "--alert-to", str(place)]) == 8
    assert json.loads(place.read_bytes())["text"] == notice.text
    home.run(work=False, alerts={"min_accuracy": 0.05})
    assert not (tmp_path / "audits/fleets/weekly/alerts.json").exists()


def test_an_audit_is_held_to_its_own_limit(home: Home, tmp_path: Path) -> None:
    alerts, overrides = {"min_accuracy": 0.9}, [{"models": ["random"], "alerts": {"min_accuracy": 0.05}}]
    home.label(home.run(alerts=alerts, overrides=overrides))
    written = home.run(work=False)
    assert written.failure is None
    limits = {name: [check.limit for check in item.alerts] for name, item in by_name(written).items()}
    assert limits == {"random-shop": [0.05], "random-field": [0.05], "trained-shop": [0.9], "trained-field": [0.9]}
    [page, _, text] = [Path(uri).read_text() for uri in written.files]
    for said in (page, text):
        assert "random × field has its own limits: an interval of the accuracy below" in said
        assert "trained × field has its own" not in said
    assert "decided by 98.75\N{NO-BREAK SPACE}% intervals, which are wider than those above." in page
    as_above = home.run(work=False, alerts=alerts | {"false_alarms": 0.2}, overrides=overrides)
    assert "decided by 95\N{NO-BREAK SPACE}% intervals.</p>" in Path(as_above.files[0]).read_text()


def test_a_failure_comes_before_an_alert_and_what_cannot_be_read_is_named(home: Home) -> None:
    home.label(home.run(alerts={"min_accuracy": 0.9}))
    written = home.run(work=False)
    run = Run.open(by_name(written)["trained-field"].last.run)  # type: ignore[union-attr]
    [kept] = (Path(run.store.uri) / "estimates").iterdir()
    for place in (kept, kept.parent.parent / "estimate.json"):
        place.write_text(place.read_text().replace('"value": 1.0', '"value": 0.5', 1))
    written = home.run(work=False)
    assert isinstance(written.failure, FleetError)
    assert written.failure.exit_code == 5
    failure = by_name(written)["trained-field"].failure
    assert failure is not None
    assert f"{kept.name} was changed since it was written" in failure.error
    assert by_name(written)["trained-shop"].last is not None


def test_an_audit_that_failed_keeps_its_alert_in_the_table(home: Home) -> None:
    home.label(home.run(alerts={"min_accuracy": 0.9}))
    found = home.run(work=False).summary
    failed = [item.model_copy(update={"failure": AuditFailure(error="no disk", exit_code=5)}) for item in found.audits]
    table = page_of(found.model_copy(update={"audits": failed}))
    assert table.count("<td>FAILED</td>") == 2
    assert table.count("<td>FAILED, ALERT</td>") == 2


def test_the_files_say_the_same_and_escape_what_others_wrote(home: Home) -> None:
    written = home.run(name="weekly")
    [page, document, text] = [Path(uri).read_text() for uri in written.files]
    assert FleetSummary.from_bytes(document.encode(), "summary.json") == written.summary
    assert written.summary.answer == "0 of 4 audits have an accuracy, 120 labels are missing."
    assert written.summary.answer in page
    assert written.summary.answer in text
    assert "| 30 | 1 | less than an hour |" in text
    (home.home / "random.safetensors").write_bytes(b"x")
    evil = {"a": {"factory": "small_model:network", "weights": str(home.home / "<script>alert(1)</script>")}}
    written = home.run(models=evil)
    [page, _, text, _] = [Path(uri).read_text() for uri in written.files]
    assert "&lt;script&gt;" in page
    assert "<script>" not in page + text


@pytest.mark.parametrize(
    ("value", "measure", "text"),
    [
        (0.0, "accuracy", "0.0"),
        (-0.0004, "accuracy", "0.0"),
        (0.0004, "mean score", "0.0"),
        (0.0004, "mean cost", "0.000"),
        (-0.0006, "accuracy", "-0.1"),
        (0.012, "accuracy", "+1.2"),
    ],
)
def test_a_difference_too_small_to_be_seen_has_no_sign(value: float, measure: str, text: str) -> None:
    assert difference(value, measure) == text
