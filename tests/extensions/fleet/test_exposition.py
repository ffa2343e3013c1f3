"""Prometheus sees the state of storage, whatever became of the clusters."""

import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from extracting_here import extracting_here
from restored import Restored
from small_fleet import label, write_fleet
from waiting import LONG, until

from opacc_ray.audit import accuracy
from opacc_ray.cli.main import main
from opacc_ray.extensions.fleet import exposition
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def output(prepared: Restored, capsys: pytest.CaptureFixture[str]) -> Path:
    """An output after a fleet, of which one audit is labelled and too bad, and one is broken."""
    home = prepared.restore("drawn")
    broken = {"models": ["trained"], "pools": ["field"], "spec": {"model": {"weights": str(home / "no")}}}
    fleet = write_fleet(home, alerts={"min": {"accuracy": 0.9}}, overrides=[broken])
    [uri] = [str(path) for path in (home / "audits").glob("weekly-random-shop-*")]
    label(Run.open(uri))
    with extracting_here():
        main(["fleet", str(fleet), "--no-trial"])
    capsys.readouterr()
    return home / "audits"


def values(text: str) -> dict[str, float]:
    """Values by name and labels, without the run."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = (line.rsplit(" ", 1) for line in lines)
    return {re.sub(r',run="[^"]*"', "", name): float(value) for name, value in pairs}


def test_what_is_exposed_is_what_is_in_storage(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", str(output)]) == 0
    found = values(capsys.readouterr().out)
    shop, fleet = 'audit="weekly-random-shop"', 'fleet="weekly"'
    run = Run.open(next(str(path) for path in output.glob("weekly-random-shop-*")))
    stated = run.read_estimate()
    assert found[f"opacc_estimate{{{shop}}}"] == stated.value
    assert found[f"opacc_interval_width{{{shop}}}"] == stated.high - stated.low
    assert (found[f"opacc_shards{{{shop}}}"], found[f"opacc_shards_done{{{shop}}}"]) == (4, 4)
    assert (found[f"opacc_labels{{{shop}}}"], found[f"opacc_labels_awaited{{{shop}}}"]) == (30, 0)
    assert found['opacc_labels_awaited{audit="weekly-trained-shop"}'] == 30
    assert 'opacc_estimate{audit="weekly-trained-shop"}' not in found
    assert found[f'opacc_audit_failed{{audit="weekly-trained-field",{fleet}}}'] == 1
    assert found[f"opacc_audit_failed{{{shop},{fleet}}}"] == 0
    assert found[f'opacc_alert{{{shop},{fleet},kind="min",of="accuracy",state="firing"}}'] == 1
    assert main(["fleet", "alerts", "ack", str(output), "weekly-random-shop", "--as", "ann"]) == 0
    capsys.readouterr()
    assert main(["metrics", str(output), "--to", str(output / "opacc.prom")]) == 0
    found = values((output / "opacc.prom").read_text())
    assert f'opacc_alert{{{shop},{fleet},kind="min",of="accuracy",state="firing"}}' not in found
    assert found[f'opacc_alert{{{shop},{fleet},kind="min",of="accuracy",state="acknowledged"}}'] == 1


def test_the_newest_run_stands_for_an_audit_and_a_damaged_one_is_a_failure(output: Path) -> None:
    [run] = [Run.open(str(path)) for path in output.glob("weekly-random-shop-*")]
    accuracy.estimate(run)
    run.store.write("log/00000001.json", b"{}")
    found = values(exposition.output_metrics(str(output)).text)
    assert found['opacc_run_failed{audit="weekly-random-shop"}'] == 1
    assert 'opacc_estimate{audit="weekly-random-shop"}' not in found


@pytest.mark.parametrize("old", [r"}\s*$", '(?<="seen": ")[^"]*', r"(?<=\d\d:\d\d)\+00:00"])
def test_an_outcome_that_is_damaged_is_a_failure_and_named(old: str, output: Path, told: Callable[..., Any]) -> None:
    place = output / "fleets" / "weekly" / "outcomes" / "weekly-random-shop.json"
    place.write_text(re.sub(old, "", place.read_text()))
    code, out, err = told("metrics", str(output))
    assert (code, str(place) in err, err.count("\n")) == (0, True, 1)
    found = values(out)
    failed = {name: value for name, value in found.items() if name.startswith("opacc_audit_failed")}
    name = 'opacc_audit_failed{{audit="weekly-{}",fleet="weekly"}}'
    assert failed == {
        name.format(audit): float(audit in ("random-shop", "trained-field"))
        for audit in ("trained-shop", "trained-field", "random-shop", "random-field")
    }
    assert found['opacc_estimate{audit="weekly-random-shop"}'] > 0


def test_a_summary_that_is_damaged_is_an_alert_and_stops_nothing_else(output: Path, told: Callable[..., Any]) -> None:
    place = output / "fleets" / "weekly" / "summary.json"
    place.write_text("{")
    code, out, err = told("metrics", str(output))
    assert (code, str(place) in err) == (0, True)
    alerts = [name for name in values(out) if name.startswith("opacc_alert")]
    assert alerts == ['opacc_alert{audit="weekly",fleet="weekly",kind="failure",state="firing"}']
    assert values(out)['opacc_estimate{audit="weekly-random-shop"}'] > 0


def test_alerts_go_on_though_who_knows_of_them_cannot_be_read(output: Path, told: Callable[..., Any]) -> None:
    before = {name for name in values(told("metrics", str(output))[1]) if name.startswith("opacc_alert")}
    acknowledged = output / "fleets" / "weekly" / "acknowledged"
    acknowledged.mkdir()
    (acknowledged / "0.json").write_text("{")
    after = {name for name in values(told("metrics", str(output))[1]) if name.startswith("opacc_alert")}
    assert before
    assert after - before == {'opacc_alert{audit="weekly",fleet="weekly",kind="failure",state="firing"}'}
    assert before <= after


def test_the_exporter_reads_storage_again_and_shows_how_old_its_values_are(
    output: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exposition, "READ_EVERY", 0.05)
    announced, over, at = threading.Event(), threading.Event(), list[str]()

    def announce(url: str) -> None:
        at.append(url)
        announced.set()

    arguments = (str(output), "127.0.0.1", 0, announce, over)
    thread = threading.Thread(target=exposition.serve, args=arguments, daemon=True)
    thread.start()
    assert announced.wait(LONG)

    def scraped(path: str = "") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{at[0]}{path}", timeout=LONG) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain; version=")
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, ""

    code, text = scraped()
    assert (code, "opacc_estimate{" in text) == (200, True)
    read = values(text)["opacc_read_timestamp_seconds"]
    assert until(lambda: values(scraped()[1])["opacc_read_timestamp_seconds"] > read)
    output.rename(output.with_name("gone"))
    assert until(lambda: caplog.text.count("holds no runs") > 0)
    old = scraped()[1]
    assert until(lambda: caplog.text.count("holds no runs") > 2)
    assert scraped()[1] == old  # with the time at which it was read
    output.with_name("gone").rename(output)
    assert until(lambda: scraped()[1] != old)
    over.set()
    thread.join(LONG)
    assert not thread.is_alive()


def test_labels_are_escaped_and_an_output_without_runs_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = exposition.MetricSample(name="opacc_labels", labels={"audit": 'a"b\\c\nd'}, value=1)
    text = exposition.OutputMetrics(output="o", samples=[sample]).text
    assert text.endswith('opacc_labels{audit="a\\"b\\\\c\\nd"} 1.0\n')
    open_store(str(tmp_path)).write("x", b"")
    assert main(["metrics", str(tmp_path)]) == 5
    assert "holds no runs" in capsys.readouterr().err
