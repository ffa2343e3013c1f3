"""Bytes of a filtered table, counted at the S3 server."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from local_s3 import LocalS3
from s3_proxies import CountingProxy
from tables import parquet, read_table

from opacc_ray.lake import parquet_io
from opacc_ray.lake.examples import Columns, Rules
from opacc_ray.lake.store_uris import open_store

GROUP = 200  # rows


@pytest.fixture
def door(s3: LocalS3, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountingProxy]:
    with CountingProxy(s3.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.endpoint)
        monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
        yield proxy


def rows(start: int, stop: int, columns: int) -> pa.Table:
    """Rows of random numbers, whose hour rises by one every ``GROUP`` rows."""
    rng, number = np.random.default_rng(start), np.arange(start, stop)
    named = {f"c{column}": rng.random(len(number), dtype=np.float32) for column in range(columns)}
    return pa.table({"id": number, "hour": number // GROUP, "conf": rng.random(len(number)), **named})


class Read(NamedTuple):
    """What came from the server."""

    num_bytes: int
    ids: list[int]


def read(door: CountingProxy, uri: str, text: str) -> Read:
    rules = Rules(columns=Columns(id="id", features=(("confidence", ("conf",)),)), filter=text)
    parquet_io._kept.clear()  # as in a new process
    door.reset()
    ids = [row["id"] for row in read_table(open_store(uri), "parquet", rules, 1000)]
    return Read(door.total(r"\.parquet$"), sorted(ids))


@pytest.mark.slow
def test_bytes_are_linear_in_row_groups(bucket: str, door: CountingProxy) -> None:
    """The footer of a file is read once, however many shards there are."""
    store = open_store(f"{bucket}/t")
    store.write("a.parquet", parquet(rows(0, 1000 * GROUP, 30), row_group_size=GROUP))
    [entry] = store.list()
    footer = parquet_io.read_footer(store, "a.parquet").metadata.serialized_size
    assert footer > 1 << 20
    few = read(door, store.uri, "hour = 77")
    assert len(few.ids) == GROUP
    assert few.num_bytes < 1.2 * footer
    several = read(door, store.uri, "hour >= 900")
    assert len(several.ids) == 100 * GROUP
    assert several.num_bytes < 1.2 * footer + entry.size / 10 / 4
