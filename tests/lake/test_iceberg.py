"""Pools that are Iceberg tables, written by the pyiceberg package: snapshots, renamed columns, what is not there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.config import Config
from tables import read_pool, refusal

from opacc_ray.lake import iceberg
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import newest_version, plan_shards
from opacc_ray.lake.storage import Store, open_store

X = Rules(columns=Columns(id="id", array=("x",)))


def rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    kinds = ["even" if i % 2 == 0 else "odd" for i in numbers]
    return pa.table({"id": pa.array(numbers, pa.int64()), "x": [[float(i)] for i in numbers], "kind": kinds})


@pytest.fixture
def catalog(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    settings = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": bucket}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    found = SqlCatalog("lake", **settings, **iceberg._options(open_store(bucket)))
    found.create_namespace("db")
    return found


@pytest.fixture
def make(catalog: SqlCatalog) -> Callable[..., tuple[Any, Store]]:
    def made(first: pa.Table, *more: pa.Table) -> tuple[Any, Store]:
        table = catalog.create_table("db.pool", schema=first.schema)
        for part in (first, *more):
            table.append(part)
        return table, open_store(table.location())

    return made


def ids(store: Store, rules: Rules = X) -> list[int]:
    found, bad = read_pool(store, "iceberg", rules)
    assert not bad
    return sorted(int(example.id) for example in found)


def test_a_snapshot_is_what_it_was(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 10), rows(10, 15))
    first, second = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    assert ids(store) == list(range(15))
    assert ids(store, X._replace(version=first)) == list(range(10))
    assert ids(store, X._replace(version=first, filter="kind = 'even' and id > 4")) == [6, 8]
    plan = plan_shards(store, "iceberg", 100, rules=X._replace(version=first))
    assert (plan.version, plan.num_examples) == (f"snapshot {first}", 10)
    assert newest_version(store, "iceberg", X) == f"snapshot {second}"


def test_the_table_is_told_by_its_metadata_file_and_by_its_catalog_too(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 10))
    before = table.metadata_location
    table.append(rows(10, 15))
    assert ids(store, X._replace(metadata=before)) == list(range(10))
    assert ids(store, X._replace(catalog=("lake", "db.pool"))) == list(range(15))
    assert "there is no Iceberg table" in refusal(store, "iceberg", X._replace(catalog=("lake", "db.other")))


def test_a_time_names_the_newest_snapshot_before_it(make: Callable[..., tuple[Any, Store]]) -> None:
    _, store = make(rows(0, 10), rows(10, 15))
    assert ids(store, X._replace(timestamp="2999-01-01")) == list(range(15))
    assert "has no snapshot at 2020-01-01; its last are" in refusal(
        store, "iceberg", X._replace(timestamp="2020-01-01")
    )


def test_partitions_by_identity_pass_over_files(make: Callable[..., tuple[Any, Store]]) -> None:
    table, store = make(rows(0, 4))
    with table.update_spec() as update:
        update.add_field("kind", IdentityTransform(), "kind")
    table.append(rows(4, 10))
    assert ids(store, X._replace(filter="kind = 'odd'")) == [1, 3, 5, 7, 9]
    assert len(plan_shards(store, "iceberg", 1, rules=X._replace(filter="kind = 'odd'")).entries) == 2


def test_added_columns_are_null_in_older_files_and_renamed_ones_are_refused(
    make: Callable[..., tuple[Any, Store]],
) -> None:
    from pyiceberg.types import DoubleType

    table, store = make(rows(0, 4))
    with table.update_schema() as update:
        update.add_column("score", DoubleType())
    table.append(rows(4, 6).append_column("score", pa.array([0.5, 1.5])))
    assert ids(store, X._replace(filter="score > 1")) == [5]
    with table.update_schema() as update:
        update.rename_column("x", "pixels")
    said = refusal(store, "iceberg", Rules(columns=Columns(array=("pixels",))))
    assert "has the column 'pixels' as 'x', from before it was renamed; rewrite the table's data files" in said


def test_what_is_not_there_is_one_sentence(make: Callable[..., tuple[Any, Store]], bucket: str) -> None:
    assert "there is no Iceberg table at" in refusal(open_store(f"{bucket}/empty"), "iceberg", X)
    table, store = make(rows(0, 10))
    said = refusal(store, "iceberg", X._replace(version=7))
    assert f"has no snapshot 7; its last are {table.current_snapshot().snapshot_id} of " in said
    said = refusal(store, "iceberg", X._replace(metadata=store.uri_of("metadata/none.metadata.json")))
    assert "there is no Iceberg table" in said
    [data] = [entry.key for entry in store.list("data/")]
    store.delete(data)
    assert "which is gone; ask for a version whose files were not vacuumed or expired" in refusal(store, "iceberg", X)
