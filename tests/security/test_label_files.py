"""Label files come from outside: none hangs, fills memory, answers for others or writes control characters."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from logged import read_labels
from written_run import PREDICTION, write_run

from opacc_ray.audit import verbs
from opacc_ray.cli.main import main
from opacc_ray.errors import LabelError
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = write_run(tmp_path, "mine", PREDICTION, classes=["cat", "dog", "owl"])
    verbs.select(made, "srs", 20, {})
    return made


def refusal(run: Run, data: bytes, name: str = "back.csv") -> str:
    start = time.process_time()
    with pytest.raises(LabelError) as caught:
        label_actions.import_labels(run, name, data)
    assert time.process_time() - start < 5
    assert len(str(caught.value)) < 700
    assert not read_labels(run, 1)
    return str(caught.value)


@pytest.mark.parametrize(
    ("column", "length"), [("label", 40_000), ("id", 40_000), ("annotator", 3_000), ("labelled_at", 90_000)]
)
def test_long_text_is_refused_at_once_and_not_repeated(column: str, length: int, run: Run) -> None:
    row = {"id": run.read_selection(1).ids[0], "label": "cat", "annotator": "", "labelled_at": ""} | {
        column: "1" * length
    }
    said = refusal(run, f"{','.join(row)}\n{','.join(row.values())}\n".encode())
    assert f"back.csv line 2 has {length} characters in the column {column}" in said


def test_digits_without_end_are_no_number_and_take_no_time(tmp_path: Path) -> None:
    run = write_run(tmp_path, "values", PREDICTION.astype(float), task="regression")
    first, *_ = verbs.select(run, "srs", 20, {}).ids
    assert "which is no number" in refusal(run, f"id,label\n{first},{'1' * 990}x\n".encode())


@pytest.mark.slow
def test_one_line_without_end_is_refused_early(run: Run) -> None:
    starts = {b"id,label\n": "line 2 is not valid CSV", b"": "start it with a header", b'{"id": "': "is not valid JSON"}
    for start, words in starts.items():
        assert words in refusal(run, start + b"x" * 10_000_000)


def test_file_over_the_limit_is_refused_before_it_is_read(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opacc_ray.stored_audit.MAX_BYTES", 1000)
    assert main(["labels", "import", run.uri, "/dev/zero"]) == 6  # which never ends
    assert "/dev/zero has more than 1000 bytes; split it" in capsys.readouterr().err


LIMITED = """
import resource, sys
from opacc_ray.labels import label_actions
from opacc_ray.runs.run import Run
run, path = Run.open(sys.argv[1]), sys.argv[2]
data = open(path, "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
label_actions.import_labels(run, path, data, conflict="majority")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
def test_a_large_file_takes_little_memory_and_ends(run: Run, tmp_path: Path) -> None:
    ids = run.read_selection(1).ids
    rows = [f"{name},cat,annotator {i}\n" for i in range(40) for name in ids]
    path = tmp_path / "large.csv"
    path.write_text("id,label,annotator\n" + "".join(rows) * (5_000_000 // sum(map(len, rows))))
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, run.uri, str(path)], capture_output=True, text=True, check=True, timeout=600
    )
    assert float(done.stdout) < 25  # MiB


@pytest.mark.slow
def test_names_without_end_are_refused_early(run: Run) -> None:
    first = run.read_selection(1).ids[0]
    rows = "".join(f"{first},cat,name {i}\n" for i in range(20_000))
    said = refusal(run, f"id,label,annotator\n{rows}".encode())
    assert f"{first!r} has more than 1000 different answers (back.csv line 1002)" in said


def test_time_in_the_future_is_refused(run: Run) -> None:
    first = run.read_selection(1).ids[0]
    soon = datetime.now(UTC) + timedelta(hours=15)  # later than now in every zone
    texts = soon.isoformat(), soon.replace(tzinfo=None).isoformat(), soon.astimezone(timezone(-timedelta(hours=9)))
    for time_text in ("9999-12-31T23:59:59", "9999-12-31T23:59:59-23:00", *map(str, texts)):
        said = refusal(run, f"id,label,annotator,labelled_at\n{first},cat,ann,{time_text}\n".encode())
        assert f"back.csv line 2 was labelled at '{time_text}', which is in the future" in said


def test_another_s_file_does_not_speak_for_ann(run: Run) -> None:
    first = run.read_selection(1).ids[0]
    header = "id,label,annotator,labelled_at\n"
    label_actions.import_labels(run, "ann.csv", f"{header}{first},cat,ann,2024-01-01T00:00\n".encode(), annotator="ann")
    forged = f"{header}{first},dog,ann,2024-01-02T00:00\n".encode()
    with pytest.raises(LabelError, match="labels in conflict"):
        label_actions.import_labels(run, "eve.csv", forged, annotator="eve")
    result = label_actions.import_labels(run, "eve.csv", forged)
    (overruled,) = result.overruled  # whoever imports it without a name of their own at least reads who overruled whom
    assert (overruled.label, overruled.by_label, overruled.by_annotator) == ("cat", "dog", "ann")


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2028x"


@pytest.mark.parametrize("as_json", [False, True])
def test_control_characters_never_reach_the_terminal(
    as_json: bool, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = run.read_selection(1).ids[0]
    path = tmp_path / f"{EVIL}.csv"
    more = ["--json"] * as_json
    for content in (
        f"id,label\n{EVIL},cat\n",
        f"id,label\n{first},{EVIL}\n",
        f"id,label,annotator\n{first},cat,{EVIL}\n",
    ):
        path.write_text(content)
        main(["labels", "import", run.uri, str(path), *more])
    assert main(["labels", "list", run.uri, *more]) == 0
    assert main(["labels", "list", run.uri, "--id", EVIL, *more]) == 6
    said = "".join(capsys.readouterr())
    assert "owned" in said
    assert not [character for character in EVIL[:-1] if character in said and not character.isprintable()]


@pytest.mark.processes
def test_pipe_that_is_closed_or_a_folder_is_one_sentence(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for path, code in ((tmp_path, 5), (tmp_path / "none.csv", 6), ("a\0b", 6)):  # a folder may be another run
        assert main(["labels", "import", run.uri, str(path)]) == code
        assert capsys.readouterr().err.count("\n") == 1
    unreadable = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    Path(unreadable).write_text("id,label\n")
    assert main(["labels", "import", run.uri, unreadable]) == 0
    assert "\\udcff.csv" in capsys.readouterr().out
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["sh", "-c", f"printf 'id,label\\n' > {tmp_path}/pipe"]) as writer:
        assert main(["labels", "import", run.uri, str(tmp_path / "pipe")]) == 0
        assert writer.wait() == 0
