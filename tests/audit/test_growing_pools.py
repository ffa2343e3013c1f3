"""A pool that grows: what is as it was is not read again, and features are those of the whole pool."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from extracting_here import extracting_here
from local_s3 import LocalS3
from s3_proxies import CountingProxy
from small_model import network
from small_pictures import picture
from small_spec import small_spec
from tables import parquet

from opacc_ray.audit import verbs
from opacc_ray.audit.checks import check
from opacc_ray.audit.status import status
from opacc_ray.extensions.evidence.verify import verify
from opacc_ray.extract import inference
from opacc_ray.extract.feature_set import ALL
from opacc_ray.lake.store_uris import Store, open_store
from opacc_ray.report import answers
from opacc_ray.runs import run as run_module
from opacc_ray.runs.run import Run
from opacc_ray.spec import parse_spec

pytestmark = pytest.mark.slow

SRS = {"method": "srs", "budget": 20}


@pytest.fixture
def scans(tmp_path: Path) -> Store:
    """A folder with 60 pictures and a model."""
    store = open_store(str(tmp_path / "scans"))
    store.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(60))
    write_model(store)
    return store


def write_model(store: Store) -> None:
    from safetensors.torch import save

    store.write("model.safetensors", save(network().state_dict()))


def audit(scans: Store, home: str, **sections: Any) -> Run:
    return verbs.first_round(parse_spec(small_spec(scans.uri, home, **{"sample": SRS} | sections), "spec"))


def grow(scans: Store) -> None:
    """3 new, 1 changed, 2 gone; one of the new ones is the first of all."""
    scans.write_many((name, picture(i)) for i, name in enumerate(["pool/-1.png", "pool/060.png", "pool/061.png"], 60))
    scans.write("pool/030.png", picture(99))
    for name in ("pool/007.png", "pool/008.png"):
        scans.delete(name)


def features_of(run: Run) -> dict[str, dict[str, Any]]:
    """All features of a run, by id."""
    names = [name for name in ALL if name in run.complete_features().index.features]
    tables = [table.to_pylist() for table in run.complete_features().features.tables(["id", *names])]
    return {row.pop("id"): row for rows in tables for row in rows}


def same(one: Run, other: Run) -> None:
    mine, theirs = features_of(one), features_of(other)
    assert list(mine) == list(theirs)
    for name, row in mine.items():
        for key, value in row.items():
            np.testing.assert_allclose(value, theirs[name][key], rtol=2e-4, atol=1e-5)


def read_ids(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the ids that the model gets, in the future."""
    given: list[str] = []
    plain = inference.transformed

    def noted(transform: Callable[..., Any], item: Any) -> Any:
        given.append(item.id)
        return plain(transform, item)

    monkeypatch.setattr(inference, "transformed", noted)
    return given


