"""What is wrong with a fleet reaches those who asked for it, over a real HTTP server, and outlives the command."""

import json
import re
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from extracting_here import extracting_here
from restored import Restored
from small_fleet import label, write_fleet
from waiting import until

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import SpecError
from opacc_ray.extensions.fleet import queue, run_fleet
from opacc_ray.extensions.fleet.fleet_spec import load_fleet
from opacc_ray.extensions.fleet.fleet_summary import FleetSummary
from opacc_ray.extensions.fleet.queue import work_through
from opacc_ray.runs.run import Run
from opacc_ray.samplers.base import unreported

pytestmark = pytest.mark.slow

SECRET = "T024/B057/xyzzy"
ALERTED = ["weekly-random-shop", "weekly-random-field"]
BROKEN = "weekly-trained-field"


class Webhook:
    """A server that keeps what is posted to it, and answers as it is told."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []
        self.answers: list[int] = []  # the next ones; 200 after
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 200:
                    assert self.path == f"/services/{SECRET}"
                    assert self.headers["Content-Type"] == "application/json"
                    hook.posts.append(content)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"/services/{SECRET}")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/services/{SECRET}"
        Thread(target=self._server.serve_forever, args=[0.01], daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(run_fleet, "WAITS", (0.0, 0.0, 0.0))
    server = Webhook()
    yield server
    server.close()


class Fleet:
    """A fleet of two models on two pools, of which one model is surely too bad, and one audit may be broken."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self.capsys = home, capsys
        self.folder = home / "audits/fleets/weekly"
        self.alerts: dict[str, Any] = {"min": {"accuracy": 0.9}}
        self.is_broken = False
        self.said = ""  # by the last command

    def __call__(self, *options: str) -> tuple[int, dict[str, Any]]:
        """Exit code and answer of `opacc fleet`."""
        broken = {
            "models": ["trained"],
            "pools": ["field"],
            "spec": {"model": {"weights": str(self.home / "<!channel>")}},
        }
        file = write_fleet(self.home, alerts=self.alerts, overrides=[broken] if self.is_broken else None)
        with extracting_here():
            code = main(["fleet", str(file), "--no-trial", "--json", *options])
        out, err = self.capsys.readouterr()
        self.said = out + err
        return code, json.loads(out.splitlines()[0])

    def label(self, answer: dict[str, Any]) -> None:
        for item in answer["audits"]:
            if item["run"]:
                label(Run.open(item["run"]))


@pytest.fixture
def fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fleet:
    return Fleet(tmp_path, capsys)


@pytest.fixture
def drawn(prepared: Restored, capsys: pytest.CaptureFixture[str]) -> Fleet:
    return Fleet(prepared.restore("drawn"), capsys)


@pytest.fixture
def labelled(prepared: Restored, capsys: pytest.CaptureFixture[str]) -> Fleet:
    return Fleet(prepared.restore("labelled"), capsys)


def test_alerts_are_delivered_although_an_audit_is_broken_once_and_when_they_are_over(
    labelled: Fleet, webhook: Webhook
) -> None:
    fleet = labelled
    fleet.alerts["to"] = webhook.url
    fleet.is_broken = True
    code, answer = fleet()
    assert (code, answer["exit_codes"]) == (3, [3, 8])
    [post] = webhook.posts
    assert post["title"] == "opacc weekly: 3 open"
    assert re.search(rf"{BROKEN} failed: model.weights: cannot read .*‹!channel›", post["text"])  # chats read <…>
    assert all(f"{name}: the accuracy is " in post["text"] for name in ALERTED)
    assert answer["deliveries"] == [
        {"to": f"{webhook.url.partition('/services')[0]}/***", "state": "delivered", "error": None}
    ]
    assert f"failed: {BROKEN}; 2 audits raised an alert: {', '.join(ALERTED)}" in fleet.said
    assert [item["audit"] for item in answer["problems"]] == [*ALERTED, BROKEN]

    for options in [(), ("--summary",)]:  # the same again
        code, answer = fleet(*options)
        assert (code, answer["deliveries"][0]["state"]) == (3, "known")
        assert len(webhook.posts) == 1

    fleet.is_broken = False
    assert fleet()[0] == 8
    [resolved] = webhook.posts[1:]
    assert (resolved["title"], resolved["type"]) == ("opacc weekly: 2 open", "failure")
    assert re.findall(r"Resolved: (\S+)", resolved["text"]) == [BROKEN]

    fleet.alerts["min"] = {"accuracy": 0.05}
    assert fleet("--summary")[0] == 0
    [over] = webhook.posts[2:]
    assert (over["title"], over["type"]) == ("opacc weekly: all resolved", "success")
    assert over["text"].startswith("Resolved: weekly-random-shop: the accuracy is ")
    fleet("--summary")
    assert len(webhook.posts) == 3
    assert SECRET not in fleet.said + "".join(path.read_text() for path in fleet.folder.rglob("*") if path.is_file())


