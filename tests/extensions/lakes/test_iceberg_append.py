"""Appends to Iceberg tables in a SQL and a REST catalog: each key once, also next to others and with lost answers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from catalog_server import CatalogServer
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from opacc_ray.errors import StorageError
from opacc_ray.extensions.lakes import exported_tables
from opacc_ray.extensions.lakes.catalogs import IcebergTable, iceberg_table, load_iceberg
from opacc_ray.extensions.lakes.exported_tables import append_missing

TABLE = IcebergTable("lake", "db.numbers")


def rows(*keys: str, **more: list[Any]) -> pa.Table:
    fields = [pa.field("key", pa.string(), metadata={"comment": "which"}), pa.field("value", pa.float64())]
    found = pa.table({"key": keys, "value": [float(ord(key[0])) for key in keys]}, schema=pa.schema(fields))
    for name, values in more.items():
        found = found.append_column(name, pa.array(values))
    return found


def keys(catalog: Catalog) -> list[str]:
    return sorted(catalog.load_table(TABLE.name).scan().to_arrow()["key"].to_pylist())


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A SQL catalog, which is that of the name ``lake``."""
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path)}
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    monkeypatch.setattr(exported_tables, "MOST_PAUSE", 0.01)
    return load_catalog("lake", **settings)


@pytest.fixture
def served(own: Catalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogServer]:
    """The same catalog by REST."""
    with CatalogServer(lambda: ("", "", None), "", own) as server:
        settings = {"TYPE": "rest", "URI": server.endpoint, "TOKEN": server.token}
        for name, value in settings.items():
            monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name}", value)
        yield server


@pytest.mark.parametrize("kind", ["own", "served"])
def test_a_key_is_appended_once(kind: str, own: Catalog, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue(kind)
    append_missing(TABLE, rows("a", "a", "b"), "key")
    append_missing(TABLE, rows("a", "a", "b"), "key")
    append_missing(TABLE, rows("b", "c", size=[1, 2]), "key")
    append_missing(TABLE, rows("d"), "key")
    assert keys(own) == ["a", "a", "b", "c", "d"]
    found = own.load_table(TABLE.name)
    assert len(found.history()) == 3
    assert [field.name for field in found.schema().fields] == ["key", "value", "size"]
    assert found.schema().find_field("key").doc == "which"
    assert "commit.retry.num-retries" not in found.properties


def test_a_commit_whose_answer_is_lost_is_not_repeated(served: CatalogServer, own: Catalog) -> None:
    append_missing(TABLE, rows("a"), "key")
    served.lost = 1
    append_missing(TABLE, rows("b"), "key")
    assert served.lost == 0
    assert keys(own) == ["a", "b"]


def test_an_append_that_always_meets_others_is_an_error(own: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise CommitFailedException("another one")

    monkeypatch.setattr(Table, "append", refuse)
    with pytest.raises(StorageError, match=r"cannot append to the table db.numbers of .* \(another one"):
        append_missing(TABLE, rows("a"), "key")


def test_a_commit_that_comes_after_another_one_has_no_key_of_it(own: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another command appends between the read of the table and the commit."""
    append_missing(TABLE, rows("a"), "key")
    append = Table.append

    def late(table: Table, new: pa.Table) -> None:
        monkeypatch.setattr(Table, "append", append)
        append_missing(TABLE, rows("b", "c"), "key")
        append(table, new)

    monkeypatch.setattr(Table, "append", late)
    append_missing(TABLE, rows("a", "b", "d"), "key")
    assert keys(own) == ["a", "b", "c", "d"]


def test_a_table_on_s3_is_written_with_the_keys_of_the_environment(
    own: Catalog, bucket: str, moto_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rclone's server refuses the uploads of pyarrow; ``bucket`` sets the keys, which moto takes."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.setenv(name, moto_endpoint)
    boto3.client("s3").create_bucket(Bucket=bucket.removeprefix("s3://"))
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"{bucket}/lake")
    table = iceberg_table("lake", "db.numbers")
    for _ in range(2):
        append_missing(table, rows("a", "b"), "key")
    assert load_iceberg(table).scan().to_arrow()["key"].to_pylist() == ["a", "b"]
    assert load_iceberg(table).location().startswith(bucket)