def test_only_new_and_changed_pictures_are_extracted(
    scans: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    home, given = str(tmp_path / "audits"), read_ids(monkeypatch)
    with extracting_here() as made:
        first = audit(scans, home)
        assert len(given) == 60
        assert status(first).pool_changes is None
        grow(scans)
        given.clear()
        made.clear()
        second = audit(scans, home, sample={"method": "css", "budget": 20})
        assert sorted(given) == ["-1.png", "030.png", "060.png", "061.png"]
        assert len(made) == 4  # shards with a new or changed picture, of 7
        alone = audit(scans, str(tmp_path / "others"))
    same(second, alone)
    assert second.complete_features().index.num_examples == 61
    said = f"3 new files, 1 changed, 2 gone since {first.name} ({first.header.created[:10]})"
    assert f"the pool: {said}" in caplog.messages
    assert str(status(second).pool_changes) == said
    assert any(said in str(line) for line in answers.status(status(second)))
    assert verify(second.uri).sound
    assert features_of(first).keys() ^ features_of(second).keys() == {
        "-1.png",
        "060.png",
        "061.png",
        "007.png",
        "008.png",
    }


def test_pool_that_only_lost_objects_needs_no_model(scans: Store, tmp_path: Path) -> None:
    home = str(tmp_path / "audits")
    with extracting_here() as made:
        audit(scans, home)
        scans.delete("pool/007.png")
        made.clear()
        second = audit(scans, home)
        alone = audit(scans, str(tmp_path / "others"))
    assert made == made[:6]  # those of the audit on its own
    same(second, alone)
    assert "0 new files, 0 changed, 1 gone" in str(status(second).pool_changes)


def test_surprise_and_coverage_grow_as_well(scans: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans.write_many((f"train/{i:03d}.png", picture(200 + i)) for i in range(30))
    features = ["hidden", "output", "confidence", "lsa", "coverage"]
    sections = {
        "reference": {"uri": f"{scans.uri}/train"},
        "extract": {"batch_size": 8, "shard_size": 10, "features": features, "on_bad_item": "exclude"},
    }
    home, given = str(tmp_path / "audits"), read_ids(monkeypatch)
    with extracting_here():
        audit(scans, home, **sections)
        grow(scans)
        given.clear()
        second = audit(scans, home, **sections)
        assert sorted(given) == ["-1.png", "030.png", "060.png", "061.png"]
        alone = audit(scans, str(tmp_path / "others"), **sections)
    same(second, alone)


def test_interrupted_growth_ends_with_the_same_bytes(
    scans: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever another command has extracted meanwhile: the run keeps what it has grown from."""
    home = str(tmp_path / "audits")
    with extracting_here():
        audit(scans, home)
        grow(scans)
        whole = audit(scans, home)
        expected = {entry.key: whole.features.read(entry.key) for entry in whole.features.list()}
        for key in ("index.json", "part-000003.parquet", "part-000004.parquet", "part-000006.parquet"):
            whole.features.delete(key)
        scans.write("pool/062.png", picture(62))
        newer = audit(scans, home)
        scans.delete("pool/062.png")
        again = audit(scans, home)
    assert newer.header.grown_from != whole.name  # whose features are incomplete
    assert again.uri == whole.uri
    assert {entry.key: again.features.read(entry.key) for entry in again.features.list()} == expected


def test_plan_counts_what_is_left_to_read(scans: Store, tmp_path: Path) -> None:
    home = str(tmp_path / "audits")
    spec = parse_spec(small_spec(scans.uri, home, sample=SRS), "spec")
    before = check(spec, "spec.yaml", forecast=True, actors=1)[0].plan
    with extracting_here():
        verbs.first_round(spec)
    grow(scans)
    after = check(spec, "spec.yaml", forecast=True, actors=1)[0].plan
    assert before is not None
    assert after is not None
    assert (before.pool_changes, before.requests.read) == (None, 60)
    assert str(after.pool_changes).startswith("3 new files, 1 changed, 2 gone since small-")
    assert after.requests.read == 4
    assert 0 < after.bytes_read < before.bytes_read / 10


def test_server_sends_only_new_and_changed_pictures(s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = open_store(s3.create_bucket("growing"))
    scans.write_many((f"pool/{i:03d}.png", picture(i)) for i in range(60))
    write_model(scans)
    with extracting_here(), CountingProxy(s3.endpoint) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", door.endpoint)
        first = audit(scans, f"{scans.uri}/audits")
        whole = door.total(r"/pool/\d+\.png")
        grow(scans)
        door.reset()
        second = audit(scans, f"{scans.uri}/audits")
        read = {path.rpartition("/")[2] for method, path in door.requests if method == "GET" and "/pool/" in path}
        assert read == {"-1.png", "030.png", "060.png", "061.png"}
        assert door.total(r"/pool/.*png") < whole / 10
    assert second.header.grown_from == first.name


def test_features_of_another_model_or_of_changed_code_are_not_taken(scans: Store, tmp_path: Path) -> None:
    home = str(tmp_path / "audits")
    with extracting_here() as made:
        audit(scans, home)
        grow(scans)
        made.clear()
        other = audit(scans, home, extract={"batch_size": 4, "shard_size": 10})
    assert other.header.grown_from is None
    assert len(made) == 7


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    values = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)[numbers]
    return pa.table(
        {
            "id": [f"row-{i}" for i in numbers],
            "i": numbers,
            **{name: values[:, place] for place, name in enumerate("abc")},
            "camera": [f"camera {i % 3}" for i in numbers],
        }
    )


OF_FEATURES = {"columns": {"id": "id", "output": ["a", "b", "c"]}, "slices": ["camera"]}


def write_parquet(place: Store) -> None:
    place.write_many((f"{start:03d}.parquet", parquet(rows(start, start + 40))) for start in range(0, 200, 40))


def grow_parquet(place: Store) -> None:
    place.write("999.parquet", parquet(rows(200, 250)))
    place.write("080.parquet", parquet(rows(300, 340)))
    place.delete("120.parquet")


def write_delta(place: Store) -> None:
    for start in range(0, 200, 40):
        deltalake.write_deltalake(place.uri, rows(start, start + 40), mode="append")


def grow_delta(place: Store) -> None:
    deltalake.write_deltalake(place.uri, rows(200, 250), mode="append")
    deltalake.DeltaTable(place.uri).delete("i >= 80 and i < 120")


TABLES = {
    "parquet": ("features", write_parquet, grow_parquet, {"999.parquet", "080.parquet"}),
    "delta": ("delta", write_delta, grow_delta, None),
}


@pytest.mark.parametrize("kind", TABLES)
def test_only_new_and_changed_files_of_a_table_are_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their rows; the end of each file is read for the plan."""
    format, write, change, names = TABLES[kind]
    place, home = open_store(str(tmp_path / "table")), str(tmp_path / "audits")
    content = {
        "name": "table",
        "pool": {"uri": place.uri, "format": format} | OF_FEATURES,
        "extract": {"shard_size": 70},
        "sample": SRS,
    }
    write(place)
    first = verbs.first_round(parse_spec(content | {"output": home}, "spec"))
    change(place)
    read: list[str] = []
    spied = extractor_reads(monkeypatch, read)
    second = verbs.first_round(parse_spec(content | {"output": home}, "spec"))
    spied()
    fresh = {entry.key for entry in run_module.read_listing(second).values()} - set(run_module.read_listing(first))
    wanted = names or fresh
    assert set(read) == wanted
    alone = verbs.first_round(parse_spec(content | {"output": str(tmp_path / "others")}, "spec"))
    same(second, alone)
    with run_module.open_view(second, ["output"]) as mine, run_module.open_view(alone, ["output"]) as theirs:
        assert mine.slicing("camera").codes.tolist() == theirs.slicing("camera").codes.tolist()
        assert mine.slicing("camera").names == theirs.slicing("camera").names


def extractor_reads(monkeypatch: pytest.MonkeyPatch, read: list[str]) -> Callable[[], None]:
    """Note the files whose rows are read, except those that a trial reads; returns a function that ends it."""
    from opacc_ray.extract import table_columns

    plain = table_columns.read_rows

    def noted(store: Store, kind: str, shard: Any, rules: Any) -> Iterator[Any]:
        read.extend(shard.keys)
        return plain(store, kind, shard, rules)

    patch = pytest.MonkeyPatch()
    patch.setattr(table_columns, "read_rows", noted)
    patch.setattr(verbs, "try_slices", lambda *given: "")
    return patch.undo


def test_changes_of_files_in_folders_of_hive_are_counted(tmp_path: Path) -> None:
    """The column week is in no file, and the digest of the pool covers where it is."""
    store, runs = open_store(str(tmp_path / "pool")), []
    columns = {"id": "id", "prediction": "pred"}
    pool = {"uri": store.uri, "format": "features", "columns": columns, "slices": ["week"]}
    spec = {"name": "weekly", "pool": pool, "sample": SRS, "output": str(tmp_path / "out")}
    for week in range(2):
        rows = pa.table({"id": [f"{week}-{i}" for i in range(30)], "pred": [i % 3 for i in range(30)]})
        store.write(f"week={week}/a.parquet", parquet(rows))
        runs.append(verbs.first_round(parse_spec(spec, "spec")))
    assert str(status(runs[1]).pool_changes).startswith("1 new file, 0 changed, 0 gone since weekly-")
    assert verify(runs[1].uri).sound
