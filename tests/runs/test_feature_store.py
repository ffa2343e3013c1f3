"""The features of a run: their index, its columns, and the rows that were chosen."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_run import write_synthetic
from written_run import CLASSES, CONFIDENCE, IDS, PREDICTION, N, write_run

from opacc_ray.audit import extraction_stages, verbs
from opacc_ray.audit.extraction_stages import index_features
from opacc_ray.documents import sealed
from opacc_ray.errors import DataError, SpecError
from opacc_ray.extract import feature_files
from opacc_ray.extract.extraction import Extraction
from opacc_ray.extract.shards import FeatureShard, Machine, digest_of, encode_shard, report_on
from opacc_ray.lake.examples import Plan, Shard
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run

PLAN = Plan(tuple(Shard(number, ()) for number in range(3)), "")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return write_run(tmp_path, "mine", PREDICTION, classes=CLASSES)


def job_of(run: Run) -> Extraction:
    return Extraction(run.spec, run.spec.pool, run.spec.features(), run.features)


def read_back(run: Run) -> Any:
    index = run.read_index()
    assert index is not None
    return index


# -- the index -------------------------------------------------------------------------------------------


def test_index_knows_sizes_digests_and_counts(run: Run) -> None:
    index = read_back(run)
    assert index.features == {"hidden": 5, "prediction": 1, "output": 3, "confidence": 1}
    assert index.num_examples == N
    assert run_module.predicted_classes(run) == dict(enumerate(np.bincount(PREDICTION).tolist()))
    assert run.num_classes == 3
    for shard, own in zip(index.shards, np.array_split(IDS, 3), strict=True):
        assert shard.bytes == run.features.size(shard.file)
        assert shard.ids == digest_of(own)
    written = json.loads(run.features.read("index.json"))
    assert written["format"] == "opacc-index/2"
    assert written["predicted"].keys() == {"0", "1", "2"}


def test_index_is_made_of_reports_and_reads_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [FeatureShard([name], [name], {"prediction": np.array([1])}, [], own_ids=False) for name in "abc"]
    reports = {number: report_on(shard, encode_shard(shard), "x") for number, shard in enumerate(made)}
    for method in ("read", "read_range", "list"):
        monkeypatch.setattr(type(run.features), method, None)
    index = index_features(job_of(run), PLAN, reports)
    assert (index.num_examples, index.predicted) == (3, {1: 3})


def test_files_that_were_there_before_give_the_same_index_from_their_ends(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = read_back(run)
    monkeypatch.setattr(extraction_stages, "hashes_of", None)  # for which ids are read
    monkeypatch.setattr(extraction_stages, "_refuse_repeated", lambda *_: None)
    monkeypatch.setattr(feature_files, "read_table", None)
    assert index_features(job_of(run), PLAN) == index
    assert read_back(run) == index


def test_index_whose_shards_hold_another_number_is_refused(run: Run) -> None:
    content = json.loads(run.features.read("index.json"))
    run.features.write("index.json", json.dumps(sealed(content | {"num_examples": 1})).encode())
    with pytest.raises(DataError, match=f"index.json: the shards hold {N} examples, and num_examples is 1"):
        run.read_index()


def test_class_without_a_name_is_refused_before_anything_is_labelled(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"predicts class 2 .* model\.classes names 2 classes, 0 to 1"):
        write_run(tmp_path, "short", PREDICTION, classes=["cat", "dog"])
    assert Run.open(str(tmp_path / "short")).read_index() is None


def test_id_in_two_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"the id '007\.png' appears twice in nowhere; ids must be unique"):
        write_run(tmp_path, "twice", PREDICTION, [*IDS[:-1], IDS[7]])
    assert Run.open(str(tmp_path / "twice")).read_index() is None


def test_own_id_that_is_another_ones_key_is_refused(run: Run) -> None:
    """Ids made of keys come without hashes; beside ids of the pool's own they are read."""
    shards = [
        FeatureShard(["a.npy:0", "a.npy:1"], ["x", "y"], {"prediction": np.array([1, 2])}, [], own_ids=False),
        FeatureShard(["b", "a.npy:1"], ["x", "y"], {"prediction": np.array([1, 2])}, []),
    ]
    for number, shard in enumerate(shards):
        run.features.write(f"part-00000{number}.parquet", encode_shard(shard))
    reports = {number: report_on(shard, encode_shard(shard), "x") for number, shard in enumerate(shards)}
    assert reports[0].hashes is None
    with pytest.raises(DataError, match=r"the id 'a\.npy:1' appears twice"):
        index_features(job_of(run), Plan(PLAN.shards[:2], ""), reports)


