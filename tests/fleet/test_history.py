"""What the runs of an audit stated, over time: from their prefixes, and from the tables of a lake; with a picture."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from small_fleet import Weeks
from written_run import IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import results, steps
from opacc_ray.audit.tables import export_tables
from opacc_ray.cli.fleet import history_text
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError
from opacc_ray.fleet.documents import AccuracyHistory, HistoryPoint
from opacc_ray.fleet.history import history_in_tables, history_of_runs
from opacc_ray.labels.actions import import_labels
from opacc_ray.runs.documents import RunHeader
from opacc_ray.runs.run import Run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Three weeks, the last of which waits for labels; beside them a run of an audit whose name begins alike."""
    weeks, made = Weeks(monkeypatch), []
    for week, digest in enumerate(("ffffffff", "00000000", "88888888")):
        wrong = PREDICTION.copy()
        wrong[: 30 * week] = (TRUTH[: 30 * week] + 1) % 3
        run = named(tmp_path, "weekly", digest, wrong)
        steps.select(run, "srs", 60, {}, seed=week)
        if week < 2:
            answer(run)
            results.estimate(run)
        made.append(run)
        weeks.next()
    named(tmp_path, "weekly-shop", "12345678", PREDICTION)
    return made


def named(home: Path, name: str, digest: str, prediction: object) -> Run:
    """A run under the prefix that `opacc run` gives it; its audit has the name without the digest."""
    run = write_run(home, f"{name}-{digest}", prediction, classes=["cat", "dog", "owl"])  # type: ignore[arg-type]
    header = run.header.model_copy(update={"spec": run.spec.model_copy(update={"name": name})})
    run.store.write("spec.json", RunHeader(**header.model_dump(exclude={"spec"}), spec=header.spec).to_bytes())
    return Run.open(run.uri)


def answer(run: Run) -> None:
    classes = ["cat", "dog", "owl"]
    rows = "".join(f"{id},{classes[TRUTH[IDS.index(id)]]}\n" for id in run.read_selection(1).ids)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())


def test_runs_are_shown_by_their_time_and_those_without_a_result_are_named(runs: list[Run], tmp_path: Path) -> None:
    found = history_of_runs("weekly", str(tmp_path))
    assert [point.run for point in found.points] == [runs[0].uri, runs[1].uri]
    assert found.waiting == [runs[2].uri]
    for point, run in zip(found.points, runs, strict=False):
        stated = run.read_estimate()
        assert stated is not None
        assert (point.value, point.low, point.high, point.n) == (stated.value, stated.low, stated.high, stated.n)
        assert (point.made, point.methods) == (run.header.created, ["srs"])


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(runs: list[Run], tmp_path: Path) -> None:
    Path(runs[0].uri, "spec.json").write_text("{}")
    Path(runs[1].uri, "estimate.json").write_text("{")
    found = history_of_runs("weekly", str(tmp_path))
    assert found.unread == [f"{runs[0].uri}/spec.json", f"{runs[1].uri}/estimate.json"]
    assert (found.points, found.waiting) == ([], [runs[2].uri])


def test_an_unknown_name_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no run of 'monthly' in .*; give the name of a spec"):
        history_of_runs("monthly", str(tmp_path))
    with pytest.raises(DataError, match=r"there is no estimate of 'monthly' in .*; `opacc export RUN --to"):
        history_in_tables("monthly", str(tmp_path))


def test_tables_keep_every_estimate_that_was_exported(runs: list[Run], tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    for run in runs:
        export_tables(run, lake, features=False)
    results.estimate(runs[1], level=0.9)
    export_tables(runs[1], lake, features=False)
    found = history_in_tables("weekly", lake)
    assert sorted((point.run, point.level) for point in found.points) == sorted(
        [(runs[0].uri, 0.95), (runs[1].uri, 0.95), (runs[1].uri, 0.9)]
    )
    assert found.points[0].pool == runs[0].header.pool.digest


def test_the_command_prints_lines_or_json_and_draws_a_picture(
    runs: list[Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "drawn" / "accuracy.svg"
    assert main(["history", "weekly", "--output", str(tmp_path), "--picture", str(place)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:16] for line in lines] == [
        "2026-10-05T06:00",
        "2026-10-12T06:00",
        f"{'waiting':16}",
        f"{'picture':16}",
    ]
    assert re.search(r"\d\d\.\d% +\d\d\.\d% – \d\d\.\d% +at 95% +60 labels  \S+$", lines[0])
    drawn = ElementTree.fromstring(place.read_text())
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(drawn.findall("{*}circle")) == 2
    assert [item.text for item in drawn.findall("{*}text")][-2:] == ["2026-10-05", "2026-10-12"]
    assert main(["history", "weekly", "--output", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "opacc-history/1"


def test_a_line_says_what_is_measured_where_it_is_no_accuracy() -> None:
    point = HistoryPoint(
        run="r", made=None, value=0.5, low=0.4, high=0.6, level=0.8, n=40, pool_size=200, measure="share within ±5",
        methods=["srs"], model="m", pool="p", design_based=True,
    )  # fmt: skip
    said = history_text(
        AccuracyHistory(name="weekly", source="here", points=[point], waiting=[], unread=[], picture=None)
    )
    assert said.endswith("at 80%      40 labels  r (share within ±5)")


def test_a_picture_of_nothing_is_refused(tmp_path: Path) -> None:
    named(tmp_path, "weekly", "00000000", PREDICTION)
    assert main(["history", "weekly", "--output", str(tmp_path), "--picture", str(tmp_path / "p.svg")]) == 5
    assert not (tmp_path / "p.svg").exists()
