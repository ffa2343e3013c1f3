"""Files of a run that were edited or damaged: one sentence and an error with an exit code, never a trace."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opacc_ray.audit import results
from opacc_ray.audit.status import status
from opacc_ray.cli.main import main
from opacc_ray.errors import DataError, OpaccError
from opacc_ray.runs.documents import AccuracyEstimate, RunHeader
from opacc_ray.runs.run import Run

OLD = Path(__file__).parents[1] / "v0_1_0" / "runs" / "css-00000001"
STRANGE: list[Any] = [None, True, -1, 10**300, 1.5, "", "x", [], [[]], {}, {"x": None}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A run of 0.1.0 with labels, an estimate and a round that was closed."""
    shutil.copytree(OLD, tmp_path / OLD.name)
    (tmp_path / OLD.name / "rounds" / "1" / "closed.json").write_text('{"given_up": []}')
    return tmp_path / OLD.name


def say(home: Path) -> None:
    run = Run.open(str(home))
    status(run)
    results.estimate(run)


def test_files_of_the_fixture_are_good(home: Path) -> None:
    say(home)


FILES = ["spec.json", "estimate.json", "rounds/1/closed.json", "rounds/1/selection.json", "features/index.json"]


@pytest.mark.parametrize("file", [*FILES, "rounds/1/predictions.parquet"])
@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b"{}", b'{"format": "opacc-run/9"}'], ids=repr
)
def test_damaged_file_is_named_in_one_sentence(
    file: str, data: bytes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / file).write_bytes(data)
    capsys.readouterr()
    assert main(["status", str(home)]) == 5
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert len(err) < 500
    assert str(home / file) in err


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("version", ["0.1.0", "now"])
def test_no_edit_ends_in_a_trace(file: str, version: str, home: Path) -> None:
    """Every value of the file in turn is replaced by others, or left out."""
    if version == "now":
        write_again(home)
    content = json.loads((home / file).read_bytes())
    sentences = []
    for edited in edits(content):
        (home / file).write_text(json.dumps(edited))
        try:
            say(home)
        except OpaccError as error:
            sentences.append(str(error))
    assert len(sentences) > 3
    assert not [text for text in sentences if "\n" in text]


def write_again(home: Path) -> None:
    """Write every file as this version does."""
    run = Run.open(str(home))
    index = run.read_index()
    assert index is not None
    (home / "spec.json").write_bytes(run.header.to_bytes())
    (home / "features" / "index.json").write_bytes(index.to_bytes())
    (home / "rounds" / "1" / "selection.json").write_bytes(run.read_selection(1).to_json())
    run.close(1, run.read_closed(1) or [])
    results.estimate(run)


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
    shutil.copy(OLD.parent / "neyman-00000001" / "rounds" / "1" / "predictions.parquet", home / "rounds" / "1")
    with pytest.raises(DataError, match=r"of round 1 of .* hold different examples; restore both"):
        say(home)


def test_selection_from_outside_of_its_pool_is_refused(home: Path) -> None:
    path = home / "rounds" / "1" / "selection.json"
    content = json.loads(path.read_bytes())
    for index in ([300, *content["index"][1:]], [-1, *content["index"][1:]], content["index"][1:]):
        path.write_text(json.dumps(content | {"index": index}))
        with pytest.raises(DataError, match=r"selection\.json"):
            say(home)


def test_header_of_version_1_tells_what_it_can(home: Path) -> None:
    header = Run.open(str(home)).header
    assert (header.format, header.digest, header.pool.num_shards) == ("opacc-run/2", None, 3)
    assert RunHeader.from_bytes(header.to_bytes(), "spec.json") == header


def test_estimate_of_version_1_reads_as_the_same_in_version_2(home: Path) -> None:
    old = json.loads((home / "estimate.json").read_bytes())
    new = AccuracyEstimate.from_bytes((home / "estimate.json").read_bytes(), "estimate.json").to_dict()
    assert {key: new[key] for key in old} == old
    new.pop("sha256")
    assert {key: value for key, value in new.items() if key not in old} == {
        "format": "opacc-estimate/2",
        "objects": None,
        "label_files": [],
        "measure": "accuracy",
        "clipped": 0,
        "assisted": None,
        "mean_cost": None,
        "label_noise": None,
        "allows_for": [],
        "goal": None,
        "by_design": None,
        "notes": [],
        "track": None,
        "warnings": [],
    }