def test_kinds_of_machines_that_mix_are_named_once(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [Machine(processor=name, capability="AVX2", torch="2.9") for name in ("old chip", "new chip")]
    reports = {}
    for number in range(3):
        shard = FeatureShard([str(number)], ["x"], {"prediction": np.array([1])}, [], own_ids=False)
        reports[number] = report_on(shard, encode_shard(shard, kinds[number > 1]), "x")
    caplog.set_level(logging.WARNING, "opacc_ray")
    index = index_features(job_of(run), PLAN, reports)
    assert index.machines == tuple(kinds[::-1])
    assert [shard.machine for shard in index.shards] == [1, 1, 0]
    (record,) = caplog.records
    assert "2 kinds of machine" in record.getMessage()
    assert f"1 by {kinds[1]}; 2 by {kinds[0]}" in record.getMessage()


# -- columns and rows ------------------------------------------------------------------------------------


def test_column_is_read_in_the_order_of_the_pool(run: Run) -> None:
    assert np.array_equal(run_module.read_column(run, "confidence"), CONFIDENCE)
    with pytest.raises(SpecError, match=r"not dsa; add extract\.features"):
        run_module.read_column(run, "dsa")


def test_chosen_rows_come_in_the_order_of_choice(run: Run) -> None:
    chosen = verbs.select(run, "srs", 50, {})
    found = run_module.find_chosen(run, chosen, set())
    assert found.ids == found.uris == [IDS[i] for i in chosen.index]
    assert found.predictions == PREDICTION[chosen.index].tolist()


def test_predictions_are_found_by_id(run: Run) -> None:
    wanted = [IDS[i] for i in (299, 5, 120, 5)]
    assert run_module.find_predictions(run, wanted) == PREDICTION[[299, 5, 120, 5]].tolist()
    with pytest.raises(DataError, match=r"lacks 1 of 2 labelled examples, the first 'no\.png'"):
        run_module.find_predictions(run, [IDS[0], "no.png"])


class Reads:
    """Which columns are read of which files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, tuple[str, ...]]] = []
        plain = feature_files.read_table

        def read(store: Any, file: str, names: Any, *sizes: Any, **known: Any) -> Any:
            self.seen.append((file, tuple(names)))
            return plain(store, file, names, *sizes, **known)

        monkeypatch.setattr(feature_files, "read_table", read)

    @property
    def names(self) -> set[str]:
        return {name for _, names in self.seen for name in names}


@pytest.fixture
def reads(run: Run, monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


def test_view_reads_a_column_when_it_is_asked_for(run: Run, reads: Reads) -> None:
    with run_module.open_view(run, ["hidden", "confidence"]) as view:
        assert view.size == N
        assert reads.seen == []
        assert np.array_equal(view.column("confidence"), CONFIDENCE)
        view.column("confidence")[:] = 0  # the caller's own
        assert np.array_equal(view.column("confidence"), CONFIDENCE)
        assert reads.names == {"confidence"}
        assert len(reads.seen) == 3
        assert [part.shape for part in view.map(_hidden)] == [(100, 5)] * 3


def _hidden(part: Any) -> Any:
    assert part.ids[0] == "0"  # ids stay where they are
    return part.hidden


@pytest.mark.parametrize(
    ("method", "columns"),
    [("srs", set()), ("css", {"confidence"}), ("deepest", {"confidence"}), ("neyman", {"hidden", "confidence"})],
)
def test_method_reads_its_own_columns_and_what_is_known_of_the_chosen(
    method: str, columns: set[str], run: Run, reads: Reads
) -> None:
    verbs.select(run, method, 30, {})
    assert reads.names == columns | {"id", "uri", "prediction"}


DIRECTIONS = "derived/directions-"


@pytest.fixture
def wide(tmp_path: Path) -> Run:
    """2,000 examples in four shards, with a hidden layer of 12."""
    return write_synthetic(str(tmp_path / "wide-00000001"), 2000, 12, 500)


def draw(run: Run) -> Any:
    """A draw by neyman, as if it were the first of its process."""
    return verbs.select(run, "neyman", 30, {}, seed=4).to_dict()


def test_directions_of_the_hidden_layer_are_kept_and_the_layer_is_not_read_again(
    wide: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = draw(wide)
    [kept] = [entry for entry in wide.features.list() if entry.key.startswith(DIRECTIONS)]
    monkeypatch.setattr(run_module, "MEMORY_LIMIT", 0)  # its rows would be held by actors, which do not start
    reads = Reads(monkeypatch)
    assert draw(wide) == first
    assert not reads.names  # columns, ids and places are kept in one piece, too
    assert kept.size < 2000 * 6 * 5


@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: data[:-9], lambda data: data[:99] + b"\1" + data[100:]])
def test_directions_that_are_damaged_are_made_again(wide: Run, damage: Any, caplog: pytest.LogCaptureFixture) -> None:
    first = draw(wide)
    [kept] = [entry.key for entry in wide.features.list() if entry.key.startswith(DIRECTIONS)]
    data = wide.features.read(kept)
    wide.features.write(kept, damage(data))
    assert draw(wide) == first
    assert "it is computed again" in caplog.text
    assert wide.features.read(kept) == data


def test_directions_of_other_features_are_not_taken(wide: Run) -> None:
    first = draw(wide)
    other = write_synthetic(f"{wide.uri}x", 2000, 13, 500)
    [kept] = [entry.key for entry in wide.features.list() if entry.key.startswith(DIRECTIONS)]
    other.features.write(kept, wide.features.read(kept))
    assert draw(other)["index"] != first["index"]
    assert len([entry for entry in other.features.list() if entry.key.startswith(DIRECTIONS)]) == 2


def test_columns_of_many_small_files_are_kept_in_one_piece(wide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    index = np.arange(0, 2000, 100)
    first = run_module.read_column(wide, "confidence"), *run_module.find_rows(wide, index)
    reads = Reads(monkeypatch)
    again = Run.open(wide.uri)
    then = run_module.read_column(again, "confidence"), *run_module.find_rows(again, index)
    assert np.array_equal(first[0], then[0])
    assert first[1:] == then[1:]
    assert first[1][3] == "000000300.png"
    assert not reads.seen
    assert run_module.find_rows(again, index[:10])[0] == first[1][:10]  # half of the files: each is asked
    assert {names for _, names in reads.seen} == {("id", "prediction")}


def test_columns_of_large_files_lie_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_synthetic(str(tmp_path / "wide-00000001"), 20_000, 2, 10_000)
    run_module.read_column(run, "confidence")
    assert not [entry for entry in run.features.list() if entry.key.startswith("derived/")]
