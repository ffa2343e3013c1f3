"""Tables of the tests' pools: Parquet files in a store."""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from opacc_ray.errors import DataError
from opacc_ray.lake.examples import BadItem, Columns, Example, Rules
from opacc_ray.lake.pools import DEFAULTS, plan_shards, read_examples, read_rows
from opacc_ray.lake.store_uris import Store

X = Rules(columns=Columns(id="id", array=("x",)))


def parquet(table: pa.Table, **options: Any) -> bytes:
    """The content of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def read_pool(
    store: Store, kind: str, rules: Rules = DEFAULTS, shard_size: int = 100
) -> tuple[list[Example], list[BadItem]]:
    """The examples and the bad items of a whole pool."""
    shards = plan_shards(store, kind, shard_size, rules=rules).shards
    items = [item for shard in shards for item in read_examples(store, kind, shard, rules)]
    return [item for item in items if isinstance(item, Example)], [item for item in items if isinstance(item, BadItem)]


def read_ids(store: Store, kind: str, rules: Rules = X) -> list[int]:
    """The sorted ids of a pool without bad items; each is the number that its array begins with."""
    found, bad = read_pool(store, kind, rules)
    assert not bad
    assert all(float(example.id) == example.array.ravel()[0] for example in found)
    return sorted(int(example.id) for example in found)


def read_table(store: Store, kind: str, rules: Rules, shard_size: int = 100) -> list[dict[str, Any]]:
    """The rows of a table that the filter keeps, with the columns of the rules."""
    shards = plan_shards(store, kind, shard_size, rules=rules).shards
    batches = (batch for shard in shards for batch in read_rows(store, kind, shard, rules))
    return [row for batch in batches for row in batch.columns.to_pylist()]


def refusal(store: Store, kind: str, rules: Rules) -> str:
    """The sentence with which a plan refuses a pool."""
    try:
        plan_shards(store, kind, 100, rules=rules)
    except DataError as error:
        return str(error)
    raise AssertionError("it was planned")