def test_a_failure_is_told_where_no_limits_are_set(drawn: Fleet, webhook: Webhook) -> None:
    drawn.alerts, drawn.is_broken = {"to": [webhook.url, str(drawn.home / "alert.json")]}, True
    assert drawn()[0] == 3
    [post] = webhook.posts
    notice = json.loads((drawn.home / "alert.json").read_text())
    assert ([item["audit"] for item in notice["problems"]], notice["guarantee"]) == ([BROKEN], None)
    assert f"{BROKEN} failed" in post["text"]


def test_an_alert_that_is_not_taken_is_an_error_until_it_is_and_keeps_no_other_receiver_from_it(
    labelled: Fleet, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", webhook.url)
    labelled.alerts["to"] = ["$HOOK", str(labelled.home / "alert.json")]
    webhook.answers = [500, 404, 503, 302]  # a redirect would make a GET of the POST
    code, answer = labelled("--summary")
    assert (code, answer["exit_codes"], webhook.posts) == (9, [9, 8], [])
    assert [item["state"] for item in answer["deliveries"]] == ["failed", "delivered"]
    assert "$HOOK did not accept the notice in 4 tries: " in answer["deliveries"][0]["error"]
    assert "error=302" in labelled.said
    assert SECRET not in labelled.said
    assert len(json.loads((labelled.home / "alert.json").read_text())["problems"]) == 2
    webhook.answers = [500, 429, 503]
    assert labelled("--summary")[0] == 8
    assert (len(webhook.posts), webhook.answers) == (1, [])


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("$NO_SUCH_HOOK", "alerts go to $NO_SUCH_HOOK, and the environment has no such variable"),
        (f"hooks.example.com/{SECRET}", "alerts go to hooks.example.com/***: write https:// before the host"),
        (f"https://example.com/{SECRET} x", "alerts go to https://example.com/***, which Apprise cannot use"),
        (f"slack://{SECRET.replace('/', '')}", "alerts go to slack://***, which Apprise cannot use"),
        (f"mailto://me:{SECRET.replace('/', '')}@example.org", "sends a password without TLS; write mailtos://"),
    ],
)
def test_a_receiver_that_cannot_be_is_refused_before_anything_starts(fleet: Fleet, to: str, said: str) -> None:
    fleet.alerts["to"] = to
    code, answer = fleet()
    assert code == 2
    assert said in answer["error"]
    assert SECRET not in fleet.said
    assert not fleet.folder.exists()


def test_a_reason_holds_no_part_of_the_address() -> None:
    receiver = run_fleet.Receiver("json://me:p%40ssword@host/token", "json://***", is_file=False)
    assert receiver._redacted("p@ssword of me at host/token failed, p%40ssword") == "*** of me at ***/*** failed, ***"


def test_a_fleet_without_a_summary_is_told_too(fleet: Fleet, webhook: Webhook) -> None:
    (fleet.home / "audits").write_text("a file where the output is to be")
    fleet.alerts["to"] = webhook.url
    code, _ = fleet()
    assert code == 3
    [post] = webhook.posts
    assert "weekly failed: no summary could be written" in post["text"]


def test_a_summary_remembers_failures_until_the_audit_succeeds(drawn: Fleet) -> None:
    drawn.is_broken = True
    _, first = drawn()
    [failure] = [item["failure"] for item in first["audits"] if item["failure"]]
    drawn.is_broken = False  # mended, and not run since
    code, answer = drawn("--summary")
    assert code == 3
    [found] = [item for item in answer["audits"] if item["failure"]]
    assert (found["name"], found["failure"]) == (BROKEN, failure)
    assert found["attempt"]["state"] == "failed"
    assert {item["attempt"]["state"] for item in answer["audits"] if item is not found} == {"succeeded"}
    when = f"Failed at {failure['at'][:10]} {failure['at'][11:16]} UTC"
    for name in ("summary.html", "summary.md"):
        assert when in (drawn.folder / name).read_text()
    assert FleetSummary.from_bytes((drawn.folder / "summary.json").read_bytes(), "summary").to_dict() == answer
    assert drawn()[0] == 0
    assert drawn("--summary")[0] == 0
    assert "Failed" not in (drawn.folder / "summary.html").read_text()


