"""Bytes of filtered tables, counted at the S3 server: of pools, and as pyarrow.dataset reads the same files."""

import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.fs as fs
import pytest
from local_s3 import LocalS3
from s3_proxies import CountingProxy
from tables import parquet, read_table

from opacc_ray.lake import parquet_io
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.store_uris import open_store

GROUP = 200  # rows
NOON = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def door(s3: LocalS3, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        yield proxy


def rows(start: int, stop: int, columns: int = 12) -> pa.Table:
    """Rows of random numbers, whose hour rises by one every ``GROUP`` rows, and so does its time."""
    rng, number = np.random.default_rng(start), np.arange(start, stop)
    named = {f"c{column}": rng.normal(size=len(number)) for column in range(columns)}
    hours = number // GROUP
    times = pa.array([NOON + datetime.timedelta(hours=int(hour)) for hour in hours], pa.timestamp("us", "UTC"))
    return pa.table({"id": number, "hour": hours, "time": times, "conf": rng.random(len(number)), **named})


class Read(NamedTuple):
    """What came from the server."""

    num_bytes: int
    ids: list[int]


def of_pool(door: CountingProxy, kind: str, uri: str, text: str) -> Read:
    rules = Rules(columns=Columns(id="id", features=(("confidence", ("conf",)),)), filter=text)
    parquet_io._kept.clear()  # as in a new process
    door.reset()
    ids = [row["id"] for row in read_table(open_store(uri), kind, rules, 1000)]
    return Read(door.total(r"\.parquet$"), sorted(ids))


def of_dataset(door: CountingProxy, s3: LocalS3, files: Sequence[str], condition: Any) -> Read:
    system = fs.S3FileSystem(
        access_key=s3.access_key, secret_key=s3.secret_key, endpoint_override=door.endpoint, region="us-east-1"
    )
    door.reset()
    keys, hive = [file.removeprefix("s3://") for file in files], dataset.partitioning(flavor="hive")
    table = dataset.dataset(keys, filesystem=system, partitioning=hive).to_table(
        columns=["id", "conf"], filter=condition
    )
    return Read(door.total(r"\.parquet$"), sorted(table["id"].to_pylist()))


def one_file(uri: str) -> str:
    open_store(uri).write("a.parquet", parquet(rows(0, 100 * GROUP), row_group_size=GROUP))
    return "parquet"


def many_files(uri: str) -> str:
    written = ((f"{start:05}.parquet", parquet(rows(start, start + GROUP))) for start in range(0, 100 * GROUP, GROUP))
    open_store(uri).write_many(written)
    return "parquet"


HOUR = dataset.field("hour") == 77


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "text", "condition", "kept"),
    [
        (one_file, "hour = 77", HOUR, 1),
        (one_file, "hour between 3 and 4 and conf < 2", dataset.field("hour").isin([3, 4]), 2),
        (one_file, "conf > 0.99", dataset.field("conf") > 0.99, None),
        (many_files, "hour = 77", HOUR, 1),
    ],
)
def test_a_filter_reads_no_more_than_pyarrow_does(
    write: Callable[[str], str],
    text: str,
    condition: Any,
    kept: int | None,
    bucket: str,
    s3: LocalS3,
    door: CountingProxy,
) -> None:
    kind = write(f"{bucket}/t")
    store = open_store(f"{bucket}/t")
    files = [store.uri_of(entry.key) for entry in store.list() if entry.key.endswith(".parquet")]
    found, wanted = of_pool(door, kind, store.uri, text), of_dataset(door, s3, files, condition)
    assert found.ids == wanted.ids
    assert kept is None or len(found.ids) == kept * GROUP
    assert 0 < found.num_bytes <= 1.5 * wanted.num_bytes


@pytest.mark.slow
def test_bytes_are_linear_in_row_groups(bucket: str, door: CountingProxy) -> None:
    """The footer of a file is read once, however many shards there are."""
    store = open_store(f"{bucket}/t")
    store.write("a.parquet", parquet(rows(0, 1000 * GROUP, 30), row_group_size=GROUP))
    [entry] = store.list()
    footer = parquet_io.read_footer(store, "a.parquet").metadata.serialized_size
    assert footer > 1 << 20
    few = of_pool(door, "parquet", store.uri, "hour = 77")
    assert len(few.ids) == GROUP
    assert few.num_bytes < 1.2 * footer
    several = of_pool(door, "parquet", store.uri, "hour >= 900")
    assert len(several.ids) == 100 * GROUP
    assert several.num_bytes < 1.2 * footer + entry.size / 10 / 4
