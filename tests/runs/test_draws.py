"""A round is created once, with all files of one draw, however many commands draw at once."""

import io
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audited_run import label, write_features, write_pool
from golden_run import drawn_file, replace_drawn
from tables import parquet
from waiting import LONG

from opacc_ray.audit import accuracy, verbs
from opacc_ray.errors import DataError, LabelError, OpaccError
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.labels.desk import LabelQueue
from opacc_ray.labels.labelled_rounds import read_rounds
from opacc_ray.lake.s3_store import PATIENCE
from opacc_ray.lake.store import Entries, LocalStore
from opacc_ray.lake.store_uris import join, open_store
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec


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
    lines = run.folder(number).read("manifest.jsonl").splitlines()
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


def test_of_commands_that_draw_a_round_at_once_one_does_and_the_others_are_told(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = labelled(home)
    write, drawn_by_all = Run.write_round, threading.Barrier(3)

    def together(self: Run, *arguments: Any) -> None:
        drawn_by_all.wait(LONG)  # a command that begins after another one ended is told otherwise
        write(self, *arguments)

    monkeypatch.setattr(Run, "write_round", together)
    works = [lambda budget=budget: verbs.next_round(run, budget) for budget in (15, 16, 17)]
    found = at_once(works)
    [drawn] = [item for item in found if not isinstance(item, Exception)]
    told = [item for item in found if isinstance(item, Exception)]
    assert [type(error) for error in told] == [LabelError, LabelError]
    assert all("another `opacc next` drew round 2 of" in str(error) and error.exit_code == 6 for error in told)
    assert run.rounds() == [1, 2]
    assert run.read_selection(2).to_dict() == drawn.to_dict()
    assert run.read_chosen(2).ids == list(drawn.ids) == manifest_ids(run, 2)
    label(run, drawn.ids)
    accuracy.estimate(run)


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


# -- read while written ----------------------------------------------------------------------------------


@pytest.mark.parametrize("race", range(6))
def test_whoever_reads_while_a_round_is_closed_drawn_and_labelled_finds_no_loss(
    race: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PATIENCE, "600")
    monkeypatch.setattr("opacc_ray.extensions.evidence.verify.COPYING", 600.0)
    write_pool(str(tmp_path))
    uri = write_features(str(tmp_path))[0].uri
    ids = verbs.select(Run.open(uri), "srs", 20, {}).ids
    label(Run.open(uri), ids[:15])
    write, delays = LocalStore.write, random.Random(race)

    def slow(store: LocalStore, key: str, data: bytes) -> None:
        time.sleep(delays.uniform(0, 0.02))  # as S3 does
        write(store, key, data)

    monkeypatch.setattr(LocalStore, "write", slow)
    with ThreadPoolExecutor() as pool:
        drawn = [pool.submit(at_once, [lambda: verbs.next_round(Run.open(uri), 15, close=True)] * 2)]
        time.sleep(delays.uniform(0, 0.2))
        others = [pool.submit(at_once, [lambda: label(Run.open(uri), ids[15:], "late.csv")])]
        while not drawn[0].done():
            reads = [lambda: accuracy.estimate(Run.open(uri), partial=True), lambda: LabelQueue(Run.open(uri))]
            others += [pool.submit(at_once, [*reads, lambda: verify(uri).faults])]
            others[-1].result()
    found = [item for future in (*drawn, *others) for item in future.result()]
    assert [item for item in found if isinstance(item, OpaccError) and not isinstance(item, LabelError)] == []
    assert [item for item in found if isinstance(item, list) and item] == []  # faults
    assert verify(uri).faults == []


def test_verify_waits_for_the_copy_of_an_estimate(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy.estimate(run)
    accuracy.estimate(run, level=0.9)
    copy = Path(run.uri, "estimate.json")
    written = copy.read_bytes()
    copy.write_bytes(run.estimates()[0][1].to_bytes())
    assert [fault.file for fault in verify(run.uri).faults] == [str(copy)]
    monkeypatch.setenv(PATIENCE, "600")
    threading.Timer(0.5, run.store.write, ["estimate.json", written]).start()  # at once, as a command does
    assert verify(run.uri).faults == []


def test_labels_that_come_while_a_run_is_listed_are_not_lost(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, listing = verbs.next_round(run, 15), LocalStore.list

    def late(store: LocalStore, prefix: str = "") -> Entries:
        found = listing(store, prefix)
        if prefix == "rounds/":
            monkeypatch.setattr(LocalStore, "list", listing)
            label(Run.open(run.uri), drawn.ids, "late.csv")
        return found

    monkeypatch.setattr(LocalStore, "list", late)
    assert [item.labelled.sum() for item in read_rounds(run)] == [20, 0]
    assert [item.labelled.sum() for item in read_rounds(run)] == [20, 15]


# -- damage ----------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def test_predictions_are_joined_by_id(run: Run) -> None:
    expected = accuracy.estimate(run).value
    path = drawn_file(Path(run.uri), 1, "predictions.parquet")
    sink = io.BytesIO()
    pq.write_table(pq.read_table(path).take(list(range(len(run.read_selection(1))))[::-1]), sink)
    replace_drawn(Path(run.uri), 1, path.name, sink.getvalue())
    assert accuracy.estimate(Run.open(run.uri)).value == expected


@pytest.mark.parametrize("name", ["predictions.parquet", "selection.json"])
def test_file_of_a_draw_that_was_changed_or_lost_is_named(name: str, run: Run) -> None:
    path = drawn_file(Path(run.uri), 1, name)
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(DataError, match=f"{name} was changed since it was drawn; restore it"):
        accuracy.estimate(run)
    path.unlink()
    with pytest.raises(DataError, match=f"{name} is lost; restore it"):
        accuracy.estimate(run)


@pytest.mark.parametrize("file", ["log/00000001.json", "rounds/1"])
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


def test_what_lies_beside_the_pool_is_named_in_the_header(tmp_path: Path) -> None:
    pool = open_store(str(tmp_path / "pool"))
    pool.write("rows.parquet", parquet(pa.table({"prediction": [0, 1, 0], "confidence": [0.9, 0.8, 0.7]})))
    for name in ("README.md", "notes.md", "truth.csv"):
        pool.write(name, b"x")
    columns = {"prediction": "prediction", "confidence": "confidence"}
    content = {
        "name": "beside",
        "pool": {"uri": str(tmp_path / "pool"), "format": "features", "columns": columns},
        "sample": {"method": "srs", "budget": 2},
        "output": str(tmp_path / "audits"),
    }
    run = verbs.first_round(parse_spec(content, "spec"))
    found = {item.kind: (item.num_files, item.first) for item in Run.open(run.uri).header.pool.ignored}
    assert found == {".md": (2, ["README.md", "notes.md"]), "CSV or JSON lines": (1, ["truth.csv"])}
