"""What `opacc labels import` and `withdraw` report: the file, then the rounds."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from logged import log_labels
from written_run import CLASSES, IDS, PREDICTION, TRUTH, write_run

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError
from opacc_ray.labels import label_actions
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two rounds labelled, the first but for three examples that were given up; the third one waits."""
    made = write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)
    verbs.select(made, "srs", 30, {})
    file_of(made, "l1.csv", ids_of(made, 1)[:27])
    assert main(["labels", "import", made.uri, str(home(made) / "l1.csv")]) == 0
    verbs.next_round(made, 40, close=True)
    return made


def home(run: Run) -> Path:
    return Path(run.uri).parent


def ids_of(run: Run, number: int) -> tuple[str, ...]:
    return run.read_selection(number).ids


def file_of(run: Run, name: str, ids: Sequence[str], blank: Sequence[str] = (), annotator: str = "") -> Path:
    rows = [f"{id},{CLASSES[TRUTH[IDS.index(id)]]},{annotator}\n" for id in ids] + [f"{id},,\n" for id in blank]
    path = home(run) / name
    path.write_text("id,label,annotator\n" + "".join(rows))
    return path


def lines(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[str]:
    capsys.readouterr()
    assert main([str(item) for item in arguments]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_file_of_an_older_round_is_what_is_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    second = file_of(run, "l2.csv", ids_of(run, 2), annotator="ann")
    assert lines(capsys, "labels", "import", run.uri, second) == [
        "l2.csv    40 labels taken (ann)",
        "round     asked  labelled  missing  can't tell  given up",
        "1            30        27        -           -         3",
        "2            40        40        -           -         -",
        f"next: opacc estimate {run.uri}",
    ]
    assert lines(capsys, "labels", "import", run.uri, second, "--verbose")[-3:-1] == [
        "answers    for round 2",
        f"labels by  unknown 27 ({home(run)}/l1.csv), ann 40 ({home(run)}/l2.csv)",
    ]
    verbs.next_round(run, 50)
    again = ids_of(run, 1)[:2]
    both = file_of(run, "both.csv", [*ids_of(run, 2)[:5], *again], blank=ids_of(run, 3)[:4])
    with both.open("a") as opened:
        opened.write(f"{ids_of(run, 3)[5]},?,\n")
    found = lines(capsys, "labels", "import", run.uri, both)
    rounds = "2 for round 1, 5 for round 2, 1 for round 3"
    assert (
        " ".join(found[0].split()) == f"both.csv 7 labels taken, 5 new and 2 as before, 1 can't tell, 12 rows: {rounds}"
    )
    assert found[1:5] == [
        "round     asked  labelled  missing  can't tell  given up",
        "1            30        27        -           -         3",
        "2            40        40        -           -         -",
        "3            50         -       49           1         -",
    ]
    assert found[-1] == f"next: opacc labels import {run.uri} FILE"


def test_a_file_of_another_track_shows_that_track(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", run.uri, "--method", "css", "--budget", "20", "--track", "css-20"]) == 0
    chosen = run.along("css-20").read_selection(1).ids
    only = [id for id in chosen if id not in {*ids_of(run, 1), *ids_of(run, 2)}]
    found = lines(capsys, "labels", "import", run.uri, file_of(run, "css.csv", only))
    assert found[0] == f"css.csv   {len(only)} labels taken, for round 1 of track css-20"
    [now] = read_rounds(run.along("css-20"))
    first, second, other = (line.split() for line in found[2:5])
    assert first == ["1", "main", "30", "27", "-", "-", "3"]
    assert second[:5] == ["2", "main", "40", "-", "40"]
    assert other[:4] == ["1", "css-20", "20", str(now.labelled.sum())]


def test_a_repeated_import_reports_the_first_one_and_its_time(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = lines(capsys, "labels", "import", run.uri, home(run) / "l1.csv")
    at = datetime.now(UTC).strftime("%Y-%m-%d")
    assert first.startswith(f"l1.csv    nothing new: imported before on {at} ")
    assert first.endswith(" UTC, 27 labels, for round 1")
    label_actions.withdraw(run, ids_of(run, 1)[0])
    first, *_ = lines(capsys, "labels", "import", run.uri, home(run) / "l1.csv")
    assert first.endswith("; the labels of 1 example stay withdrawn")


def test_a_withdrawal_names_the_file_the_labels_and_the_rounds(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    file_of(run, "l2.csv", ids_of(run, 2))
    lines(capsys, "labels", "import", run.uri, home(run) / "l2.csv")
    verbs.next_round(run, 50)
    found = lines(capsys, "labels", "withdraw", run.uri, "l2.csv")
    kept = label_actions.read_log(run).actions[-1].file
    assert found == [
        f"withdrawn  40 labels of {home(run)}/l2.csv (kept as {kept}), for round 2; "
        "kept in the log, ignored from now on",
        "round     asked  labelled  missing  can't tell  given up",
        "1            30        27        -           -         3",
        "2            40         -       40           -         -",
        "3            50         -       50           -         -",
        "later      round 3 used them to choose examples; the choice stays",
    ]
    first, *_ = lines(capsys, "labels", "import", run.uri, home(run) / "l2.csv")
    assert first.startswith("l2.csv    40 labels taken; withdrawn on 20")
    assert first.endswith(" UTC, they count again")
    first, *_ = lines(capsys, "labels", "import", run.uri, home(run) / "l2.csv")
    assert "nothing new" in first
    assert "withdrawn" not in first


def test_a_withdrawal_of_an_example_counts_its_answers(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    first = ids_of(run, 1)[0]
    for name in ("ann", "bob"):
        file_of(run, f"{name}.csv", [first], annotator=name)
        lines(capsys, "labels", "import", run.uri, home(run) / f"{name}.csv")
    found = lines(capsys, "labels", "withdraw", run.uri, first)
    assert found[0] == f"withdrawn  3 labels of {first!r}, for round 1; kept in the log, ignored from now on"
    assert found[2].split() == ["1", "30", "26", "1", "-", "3"]
    assert found[-1] == "later      round 2 used them to choose examples; the choice stays"


def test_a_withdrawal_holds_though_other_labels_are_in_conflict(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = ids_of(run, 1)[:2]
    for number, id in enumerate((one, other)):
        wrong = CLASSES[(TRUTH[IDS.index(id)] + 1) % 3]
        log_labels(run, f"{number}.csv", f"id,label\n{id},{wrong}\n".encode())
    found = lines(capsys, "labels", "withdraw", run.uri, one)
    assert found[0].startswith(f"withdrawn  2 labels of {one!r}, for round 1")
    assert found[-1].startswith("rounds     the rounds cannot be counted yet: ")
    assert f"labels in conflict on 1 example(s): {other!r}" in found[-1]


# -- times ---------------------------------------------------------------------------------------------------


def timed(run: Run, time: str, name: str = "timed.csv") -> bytes:
    rows = "".join(f"{id},{CLASSES[TRUTH[IDS.index(id)]]},{time}\n" for id in ids_of(run, 2))
    (home(run) / name).write_text(f"id,label,labelled_at\n{rows}")
    return (home(run) / name).read_bytes()


@pytest.mark.parametrize("hours", [-11, 0, 9, 14])
@pytest.mark.parametrize("form", ["seconds", "minutes", "space", "basic"])
def test_a_local_time_with_its_offset_is_now(
    run: Run, capsys: pytest.CaptureFixture[str], hours: int, form: str
) -> None:
    now = datetime.now(timezone(timedelta(hours=hours)))
    text = {
        "seconds": now.isoformat(timespec="seconds"),
        "minutes": now.isoformat(sep=" ", timespec="minutes"),
        "space": now.strftime("%Y-%m-%d %H:%M:%S ") + now.isoformat()[-6:],
        "basic": now.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }[form]
    timed(run, text)
    found = lines(capsys, "labels", "import", run.uri, home(run) / "timed.csv")
    assert found[0].startswith("timed.csv  40 labels taken")
    assert not any("labelled_at" in line for line in found)


def test_a_local_time_without_its_offset_is_accepted_and_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Nine hours east of UTC, now."""
    text = (datetime.now(UTC) + timedelta(hours=9)).strftime("%Y-%m-%dT%H:%M:%S")
    timed(run, text)
    found = lines(capsys, "labels", "import", run.uri, home(run) / "timed.csv")
    assert found[0].startswith("timed.csv  40 labels taken")
    assert found[-2] == (
        f"warning    40 rows with a labelled_at without offset, such as '{text}', which is in the future as UTC: write "
        "2026-01-31T10:00:00+09:00"
    )


@pytest.mark.parametrize(("hours", "offset"), [(15, ""), (1, "+00:00"), (3, "+00:00"), (24, "+14:00")])
def test_a_time_in_the_future_of_every_zone_is_refused(run: Run, hours: float, offset: str) -> None:
    text = (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S") + offset
    with pytest.raises(LabelError, match=r"line 2 was labelled at .*, which is in the future: correct the time"):
        label_actions.import_labels(run, "timed.csv", timed(run, text))


def test_a_time_west_of_utc_without_offset_is_not_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    timed(run, (datetime.now(UTC) - timedelta(hours=7)).strftime("%Y-%m-%dT%H:%M:%S"))
    found = lines(capsys, "labels", "import", run.uri, home(run) / "timed.csv")
    assert not any("labelled_at" in line for line in found)


def test_a_file_without_annotators_is_that_of_the_one_who_is_given(run: Run) -> None:
    done = label_actions.import_labels(
        run, "l2.csv", file_of(run, "l2.csv", ids_of(run, 2)).read_bytes(), annotator="ann"
    )
    assert (done.annotators, done.renamed) == (["ann"], [])
