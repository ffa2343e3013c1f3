"""Tables by their name in a catalog: credentials that it vends and renews, and its failures, in sentences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.credentials import RefreshableCredentials
from catalog_server import CatalogServer
from local_s3 import LocalS3
from pyiceberg.catalog.sql import SqlCatalog

from opacc_ray.errors import DataError, OpaccError, SpecError, StorageError
from opacc_ray.extensions.lakes import catalogs
from opacc_ray.lake.s3_store import S3Store, client_for
from opacc_ray.lake.store_uris import open_store, open_table
from opacc_ray.spec import open_pool, parse_spec


@pytest.fixture
def vended() -> list[tuple[str, str, float | None]]:
    """The credentials that the catalog vends, one after the other; the last one again and again."""
    return []


@pytest.fixture
def unity(s3: LocalS3, bucket: str, vended: list[Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[CatalogServer]:
    """Unity Catalog with one table; the environment has the address of S3 and no keys."""
    open_store(bucket).write("photos/a.txt", b"there")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    vended.append((s3.access_key, s3.secret_key, None))
    monkeypatch.setattr(catalogs, "SECONDS", 60)
    with CatalogServer(lambda: vended.pop(0) if len(vended) > 1 else vended[0], s3.endpoint) as server:
        server.delta["main.db.photos"] = f"{bucket}/photos"
        monkeypatch.setenv("DATABRICKS_HOST", server.endpoint)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token)
        yield server


def test_vended_credentials_open_the_table_and_nothing_else(unity: CatalogServer, bucket: str) -> None:
    store = open_table("delta", "unity", "main.db.photos")
    assert isinstance(store, S3Store)
    assert store.read("a.txt") == b"there"
    assert "secret" not in repr(store)
    with pytest.raises(StorageError, match="no credentials"):
        open_store(f"{bucket}/photos").read("a.txt")


def test_credentials_are_renewed_before_they_expire(unity: CatalogServer, vended: list[Any], s3: LocalS3) -> None:
    """The first ones have expired by the next request, so it is signed with later ones; only those are right."""
    vended[:] = [("gone", "gone", 3600.0), ("gone", "gone", 0.0), (s3.access_key, s3.secret_key, 3600.0)]
    store = open_table("delta", "unity", "main.db.photos")
    assert store.read("a.txt") == b"there"
    assert vended == [(s3.access_key, s3.secret_key, 3600.0)]
    asked = len(unity.asked)
    assert store.read("a.txt") == b"there"
    assert len(unity.asked) == asked


def test_credentials_of_a_short_life_are_renewed_in_the_middle_of_it(
    unity: CatalogServer, vended: list[Any], s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each request, though they never live as long as others before their renewal."""
    passed, left = 0.0, RefreshableCredentials._seconds_remaining
    monkeypatch.setattr(RefreshableCredentials, "_seconds_remaining", lambda self: left(self) - passed)
    vended[:] = [(s3.access_key, s3.secret_key, 590.0)]
    store = open_table("delta", "unity", "main.db.photos")
    renewals = []
    for passed in (0.0, 100.0, 400.0, 0.0):  # noqa: B007  # seconds since the last renewal
        asked = len(unity.asked)
        assert store.read("a.txt") == b"there"
        renewals.append(sum("credentials" in path for path in unity.asked[asked:]))
    assert renewals[1:] == [0, 1, 0]


def test_a_busy_catalog_is_asked_again(unity: CatalogServer) -> None:
    unity.share = 0.4
    for _ in range(5):
        assert open_table("delta", "unity", "main.db.photos").read("a.txt") == b"there"
    assert unity.met > 0


