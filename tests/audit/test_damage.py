"""Edited and damaged files of a run: one sentence and an exit code, never a traceback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_run import copy_golden_run, drawn_file, edit_document, golden_run, replace_drawn
from logged import close

from opacc_ray.audit import accuracy
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.runs.run import Run

MOST = 60
"""Edits of one file that are tried."""

STRANGE: list[Any] = [None, True, -1, 10**300, 1.5, "", "x", [], [[]], {}, {"x": None}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run with labels, an estimate and a round that was closed."""
    folder = copy_golden_run(tmp_path)
    close(Run.open(str(folder)), 2, [])
    return folder


def state(home: Path) -> None:
    run = Run.open(str(home))
    status(run)
    accuracy.estimate(run)


def test_files_of_the_fixture_are_good(home: Path) -> None:
    state(home)


SELECTION, PREDICTIONS = "selection.json", "predictions.parquet"
[ESTIMATE] = [f"estimates/{path.name}" for path in (golden_run() / "estimates").iterdir()]
FILES = ["spec.json", "log/00000002.json", "features/index.json"]


def place(home: Path, file: str) -> Path:
    """Return a file, which may be one of the first round."""
    return drawn_file(home, 1, file) if file in (SELECTION, PREDICTIONS) else home / file


def replace(home: Path, file: str, data: bytes) -> None:
    """Write a file; a file that was drawn with digests that match."""
    if file in (SELECTION, PREDICTIONS):
        replace_drawn(home, 1, file, data)
    else:
        (home / file).write_bytes(data)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        *((file, b"{") for file in (*FILES, ESTIMATE, SELECTION, PREDICTIONS)),
        *((SELECTION, data) for data in (b"", b"null", b"\xff\xfe", b"[" * 100_000, b"{}")),
    ],
)
def test_damaged_file_is_named_in_one_sentence(
    file: str, data: bytes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replace(home, file, data)
    capsys.readouterr()
    assert main(["status", str(home)]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert len(err) < 500
    assert str(place(home, file)) in err


@pytest.mark.slow
@pytest.mark.parametrize("file", [*FILES, SELECTION])
def test_no_edit_ends_in_a_traceback(file: str, home: Path) -> None:
    """Values of the file are replaced by others, or left out, evenly over the file; all digests match."""
    sentences = []
    found = list(edits(json.loads(place(home, file).read_bytes())))
    for edited in found[:: 1 + len(found) // MOST]:
        if file == SELECTION:
            replace(home, file, json.dumps(edited).encode())
        else:
            edit_document(home / file, lambda _, edited=edited: edited)
        try:
            state(home)
        except OpaccError as error:
            sentences.append(str(error))
    assert len(sentences) > 3
    assert not [text for text in sentences if "\n" in text]


def edits(content: Any) -> Iterator[Any]:
    """Copies of the content with one value changed; of long lists, the first is tried."""
    places: list[Any] = list(content)[:12] if isinstance(content, dict) else [0] if content else []
    for place in places:
        shape = dict(content) if isinstance(content, dict) else list(content)
        for value in STRANGE:
            shape[place] = value
            yield shape
        if isinstance(content, dict):
            yield {key: value for key, value in content.items() if key != place}
        if isinstance(content[place], dict | list):
            for inner in edits(content[place]):
                shape[place] = inner
                yield shape


def test_predictions_of_other_examples_are_refused(home: Path) -> None:
    replace(home, PREDICTIONS, drawn_file(home, 2, PREDICTIONS).read_bytes())
    with pytest.raises(DataError, match=r"of round 1 of .* have different examples; restore both"):
        state(home)


@pytest.mark.parametrize("first", [[300], [-1], []])
def test_selection_from_outside_of_its_pool_is_refused(first: list[int], home: Path) -> None:
    content = json.loads(place(home, SELECTION).read_bytes())
    replace(home, SELECTION, json.dumps(content | {"index": [*first, *content["index"][1:]]}).encode())
    with pytest.raises(DataError, match=r"selection\.json"):
        state(home)
