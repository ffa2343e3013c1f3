"""One audit through every door to a lake: from one spec, whose pool alone differs, with one and the same estimate."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import azurite
import boto3
import deltalake
import numpy as np
import pyarrow as pa
import pytest
from catalog_server import CatalogServer
from local_s3 import LocalS3
from pyarrow.fs import AzureFileSystem
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.sql import SqlCatalog
from tables import parquet

from opacc_ray.audit import accuracy
from opacc_ray.cli.main import main
from opacc_ray.labels.label_actions import import_labels
from opacc_ray.lake.store_uris import open_store
from opacc_ray.runs.run import Run

N, CLASSES = 400, ["cat", "dog"]
RNG = np.random.default_rng(3)
TRUTH = RNG.integers(0, 2, N)
SURE = RNG.uniform(0.5, 1, N)
SAID = np.where(RNG.random(N) < SURE, TRUTH, 1 - TRUTH)
ROWS = pa.table({"id": [f"x{i:03d}" for i in range(N)], "said": SAID, "sure": SURE})
DOORS = ["anonymous", "gs", "abfss", "rest", "rest with keys", "glue", "unity"]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def pool(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    s3: LocalS3,
    bucket: str,
    monkeypatch: pytest.MonkeyPatch,
    stack: ExitStack,
) -> dict[str, Any]:
    """The section ``pool`` of the spec for a door, behind which the rows are."""
    door, data = request.param, parquet(ROWS, row_group_size=100)
    if door in ("rest", "rest with keys", "unity"):
        return catalogued(door, tmp_path, s3, bucket, monkeypatch, stack)
    if door == "glue":
        return in_glue(request.getfixturevalue("moto_endpoint"), monkeypatch)
    if door == "abfss":
        environment = request.getfixturevalue("azure_environment")
        place = f"{azurite.PLACE}/{secrets.token_hex(4)}"
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        host = environment["AZURE_STORAGE_ENDPOINT"].removeprefix("http://")
        named = {f"{kind}_storage_{key}": value for kind in ("blob", "dfs") for key, value in
                 (("authority", host), ("scheme", "http"))}  # fmt: skip
        files = AzureFileSystem("devstoreaccount1", account_key=environment["AZURE_STORAGE_ACCOUNT_KEY"], **named)
        with files.open_output_stream(f"lake/{place.rpartition('/')[2]}/part-0.parquet") as stream:
            stream.write(data)
        return {"uri": place}
    if door == "anonymous":
        endpoint, name = request.getfixturevalue("moto_endpoint"), bucket.removeprefix("s3://")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        client = boto3.client("s3", endpoint_url=endpoint)
        client.create_bucket(Bucket=name)
        client.put_object(Bucket=name, Key="pool/part-0.parquet", Body=data, ACL="public-read")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        return {"uri": f"{bucket}/pool", "access": door}
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("gcs_endpoint"))
    place = f"gs://lake/{secrets.token_hex(4)}"
    open_store(place).write("part-0.parquet", data)
    return {"uri": place}


def catalogued(
    door: str, home: Path, s3: LocalS3, bucket: str, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> dict[str, Any]:
    """A table in a catalog; unless it has keys, the environment has no credentials, and the catalog vends them."""
    keys = {"s3.endpoint": s3.endpoint, "s3.access-key-id": s3.access_key, "s3.secret-access-key": s3.secret_key}
    own = SqlCatalog("own", uri=f"sqlite:///{home}/catalog.db", warehouse=f"{bucket}/warehouse", **keys)
    server = stack.enter_context(CatalogServer(lambda: (s3.access_key, s3.secret_key, 3600), s3.endpoint, own))
    if door == "unity":
        place = f"{bucket}/photos"
        options = {"AWS_ALLOW_HTTP": "true", "AWS_ENDPOINT_URL": s3.endpoint, "AWS_REGION": "us-east-1"}
        options |= {"AWS_ACCESS_KEY_ID": s3.access_key, "AWS_SECRET_ACCESS_KEY": s3.secret_key}
        deltalake.write_deltalake(place, ROWS, storage_options=options)
        server.delta["main.db.photos"] = place
        monkeypatch.setenv("DATABRICKS_HOST", server.endpoint)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        return {"catalog": "unity", "table": "main.db.photos", "wanted": "delta"}
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")  # for rclone, as a writer
    own.create_namespace("db")
    own.create_table("db.photos", ROWS.schema).append(ROWS)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", server.endpoint)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", server.token)
    if door == "rest with keys":
        monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__HEADER.X-ICEBERG-ACCESS-DELEGATION", "")
    else:
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "ENDPOINT_URL", "ENDPOINT_URL_S3"):
            monkeypatch.delenv(f"AWS_{name}")
    return {"catalog": "lake", "table": "db.photos", "wanted": "iceberg"}


def in_glue(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_GLUE"):
        monkeypatch.setenv(name, endpoint)
    name = f"glue-{secrets.token_hex(4)}"
    boto3.client("s3").create_bucket(Bucket=name)
    glue = GlueCatalog("own", **{"s3.endpoint": endpoint, "warehouse": f"s3://{name}/warehouse"})
    glue.create_namespace(name)
    glue.create_table(f"{name}.photos", ROWS.schema).append(ROWS)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "glue")
    return {"catalog": "lake", "table": f"{name}.photos", "wanted": "iceberg"}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, ...]:
    """What the audit of a local folder draws and states."""
    home = tmp_path_factory.mktemp("local")
    open_store(str(home / "pool")).write("part-0.parquet", parquet(ROWS, row_group_size=100))
    return audited(home, {"uri": str(home / "pool")}, "features")


def audited(home: Path, pool: dict[str, Any], format: str) -> tuple[Any, ...]:
    """The chosen ids and the estimate of an audit, checked and run from its spec, then labelled."""
    columns = {"id": "id", "prediction": "said", "confidence": "sure"}
    keys = "".join(f"  {key}: {value}\n" for key, value in (pool | {"format": format, "columns": columns}).items())
    (home / "spec.yaml").write_text(
        f"name: door\npool:\n{keys}model: {{classes: [cat, dog]}}\nsample: {{method: neyman, budget: 60}}\n"
        f"output: {home}/audits\n"
    )
    assert main(["check", str(home / "spec.yaml")]) == 0
    assert main(["run", str(home / "spec.yaml")]) == 0
    [place] = (home / "audits").glob("door-*")
    run = Run.open(str(place))
    ids = run.read_selection(1).ids
    rows = "".join(f"{id},{CLASSES[TRUTH[int(id[1:])]]}\n" for id in ids)
    import_labels(run, "labels.csv", f"id,label\n{rows}".encode())
    stated = accuracy.estimate(run)
    assert stated.objects is not None
    assert (stated.objects.reason, stated.objects.unknown, stated.objects.changed) == (None, 0, 0)
    return ids, stated.value, stated.low, stated.high, stated.pool_size


@pytest.mark.parametrize("pool", DOORS, indirect=True)
def test_an_audit_is_the_same_through_every_door(
    pool: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path
) -> None:
    assert audited(tmp_path, pool, pool.pop("wanted", "features")) == expected
