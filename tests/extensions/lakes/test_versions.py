"""The contract of every format with versions: which one is read, its time, and what is not there."""

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tables import X, read_ids, refusal
from versioned_tables import TABLES, VERSION, Append

from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.pools import newest_version, plan_shards
from opacc_ray.lake.store_uris import Store


@pytest.fixture(autouse=True)
def writes_of_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of the tests knows no newer checksums."""
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")


@pytest.fixture(params=TABLES)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def append(kind: str, store: Store) -> Append:
    return TABLES[kind](store)


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": [*range(start, stop)], "x": [[float(i)] for i in range(start, stop)]})


def test_a_version_is_what_it_was(kind: str, store: Store, append: Append) -> None:
    first, second = append(rows(0, 10)), append(rows(10, 15))
    assert read_ids(store, kind) == read_ids(store, kind, X._replace(version=second)) == list(range(15))
    assert read_ids(store, kind, X._replace(version=first)) == list(range(10))
    old, new = (plan_shards(store, kind, 100, rules=X._replace(version=version)) for version in (first, None))
    assert (old.version, old.num_examples) == (VERSION[kind].format(first), 10)
    assert new.version == VERSION[kind].format(second)
    assert newest_version(store, kind, X._replace(version=first)) == new.version


@pytest.mark.parametrize("store", ["folder"], indirect=True)  # the server of the tests sends Lance no parts of a log
def test_a_time_is_that_of_its_version(kind: str, store: Store, append: Append) -> None:
    first, between = append(rows(0, 10)), datetime.now(UTC)
    time.sleep(0.02)
    append(rows(10, 15))
    assert read_ids(store, kind, X._replace(timestamp="2999-01-01")) == list(range(15))
    assert read_ids(store, kind, X._replace(timestamp=between.isoformat())) == list(range(10))
    assert f"has no {VERSION[kind].format('at 2020-01-01T')}" in refusal(
        store, kind, X._replace(timestamp="2020-01-01T00:00:00Z")
    )
    assert "'yesterday' is not a time; write it as" in refusal(store, kind, X._replace(timestamp="yesterday"))
    old, new = (plan_shards(store, kind, 9, rules=X._replace(version=version)).data_as_of for version in (first, None))
    assert old is not None
    assert new is not None
    assert old <= between < new <= datetime.now(UTC)


def test_what_is_not_there_is_one_sentence(kind: str, store: Store, append: Append) -> None:
    assert refusal(store, kind, X).startswith(f"there is no {kind.capitalize()} table at {store.uri}")
    first = append(rows(0, 10))
    name = VERSION[kind].format("")
    assert f"the table {store.uri} has no {name}7" in refusal(store, kind, X._replace(version=7))
    assert "has no column 'y'; it has id, x" in refusal(store, kind, Rules(columns=Columns(array=("y",))))
    [data] = [entry.key for entry in store.list() if entry.key.endswith((".parquet", ".lance"))]
    store.delete(data)
    said = refusal(store, kind, X._replace(version=first))
    assert said.startswith(f"{name}{first} of the table {store.uri} needs the file ")
    assert data.rpartition("/")[2] in said
    assert said.endswith("which is gone; choose a version whose files were not vacuumed or expired")
