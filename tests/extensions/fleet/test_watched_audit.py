"""`opacc watch`: the runs of an audit as windows, compared with the first one."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, LabelError, SpecError
from opacc_ray.extensions.fleet import summary_page, watched_audit
from opacc_ray.extensions.fleet.fleet_spec import Fleet, WatchSpec, parse_fleet
from opacc_ray.extensions.fleet.run_fleet import run_fleet
from opacc_ray.extensions.fleet.watched_audit import watch_audit, watch_state
from opacc_ray.labels import label_actions
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


def confidence(i: int) -> float:
    return float(np.random.default_rng(i).uniform(0.6, 1))


def week(pool: Store, number: int) -> None:
    """Bring 200 examples, numbered from 1000 · number."""
    numbers = range(1000 * number, 1000 * number + 200)
    columns = {"id": [f"row-{i}" for i in numbers], "prediction": [0] * 200}
    pool.write(f"{number:02d}.parquet", parquet(pa.table(columns | {"confidence": [confidence(i) for i in numbers]})))


def spec_of(pool: Store, method: str) -> dict[str, Any]:
    columns = {"id": "id", "prediction": "prediction", "confidence": "confidence"}
    return {
        "name": "weekly",
        "pool": {"uri": pool.uri, "format": "features", "columns": columns},
        "model": {"classes": ["right", "wrong"]},
        "sample": {"method": method, "budget": 100},
    }


def audit(pool: Store, method: str, label: float | None) -> Run:
    """Run the audit; its new examples get labels, right with the probability ``label``."""
    run = verbs.first_round(parse_spec(spec_of(pool, method) | {"output": f"{pool.uri}-audits"}, "spec"))
    answer(run, label)
    return run


def answer(run: Run, label: float | None) -> None:
    if label is not None:
        chosen = run.read_chosen(1)
        left = [name for name, known in zip(chosen.ids, chosen.labelled, strict=True) if not known]
        said = [f"{name},{'right' if k < label * len(left) else 'wrong'}" for k, name in enumerate(left)]
        label_actions.import_labels(run, "labels.csv", "\n".join(["id,label", *said]).encode())


def fleet_of(pool: Store, **watch: Any) -> Fleet:
    own = {"name": "all", "output": f"{pool.uri}-audits", "audits": [spec_of(pool, "srs")], "watch": watch}
    return parse_fleet(own, "fleet.yaml")


@pytest.fixture
def pool(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "pool"))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["srs", pytest.param("neyman", marks=pytest.mark.slow)])
def test_drop_raises_one_alarm(method: str, pool: Store, capsys: pytest.CaptureFixture[str]) -> None:
    week(pool, 0)
    first = audit(pool, method, 0.95)
    for number in (1, 2):
        week(pool, number)
        audit(pool, method, 0.95)
    calm = watch_audit("weekly", f"{pool.uri}-audits")
    assert (calm.reference, calm.alarm, len(calm.windows)) == (first.name, None, 2)
    assert calm.exact == (method == "srs")
    assert calm.answer.startswith("No alarm after 2 of 2 windows")
    window = calm.windows[0]
    assert (window.examples, window.estimate.n) == (200, 50)  # 100 · 200/400
    assert window.estimate.low < 0.95 < window.estimate.high
    assert window.change.low < 0 < window.change.high
    worst = []
    for number in (3, 4) if method == "srs" else (3, 4, 5, 6):  # intervals are weaker evidence than draws
        week(pool, number)
        worst.append(audit(pool, method, 0.2).name)
    found = watch_audit("weekly", f"{pool.uri}-audits")
    assert found.alarm in worst
    assert found.windows[-1].change.high < 0
    assert found.answer.startswith("ALARM: the accuracy has dropped")
    capsys.readouterr()
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits"]) == 8
    told = " ".join(capsys.readouterr().out.split())
    assert "at most 5.0 % in the life of the audit" in told
    assert f"{first.name} first, {found.windows[-1].run} last, in the order of their creation" in told
    assert f"{100 * found.windows[-1].change.value:+.1f} points" in told
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits", "--json"]) == 8
    assert json.loads(capsys.readouterr().out)["alarm"] == found.alarm


def test_window_without_labels_shows_what_confidence_says(pool: Store, capsys: pytest.CaptureFixture[str]) -> None:
    week(pool, 0)
    audit(pool, "srs", 0.9)
    week(pool, 1)
    audit(pool, "srs", None)
    [window] = watch_audit("weekly", f"{pool.uri}-audits").windows
    assert (window.estimate, window.change, window.evidence) == (None, None, None)
    assert window.without_labels == pytest.approx(0.9, abs=0.05)
    capsys.readouterr()
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits"]) == 0
    assert "what it meant in the reference" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_window_alone_that_is_lower_and_a_lost_reference_are_stated(
    pool: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    week(pool, 0)
    first = audit(pool, "srs", 0.8)
    week(pool, 1)
    second = audit(pool, "srs", 0.8)
    week(pool, 2)
    third = audit(pool, "srs", 0.5)
    found = watch_audit("weekly", f"{pool.uri}-audits")
    low, high = (-100 * end for end in (found.windows[1].change.high, found.windows[1].change.low))
    [note] = found.notes
    assert found.alarm is None
    assert f"{third.name} alone is {low:.1f} to {high:.1f} points lower than the reference" in note
    assert "Without such a drop, at most about one window in 40" in note
    assert watch_audit("weekly", f"{pool.uri}-audits", WatchSpec(tolerance=0.3)).notes == []
    _, _, notes = watch_state("weekly", f"{pool.uri}-audits", WatchSpec(), was_raised=False)
    assert notes == [note], "the summary of a fleet states it too"
    assert main(["runs", "remove", first.uri, "--force"]) == 0
    capsys.readouterr()
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits"]) == 0
    said = f"the reference, {second.name}, is not the first run of this life: {first.name}, before it, was removed"
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_an_alarm_stays_while_labels_of_the_reference_are_missing(pool: Store) -> None:
    week(pool, 0)
    first = audit(pool, "srs", 0.95)
    for number in (1, 2, 3):
        week(pool, number)
        last = audit(pool, "srs", 0.2)
    fleet, output = fleet_of(pool), f"{pool.uri}-audits"
    before = watch_audit("weekly", output)
    assert before.alarm is not None
    assert run_fleet(fleet).failure.exit_code == 8
    for run in (first, last):
        verbs.next_round(run, 20)
    assert watch_audit("weekly", output) == before, "rounds that wait for labels change nothing"
    id = first.read_selection(1).ids[0]
    label_actions.withdraw(first, id)
    with pytest.raises(LabelError, match=rf"reference is {first.name}, .* 1 label of its round 1 is missing: import"):
        watch_audit("weekly", output)
    written = run_fleet(fleet)
    assert (written.summary.audits[0].watch, written.failure.exit_code) == (None, 8)
    problem = summary_page.problems(written.summary)[0].text
    assert "weekly: the alarm of its whole life stays raised, because it cannot be decided: the reference is" in problem
    label_actions.correct(first, id, "right", "kim")
    lost = first.store.list("rounds/1/labels/")[0].key
    data = first.store.read(lost)
    first.store.delete(lost)
    with pytest.raises(DataError, match="is lost, with the"):
        watch_audit("weekly", output)
    first.store.write(lost, data)
    assert watch_audit("weekly", output).alarm == before.alarm
    kept = last.store.list("rounds/1/labels/")[0].key
    last.store.delete(kept)
    assert (
        f"the labels of {last.name} do not count: {last.store.uri_of(kept)} is lost"
        in watch_audit("weekly", output).notes[0]
    )


def test_a_window_after_a_removed_run_is_what_was_new(pool: Store) -> None:
    runs = []
    for number in range(3):
        week(pool, number)
        runs.append(audit(pool, "srs", 0.9))
    label_actions.withdraw(runs[2], runs[2].read_selection(1).ids[-1])
    window = watch_audit("weekly", f"{pool.uri}-audits").windows[1]
    assert (window.examples, window.estimate) == (200, None)
    assert main(["runs", "remove", runs[1].uri, "--force"]) == 0
    found = watch_audit("weekly", f"{pool.uri}-audits")
    assert found.windows[0].examples == 200
    assert found.notes == [f"the labels of {runs[2].name} do not count yet: 1 label of its round 1 is missing"]


def test_audit_without_labels_is_refused(pool: Store) -> None:
    week(pool, 0)
    audit(pool, "srs", None)
    with pytest.raises(DataError, match=r"no run of 'weekly' in .* has complete labels"):
        watch_audit("weekly", f"{pool.uri}-audits")
    with pytest.raises(DataError, match=r"no run of 'week' in .*; the audits there are weekly; give the name"):
        watch_audit("week", f"{pool.uri}-audits")
    audit(pool, "srs", 0.9)
    with pytest.raises(DataError, match=r"no run of 'weekly' in .* since 2999-01-01 has .*; give an earlier day"):
        watch_audit("weekly", f"{pool.uri}-audits", WatchSpec(since="2999-01-01"))
    assert main(["watch", "weekly", "--output", f"{pool.uri}-audits", "--since", "01/31/2027"]) == 2
    assert fleet_of(pool, since="20261102").spec.watch.since == "2026-11-02"


@pytest.mark.slow
def test_fleet_watches_and_labels_more_while_a_drop_shows(pool: Store) -> None:
    fleet = fleet_of(pool, tolerance=0.01, labels=[20, 120])
    labels, states = [], []
    for number, right in enumerate([0.95, 0.95, 0.95, 0.5, 0.5]):
        week(pool, number)
        written = run_fleet(fleet)
        [found] = written.summary.audits
        states.append(summary_page.states_of(found)[0])
        run = Run.open(found.run)
        answer(run, right)
        labels.append(len(run.read_chosen(1).ids) - sum(labels))
    written = run_fleet(fleet)
    assert labels == [100, 20, 20, 20, 120], "the first week with failures makes the next one get more labels"
    assert states[:-1] == ["waiting", "open", "quiet", "quiet"]
    [found] = written.summary.audits
    assert found.change.how == "carried"
    assert (len(found.watch.windows), len(found.watch.labelled), found.watch.exact) == (4, 4, True)
    assert found.watch.alarm == Run.open(found.run).name
    assert summary_page.states_of(found) == ["alert"]
    assert written.failure.exit_code == 8
    [raised] = written.summary.problems
    assert (raised.check.kind, raised.check.limit) == ("watch", 0.01)
    assert "has dropped by more than the 1 % allowed since weekly-" in raised.text
    page = open_store(written.summary.folder).read("summary.html").decode()
    assert "Watched for life" in page
    assert "with probability 0.05 at most in its whole life, exactly" in page


def test_a_new_life_has_a_reference_of_its_own(pool: Store) -> None:
    week(pool, 0)
    audit(pool, "srs", 0.95)
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert run_fleet(fleet_of(pool, since=tomorrow)).summary.audits[0].watch is None


def test_an_audit_without_an_accuracy_is_not_called_sound(pool: Store, capsys: pytest.CaptureFixture[str]) -> None:
    week(pool, 0)
    run_fleet(fleet_of(pool))
    capsys.readouterr()
    assert main(["fleet", "alerts", f"{pool.uri}-audits"]) == 0
    said = "Nothing is wrong in 1 fleet: all, as far as is known; no accuracy is known of weekly."
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("method", ["srs", "neyman"])
def test_slices_of_one_table_are_windows(method: str, pool: Store) -> None:
    ids = range(1200)
    columns = {
        "id": [f"row-{i}" for i in ids],
        "prediction": [0] * 1200,
        "week": [f"2026-W{10 + i // 200}" for i in ids],
    }
    pool.write("all.parquet", parquet(pa.table(columns | {"confidence": [confidence(i) for i in ids]})))
    content = spec_of(pool, method) | {"output": f"{pool.uri}-audits"}
    content["pool"]["slices"] = ["week"]
    content["sample"]["budget"] = 480
    run = verbs.first_round(parse_spec(content, "spec"))
    rng = np.random.default_rng(0)
    rows = [(name, rng.random() < (0.95 if int(name[4:]) < 600 else 0.3)) for name in run.read_selection(1).ids]
    text = "\n".join(["id,label", *(f"{name},{'right' if right else 'wrong'}" for name, right in rows)])
    label_actions.import_labels(run, "labels.csv", text.encode())
    found = watch_audit("weekly", f"{pool.uri}-audits", WatchSpec(by="week"))
    assert found.reference == "week=2026-W10"
    assert [window.run for window in found.windows] == [f"week=2026-W{number}" for number in range(11, 16)]
    assert {window.examples for window in found.windows} == {200}
    assert sum(window.estimate.n for window in found.windows) == sum(int(name[4:]) >= 200 for name, _ in rows)
    assert found.order == "week=2026-W10 first, week=2026-W15 last, in the order of their names"
    assert found.exact == (method == "srs")
    assert found.alarm in {f"week=2026-W{number}" for number in (13, 14, 15)}
    own = [right for name, right in rows if 400 <= int(name[4:]) < 600]
    if method == "srs":
        assert found.windows[1].estimate.value == pytest.approx(np.mean(own))
    assert found.windows[1].estimate.low < 0.95 < found.windows[1].estimate.high
    with pytest.raises(SpecError, match=r'watch\.by: "day" is not in pool\.slices; the pool has none; add it there'):
        fleet_of(pool, by="day")


@pytest.mark.parametrize(
    ("names", "first", "last"),
    [
        (["W10", "W9", "W11"], "W9", "W11"),
        (["2027-01-04", "2026-12-28", "(none)"], "2026-12-28", "2027-01-04"),
        (["2026-11-02T10:00+02:00", "2026-11-02T09:00+00:00"], "2026-11-02T10:00+02:00", "2026-11-02T09:00+00:00"),
        (["< 5", "5 to 10", ">= 10"], "< 5", ">= 10"),
    ],
)
def test_slices_are_windows_in_the_order_of_time(names: list[str], first: str, last: str) -> None:
    found = watched_audit._in_time("week", names)
    assert (found[0][1], found[-1][1]) == (first, last)
    assert all(names[place] == name for place, name in found)


@pytest.mark.parametrize("name", ["01/31/2027", "31.1.2027", "1/31", "31-01-27", "07/2026", "W45 2026", "Oct 2026"])
def test_windows_whose_order_in_time_is_not_clear_are_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"windows of 'day' have names like '.*', whose order .* as in 2026-11-02"):
        watched_audit._in_time("day", ["W1", name])
    assert watched_audit._in_time("day", ["market 12", "2026-W10", "1.10.2", "batch 2026"])
