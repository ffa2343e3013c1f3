"""A round is created once, with all files of one draw, however many commands draw at once."""

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audited_run import KEYS, label, write_features, write_pool
from golden_run import replace_drawn

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import DataError, LabelError, OpaccError
from opacc_ray.lake.store_uris import join
from opacc_ray.runs.run import Run
from opacc_ray.runs.run_documents import Draw


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose first round is labelled."""
    return labelled(str(tmp_path))


def labelled(home: str) -> Run:
    write_pool(home)
    run, _ = write_features(home)
    label(run, verbs.select(run, "srs", 20, {}).ids)
    return run


def manifest_ids(run: Run, number: int) -> list[str]:
    lines = run.store.read(f"rounds/{number}/manifest.jsonl").splitlines()
    return [json.loads(line)["id"] for line in lines]


# -- at once ---------------------------------------------------------------------------------------------


@pytest.fixture(params=["folder", "moto"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return str(tmp_path)
    bucket = str(request.getfixturevalue("bucket"))
    if request.param == "moto":
        endpoint = request.getfixturevalue("moto_endpoint")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=bucket.removeprefix("s3://"))
    return join(bucket, "audits")


def at_once(works: list[Callable[[], Any]]) -> list[Any]:
    """What each returns, or the error that it raises, all started together."""
    start = threading.Barrier(len(works))

    def one(work: Callable[[], Any]) -> Any:
        start.wait()
        try:
            return work()
        except OpaccError as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, works))


def test_of_commands_that_draw_a_round_at_once_one_does_and_the_others_are_told(home: str) -> None:
    run = labelled(home)
    works = [lambda budget=budget: verbs.next_round(run, budget) for budget in (15, 16, 17)]
    found = at_once(works)
    [drawn] = [item for item in found if not isinstance(item, Exception)]
    told = [item for item in found if isinstance(item, Exception)]
    assert [type(error) for error in told] == [LabelError, LabelError]
    assert all("another `opacc next` drew round 2 of" in str(error) and error.exit_code == 6 for error in told)
    assert run.rounds() == [1, 2]
    assert run.read_selection(2).to_dict() == drawn.to_dict()
    assert run.read_chosen(2).ids == list(drawn.ids) == manifest_ids(run, 2)
    run.check_copies(2)
    label(run, drawn.ids)
    accuracy.estimate(run)


@pytest.mark.processes
def test_processes_that_draw_at_once_end_in_one_round(run: Run) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "opacc_ray", "next", run.uri, "--json", "--budget"]
    started = [
        subprocess.Popen([*command, budget], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for budget in ("15", "16")
    ]
    outputs = [process.communicate(timeout=120) for process in started]
    codes = [process.returncode for process in started]
    assert sorted(codes) == [0, 6], outputs
    assert json.loads(outputs[codes.index(0)][0])["n"] == len(run.read_selection(2)) == len(manifest_ids(run, 2))


def test_command_that_draws_late_is_told_although_the_round_is_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the first one's files are there when the second, which has read the run before, writes its own."""
    write, first = Run.write_round, []

    def late(self: Run, *arguments: Any) -> None:
        monkeypatch.setattr(Run, "write_round", write)
        first.append(verbs.next_round(run, 15))
        write(self, *arguments)

    monkeypatch.setattr(Run, "write_round", late)
    with pytest.raises(LabelError, match=r"another `opacc next` drew round 2 of .* first"):
        verbs.next_round(run, 16)
    assert run.read_selection(2).to_dict() == first[0].to_dict()


def test_the_same_draw_at_once_is_one_draw(run: Run) -> None:
    first, second = at_once([lambda: verbs.next_round(run, 15)] * 2)
    assert first.to_dict() == second.to_dict() == run.read_selection(2).to_dict()