def test_failures_of_unity_are_one_sentence(unity: CatalogServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(name: str = "main.db.photos") -> str:
        with pytest.raises(OpaccError) as caught:
            open_table("delta", "unity", name)
        assert unity.token not in str(caught.value)
        return f"{type(caught.value).__name__}: {caught.value}"

    monkeypatch.setattr(catalogs.time, "sleep", lambda _: None)
    assert reason("main.db.none") == (
        f"DataError: Unity Catalog at {unity.endpoint} has no table 'main.db.none'; correct pool.table"
    )
    monkeypatch.setenv("DATABRICKS_TOKEN", "wrong")
    assert "refuses access to main.db.photos (401); check DATABRICKS_TOKEN, and the grants" in reason()
    unity.share = 1
    assert f"StorageError: Unity Catalog at {unity.endpoint} gives no answer (it answers 503)" in reason()
    monkeypatch.setenv("DATABRICKS_HOST", "http://127.0.0.1:9")
    assert "Unity Catalog at http://127.0.0.1:9 gives no answer (" in reason()
    monkeypatch.setenv("DATABRICKS_HOST", "file:///etc")
    assert reason() == "SpecError: DATABRICKS_HOST is 'file:///etc'; write https://HOST"
    monkeypatch.delenv("DATABRICKS_HOST")
    assert reason().startswith("SpecError: pool.catalog unity needs its address; set DATABRICKS_HOST")


def test_failures_of_an_iceberg_catalog_are_one_sentence(
    tmp_path: Path, s3: LocalS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = SqlCatalog("own", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="file:///nowhere")
    own.create_namespace("db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    with CatalogServer(lambda: ("", "", None), s3.endpoint, own) as server:
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.endpoint)
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", server.token)
        with pytest.raises(
            DataError, match=r"^the catalog 'lake' has no table 'db.none'; correct pool.table or pool.cat"
        ):
            open_table("iceberg", "lake", "db.none")
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "wrong")
        with pytest.raises(
            StorageError, match=r"'lake' does not give the table 'db.none' \(NotAuth.*PYICEBERG_CATALOG__LAKE__"
        ):
            open_table("iceberg", "lake", "db.none")
    with pytest.raises(StorageError, match=r"'other' does not give the table 'db.none' \(.*; check its settings in"):
        open_table("iceberg", "other", "db.none")


def pool_of(**pool: Any) -> Any:
    content = {"name": "a", "pool": pool, "model": {"classes": ["a", "b"]}, "sample": {"budget": 5}, "output": "x"}
    return parse_spec(content, "spec").pool


def test_a_name_in_a_catalog_is_enough() -> None:
    columns = {"prediction": "p", "confidence": "c"}
    pool = pool_of(format="iceberg", catalog="lake", table="db.t", columns=columns)
    assert pool.uri == "catalog://lake/db.t"
    for given, reason in (
        ({"format": "iceberg"}, r"key 'pool.uri' is missing"),
        ({"format": "iceberg", "catalog": "lake", "table": "t", "access": "anonymous"}, r"access and catalog cannot"),
        ({"format": "iceberg", "catalog": "lake"}, r"missing|give both or neither"),
        ({"format": "lance", "catalog": "lake", "table": "t"}, r"catalog is only supported for delta, iceberg"),
    ):
        with pytest.raises(SpecError, match=reason):
            pool_of(columns=columns, **given)
    with pytest.raises(SpecError, match=r"pool.catalog 'lake' is unknown for format delta"):
        open_pool(pool_of(format="delta", catalog="lake", table="t", columns=columns))
    with pytest.raises(StorageError, match=r"has no access 'anonymous'; remove pool.access"):
        open_pool(pool_of(uri="/data/p", format="features", access="anonymous", columns=columns))


def test_the_requester_says_that_it_pays(moto_endpoint: str, s3: LocalS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_endpoint)
    boto3.client("s3", endpoint_url=moto_endpoint).create_bucket(Bucket="paid-bucket")
    store = open_store("s3://paid-bucket/pool", access="requester-pays")
    assert isinstance(store, S3Store)
    sent: list[str | None] = []
    note = lambda request, **_: sent.append(request.headers.get("x-amz-request-payer"))  # noqa: E731
    client_for(None, "requester-pays").meta.events.register("before-send.s3", note)
    store.write("a", b"abc")
    [entry] = store.list()
    assert store.read_range(entry.key, 0, 2, entry) == b"ab"
    assert store.size("a") == 3
    assert len(sent) >= 4
    assert set(sent) == {b"requester"}
    with pytest.raises(StorageError, match=r"/pool/a has no link: its reader pays; send copies"):
        store.link("a", 60)


def test_a_store_below_keeps_its_access() -> None:
    assert open_store("s3://lake/pool", access="anonymous").store("day=1") == S3Store(
        "lake", "pool/day=1/", "anonymous"
    )