def test_an_outcome_is_kept_up_to_date_and_a_process_that_was_killed_is_a_failure(
    drawn: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt keeps the failure before; a process that is killed leaves what was written while it ran."""
    drawn.is_broken = True
    drawn()
    place = drawn.folder / "outcomes" / f"{BROKEN}.json"
    failure = json.loads(place.read_text())["failure"]
    running: list[str] = []

    def slow(*_: object, **__: object) -> None:
        assert until(lambda: (now := json.loads(place.read_text())["attempt"])["seen"] != now["began"])
        assert json.loads(place.read_text())["attempt"]["state"] == "running"
        running.append(place.read_text())
        raise KeyboardInterrupt

    monkeypatch.setattr(queue, "BEAT", 0.05)
    monkeypatch.setattr(verbs, "first_round", slow)
    parsed = load_fleet(drawn.home / "fleet.yaml")
    with pytest.raises(KeyboardInterrupt):
        work_through(parsed._replace(audits=parsed.audits[-1:]), unreported, trial=False)
    after = json.loads(place.read_text())
    assert json.loads(running[0])["attempt"]["seen"] > after["attempt"]["began"]
    assert (after["attempt"]["state"], after["failure"]) == ("interrupted", failure)
    code, answer = drawn("--summary")
    assert (code, answer["audits"][3]["failure"]) == (3, failure)

    place.write_text(running[0])
    code, answer = drawn("--summary")  # it may be running on another machine
    assert (code, answer["audits"][3]["attempt"]["state"]) == (3, "running")
    monkeypatch.setattr(queue, "SILENT", -1.0)
    code, answer = drawn("--summary")
    assert code == 4
    assert "ended without a report: it was killed" in answer["audits"][3]["failure"]["error"]


def test_a_fleet_notices_a_run_that_was_restored_from_an_earlier_time(labelled: Fleet) -> None:
    assert labelled()[0] == 8
    name = "weekly-trained-shop"
    outcome = json.loads((labelled.folder / "outcomes" / f"{name}.json").read_text())
    [uri] = outcome["heads"]
    run = Run.open(uri)
    for key in [entry.key for entry in run.store.list("log/")][-2:]:
        run.store.delete(key)
    run.store.delete("estimate.json")
    for _ in range(2):  # it is remembered
        assert labelled()[0] == 5
        assert f"the log of {uri} has no entry {outcome['heads'][uri][:16]}" in labelled.said


def test_an_acknowledged_alert_is_not_repeated_until_it_is_over(labelled: Fleet, webhook: Webhook) -> None:
    labelled.alerts["to"] = webhook.url
    assert labelled()[0] == 8
    output = str(labelled.home / "audits")
    assert main(["fleet", "alerts", output]) == 0
    said = labelled.capsys.readouterr().out
    assert said.count("FIRING") == 2
    assert main(["fleet", "alerts", "ack", output, "weekly-none", "--as", "ann"]) == 2
    assert "weekly-random-shop, weekly-random-field has an alert" in labelled.capsys.readouterr().err
    for audit in ALERTED:
        assert main(["fleet", "alerts", "ack", output, audit, "--as", "ann", "--note", "new weights on Monday"]) == 0
    labelled.capsys.readouterr()
    code, answer = labelled("--summary")
    assert (code, answer["exit_codes"]) == (0, [])  # somebody knows
    assert [post["text"].count("acknowledged by ann") for post in webhook.posts] == [0, 2]
    assert "new weights on Monday" in webhook.posts[1]["text"]

    labelled("--summary")
    assert len(webhook.posts) == 2
    assert main(["fleet", "alerts", output, "--json"]) == 0
    found = json.loads(labelled.capsys.readouterr().out)["alerts"]
    assert [item["acknowledged"]["by"] for item in found] == ["ann"] * 2
    assert len({item["since"] for item in found}) == 1

    labelled.alerts["min"] = {"accuracy": 0.05}
    assert labelled("--summary")[0] == 0
    assert webhook.posts[2]["type"] == "success"
    assert main(["fleet", "alerts", output]) == 0
    assert "Nothing is wrong in 1 fleet: weekly." in labelled.capsys.readouterr().out
    labelled.alerts["min"] = {"accuracy": 0.9}  # raised again: the acknowledgement was of the earlier one
    assert labelled("--summary")[0] == 8
    assert len(webhook.posts) == 4


def test_an_alert_is_not_over_because_a_label_is_withdrawn(labelled: Fleet, webhook: Webhook) -> None:
    labelled.alerts["to"] = webhook.url
    code, answer = labelled()
    assert code == 8
    run = Run.open(answer["audits"][0]["run"])
    assert main(["labels", "withdraw", run.uri, run.read_selection(1).ids[0]]) == 0
    labelled.capsys.readouterr()
    assert labelled("--summary")[0] == 8
    assert len(webhook.posts) == 1
    assert main(["fleet", "alerts", str(labelled.home / "audits")]) == 0
    said = " ".join(labelled.capsys.readouterr().out.split())
    assert (
        f"{answer['audits'][0]['name']}: the alert min accuracy stays raised, because it cannot be decided: no" in said
    )


def test_a_new_run_with_the_same_alert_is_no_news(labelled: Fleet, webhook: Webhook) -> None:
    labelled.alerts["to"] = webhook.url
    assert labelled()[0] == 8
    (labelled.home / "shop" / "100.png").write_bytes((labelled.home / "shop" / "000.png").read_bytes())
    code, answer = labelled()
    assert code == 8
    labelled.label(answer)
    code, answer = labelled()
    assert (code, answer["audits"][0]["history"][-1]["run"]) == (8, answer["audits"][0]["run"])  # of the new run
    assert len(webhook.posts) == 1


def test_a_receiver_that_is_a_file_needs_no_apprise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    assert run_fleet.receiver_of("s3://audits/alerts.json").is_file
    with pytest.raises(SpecError, match="apprise"):
        run_fleet.receiver_of("mailtos://me@example.org")