def test_selections_at_once_replace_a_round_one_by_one(run: Run) -> None:
    verbs.next_round(run, 15)
    works = [lambda budget=budget: verbs.select(run, "srs", budget, {}) for budget in (7, 8)]
    found = at_once(works)
    assert len(run.read_selection(2)) in (7, 8)
    assert run.read_chosen(2).ids == list(run.read_selection(2).ids) == manifest_ids(run, 2)
    assert all(str(item).startswith("another `opacc select`") for item in found if isinstance(item, Exception))
    assert {len(open_draw(run, number)["ids"]) for number in range(1, len(run.logged(Draw, 2)) + 1)} >= {15}


def open_draw(run: Run, number: int) -> Any:
    folder = run.logged(Draw, 2)[number - 1][1].folder
    return json.loads(run.store.read(f"rounds/2/{folder}/selection.json"))


# -- damage ----------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def test_predictions_are_joined_by_id(run: Run) -> None:
    expected = accuracy.estimate(run).value
    path = Path(run.uri) / "rounds" / "1" / "predictions.parquet"
    sink = io.BytesIO()
    pq.write_table(pq.read_table(path).take(list(range(len(run.read_selection(1))))[::-1]), sink)
    replace_drawn(Path(run.uri), 1, path.name, sink.getvalue())
    assert accuracy.estimate(Run.open(run.uri)).value == expected


@pytest.mark.parametrize("name", ["predictions.parquet", "selection.json"])
def test_file_of_a_draw_that_was_changed_or_lost_is_named(name: str, run: Run) -> None:
    [path] = (Path(run.uri) / "rounds" / "1" / "draws").glob(f"*/{name}")
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(DataError, match=f"{name} was changed since it was drawn; restore it"):
        accuracy.estimate(run)
    path.unlink()
    with pytest.raises(DataError, match=f"{name} is lost; restore it"):
        accuracy.estimate(run)


@pytest.mark.parametrize("name", ["manifest.csv", "manifest.jsonl", "predictions.parquet", "selection.json"])
def test_file_of_a_round_that_people_see_is_what_was_drawn(name: str, run: Run) -> None:
    path = Path(run.uri) / "rounds" / "1" / name
    good = path.read_bytes()
    path.write_bytes(good.replace(KEYS[0][:2].encode(), b"99") + b" ")
    with pytest.raises(DataError, match=rf"{name} was changed since it was drawn; copy it from .*draws/"):
        label(run, run.read_selection(1).ids)
    path.unlink()
    for verb in (accuracy.estimate, lambda run: label(run, run.read_selection(1).ids)):
        with pytest.raises(DataError, match=rf"{name} is lost; copy it from .*draws/.*{name}"):
            verb(run)
    assert run.restore_copies(1) == [str(path)]
    assert path.read_bytes() == good


def test_manifest_that_was_filled_in_where_it_lies_is_kept_when_it_is_written_anew(run: Run) -> None:
    place = run.store.store("rounds/1")
    filled = place.read("manifest.csv") + b"a line of labels"
    place.write("manifest.csv", filled)
    assert run.restore_copies(1) == [place.uri_of("manifest.csv")]
    assert [place.read(entry.key) for entry in place.list("replaced/")] == [filled]
    assert run.restore_copies(1) == []


@pytest.mark.parametrize("file", ["log/00000001.json", "rounds/1/draws"])
def test_draw_or_round_that_is_lost_is_named(file: str, run: Run) -> None:
    verbs.next_round(run, 10)
    path = Path(run.uri) / file
    path.rename(Path(run.uri) / "aside")
    with pytest.raises(DataError, match=rf"{file}.* is lost"):
        accuracy.estimate(Run.open(run.uri), partial=True)


def test_file_of_labels_that_is_not_the_one_of_its_name_is_refused(run: Run) -> None:
    [path] = (Path(run.uri) / "rounds" / "1" / "labels").iterdir()
    path.write_bytes(path.read_bytes().replace(b"cat", b"dog"))
    with pytest.raises(DataError, match=rf"{path.name} was changed since it was imported"):
        accuracy.estimate(run)
